// SPDX-License-Identifier: GPL-2.0-only
/* What all parts share: frames, settings, notes; and the choice between them. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest.h"

char *buffer_reserve(struct buffer *buffer, size_t size)
{
	if (buffer->start && buffer->end + size > buffer->room) {
		memmove(buffer->bytes, buffer->bytes + buffer->start,
			buffer_size(buffer));
		buffer->end -= buffer->start;
		buffer->start = 0;
	}
	if (buffer->end + size > buffer->room) {
		buffer->room = 2 * (buffer->end + size);
		buffer->bytes = realloc(buffer->bytes, buffer->room);
		if (!buffer->bytes)
			abort();
	}
	return buffer->bytes + buffer->end;
}

void buffer_add(struct buffer *buffer, const void *bytes, size_t size)
{
	memcpy(buffer_reserve(buffer, size), bytes, size);
	buffer->end += size;
}

void buffer_consume(struct buffer *buffer, size_t size)
{
	buffer->start += size;
	if (buffer->start == buffer->end)
		buffer->start = buffer->end = 0;
}

void buffer_free(struct buffer *buffer)
{
	free(buffer->bytes);
	*buffer = (struct buffer){ 0 };
}

void frame_add(struct buffer *buffer, uint8_t type, uint32_t id,
	       const void *data, size_t size)
{
	struct frame head = { .type = type, .id = id, .length = size };

	buffer_add(buffer, &head, sizeof(head));
	if (size)
		buffer_add(buffer, data, size);
}

void frame_add_number(struct buffer *buffer, uint8_t type, uint32_t id,
		      uint32_t number)
{
	frame_add(buffer, type, id, &number, sizeof(number));
}

uint32_t frame_number(const struct frame *frame)
{
	uint32_t number = 0;

	if (frame->length >= sizeof(number))
		memcpy(&number, frame->data, sizeof(number));
	return number;
}

struct frame *frame_first(const struct buffer *buffer)
{
	struct frame *frame;

	if (buffer_size(buffer) < sizeof(*frame))
		return NULL;
	frame = (struct frame *)(buffer->bytes + buffer->start);
	if (buffer_size(buffer) - sizeof(*frame) < frame->length)
		return NULL;
	return frame;
}

bool buffer_write(struct buffer *buffer, int fd)
{
	while (buffer_size(buffer)) {
		ssize_t done = write(fd, buffer->bytes + buffer->start,
				     buffer_size(buffer));

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return errno == EAGAIN;
		buffer_consume(buffer, done);
	}
	return true;
}

bool buffer_read(struct buffer *buffer, int fd)
{
	for (;;) {
		size_t most = 64 << 10;
		ssize_t done = read(fd, buffer_reserve(buffer, most), most);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return errno == EAGAIN;
		buffer->end += done;
		return done > 0;
	}
}

const char *setting(const char *name)
{
	static char text[64 << 10];
	size_t length = strlen(name);
	char *line;

	if (!text[0]) {
		int fd = open("/config", O_RDONLY | O_CLOEXEC);
		ssize_t size = read(fd, text, sizeof(text) - 1);

		close(fd);
		for (ssize_t i = 0; i < size; i++)
			if (text[i] == '\n')
				text[i] = 0;
	}
	for (line = text; *line; line += strlen(line) + 1)
		if (!strncmp(line, name, length) && line[length] == '=')
			return line + length + 1;
	return NULL;
}

void note(const char *format, ...)
{
	static int log = -1;
	char text[900];
	int size = snprintf(text, sizeof(text), "<6>guest: ");
	va_list list;

	if (log < 0)
		log = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	va_start(list, format);
	size += vsnprintf(text + size, sizeof(text) - size, format, list);
	va_end(list);
	/* Without its newline a record stays open for more, and nobody gets to see it. */
	if (size >= (int)sizeof(text))
		size = sizeof(text) - 1;
	text[size++] = '\n';
	if (write(log, text, size) < 0)
		return;
}

static int open_port(void)
{
	/* The port appears when the driver has heard of it from the host. */
	for (int tries = 0; tries < 60000; tries++) {
		int port = open("/dev/vport0p1",
				O_RDWR | O_NONBLOCK | O_CLOEXEC);

		if (port >= 0)
			return port;
		usleep(5000);
	}
	note("there is no virtio-serial port");
	abort();
}

int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/');
	int port;

	if (!strcmp(name ? name + 1 : argv[0], "peer"))
		return peer(argc, argv);
	if (getpid() != 1) {
		fprintf(stderr, "this is the first process of a test guest\n");
		return 125;
	}
	umask(022);
	boot(-1);
	port = open_port();
	boot(port);
	agent(port);
}

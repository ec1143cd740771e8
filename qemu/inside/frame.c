// SPDX-License-Identifier: GPL-2.0-only
/* Buffers of bytes received or to be sent, and the frames in them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
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

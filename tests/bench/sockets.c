// SPDX-License-Identifier: GPL-2.0-only
/*
 * One program for every kind of stream socket that is compared: TCP, SDP, by copying or (zcopy) not
 * from 64 KiB, SMC, AF_UNIX, and rsockets, whose library is loaded only when asked for. What differs is the family, or the functions called; nothing else.
 *
 *	sockets SYSTEM serve MODE ADDRESS PORT SIZE CONNECTIONS
 *	sockets SYSTEM drive MODE ADDRESS PORT SIZE CONNECTIONS SECONDS
 *
 * MODE stream: the driver sends messages of SIZE bytes on each connection for SECONDS; the server
 *		measures, from the first bytes to the end of the last connection.
 * MODE pong:	messages of SIZE bytes go to and fro; the driver measures.
 * MODE connect: connect, a byte to and fro, close, again and again; the driver measures.
 *
 * The server says "listening" when it is. Both end with one line of JSON.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include "sockets.h"

#define MAX_CONNECTIONS 64

static size_t size;
static int connections;
static double seconds;
static atomic_int stop;

static void *buffer(void)
{
	void *memory = NULL;

	if (posix_memalign(&memory, 4096, size))
		fail("no memory");
	memset(memory, 'x', size);
	return memory;
}
/* --- stream ------------------------------------------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mark first;
static int started;

struct stream {
	int fd;
	unsigned long long bytes;
};

static void *take(void *argument)
{
	struct stream *stream = argument;
	char *data = buffer();
	ssize_t got;

	while ((got = api.recv(stream->fd, data, size, 0)) > 0) {
		if (!stream->bytes) {
			pthread_mutex_lock(&lock);
			if (!started++)
				first = mark();
			pthread_mutex_unlock(&lock);
		}
		stream->bytes += got;
	}
	if (got < 0)
		fail("recv: %s", strerror(errno));
	return NULL;
}

static void *give(void *argument)
{
	struct stream *stream = argument;
	char *data = buffer();

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		send_all(stream->fd, data, size);
		stream->bytes += size;
	}
	if (api.shutdown(stream->fd, SHUT_WR))
		fail("shutdown: %s", strerror(errno));
	/* The other side closes when it has everything. */
	if (api.recv(stream->fd, data, 1, 0) < 0)
		fail("recv: %s", strerror(errno));
	return NULL;
}

static void *clock_of_stream(void *unused)
{
	struct timespec span = { seconds, (seconds - (long)seconds) * 1e9 };

	(void)unused;
	nanosleep(&span, NULL);
	atomic_store(&stop, 1);
	return NULL;
}

static unsigned long long all_streams(struct stream *streams, void *(*work)(void *))
{
	pthread_t threads[MAX_CONNECTIONS];
	unsigned long long bytes = 0;
	int i;

	for (i = 0; i < connections; i++)
		if (pthread_create(&threads[i], NULL, work, &streams[i]))
			fail("cannot start a thread");
	for (i = 0; i < connections; i++) {
		pthread_join(threads[i], NULL);
		bytes += streams[i].bytes;
	}
	return bytes;
}

static void serve_stream(int listener)
{
	struct stream streams[MAX_CONNECTIONS] = {};
	unsigned long long bytes;
	struct mark end;
	int i;

	for (i = 0; i < connections; i++) {
		streams[i].fd = api.accept(listener, NULL, NULL);
		if (streams[i].fd < 0)
			fail("accept: %s", strerror(errno));
	}
	bytes = all_streams(streams, take);
	end = mark();
	if (!bytes)
		fail("nothing came");
	printf("{\"bytes\": %llu, ", bytes);
	print_span(first, end);
	puts("}");
	for (i = 0; i < connections; i++)
		api.close(streams[i].fd);
}

static void drive_stream(void)
{
	struct stream streams[MAX_CONNECTIONS] = {};
	unsigned long long bytes;
	struct mark start;
	pthread_t timer;
	int i;

	for (i = 0; i < connections; i++)
		streams[i].fd = new_connection();
	start = mark();
	if (pthread_create(&timer, NULL, clock_of_stream, NULL))
		fail("cannot start a thread");
	bytes = all_streams(streams, give);
	printf("{\"bytes\": %llu, ", bytes);
	print_span(start, mark());
	puts("}");
	for (i = 0; i < connections; i++)
		api.close(streams[i].fd);
}

/* --- pong and connect -------------------------------------------------------------------------- */

static void serve_pong(int listener)
{
	char *data = buffer();
	int fd = api.accept(listener, NULL, NULL);
	struct mark start = mark();

	if (fd < 0)
		fail("accept: %s", strerror(errno));
	no_delay(fd);
	while (recv_all(fd, data, size))
		send_all(fd, data, size);
	printf("{");
	print_span(start, mark());
	puts("}");
	api.close(fd);
}

static void drive_pong(void)
{
	float *times = malloc(MAX_TIMES * sizeof(*times));
	char *data = buffer();
	int fd = new_connection(), i, count = 0, warm = 20;
	double last, time;
	struct mark start, end;

	if (!times)
		fail("no memory");
	no_delay(fd);
	for (i = 0; i < warm; i++) {
		send_all(fd, data, size);
		if (!recv_all(fd, data, size))
			fail("the server is gone");
	}
	start = mark();
	last = now();
	while (count < MAX_TIMES && last - start.time < seconds) {
		send_all(fd, data, size);
		if (!recv_all(fd, data, size))
			fail("the server is gone");
		time = now();
		times[count++] = time - last;
		last = time;
	}
	end = mark();
	api.shutdown(fd, SHUT_WR);
	printf("{");
	print_round_trips(times, count);
	print_span(start, end);
	puts("}");
	api.recv(fd, data, 1, 0);
	api.close(fd);
}

static void serve_connect(int listener)
{
	struct mark start = {};
	int count = 0, last = 0;
	char byte;

	/* The last connection carries another byte than the others. */
	while (!last) {
		int fd = api.accept(listener, NULL, NULL);

		if (fd < 0)
			fail("accept: %s", strerror(errno));
		if (!count++)
			start = mark();
		if (recv_all(fd, &byte, 1)) {
			last = byte == 'l';
			send_all(fd, &byte, 1);
			api.recv(fd, &byte, 1, 0);
		}
		api.close(fd);
	}
	printf("{\"count\": %d, ", count);
	print_span(start, mark());
	puts("}");
}

static void drive_connect(void)
{
	struct mark start = mark();
	int count = 0, last = 0;

	while (!last) {
		int fd = new_connection();
		char byte;

		last = now() - start.time >= seconds;
		send_all(fd, last ? "l" : "x", 1);
		if (!recv_all(fd, &byte, 1))
			fail("the server is gone");
		api.close(fd);
		count++;
	}
	printf("{\"count\": %d, ", count);
	print_span(start, mark());
	puts("}");
}

/* ----------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
	int serving, listener;
	const char *mode;

	if (argc < 8)
		fail("usage: sockets SYSTEM serve|drive MODE ADDRESS PORT SIZE CONNECTIONS [SECONDS]");
	serving = !strcmp(argv[2], "serve");
	if (!serving && (strcmp(argv[2], "drive") || argc < 9))
		fail("serve, or drive with SECONDS");
	choose(argv[1]);
	zcopy_from = strcmp(argv[1], "zcopy") ? 0 : 65536;
	mode = argv[3];
	name_address(argv[4], argv[5]);
	size = strtoul(argv[6], NULL, 10);
	connections = atoi(argv[7]);
	if (!size || connections < 1 || connections > MAX_CONNECTIONS)
		fail("SIZE is at least 1, CONNECTIONS 1 to %d", MAX_CONNECTIONS);
	if (!serving) {
		seconds = atof(argv[8]);
		if (!strcmp(mode, "stream"))
			drive_stream();
		else if (!strcmp(mode, "pong"))
			drive_pong();
		else if (!strcmp(mode, "connect"))
			drive_connect();
		else
			fail("no mode is called %s", mode);
		return 0;
	}
	listener = new_listener();
	if (!strcmp(mode, "stream"))
		serve_stream(listener);
	else if (!strcmp(mode, "pong"))
		serve_pong(listener);
	else if (!strcmp(mode, "connect"))
		serve_connect(listener);
	else
		fail("no mode is called %s", mode);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/* Streams of messages on one or more connections, and the parameters of a run of
 * tests/bench/sockets.c. */
#ifndef BENCH_STREAM_H
#define BENCH_STREAM_H

#include <pthread.h>
#include <stdatomic.h>
#include "sockets.h"

#define MAX_CONNECTIONS 64
#define MAX_PIECES 64

static int connections, fan_in, fan_out;
static double seconds;
static unsigned long steps;
static int touch_after, pieces = 1, apart = 4096;
static atomic_int stop;

static void *buffer(void)
{
	void *memory = NULL;

	if (posix_memalign(&memory, 4096, size + pieces * apart))
		fail("no memory");
	memset(memory, 'x', size + pieces * apart);
	return memory;
}

static void compute(unsigned long steps)
{
	unsigned long value = steps;

	while (steps--) {
		value = value * 6364136223846793005UL + 1442695040888963407UL;
		__asm__ volatile("" : "+r"(value));
	}
}

/* --- stream ------------------------------------------------------------------------------------
 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mark first;
static size_t first_bytes;
static int started;

struct stream {
	int fd;
	unsigned long long bytes;
};

/* Receives the available bytes, or waits for some. Returns false at the end of the stream. */
static int take_some(struct stream *stream, char *data)
{
	ssize_t got = api.recv(stream->fd, data, size, 0);

	if (got < 0)
		fail("recv: %s", strerror(errno));
	if (got && !stream->bytes) {
		pthread_mutex_lock(&lock);
		if (!started++) {
			first = mark();
			first_bytes = got;
		}
		pthread_mutex_unlock(&lock);
	}
	stream->bytes += got;
	return got > 0;
}

static void *take(void *stream)
{
	char *data = buffer();

	while (take_some(stream, data))
		;
	return NULL;
}

static void take_from_all(struct stream *streams)
{
	struct pollfd polled[MAX_CONNECTIONS];
	char *data = buffer();
	int i, left = connections;

	for (i = 0; i < connections; i++)
		polled[i] = (struct pollfd){ .fd = streams[i].fd, .events = POLLIN };
	while (left) {
		if (poll(polled, connections, -1) < 0)
			fail("poll: %s", strerror(errno));
		for (i = 0; i < connections; i++)
			if (polled[i].revents && !take_some(&streams[i], data)) {
				polled[i].fd = -1;
				left--;
			}
	}
}

static void send_message(struct stream *stream, char *data)
{
	struct iovec vector[MAX_PIECES];
	struct msghdr message = { .msg_iov = vector, .msg_iovlen = pieces };
	ssize_t done = 0;
	int i;

	stream->bytes += size;
	if (pieces == 1) {
		send_all(stream->fd, data, size);
		return;
	}
	for (i = 0; i < pieces; i++)
		vector[i] = (struct iovec){ data + i * (size / pieces + apart), size / pieces };
	if (by_ring) {
		ring_send(stream->fd, &message, size);
		return;
	}
	done = sendmsg(stream->fd, &message, MSG_NOSIGNAL | (notified ? MSG_ZEROCOPY : 0));
	if (done < 0)
		fail("sendmsg: %s", strerror(errno));
	if (notified) {
		untold++;
		take_notices(stream->fd);
	}
	for (i = 0; i < pieces; i++) {
		size_t gone = (size_t)done < vector[i].iov_len ? (size_t)done : vector[i].iov_len;

		done -= gone;
		send_all(stream->fd, (char *)vector[i].iov_base + gone, vector[i].iov_len - gone);
	}
}

/* Marks the end of the stream. */
static void say_end(struct stream *stream)
{
	if (api.shutdown(stream->fd, SHUT_WR))
		fail("shutdown: %s", strerror(errno));
}

/* Waits until the other side has received all bytes of all streams, when it closes them. */
static void await_close(struct stream *streams)
{
	char byte;
	int i;

	for (i = 0; i < connections; i++)
		if (api.recv(streams[i].fd, &byte, 1, 0) < 0)
			fail("recv: %s", strerror(errno));
}

static void *give(void *argument)
{
	struct stream *stream = argument;
	char *data = buffer();
	int sent = 0;

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		send_message(stream, data);
		if (touch_after && ++sent % touch_after == 0) {
			settle(stream->fd);
			*(volatile char *)data = 'y';
		}
		compute(steps);
	}
	say_end(stream);
	return NULL;
}

static void give_to_all(struct stream *streams)
{
	char *data = buffer();
	int i;

	while (!atomic_load_explicit(&stop, memory_order_relaxed))
		for (i = 0; i < connections; i++)
			send_message(&streams[i], data);
	for (i = 0; i < connections; i++)
		say_end(&streams[i]);
}

static void *clock_of_stream(void *unused)
{
	struct timespec span = { seconds, (seconds - (long)seconds) * 1e9 };

	(void)unused;
	nanosleep(&span, NULL);
	atomic_store(&stop, 1);
	return NULL;
}

static void each_by_a_thread(void *(*work)(void *), char *first, size_t length)
{
	pthread_t threads[MAX_CONNECTIONS];
	int i;

	for (i = 0; i < connections; i++)
		if (pthread_create(&threads[i], NULL, work, first + i * length))
			fail("cannot start a thread");
	for (i = 0; i < connections; i++)
		pthread_join(threads[i], NULL);
}

static void print_bytes(struct stream *streams)
{
	unsigned long long bytes = 0;
	int i;

	for (i = 0; i < connections; i++)
		bytes += streams[i].bytes;
	printf("{\"bytes\": %llu, \"first\": %zu, ", bytes, first_bytes);
}

static void serve_stream(int listener)
{
	struct stream streams[MAX_CONNECTIONS] = {};
	struct mark end;
	int i;

	for (i = 0; i < connections; i++) {
		streams[i].fd = api.accept(listener, NULL, NULL);
		if (streams[i].fd < 0)
			fail("accept: %s", strerror(errno));
	}
	if (fan_in)
		take_from_all(streams);
	else
		each_by_a_thread(take, (char *)streams, sizeof(*streams));
	end = mark();
	if (!started)
		fail("nothing came");
	print_bytes(streams);
	print_span(first, end);
	puts("}");
	for (i = 0; i < connections; i++)
		api.close(streams[i].fd);
}

static void drive_stream(void)
{
	struct stream streams[MAX_CONNECTIONS] = {};
	struct mark start;
	pthread_t timer;
	int i;

	for (i = 0; i < connections; i++)
		streams[i].fd = new_connection();
	start = mark();
	if (pthread_create(&timer, NULL, clock_of_stream, NULL))
		fail("cannot start a thread");
	if (fan_out)
		give_to_all(streams);
	else
		each_by_a_thread(give, (char *)streams, sizeof(*streams));
	await_close(streams);
	print_bytes(streams);
	print_span(start, mark());
	puts("}");
	for (i = 0; i < connections; i++)
		api.close(streams[i].fd);
}

/* Returns the steps per second: the best of a few attempts, because other tasks may disturb each.
 */
static void measure_compute(void)
{
	const unsigned long some = 1000000;
	double best = 0;
	int i;

	for (i = 0; i < 10; i++) {
		double start = now(), span;

		compute(some);
		span = now() - start;
		if (span > 0 && some / span > best)
			best = some / span;
	}
	printf("{\"per_second\": %.0f}\n", best);
}
#endif

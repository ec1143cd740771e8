// SPDX-License-Identifier: GPL-2.0-only
/* A proxy between two connections of one server. */
#ifndef BENCH_PROXY_H
#define BENCH_PROXY_H

#include <fcntl.h>
#include "stream.h"

static int by_pipe;

static void *await_stop(void *fd)
{
	char byte;

	recv_all(*(int *)fd, &byte, 1);
	atomic_store(&stop, 1);
	return NULL;
}

/* Sends on the first connection until a byte arrives there, and receives on the second connection.
 * */
static void serve_proxy(int listener)
{
	struct stream source = {}, target = {};
	pthread_t sender, waiter;
	struct mark end;

	source.fd = api.accept(listener, NULL, NULL);
	target.fd = api.accept(listener, NULL, NULL);
	if (source.fd < 0 || target.fd < 0)
		fail("accept: %s", strerror(errno));
	if (pthread_create(&sender, NULL, give, &source) || pthread_create(&waiter, NULL, await_stop, &source.fd))
		fail("cannot start a thread");
	take(&target);
	end = mark();
	pthread_join(sender, NULL);
	pthread_join(waiter, NULL);
	if (!started)
		fail("nothing came");
	print_bytes(&target);
	print_span(first, end);
	puts("}");
	api.close(source.fd);
	api.close(target.fd);
}

static void *stop_source(void *fd)
{
	clock_of_stream(NULL);
	send_all(*(int *)fd, "x", 1);
	return NULL;
}

/* Passes some bytes on. Returns false at the end of the stream. */
static int pass(int from, struct stream *to, int *ends, char *data)
{
	ssize_t got = by_pipe ? splice(from, NULL, ends[1], NULL, size, 0) : api.recv(from, data, size, 0);
	ssize_t left, done;

	if (got < 0)
		fail("the proxy receives: %s", strerror(errno));
	to->bytes += got;
	if (!by_pipe)
		send_all(to->fd, data, got);
	for (left = by_pipe ? got : 0; left; left -= done) {
		done = splice(ends[0], NULL, to->fd, NULL, left, 0);
		if (done <= 0)
			fail("the proxy sends: %s", strerror(errno));
	}
	return got > 0;
}

static void drive_proxy(void)
{
	struct stream target = {};
	char *data = buffer();
	struct mark start;
	pthread_t timer;
	int ends[2], source;

	source = new_connection();
	target.fd = new_connection();
	if (pipe(ends) || fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) < 0)
		fail("pipe: %s", strerror(errno));
	start = mark();
	if (pthread_create(&timer, NULL, stop_source, &source))
		fail("cannot start a thread");
	while (pass(source, &target, ends, data))
		;
	say_end(&target);
	await_close(&target);
	print_bytes(&target);
	print_span(start, mark());
	puts("}");
	pthread_join(timer, NULL);
	api.close(source);
	api.close(target.fd);
}
#endif

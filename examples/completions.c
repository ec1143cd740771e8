// SPDX-License-Identifier: GPL-2.0-only
/*
 * Echo server whose sends and receives complete while the program continues. A thread for each
 * direction of a connection waits in send(2) or recv(2), where large messages need no copy, and
 * completes into one queue with an eventfd(2). The client measures round trips, with completions of
 * its receives or with plain receives.
 *
 *	cc -pthread -I../include/uapi -o completions completions.c
 *	./completions 7777
 *	./completions 192.0.2.1 7777 1048576 100 [plain]
 */
#include <err.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "sdp.h"

#define RECEIVES 4		/* posted receives of a connection */
#define SIZE (1 << 20)		/* bytes of each */

/* --- The recipe --- */

/* A send or receive operation. The thread owns the operation's memory until the program takes the
 * operation as completed. */
struct operation {
	struct connection *on;
	struct operation *next;
	bool is_send;
	char *data;		/* NULL ends the thread */
	size_t size;
	int flags;		/* of recv(2) */
	ssize_t result;		/* bytes, 0 at the end of the stream, or a negative errno */
};

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct operation *first, **last;
};

struct connection {
	int fd, open;		/* operations that have not completed */
	struct queue posted[2];	/* receives, sends */
	pthread_t thread[2];
	struct operation end[2], receives[RECEIVES];
};

static struct queue completed;
static int event;		/* readable while there are completed operations */

static void start(struct queue *queue)
{
	pthread_mutex_init(&queue->lock, NULL);
	pthread_cond_init(&queue->filled, NULL);
	queue->last = &queue->first;
}

static void put(struct queue *queue, struct operation *one)
{
	one->next = NULL;
	pthread_mutex_lock(&queue->lock);
	*queue->last = one;
	queue->last = &one->next;
	pthread_mutex_unlock(&queue->lock);
	pthread_cond_signal(&queue->filled);
}

static struct operation *take(struct queue *queue, bool wait)
{
	struct operation *one;

	pthread_mutex_lock(&queue->lock);
	while (wait && !queue->first)
		pthread_cond_wait(&queue->filled, &queue->lock);
	one = queue->first;
	if (one) {
		queue->first = one->next;
		if (!queue->first)
			queue->last = &queue->first;
	}
	pthread_mutex_unlock(&queue->lock);
	return one;
}

static void *work(void *posted)
{
	struct operation *one;

	while ((one = take(posted, true))->data) {
		if (one->is_send)
			one->result = send(one->on->fd, one->data, one->size, MSG_NOSIGNAL);
		else
			one->result = recv(one->on->fd, one->data, one->size, one->flags);
		if (one->result < 0)
			one->result = -errno;
		put(&completed, one);
		eventfd_write(event, 1);
	}
	return NULL;
}

static void post(struct operation *one, bool is_send, size_t size)
{
	one->is_send = is_send;
	one->size = size;
	put(&one->on->posted[is_send], one);
}

static struct connection *connection_of(int fd)
{
	struct connection *new = calloc(1, sizeof(*new));
	sigset_t all, before;

	if (!new)
		err(1, "connection");
	new->fd = fd;
	/* Only the program's own thread gets signals, so they interrupt no send or receive. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (int i = 0; i < 2; i++) {
		start(&new->posted[i]);
		if (pthread_create(&new->thread[i], NULL, work, &new->posted[i]))
			errx(1, "no thread");
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return new;
}

/* Ends the threads. Receives that are still posted complete first: shutdown(2) ends each with 0. */
static void end(struct connection *old)
{
	shutdown(old->fd, SHUT_RD);
	for (int i = 0; i < 2; i++) {
		put(&old->posted[i], &old->end[i]);
		pthread_join(old->thread[i], NULL);
	}
	close(old->fd);
	free(old);
}

/* --- A server --- */

static void serve_next(int listener)
{
	int fd = accept(listener, NULL, NULL);
	struct connection *new;

	if (fd < 0)
		err(1, "accept");
	new = connection_of(fd);
	new->open = RECEIVES;
	for (int i = 0; i < RECEIVES; i++) {
		new->receives[i] = (struct operation){ .on = new, .data = aligned_alloc(4096, SIZE) };
		if (!new->receives[i].data)
			err(1, "memory");
		post(&new->receives[i], false, SIZE);
	}
	puts("connection");
	fflush(stdout);
}

/* Sends received bytes back. Afterwards posts the same memory again. */
static void complete(struct operation *one)
{
	if (one->result > 0) {
		post(one, !one->is_send, one->is_send ? SIZE : one->result);
		return;
	}
	free(one->data);
	if (!--one->on->open)
		end(one->on);
}

static void serve(int port)
{
	struct sockaddr_in6 addr = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	int on = 1, epoll = epoll_create1(0), listener = socket(AF_INET6, SOCK_STREAM, IPPROTO_SDP);
	struct operation *one;
	eventfd_t count;

	if (listener < 0)
		err(1, "socket: is the module ib_sdp installed?");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listener, (struct sockaddr *)&addr, sizeof(addr)) || listen(listener, 128))
		err(1, "port %d", port);
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &(struct epoll_event){ EPOLLIN, { .fd = listener } }) ||
	    epoll_ctl(epoll, EPOLL_CTL_ADD, event, &(struct epoll_event){ EPOLLIN, { .fd = event } }))
		err(1, "epoll");
	printf("listening on port %d\n", port);
	fflush(stdout);
	for (;;) {
		struct epoll_event found;

		if (epoll_wait(epoll, &found, 1, -1) < 1)
			continue;
		if (found.data.fd == listener) {
			serve_next(listener);
			continue;
		}
		eventfd_read(event, &count);
		while ((one = take(&completed, false)))
			complete(one);
	}
}

/* --- A client --- */

static int connected(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found;
	int wrong = getaddrinfo(host, port, &hints, &found), fd;

	if (wrong)
		errx(1, "%s: %s", host, gai_strerror(wrong));
	fd = socket(found->ai_family, SOCK_STREAM, IPPROTO_SDP);
	if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen))
		err(1, "%s port %s", host, port);
	freeaddrinfo(found);
	return fd;
}

static ssize_t received(struct operation *one, bool plain)
{
	eventfd_t count;

	if (plain)
		return recv(one->on->fd, one->data, one->size, one->flags);
	eventfd_read(event, &count);
	return take(&completed, false)->result;
}

static void measure(int fd, size_t size, int count, bool plain)
{
	struct connection *on = connection_of(fd);
	char *data = aligned_alloc(4096, SIZE);
	struct operation one = { .on = on, .data = aligned_alloc(4096, SIZE), .size = size, .flags = MSG_WAITALL };
	struct timespec begin, now;
	struct sdp_info info;
	socklen_t length = sizeof(info);

	if (!data || !one.data)
		err(1, "memory");
	memset(one.data, 0, SIZE);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (int i = 0; i < count; i++) {
		memset(data, 'a' + i % 26, size);
		if (!plain)
			post(&one, false, size);
		if (send(fd, data, size, 0) != (ssize_t)size)
			err(1, "send");
		/* Another program would do other work here, until the eventfd is readable. */
		if (received(&one, plain) != (ssize_t)size)
			errx(1, "the connection has ended");
		if (memcmp(data, one.data, size))
			errx(1, "message %d: other bytes", i);
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	printf("%d messages of %zu bytes, %.1f us each", count, size,
	       ((now.tv_sec - begin.tv_sec) * 1e9 + now.tv_nsec - begin.tv_nsec) / 1e3 / count);
	if (!getsockopt(fd, SOL_TCP, SDP_INFO, &info, &length) && info.tx_bytes)
		printf(", not copied: %.0f %% sent, %.0f %% received", 100.0 * (info.tx_read + info.tx_written) / info.tx_bytes,
		       100.0 * (info.rx_read + info.rx_written) / info.rx_bytes);
	putchar('\n');
	if (!plain)
		post(&one, false, size);
	end(on);
	if (!plain && take(&completed, false)->result)
		errx(1, "the last receive has not ended with 0");
}

int main(int argc, char **argv)
{
	start(&completed);
	event = eventfd(0, 0);
	if (event < 0)
		err(1, "eventfd");
	if (argc == 2) {
		serve(atoi(argv[1]));
	} else if (argc == 5 || argc == 6) {
		size_t size = strtoul(argv[3], NULL, 10);

		if (!size || size > SIZE)
			errx(2, "SIZE is 1 to %d", SIZE);
		measure(connected(argv[1], argv[2]), size, atoi(argv[4]), argc == 6);
	} else {
		errx(2, "usage: completions PORT, or completions HOST PORT SIZE COUNT [plain]");
	}
	return 0;
}

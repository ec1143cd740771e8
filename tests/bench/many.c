// SPDX-License-Identifier: GPL-2.0-only
/*
 * Many connections in one thread, by epoll(7) or idle.
 *
 *	many SYSTEM serve MODE ADDRESS PORT SIZE CONNECTIONS
 *	many SYSTEM drive MODE ADDRESS PORT SIZE CONNECTIONS SECONDS
 *
 * MODE epoll: messages of SIZE bytes are exchanged on one connection after another; both ends
 *		watch all of them.
 * MODE edge: as MODE epoll, with edge-triggered events at both ends (EPOLLET). MODE idle:
 * connections are made one after another, and stay; the driver measures the time until
 *		the server has accepted each, and the memory of all.
 *
 * The server prints "listening" when it listens. Server and client print one line of JSON at the
 * end.
 */
#define _GNU_SOURCE
#include <poll.h>
#include "events.h"
#include "sockets.h"

#define EVENTS 64
/* Number of connections that are timed at each level of mode idle. */
#define TIMED 50

/* Memory, in bytes, that may still be freed within a tenth of a second once freeing has ended. */
#define SETTLED 65536

static const int levels[] = { 1, 1000, 10000 };
#define LEVELS ((int)(sizeof(levels) / sizeof(*levels)))

static int connections;
static double seconds;
static unsigned int edge;

/* Descriptors of all connections. */
static int *fds;
static size_t *received;
static char *data;
static int epoll;

static void allow_descriptors(void)
{
	/* rsockets have dozens of descriptors for each connection. */
	rlim_t count = connections * 32 + 64;
	struct rlimit limit = { count, count };

	if (setrlimit(RLIMIT_NOFILE, &limit))
		fail("setrlimit: %s", strerror(errno));
}

static void watch(int i)
{
	struct epoll_event event = { .events = EPOLLIN | edge, .data.u32 = i };

	no_delay(fds[i]);
	if (api.fcntl(fds[i], F_SETFL, O_NONBLOCK))
		fail("fcntl: %s", strerror(errno));
	if (api.epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event))
		fail("epoll_ctl: %s", strerror(errno));
}

/* Closes a connection. rsockets stay in the epoll if they are not removed before. */
static void unwatch(int i)
{
	if (api.epoll_ctl(epoll, EPOLL_CTL_DEL, fds[i], NULL))
		fail("epoll_ctl: %s", strerror(errno));
	api.close(fds[i]);
}

/* Receives on a connection: returns 1 for a complete message, 0 for a part, -1 at the end of the
 * stream. */
static int take(int i)
{
	int whole = 0, first = 1;

	events++;
	for (;;) {
		ssize_t got = api.recv(fds[i], data, size, 0);

		if (got < 0 && errno == EAGAIN) {
			empty += first;
			return whole;
		}
		if (got < 0)
			fail("recv: %s", strerror(errno));
		if (!got)
			return -1;
		received[i] += got;
		if (received[i] >= size) {
			received[i] -= size;
			whole = 1;
		}
		if (!edge)
			return whole;
		first = 0;
	}
}

static int next_events(struct epoll_event *ready)
{
	int count;

	do
		count = api.epoll_wait(epoll, ready, EVENTS, -1);
	while (count < 0 && errno == EINTR);
	if (count < 0)
		fail("epoll_wait: %s", strerror(errno));
	return count;
}

static void serve_epoll(int listener)
{
	struct epoll_event ready[EVENTS];
	int i, left = connections;
	struct mark start;

	for (i = 0; i < connections; i++) {
		fds[i] = api.accept(listener, NULL, NULL);
		if (fds[i] < 0)
			fail("accept: %s", strerror(errno));
		watch(i);
	}
	start = mark();
	while (left) {
		int count = next_events(ready);

		for (i = 0; i < count; i++) {
			int from = ready[i].data.u32, got = take(from);

			if (got > 0)
				send_all(fds[from], data, size);
			if (got < 0) {
				unwatch(from);
				left--;
			}
		}
	}
	printf("{");
	print_events(start);
}

static void round_trip(int i)
{
	struct epoll_event ready[EVENTS];
	int answered = 0, k;

	send_all(fds[i], data, size);
	while (!answered) {
		int count = next_events(ready);

		for (k = 0; k < count; k++) {
			int got = take(ready[k].data.u32);

			if (got < 0)
				fail("the server has ended");
			answered |= got;
		}
	}
}

static void drive_epoll(void)
{
	int i;

	for (i = 0; i < connections; i++) {
		fds[i] = new_connection();
		watch(i);
	}
	measure_round_trips(connections, seconds);
	for (i = 0; i < connections; i++)
		unwatch(i);
}

/* --- idle ------------------------------------------------------------------------------------ */

static void serve_idle(int listener)
{
	struct pollfd polled[] = { { .fd = listener, .events = POLLIN }, { .fd = -1, .events = POLLIN } };
	struct mark start = mark();
	int i, count = 0;
	char byte = 'a';

	/* The driver closes all connections after the measurement, or after a failed connect. */
	while (!polled[1].revents) {
		if (poll(polled, 2, -1) < 0)
			fail("poll: %s", strerror(errno));
		if (!(polled[0].revents & POLLIN) || count == connections)
			continue;
		fds[count] = accept(listener, NULL, NULL);
		if (fds[count] < 0)
			fail("accept, after %d: %s", count, strerror(errno));
		send_all(fds[count++], &byte, 1);
		polled[1].fd = fds[0];
	}
	for (i = 0; i < count; i++)
		close(fds[i]);
	printf("{\"count\": %d, ", count);
	print_span(start, mark());
	puts("}");
}

/* Returns the bytes in use for anything but files. */
static double in_use(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	double total = 0, kib;
	char line[256], name[64];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%63[^:]: %lf", name, &kib) != 2)
			continue;
		if (!strcmp(name, "MemTotal"))
			total += kib;
		else if (!strcmp(name, "MemFree") || !strcmp(name, "Buffers") || !strcmp(name, "Cached"))
			total -= kib;
	}
	if (!file || total <= 0)
		fail("cannot read /proc/meminfo");
	fclose(file);
	return total * 1024;
}

/* Like `in_use`, but after memory freed earlier has been returned, which takes a while. */
static double memory_used(void)
{
	double last, used = in_use();
	int still = 0, tries;

	for (tries = 0; tries < 50 && still < 3; tries++) {
		last = used;
		usleep(100000);
		used = in_use();
		still = last - used < SETTLED ? still + 1 : 0;
	}
	return used;
}

/* Makes one connection, up to the first byte that the server sends; returns an errno on failure. */
static int connect_idle(int i)
{
	char byte;

	fds[i] = api.socket(api.family, SOCK_STREAM, 0);
	if (fds[i] < 0 || connect(fds[i], &address.any, address_length))
		return errno;
	return recv(fds[i], &byte, 1, 0) == 1 ? 0 : errno;
}

static void drive_idle(void)
{
	float *times = malloc(connections * sizeof(*times));
	double used[LEVELS], start, end, pause = 0;
	int i, level, count, error = 0;
	struct mark before = mark();

	if (!times)
		fail("no memory");
	for (count = 0; count < connections; count++) {
		start = now();
		for (level = 0; level < LEVELS; level++)
			if (count == levels[level])
				used[level] = memory_used();
		pause += now() - start;
		start = now();
		error = connect_idle(count);
		if (error)
			break;
		times[count] = now() - start;
	}
	end = now();
	printf("{\"count\": %d, \"per_second\": %.3f, ", count, count / (end - before.time - pause));
	if (error)
		printf("\"stopped\": \"%s\", ", strerror(error));
	for (level = 0; level < LEVELS && levels[level] + TIMED <= count; level++) {
		qsort(times + levels[level], TIMED, sizeof(*times), compare);
		printf("\"accept_us_%d\": %.3f, ", levels[level], times[levels[level] + TIMED / 2] * 1e6);
		if (level)
			printf("\"bytes_each_%d\": %.0f, ", levels[level], (used[level] - used[0]) / (levels[level] - 1));
	}
	for (i = 0; i < count; i++)
		close(fds[i]);
	printf("\"close_us\": %.3f, ", (now() - end) / count * 1e6);
	print_span(before, mark());
	puts("}");
}

/* ------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
	int serving, idling;
	const char *mode;

	if (argc < 8)
		fail("usage: many SYSTEM serve|drive MODE ADDRESS PORT SIZE CONNECTIONS [SECONDS]");
	serving = !strcmp(argv[2], "serve");
	if (!serving && (strcmp(argv[2], "drive") || argc < 9))
		fail("serve, or drive with SECONDS");
	choose(argv[1]);
	mode = argv[3];
	idling = !strcmp(mode, "idle");
	edge = strcmp(mode, "edge") ? 0 : EPOLLET;
	if (!idling && !edge && strcmp(mode, "epoll"))
		fail("no mode is called %s", mode);
	name_address(argv[4], argv[5]);
	size = strtoul(argv[6], NULL, 10);
	connections = atoi(argv[7]);
	seconds = serving ? 0 : atof(argv[8]);
	if (!size || connections < 1)
		fail("SIZE and CONNECTIONS are at least 1");
	/* counts the timed connections as well */
	connections += idling ? TIMED : 0;
	allow_descriptors();
	fds = calloc(connections, sizeof(*fds));
	received = calloc(connections, sizeof(*received));
	data = calloc(1, size);
	if (!api.epoll_create)
		fail("%s cannot be in an epoll: this rdma-core is older than version 65", argv[1]);
	epoll = api.epoll_create(0);
	if (!fds || !received || !data || epoll < 0)
		fail("no memory");
	if (serving)
		(idling ? serve_idle : serve_epoll)(new_listener());
	else
		(idling ? drive_idle : drive_epoll)();
	return 0;
}

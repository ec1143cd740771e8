// SPDX-License-Identifier: GPL-2.0-only
/*
 * One program for every kind of stream socket that is compared: TCP, SMC, AF_UNIX, rsockets, and
 * SDP by copying, by zero copy from 64 KiB on (zcopy), with MSG_ZEROCOPY (notified), with
 * io_uring's zero-copy sends (uring) or by sendfile (file). Only the family, or the functions
 * called, differ. The library of rsockets is loaded only for rsockets.
 * The systems messages and unix-messages are SOCK_SEQPACKET of SDP and AF_UNIX.
 *
 *	sockets SYSTEM serve MODE ADDRESS PORT SIZE CONNECTIONS
 *	sockets SYSTEM drive MODE ADDRESS PORT SIZE CONNECTIONS SECONDS [OPTION]...
 *	sockets -
 *
 * MODE stream: the driver sends messages of SIZE bytes on each connection for SECONDS; the server
 *		measures, from the first bytes to the end of the last connection. OPTION compute=N
 *		computes N steps between sends; touch=N writes to the memory after N sends, as soon
 *		as it may; pieces=N splits a message in N pieces, apart=N bytes (4096) from each other.
 * MODE fan-in, fan-out: the same, but one thread receives, or sends, on all connections.
 * MODE pong: messages of SIZE bytes are exchanged on all connections at once; the driver measures.
 * MODE calls: one end sends messages of SIZE bytes, the other reads them; each end measures its
 *		shortest call: a call that finds space, or bytes, and does nothing else.
 * MODE connect: connect, a byte in both directions, close, repeatedly; the driver measures.
 * MODE compute: measures the steps of the computation per second.
 * MODE splice, relay: the driver passes messages of SIZE bytes from one connection of the server to
 *		another, by splice(2), or by recv and send.
 *
 * The server prints "listening" when it listens. Server and client print one line of JSON at the
 * end. With "-" the arguments come from standard input, a line for each run, and "ended" and a
 * status follow the output of each: starting a program takes longer than a short run.
 */
#define _GNU_SOURCE
#include <sys/wait.h>
#include "proxy.h"

/* --- modes pong and connect --------------------------------------------------------------------
 */

static void *answer(void *fd)
{
	char *data = buffer(), *room = buffer();

	while (recv_all(*(int *)fd, room, size))
		send_all(*(int *)fd, data, size);
	return NULL;
}

static void serve_pong(int listener)
{
	int fds[MAX_CONNECTIONS], i;
	struct mark start;

	for (i = 0; i < connections; i++) {
		fds[i] = api.accept(listener, NULL, NULL);
		if (fds[i] < 0)
			fail("accept: %s", strerror(errno));
		no_delay(fds[i]);
	}
	start = mark();
	each_by_a_thread(answer, (char *)fds, sizeof(*fds));
	printf("{");
	print_span(start, mark());
	puts("}");
	for (i = 0; i < connections; i++)
		api.close(fds[i]);
}

struct pong {
	struct stream *stream;
	float *times;
	int count;
};

static void *ask(void *argument)
{
	struct pong *pong = argument;
	char *data = buffer(), *room = buffer();
	double start, last, time;
	/* warm-up rounds, fewer for large messages */
	int warm = size < 65536 ? 20 : 3;

	start = last = now();
	while (pong->count < MAX_TIMES / connections && last - start < seconds) {
		send_all(pong->stream->fd, data, size);
		if (!recv_all(pong->stream->fd, room, size))
			fail("the server has ended");
		time = now();
		if (warm-- > 0)
			start = time;
		else
			pong->times[pong->count++] = time - last;
		last = time;
	}
	say_end(pong->stream);
	return NULL;
}

static void drive_pong(void)
{
	float *times = malloc(MAX_TIMES * sizeof(*times));
	struct stream streams[MAX_CONNECTIONS] = {};
	struct pong pongs[MAX_CONNECTIONS];
	struct mark start;
	int i, count = 0;

	if (!times)
		fail("no memory");
	for (i = 0; i < connections; i++) {
		streams[i].fd = new_connection();
		no_delay(streams[i].fd);
		pongs[i] = (struct pong){ .stream = &streams[i], .times = times + MAX_TIMES / connections * i };
	}
	start = mark();
	each_by_a_thread(ask, (char *)pongs, sizeof(*pongs));
	for (i = 0; i < connections; i++) {
		memmove(times + count, pongs[i].times, pongs[i].count * sizeof(*times));
		count += pongs[i].count;
	}
	await_close(streams);
	printf("{");
	print_round_trips(times, count);
	print_span(start, mark());
	puts("}");
	for (i = 0; i < connections; i++)
		api.close(streams[i].fd);
}

/* Measures the shortest of the calls until the time, or the connection, ends. */
static void measure_calls(int fd, int sends)
{
	char *data = buffer();
	double start = now(), last = start, time, least = 0;
	int count = 0, done;

	do {
		if (sends)
			send_all(fd, data, size);
		done = sends ? last - start >= seconds : !recv_all(fd, data, size);
		time = now();
		if (!done && (!count++ || time - last < least))
			least = time - last;
		last = time;
	} while (!done);
	printf("{\"count\": %d, \"least_ns\": %.0f}\n", count, least * 1e9);
}

static void serve_calls(int listener)
{
	int fd = api.accept(listener, NULL, NULL);

	if (fd < 0)
		fail("accept: %s", strerror(errno));
	measure_calls(fd, 0);
	api.close(fd);
}

static void drive_calls(void)
{
	int fd = new_connection();

	measure_calls(fd, 1);
	api.close(fd);
}

static void serve_connect(int listener)
{
	struct mark start = {};
	int count = 0, last = 0;
	char byte;

	/* The last connection carries a different byte than the others. */
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
			fail("the server has ended");
		api.close(fd);
		count++;
	}
	printf("{\"count\": %d, ", count);
	print_span(start, mark());
	puts("}");
}

/* -----------------------------------------------------------------------------------------------
 */

static void read_options(char **words)
{
	for (; *words; words++)
		if (sscanf(*words, "compute=%lu", &steps) != 1 && sscanf(*words, "touch=%d", &touch_after) != 1 &&
		    sscanf(*words, "pieces=%d", &pieces) != 1 && sscanf(*words, "apart=%d", &apart) != 1)
			fail("%s is no option", *words);
	if (pieces < 1 || pieces > MAX_PIECES || size % pieces)
		fail("a message is in 1 to %d pieces, all of the same size", MAX_PIECES);
	if (apart < 0)
		fail("pieces are not negative bytes apart");
}

static void run(int argc, char **argv)
{
	int serving, pongs, calls, connects, streams, proxies;
	const char *mode;

	if (argc < 8)
		fail("usage: sockets SYSTEM serve|drive MODE ADDRESS PORT SIZE CONNECTIONS [SECONDS [OPTION...]]");
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
	fan_in = !strcmp(mode, "fan-in");
	fan_out = !strcmp(mode, "fan-out");
	streams = !strcmp(mode, "stream") || fan_in || fan_out;
	pongs = !strcmp(mode, "pong");
	calls = !strcmp(mode, "calls");
	connects = !strcmp(mode, "connect");
	by_pipe = !strcmp(mode, "splice");
	proxies = by_pipe || !strcmp(mode, "relay");
	if (!serving && !strcmp(mode, "compute")) {
		measure_compute();
		return;
	}
	if (!streams && !pongs && !calls && !connects && !proxies)
		fail("no mode is called %s", mode);
	if (serving) {
		(streams ? serve_stream : pongs ? serve_pong : calls ? serve_calls : proxies ? serve_proxy : serve_connect)(new_listener());
		return;
	}
	seconds = atof(argv[8]);
	read_options(argv + 9);
	(streams ? drive_stream : pongs ? drive_pong : calls ? drive_calls : proxies ? drive_proxy : drive_connect)();
}

/* Executes one run for each line, in a separate process. */
static void run_lines(void)
{
	char line[512];

	while (fgets(line, sizeof(line), stdin)) {
		char *words[32] = { "sockets" }, *rest = line;
		int count = 1, status;
		pid_t child;

		while (count < 31 && (words[count] = strtok_r(rest, " \n", &rest)))
			count++;
		child = fork();
		if (child < 0)
			fail("fork: %s", strerror(errno));
		if (!child) {
			run(count, words);
			exit(0);
		}
		if (waitpid(child, &status, 0) != child)
			fail("waitpid: %s", strerror(errno));
		printf("ended %d\n", status);
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "-"))
		run_lines();
	else
		run(argc, argv);
	return 0;
}

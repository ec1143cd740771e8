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
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define AF_INET_SDP 27
#ifndef AF_SMC
#define AF_SMC 43
#endif
#define SDP_ZCOPY_THRESH 80
#define MAX_CONNECTIONS 64
#define MAX_TIMES (1 << 20)

static struct {
	int family;
	int (*socket)(int, int, int);
	int (*bind)(int, const struct sockaddr *, socklen_t);
	int (*listen)(int, int);
	int (*accept)(int, struct sockaddr *, socklen_t *);
	int (*connect)(int, const struct sockaddr *, socklen_t);
	ssize_t (*send)(int, const void *, size_t, int);
	ssize_t (*recv)(int, void *, size_t, int);
	int (*shutdown)(int, int);
	int (*close)(int);
	int (*setsockopt)(int, int, int, const void *, socklen_t);
} api;

static union {
	struct sockaddr any;
	struct sockaddr_in ip;
	struct sockaddr_un local;
} address;
static socklen_t address_length;
static int zcopy_from;
static size_t size;
static int connections;
static double seconds;
static atomic_int stop;

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	_exit(1);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

/* What this process has used up, in seconds. */
static double used(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
	       (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* How long the processors have been idle, in seconds: the kernel's own threads count as work. */
static double idle(void)
{
	unsigned long long ticks, waiting;
	FILE *file = fopen("/proc/stat", "r");

	if (!file || fscanf(file, "cpu %*u %*u %*u %llu %llu", &ticks, &waiting) != 2)
		fail("cannot read /proc/stat");
	fclose(file);
	return (double)(ticks + waiting) / sysconf(_SC_CLK_TCK);
}

struct mark {
	double time, used, idle;
};

static struct mark mark(void)
{
	return (struct mark){ now(), used(), idle() };
}

static void print_span(struct mark from, struct mark to)
{
	double span = to.time - from.time;

	printf("\"seconds\": %.6f, \"process_cpu\": %.6f, \"guest_cpu\": %.6f", span, to.used - from.used,
	       span * sysconf(_SC_NPROCESSORS_ONLN) - (to.idle - from.idle));
}

static void choose(const char *system)
{
	void *library;

	if (strcmp(system, "rsockets")) {
		if (!strcmp(system, "sdp") || !strcmp(system, "zcopy"))
			api.family = AF_INET_SDP;
		else if (!strcmp(system, "tcp"))
			api.family = AF_INET;
		else if (!strcmp(system, "smc"))
			api.family = AF_SMC;
		else if (!strcmp(system, "unix"))
			api.family = AF_UNIX;
		else
			fail("no system is called %s: tcp, sdp, zcopy, smc, rsockets or unix", system);
		api.socket = socket;
		api.bind = bind;
		api.listen = listen;
		api.accept = accept;
		api.connect = connect;
		api.send = send;
		api.recv = recv;
		api.shutdown = shutdown;
		api.close = close;
		api.setsockopt = setsockopt;
		return;
	}
	api.family = AF_INET;
	library = dlopen("librdmacm.so.1", RTLD_NOW);
	if (!library)
		fail("%s", dlerror());
#define LOAD(name)                                              \
	do {                                                    \
		*(void **)&api.name = dlsym(library, "r" #name); \
		if (!api.name)                                  \
			fail("%s", dlerror());                  \
	} while (0)
	LOAD(socket);
	LOAD(bind);
	LOAD(listen);
	LOAD(accept);
	LOAD(connect);
	LOAD(send);
	LOAD(recv);
	LOAD(shutdown);
	LOAD(close);
	LOAD(setsockopt);
}

/* Of AF_UNIX an abstract one, which goes with its socket. */
static void name_address(const char *host, const char *port)
{
	if (api.family == AF_UNIX) {
		address.local.sun_family = AF_UNIX;
		address_length = offsetof(struct sockaddr_un, sun_path) + 1 +
				 snprintf(address.local.sun_path + 1, sizeof(address.local.sun_path) - 1, "bench %s", port);
		return;
	}
	address.ip.sin_family = AF_INET;
	if (inet_pton(AF_INET, host, &address.ip.sin_addr) != 1)
		fail("%s is no IPv4 address", host);
	address.ip.sin_port = htons(atoi(port));
	address_length = sizeof(address.ip);
}

static int new_socket(void)
{
	int one = 1, fd = api.socket(api.family, SOCK_STREAM, 0);

	if (fd < 0)
		fail("socket: %s", strerror(errno));
	api.setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (zcopy_from && api.setsockopt(fd, IPPROTO_TCP, SDP_ZCOPY_THRESH, &zcopy_from, sizeof(zcopy_from)))
		fail("SDP_ZCOPY_THRESH: %s", strerror(errno));
	return fd;
}

static void no_delay(int fd)
{
	int one = 1;

	api.setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static int new_connection(void)
{
	int fd = new_socket();

	if (api.connect(fd, &address.any, address_length))
		fail("connect: %s", strerror(errno));
	return fd;
}

static void *buffer(void)
{
	void *memory = NULL;

	if (posix_memalign(&memory, 4096, size))
		fail("no memory");
	memset(memory, 'x', size);
	return memory;
}

static void send_all(int fd, const char *data, size_t length)
{
	while (length) {
		ssize_t done = api.send(fd, data, length, MSG_NOSIGNAL);

		if (done < 0)
			fail("send: %s", strerror(errno));
		data += done;
		length -= done;
	}
}

/* Whether all of it came; not, if the connection ended before its first byte. */
static int recv_all(int fd, char *data, size_t length)
{
	size_t got = 0;

	while (got < length) {
		ssize_t done = api.recv(fd, data + got, length - got, 0);

		if (done < 0)
			fail("recv: %s", strerror(errno));
		if (!done && got)
			fail("the connection ended within a message");
		if (!done)
			return 0;
		got += done;
	}
	return 1;
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

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static void drive_pong(void)
{
	float *times = malloc(MAX_TIMES * sizeof(*times));
	char *data = buffer();
	int fd = new_connection(), i, count = 0, warm = 20;
	double sum = 0, last, time;
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
		sum += time - last;
		last = time;
	}
	end = mark();
	api.shutdown(fd, SHUT_WR);
	/* One way is half of there and back, as perftest and qperf have it. */
	qsort(times, count, sizeof(*times), compare);
	printf("{\"count\": %d, \"median_us\": %.3f, \"mean_us\": %.3f, \"min_us\": %.3f, \"p99_us\": %.3f, ", count,
	       times[count / 2] * 5e5, sum / count * 5e5, times[0] * 5e5, times[count * 99LL / 100] * 5e5);
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
	listener = new_socket();
	if (api.bind(listener, &address.any, address_length))
		fail("bind: %s", strerror(errno));
	if (api.listen(listener, 128))
		fail("listen: %s", strerror(errno));
	puts("listening");
	fflush(stdout);
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

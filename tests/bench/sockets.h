// SPDX-License-Identifier: GPL-2.0-only
/* Sockets of each system: only the family, or the functions called, differ. */
#ifndef BENCH_SOCKETS_H
#define BENCH_SOCKETS_H

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "measuring.h"
#include "ring.h"

#define AF_INET_SDP 27
#ifndef AF_SMC
#define AF_SMC 43
#endif
#define SDP_ZCOPY_THRESH 80

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
	int (*fcntl)(int, int, ...);
	/* NULL: these sockets cannot be in an epoll. */
	int (*epoll_create)(int);
	int (*epoll_ctl)(int, int, int, struct epoll_event *);
	int (*epoll_wait)(int, struct epoll_event *, int, int);
} api;

static union {
	struct sockaddr any;
	struct sockaddr_in ip;
	struct sockaddr_un local;
} address;
static socklen_t address_length;
/* SOCK_SEQPACKET for the systems "messages" and "unix-messages". */
static int type = SOCK_STREAM;
/* Bytes of a message. */
static size_t size;
static int zcopy_from;
/* Set if sends use MSG_ZEROCOPY, or io_uring's zero-copy send. */
static int notified, by_ring;
/* Set if sends use sendfile(2), from a file in memory. */
static int from_file;
/* Number of MSG_ZEROCOPY sends of this thread whose completion has not been read. */
static __thread int untold;

/* The library of rsockets is the one that the environment names in RSOCKETS, or Debian's. */
static void choose(const char *system)
{
	const char *name = getenv("RSOCKETS");
	void *library;

	if (strcmp(system, "rsockets")) {
		notified = !strcmp(system, "notified");
		by_ring = !strcmp(system, "uring");
		from_file = !strcmp(system, "file");
		if (strstr(system, "messages"))
			type = SOCK_SEQPACKET;
		if (!strcmp(system, "sdp") || !strcmp(system, "messages") || !strcmp(system, "zcopy") || notified || by_ring || from_file)
			api.family = AF_INET_SDP;
		else if (!strcmp(system, "tcp"))
			api.family = AF_INET;
		else if (!strcmp(system, "smc"))
			api.family = AF_SMC;
		else if (!strcmp(system, "unix") || !strcmp(system, "unix-messages"))
			api.family = AF_UNIX;
		else
			fail("no system is called %s: tcp, sdp, zcopy, notified, uring, file, smc, rsockets, unix, messages or unix-messages", system);
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
		api.fcntl = fcntl;
		api.epoll_create = epoll_create1;
		api.epoll_ctl = epoll_ctl;
		api.epoll_wait = epoll_wait;
		return;
	}
	api.family = AF_INET;
	library = dlopen(name ? name : "librdmacm.so.1", RTLD_NOW);
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
	LOAD(fcntl);
	/* Since rdma-core 65. */
	*(void **)&api.epoll_create = dlsym(library, "repoll_create");
	*(void **)&api.epoll_ctl = dlsym(library, "repoll_ctl");
	*(void **)&api.epoll_wait = dlsym(library, "repoll_wait");
}

/* An AF_UNIX address is abstract, and disappears with its socket. */
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
		fail("%s is not an IPv4 address", host);
	address.ip.sin_port = htons(atoi(port));
	address_length = sizeof(address.ip);
}

static int new_socket(void)
{
	int one = 1, space = size, fd = api.socket(api.family, type, 0);

	if (fd < 0)
		fail("socket: %s", strerror(errno));
	/* The peer's SDP_MAX_MESSAGE becomes this size, and at least 256 KiB. */
	if (type == SOCK_SEQPACKET && size > 256 << 10 && api.setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &space, sizeof(space)))
		fail("SO_RCVBUFFORCE: %s", strerror(errno));
	api.setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (zcopy_from && api.setsockopt(fd, IPPROTO_TCP, SDP_ZCOPY_THRESH, &zcopy_from, sizeof(zcopy_from)))
		fail("SDP_ZCOPY_THRESH: %s", strerror(errno));
	if (notified && api.setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)))
		fail("SO_ZEROCOPY: %s", strerror(errno));
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
static int new_listener(void)
{
	int listener = new_socket();

	if (api.bind(listener, &address.any, address_length))
		fail("bind: %s", strerror(errno));
	if (api.listen(listener, 128))
		fail("listen: %s", strerror(errno));
	puts("listening");
	fflush(stdout);
	return listener;
}

/* Reads the completions of MSG_ZEROCOPY sends. */
static void take_notices(int fd)
{
	char control[128];
	struct msghdr message = { .msg_control = control };

	for (;;) {
		struct sock_extended_err *told;

		message.msg_controllen = sizeof(control);
		if (recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
			return;
		if (!CMSG_FIRSTHDR(&message))
			fail("a notice says nothing");
		told = (void *)CMSG_DATA(CMSG_FIRSTHDR(&message));
		if (told->ee_origin == SO_EE_ORIGIN_ZEROCOPY)
			untold -= told->ee_data - told->ee_info + 1;
	}
}

/* Waits until all memory that this thread has sent, on one connection, may be written to. */
static inline void settle(int fd)
{
	struct pollfd polled = { .fd = fd };

	if (by_ring)
		ring_settle(0);
	while (notified && untold > 0) {
		if (poll(&polled, 1, -1) < 0)
			fail("poll: %s", strerror(errno));
		take_notices(fd);
	}
}

/* Sends the first bytes of a file that contains the message. */
static void send_file(int fd, const char *data, size_t length)
{
	static __thread int file = -1;
	off_t at = 0;

	if (file < 0) {
		file = memfd_create("bench", 0);
		if (file < 0 || write(file, data, length) != (ssize_t)length)
			fail("a file in memory: %s", strerror(errno));
	}
	while ((size_t)at < length)
		if (sendfile(fd, file, &at, length - at) <= 0)
			fail("sendfile: %s", strerror(errno));
}

static void send_all(int fd, char *data, size_t length)
{
	int flags = MSG_NOSIGNAL | (notified ? MSG_ZEROCOPY : 0);

	if (by_ring) {
		struct iovec all = { data, length };

		ring_send(fd, &(struct msghdr){ .msg_iov = &all, .msg_iovlen = 1 }, length);
		return;
	}
	if (from_file) {
		send_file(fd, data, length);
		return;
	}
	while (length) {
		ssize_t done = api.send(fd, data, length, flags);

		if (done < 0)
			fail("send: %s", strerror(errno));
		if (notified) {
			untold++;
			take_notices(fd);
		}
		data += done;
		length -= done;
	}
}

/* Receives all bytes. Returns false if the connection ended before the first byte. */
static inline int recv_all(int fd, char *data, size_t length)
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
#endif

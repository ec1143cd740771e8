// SPDX-License-Identifier: GPL-2.0-only
/*
 * A library to preload that breaks the socket calls in one way, selected by MUTANT, to test the
 * guest tests. Mutations that depend on timing take effect every third time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is(const char *name)
{
	const char *mutant = getenv("MUTANT");

	return mutant && !strcmp(mutant, name);
}

/* Returns true for sockets of the families under test. */
static int ours(int fd)
{
	int domain = 0;
	socklen_t length = sizeof(domain);

	return !REAL(getsockopt)(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) && domain != AF_UNIX && domain != AF_NETLINK;
}

static int third(void)
{
	static int count;

	return __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) % 3 == 0;
}

static ssize_t fail(int error)
{
	errno = error;
	return -1;
}

ssize_t recv(int fd, void *data, size_t size, int flags)
{
	ssize_t got;

	if (is("peek-consumes") && flags & MSG_PEEK && ours(fd))
		flags &= ~MSG_PEEK;
	if (is("waitall-ignored"))
		flags &= ~MSG_WAITALL;
	if (is("trunc-ignored"))
		flags &= ~MSG_TRUNC;
	if (is("dontwait-zero") && flags & MSG_DONTWAIT && ours(fd)) {
		got = REAL(recv)(fd, data, size, flags);
		return got < 0 && errno == EAGAIN ? 0 : got;
	}
	got = REAL(recv)(fd, data, size, flags);
	if (is("bit-flip") && got > 3000 && ours(fd))
		((char *)data)[got / 2] ^= 1;
	if (is("swap") && got > 100 && ours(fd)) {
		char kept = ((char *)data)[10];

		((char *)data)[10] = ((char *)data)[11];
		((char *)data)[11] = kept;
	}
	if (is("reset-as-end") && got < 0 && errno == ECONNRESET)
		return 0;
	if (is("end-as-reset") && got == 0 && size && ours(fd) && !(flags & MSG_OOB))
		return fail(ECONNRESET);
	if (is("oob-none") && flags & MSG_OOB && got > 0)
		return fail(EINVAL);
	if (is("oob-again") && flags & MSG_OOB && got < 0 && errno == EINVAL)
		return fail(EAGAIN);
	return got;
}

ssize_t recvfrom(int fd, void *data, size_t size, int flags, struct sockaddr *address, socklen_t *length)
{
	return address ? REAL(recvfrom)(fd, data, size, flags, address, length) : recv(fd, data, size, flags);
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
	if (is("lost-tail") && size > 5000 && ours(fd)) {
		ssize_t sent = REAL(send)(fd, data, size - 1, flags);

		return sent == (ssize_t)size - 1 ? (ssize_t)size : sent;
	}
	if (is("double") && size == 64 && third())
		REAL(send)(fd, data, size, flags);
	if (is("oob-plain"))
		flags &= ~MSG_OOB;
	if (is("sigpipe-always"))
		flags &= ~MSG_NOSIGNAL;
	if (is("sigpipe-never"))
		flags |= MSG_NOSIGNAL;
	if (is("short-send") && size > 100000 && !(flags & MSG_DONTWAIT) && ours(fd))
		return REAL(send)(fd, data, size / 2, flags);
	ssize_t sent = REAL(send)(fd, data, size, flags);

	if (is("epipe-as-reset") && sent < 0 && errno == EPIPE)
		errno = ECONNRESET;
	return sent;
}

int connect(int fd, const struct sockaddr *address, socklen_t length)
{
	int result;

	if (is("unspec-refused") && address->sa_family == AF_UNSPEC)
		return fail(EAFNOSUPPORT);
	result = REAL(connect)(fd, address, length);
	if (is("refused-as-timeout") && result && errno == ECONNREFUSED)
		errno = ETIMEDOUT;
	if (is("already-as-progress") && result && errno == EALREADY)
		errno = EINPROGRESS;
	if (is("isconn-ok") && result && errno == EISCONN)
		return 0;
	if (is("intr-again") && result && errno == EINTR)
		errno = EAGAIN;
	return result;
}

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
	int result;

	if (is("bind-long") && length > 28)
		return fail(EINVAL);
	if (is("bind-reuse")) {
		int one = 1;

		REAL(setsockopt)(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	}
	result = REAL(bind)(fd, address, length);
	if (is("inuse-as-notavail") && result && errno == EADDRINUSE)
		errno = EADDRNOTAVAIL;
	if (is("acces-as-perm") && result && errno == EACCES)
		errno = EPERM;
	return result;
}

int listen(int fd, int backlog)
{
	return REAL(listen)(fd, is("no-backlog") ? 4096 : backlog);
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
	int made = REAL(accept4)(fd, address, length, is("accept-blocking") ? flags & ~SOCK_NONBLOCK : flags);

	if (is("accept-family") && made >= 0 && address && *length >= 2)
		address->sa_family = 27;
	if (is("accept-port") && made >= 0 && address && *length >= 4)
		((struct sockaddr_in *)address)->sin_port ^= 1;
	return made;
}

int getsockname(int fd, struct sockaddr *address, socklen_t *length)
{
	socklen_t room = *length;
	int result = REAL(getsockname)(fd, address, length);

	if (is("name-family") && !result && room >= 2 && ours(fd))
		address->sa_family = 27;
	if (is("name-length") && !result)
		*length = *length < room ? *length : room;
	return result;
}

int shutdown(int fd, int how)
{
	if (is("shutdown-both"))
		how = SHUT_RDWR;
	if (is("shutdown-nothing") && how == SHUT_RD)
		return 0;
	return REAL(shutdown)(fd, how);
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
	static const struct { const char *name; short bit; } lost[] = {
		{ "poll-no-rdhup", POLLRDHUP }, { "poll-no-hup", POLLHUP }, { "poll-no-err", POLLERR },
		{ "poll-no-pri", POLLPRI },
	};
	int ready = REAL(poll)(fds, count, timeout);

	for (nfds_t i = 0; i < count; i++) {
		for (size_t m = 0; m < sizeof(lost) / sizeof(*lost); m++)
			if (is(lost[m].name))
				fds[i].revents &= ~lost[m].bit;
		if (is("poll-always-out") && fds[i].events & POLLOUT && ours(fds[i].fd)) {
			ready += !fds[i].revents;
			fds[i].revents |= POLLOUT;
		}
	}
	return ready;
}

int epoll_ctl(int set, int operation, int fd, struct epoll_event *event)
{
	if (is("edge-as-level") && event)
		event->events &= ~EPOLLET;
	if (is("level-as-edge") && event && ours(fd))
		event->events |= EPOLLET;
	if (is("no-oneshot") && event)
		event->events &= ~EPOLLONESHOT;
	return REAL(epoll_ctl)(set, operation, fd, event);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	void *argument;
	int result;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);
	result = REAL(ioctl)(fd, request, argument);
	if (is("inq-zero") && request == 0x541B && !result && ours(fd) && *(int *)argument > 700)
		*(int *)argument -= 1;
	if (is("outq-never-zero") && request == 0x5411 && !result && ours(fd) && !*(int *)argument)
		*(int *)argument = 1;
	if (is("atmark-never") && request == 0x8905 && !result)
		*(int *)argument = 0;
	return result;
}

int getsockopt(int fd, int level, int option, void *value, socklen_t *length)
{
	int result = REAL(getsockopt)(fd, level, option, value, length);

	if (is("error-sticky") && level == SOL_SOCKET && option == SO_ERROR && !result) {
		static int last[65536];

		if (fd < 65536 && *(int *)value)
			last[fd] = *(int *)value;
		else if (fd < 65536)
			*(int *)value = last[fd];
	}
	if (is("error-none") && level == SOL_SOCKET && option == SO_ERROR && !result)
		*(int *)value = 0;
	if (is("protocol-zero") && level == SOL_SOCKET && option == SO_PROTOCOL && !result)
		*(int *)value = 0;
	if (is("unknown-inval") && result && errno == ENOPROTOOPT)
		errno = EINVAL;
	return result;
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t length)
{
	static const struct { const char *name; int level, option; } ignored[] = {
		{ "no-linger", SOL_SOCKET, SO_LINGER }, { "no-oobinline", SOL_SOCKET, SO_OOBINLINE },
		{ "no-rcvlowat", SOL_SOCKET, SO_RCVLOWAT }, { "no-rcvtimeo", SOL_SOCKET, SO_RCVTIMEO },
		{ "no-sndtimeo", SOL_SOCKET, SO_SNDTIMEO }, { "no-keepalive", SOL_SOCKET, SO_KEEPALIVE },
		{ "no-reuseaddr", SOL_SOCKET, SO_REUSEADDR }, { "no-bindtodevice", SOL_SOCKET, SO_BINDTODEVICE },
		{ "no-user-timeout", IPPROTO_TCP, TCP_USER_TIMEOUT }, { "no-keepidle", IPPROTO_TCP, TCP_KEEPIDLE },
		{ "no-nodelay", IPPROTO_TCP, TCP_NODELAY }, { "no-tos", IPPROTO_IP, IP_TOS },
	};

	for (size_t m = 0; m < sizeof(ignored) / sizeof(*ignored); m++)
		if (is(ignored[m].name) && ignored[m].level == level && ignored[m].option == option && length >= 4)
			return 0;
	if (is("any-length") && length > 0 && length < 4) {
		int whole = 1;

		return REAL(setsockopt)(fd, level, option, &whole, sizeof(whole));
	}
	return REAL(setsockopt)(fd, level, option, value, length);
}

int socket(int domain, int type, int protocol)
{
	if (is("type-einval") && (type & 0xf) == SOCK_SEQPACKET)
		return fail(EINVAL);
	if (is("no-cloexec"))
		type &= ~SOCK_CLOEXEC;
	return REAL(socket)(domain, type, protocol);
}

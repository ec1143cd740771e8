// SPDX-License-Identifier: GPL-2.0-only
/*
 * Echo client: uses SDP if the server has it, else TCP.
 *
 *	cc -I../include/uapi -o echo_client echo_client.c
 *	./echo_client 192.0.2.1 7777 hello
 */
#include <err.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "sdp.h"

static int connected(const char *host, const char *port)
{
	/* getaddrinfo(3) does not support IPPROTO_SDP: leave ai_protocol 0. */
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *all;
	int wrong = getaddrinfo(host, port, &hints, &all);

	if (wrong)
		errx(1, "%s: %s", host, gai_strerror(wrong));
	for (struct addrinfo *one = all; one; one = one->ai_next) {
		int fd = socket(one->ai_family, SOCK_STREAM, IPPROTO_SDP);

		if (fd < 0)
			err(1, "socket: is the module ib_sdp installed?");
		if (!connect(fd, one->ai_addr, one->ai_addrlen)) {
			freeaddrinfo(all);
			return fd;
		}
		warn("%s port %s", host, port);
		close(fd);
	}
	errx(1, "no connection");
}

int main(int argc, char **argv)
{
	char data[65536];
	int protocol, fd;
	socklen_t size = sizeof(protocol);
	ssize_t n;

	if (argc != 4)
		errx(2, "usage: echo_client HOST PORT TEXT");
	fd = connected(argv[1], argv[2]);
	if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size))
		err(1, "SO_PROTOCOL");
	fprintf(stderr, "connected by %s\n", protocol == IPPROTO_TCP ? "TCP" : "SDP");
	if (send(fd, argv[3], strlen(argv[3]), 0) < 0 || shutdown(fd, SHUT_WR))
		err(1, "send");
	while ((n = recv(fd, data, sizeof(data), 0)) > 0)
		fwrite(data, 1, n, stdout);
	if (n < 0)
		err(1, "recv");
	putchar('\n');
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Echo server: takes connections by SDP and by TCP on one port, one after the other.
 *
 *	cc -I../include/uapi -o echo_server echo_server.c
 *	./echo_server 7777
 */
#include <err.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include "sdp.h"

static void echo(int fd)
{
	char data[65536];
	ssize_t n;

	while ((n = recv(fd, data, sizeof(data), 0)) > 0) {
		for (ssize_t sent = 0, m; sent < n; sent += m) {
			m = send(fd, data + sent, n - sent, MSG_NOSIGNAL);
			if (m < 0) {
				warn("send");
				return;
			}
		}
	}
	if (n < 0)
		warn("recv");
}

int main(int argc, char **argv)
{
	/* An IPv6 socket takes IPv4 connections as well. */
	struct sockaddr_in6 addr = { .sin6_family = AF_INET6, .sin6_port = htons(argc > 1 ? atoi(argv[1]) : 7777) };
	int on = 1, listener = socket(AF_INET6, SOCK_STREAM, IPPROTO_SDP);

	if (listener < 0)
		err(1, "socket: is the module ib_sdp installed?");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listener, (struct sockaddr *)&addr, sizeof(addr)) || listen(listener, 128))
		err(1, "port %d", ntohs(addr.sin6_port));
	printf("listening on port %d\n", ntohs(addr.sin6_port));
	fflush(stdout);
	for (;;) {
		int protocol, fd = accept(listener, NULL, NULL);
		socklen_t size = sizeof(protocol);

		if (fd < 0)
			err(1, "accept");
		if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size))
			err(1, "SO_PROTOCOL");
		printf("connection by %s\n", protocol == IPPROTO_TCP ? "TCP" : "SDP");
		fflush(stdout);
		echo(fd);
		close(fd);
	}
}

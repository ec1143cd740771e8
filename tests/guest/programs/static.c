// SPDX-License-Identifier: GPL-2.0-only
//
// A program for sockets that no library can be preloaded into, because it is statically linked:
//
//   static FAMILY PROTOCOL server ADDRESS PORT COUNT       echoes COUNT connections, a process for each
//   static FAMILY PROTOCOL client ADDRESS PORT BYTES       sends BYTES, checks the echo, prints "BYTES came back"
//
// FAMILY and PROTOCOL are those of socket(2); addresses are IPv4.

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char at(size_t place)
{
	return (place * 2654435761u) >> 13;
}

static void echo(int sock)
{
	static char block[50000];
	ssize_t got;

	while ((got = read(sock, block, sizeof(block))) > 0)
		for (ssize_t sent = 0, done; sent < got; sent += done)
			if ((done = write(sock, block + sent, got - sent)) < 0)
				err(1, "write");
	if (got < 0)
		err(1, "read");
}

static void server(int sock, int count)
{
	for (int number = 0; number < count; number++) {
		int one = accept(sock, NULL, NULL);

		if (one < 0)
			err(1, "accept");
		switch (fork()) {
		case -1:
			err(1, "fork");
		case 0:
			close(sock);
			echo(one);
			exit(0);
		}
		close(one);
	}
	for (int status; wait(&status) > 0;)
		if (status)
			errx(1, "a connection ended with status %#x", status);
	if (errno != ECHILD)
		err(1, "wait");
}

// Sends and receives at the same time, without blocking, as far as poll() allows.
static void client(int sock, size_t size)
{
	static unsigned char block[70000];
	size_t sent = 0, back = 0;

	while (back < size) {
		struct pollfd wait = { .fd = sock, .events = POLLIN | (sent < size ? POLLOUT : 0) };

		if (poll(&wait, 1, -1) < 0)
			err(1, "poll");
		if (wait.revents & POLLOUT && sent < size) {
			size_t length = size - sent < sizeof(block) ? size - sent : sizeof(block);
			ssize_t done;

			for (size_t i = 0; i < length; i++)
				block[i] = at(sent + i);
			done = send(sock, block, length, MSG_DONTWAIT);
			if (done < 0 && errno != EAGAIN)
				err(1, "send");
			sent += done > 0 ? done : 0;
			if (sent == size && shutdown(sock, SHUT_WR))
				err(1, "shutdown");
		}
		if (wait.revents & ~POLLOUT) {
			ssize_t got = recv(sock, block, sizeof(block), MSG_DONTWAIT);

			if (got < 0 && errno != EAGAIN)
				err(1, "recv");
			if (got == 0)
				errx(1, "the end after %zu bytes", back);
			for (ssize_t i = 0; i < got; i++)
				if (block[i] != at(back + i))
					errx(1, "byte %zu is another one", back + i);
			back += got > 0 ? got : 0;
		}
	}
	if (read(sock, block, 1))
		errx(1, "no end after all bytes");
	printf("%zu came back\n", back);
}

int main(int count, char **words)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int sock, on = 1;

	if (count != 7)
		errx(2, "static FAMILY PROTOCOL server|client ADDRESS PORT COUNT|BYTES");
	sock = socket(atoi(words[1]), SOCK_STREAM, atoi(words[2]));
	if (sock < 0)
		err(1, "socket");
	if (!inet_aton(words[4], &address.sin_addr))
		errx(2, "%s is no address", words[4]);
	address.sin_port = htons(atoi(words[5]));
	if (strcmp(words[3], "server")) {
		if (connect(sock, (struct sockaddr *)&address, sizeof(address)))
			err(1, "connect");
		client(sock, strtoul(words[6], NULL, 10));
		return 0;
	}
	if (setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(sock, (struct sockaddr *)&address, sizeof(address)) || listen(sock, 64))
		err(1, "listen");
	server(sock, atoi(words[6]));
	return 0;
}

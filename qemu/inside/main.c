// SPDX-License-Identifier: GPL-2.0-only
/* Selects the part of this program that runs. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest.h"

static int open_port(void)
{
	/* The port appears when the driver has received its name from the host. */
	for (int tries = 0; tries < 60000; tries++) {
		int port = open("/dev/vport0p1",
				O_RDWR | O_NONBLOCK | O_CLOEXEC);

		if (port >= 0)
			return port;
		usleep(5000);
	}
	note("there is no virtio-serial port");
	abort();
}

int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/');
	int port;

	if (!strcmp(name ? name + 1 : argv[0], "peer"))
		return peer(argc, argv);
	if (getpid() != 1) {
		fprintf(stderr, "this is the first process of a test guest\n");
		return 125;
	}
	umask(022);
	boot(-1);
	port = open_port();
	boot(port);
	agent(port);
}

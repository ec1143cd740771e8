// SPDX-License-Identifier: GPL-2.0-only
/*
 * peer COMMAND [ARG...]: run COMMAND on the other host, and end as it ends.
 *
 * With one guest the other host is a network namespace, and this program becomes COMMAND in it.
 * With two guests, the agent of this guest passes the command on through the host, not over the
 * test wire.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "guest.h"

#define FAILED 125

static const int passed_on[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2 };

static void die(const char *what)
{
	fprintf(stderr, "peer: %s: %s\n", what, strerror(errno));
	exit(FAILED);
}

/* Enter the network namespace of the other host and make /sys show it. */
static void enter_other_namespace(void)
{
	struct stat ours, first;
	int net;

	/* In the peer's namespace, the other host is the namespace of the first process. */
	if (stat("/proc/self/ns/net", &ours) || stat("/proc/1/ns/net", &first))
		die("/proc");
	net = open(ours.st_ino == first.st_ino ? "/run/netns/peer" : "/proc/1/ns/net",
		   O_RDONLY | O_CLOEXEC);
	if (net < 0 || setns(net, CLONE_NEWNET) ||
	    unshare(CLONE_NEWNS | CLONE_NEWUTS))
		die("the other host's network");
	sethostname(ours.st_ino == first.st_ino ? "peer" : "self", 4);
	/* /sys shows the interfaces of the namespace that it was mounted in. */
	if (mount("none", "/", NULL, MS_SLAVE | MS_REC, NULL) ||
	    umount2("/sys", MNT_DETACH) ||
	    mount("sysfs", "/sys", "sysfs", 0, NULL))
		die("/sys");
	mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
	mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL);
	mount("bpf", "/sys/fs/bpf", "bpf", 0, NULL);
}

static void add_run(struct buffer *out, char **arguments)
{
	char directory[4096];
	uint32_t numbers[2] = { 0, 0 };
	struct buffer data = { 0 };

	if (!getcwd(directory, sizeof(directory)))
		strcpy(directory, "/");
	for (char **word = arguments; *word; word++)
		numbers[0]++;
	for (char **word = environ; *word; word++)
		numbers[1]++;
	buffer_add(&data, numbers, sizeof(numbers));
	buffer_add(&data, directory, strlen(directory) + 1);
	for (char **word = arguments; *word; word++)
		buffer_add(&data, *word, strlen(*word) + 1);
	for (char **word = environ; *word; word++)
		buffer_add(&data, *word, strlen(*word) + 1);
	frame_add(out, FRAME_RUN, 0, data.bytes, buffer_size(&data));
	buffer_free(&data);
}

/* Returns a signalfd for all signals except the ignored ones. */
static int signals_to_pass_on(void)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(passed_on) / sizeof(*passed_on); i++)
		if (signal(passed_on[i], SIG_DFL) != SIG_IGN)
			sigaddset(&set, passed_on[i]);
		else
			signal(passed_on[i], SIG_IGN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int over_the_host(char **arguments)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = PEER_SOCKET };
	/* Output from the other host that has not been written yet. */
	struct buffer text[2] = { { 0 }, { 0 } }, in = { 0 }, out = { 0 };
	int agent = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int status = -1, signals;

	if (connect(agent, (struct sockaddr *)&address, sizeof(address)))
		die("the agent of this guest");
	signals = signals_to_pass_on();
	fcntl(agent, F_SETFL, O_NONBLOCK);
	add_run(&out, arguments);

	while (status < 0 || buffer_size(&text[0]) || buffer_size(&text[1])) {
		struct pollfd watched[] = {
			{ agent, POLLIN | (buffer_size(&out) ? POLLOUT : 0), 0 },
			{ signals, POLLIN, 0 },
			{ buffer_size(&text[0]) ? 1 : -1, POLLOUT, 0 },
			{ buffer_size(&text[1]) ? 2 : -1, POLLOUT, 0 },
		};
		struct signalfd_siginfo caught;
		struct frame *frame;

		if (status >= 0)
			watched[0].fd = -1;
		poll(watched, 4, -1);
		while (read(signals, &caught, sizeof(caught)) == sizeof(caught))
			frame_add_number(&out, FRAME_SIGNAL, 0, caught.ssi_signo);
		for (int i = 0; i < 2; i++) {
			size_t size = buffer_size(&text[i]);
			ssize_t done;

			if (!watched[2 + i].revents)
				continue;
			/* Number of bytes that a writable pipe accepts without blocking. */
			done = write(1 + i, text[i].bytes + text[i].start,
				     size < 4096 ? size : 4096);
			if (done < 0 && (errno == EINTR || errno == EAGAIN))
				continue;
			if (done < 0)
				die("writing what COMMAND said");
			buffer_consume(&text[i], done);
			frame_add_number(&out, i ? FRAME_ERR_READ : FRAME_OUT_READ, 0, done);
		}
		if (status >= 0)
			continue;
		if (!buffer_write(&out, agent) || !buffer_read(&in, agent)) {
			fprintf(stderr, "peer: the agent is gone\n");
			return FAILED;
		}
		while ((frame = frame_first(&in))) {
			if (frame->type == FRAME_OUT)
				buffer_add(&text[0], frame->data, frame->length);
			else if (frame->type == FRAME_ERR)
				buffer_add(&text[1], frame->data, frame->length);
			else if (frame->type == FRAME_EXIT)
				status = frame_number(frame);
			buffer_consume(&in, sizeof(*frame) + frame->length);
		}
	}
	return status;
}

int peer(int argc, char **argv)
{
	char config[256] = "";
	int fd;

	if (argc < 2 || !strcmp(argv[1], "--help")) {
		fprintf(argc < 2 ? stderr : stdout,
			"usage: peer COMMAND [ARG...]\n"
			"Runs COMMAND on the other host and gives its output and status.\n"
			"Its standard input is /dev/null.\n");
		return argc < 2 ? 2 : 0;
	}
	fd = open(RUN_DIRECTORY "/config", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, config, sizeof(config) - 1) < 0)
		die("this is no test guest");
	close(fd);
	if (strstr(config, "hosts=2\n"))
		return over_the_host(argv + 1);

	enter_other_namespace();
	fd = open("/dev/null", O_RDONLY);
	dup2(fd, 0);
	close(fd);
	execvp(argv[1], argv + 1);
	fprintf(stderr, "peer: %s: %s\n", argv[1], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}

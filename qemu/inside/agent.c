// SPDX-License-Identifier: GPL-2.0-only
/* The agent: runs the commands that the host or the other guest requests, and relays frames for
 * `peer`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

/* One output stream of a command. */
struct stream {
	int fd;			/* -1 at its end */
	uint32_t window;	/* bytes that may be sent before an acknowledgement */
	int left;		/* after the command's end: bytes still to send */
};

/* A command that this agent runs. */
struct session {
	struct session *next;
	uint32_t id;
	pid_t pid;
	bool ended, reported;
	int status;
	struct stream stream[2];
};

/* A `peer` process in this guest whose command runs on the other guest. */
struct client {
	struct client *next;
	uint32_t id;
	int fd;
	bool ended;
	struct buffer in, out;
};

static struct session *sessions;
static struct client *clients;
static struct buffer to_host, from_host;
static sigset_t first_mask;

static void *allocate(size_t size)
{
	void *memory = calloc(1, size);

	if (!memory)
		abort();
	return memory;
}

/* --- commands that this agent runs ---------------------------------------- */

/* In the child: execute the command that a FRAME_RUN describes. Does not return. */
static void become(const struct frame *frame, int out, int err)
{
	const char *word = frame->data, *end = frame->data + frame->length;
	const char *directory;
	char **arguments, **environment;
	uint32_t numbers[2];

	memcpy(numbers, word, sizeof(numbers));
	word += sizeof(numbers);
	arguments = allocate((numbers[0] + 1) * sizeof(*arguments));
	environment = allocate((numbers[1] + 1) * sizeof(*environment));
	directory = word;
	word += strlen(word) + 1;
	for (uint32_t i = 0; i < numbers[0] && word < end; i++) {
		arguments[i] = (char *)word;
		word += strlen(word) + 1;
	}
	for (uint32_t i = 0; i < numbers[1] && word < end; i++) {
		environment[i] = (char *)word;
		word += strlen(word) + 1;
	}

	setsid();
	dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
	dup2(out, 1);
	dup2(err, 2);
	for (int signal_number = 1; signal_number < NSIG; signal_number++)
		signal(signal_number, SIG_DFL);
	sigprocmask(SIG_SETMASK, &first_mask, NULL);
	if (chdir(directory) && chdir("/"))
		_exit(126);
	environ = environment;
	execvp(arguments[0], arguments);
	dprintf(2, "%s: %s\n", arguments[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static void start_session(const struct frame *frame)
{
	struct session *session = allocate(sizeof(*session));
	int out[2], err[2];

	if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		abort();
	session->id = frame->id;
	session->pid = fork();
	if (!session->pid)
		become(frame, out[1], err[1]);
	close(out[1]);
	close(err[1]);
	session->stream[0] = (struct stream){ out[0], WINDOW, 0 };
	session->stream[1] = (struct stream){ err[0], WINDOW, 0 };
	for (int i = 0; i < 2; i++)
		fcntl(session->stream[i].fd, F_SETFL, O_NONBLOCK);
	if (session->pid < 0) {
		note("fork: %s", strerror(errno));
		session->ended = true;
		session->status = 126;
	}
	session->next = sessions;
	sessions = session;
}

static struct session *find_session(uint32_t id)
{
	struct session *session = sessions;

	while (session && (session->id != id || session->reported))
		session = session->next;
	return session;
}

static void send_signal(const struct session *session, int number)
{
	/* The child may not have become the leader of its process group yet. */
	if (kill(-session->pid, number))
		kill(session->pid, number);
}

static void reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct session *session = sessions;

		while (session && (session->pid != pid || session->ended))
			session = session->next;
		if (!session)
			continue;
		session->ended = true;
		session->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		/*
		 * Output up to the exit of a command belongs to the command. Later output of
		 * processes that the command leaves behind is dropped; otherwise a session might
		 * never end.
		 */
		for (int i = 0; i < 2; i++)
			if (session->stream[i].fd >= 0)
				ioctl(session->stream[i].fd, FIONREAD,
				      &session->stream[i].left);
	}
}

/* Pass on the output of a command. Returns true when the command has completed. */
static bool pump(struct session *session)
{
	static char bytes[64 << 10];

	for (int i = 0; i < 2; i++) {
		struct stream *stream = &session->stream[i];

		while (stream->fd >= 0) {
			size_t most = sizeof(bytes);
			ssize_t size;

			if (!session->reported) {
				if (session->ended && !stream->left)
					break;
				if (most > stream->window)
					most = stream->window;
				if (session->ended && most > (size_t)stream->left)
					most = stream->left;
				if (!most)
					break;
			}
			size = read(stream->fd, bytes, most);
			if (size < 0 && (errno == EAGAIN || errno == EINTR))
				break;
			if (size <= 0) {
				close(stream->fd);
				stream->fd = -1;
				stream->left = 0;
				break;
			}
			if (session->reported)
				continue;
			frame_add(&to_host, i ? FRAME_ERR : FRAME_OUT, session->id, bytes, size);
			stream->window -= size;
			if (session->ended)
				stream->left -= size;
		}
	}
	if (session->ended && !session->reported &&
	    !session->stream[0].left && !session->stream[1].left) {
		frame_add_number(&to_host, FRAME_EXIT, session->id, session->status);
		session->reported = true;
	}
	/* A process that still holds the pipes can still write to them: the output is read and
	 * dropped. */
	return session->ended && session->reported &&
	       session->stream[0].fd < 0 && session->stream[1].fd < 0;
}

static void pump_all(void)
{
	struct session **link = &sessions;

	while (*link) {
		struct session *session = *link;

		if (pump(session)) {
			*link = session->next;
			free(session);
		} else {
			link = &session->next;
		}
	}
}

/* --- clients: `peer` processes in this guest ------------------------------ */

static void accept_client(int listener)
{
	static uint32_t last;
	struct client *client;
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return;
	client = allocate(sizeof(*client));
	client->fd = fd;
	client->id = (strcmp(setting("host"), "self") ? 2u : 1u) << 24 | (++last & 0xffffff);
	client->next = clients;
	clients = client;
}

/* Pass frames of a client on to the host. Returns true when the client has completed. */
static bool serve(struct client *client)
{
	bool open = buffer_read(&client->in, client->fd);
	struct frame *frame;

	while ((frame = frame_first(&client->in))) {
		frame_add(&to_host, frame->type, client->id, frame->data, frame->length);
		buffer_consume(&client->in, sizeof(*frame) + frame->length);
	}
	if (!buffer_write(&client->out, client->fd))
		open = false;
	/* The client closes first: it may still have bytes to read and to acknowledge. */
	if (!open && !client->ended)
		frame_add(&to_host, FRAME_HANGUP, client->id, NULL, 0);
	return !open;
}

static void serve_all(void)
{
	struct client **link = &clients;

	while (*link) {
		struct client *client = *link;

		if (serve(client)) {
			*link = client->next;
			close(client->fd);
			buffer_free(&client->in);
			buffer_free(&client->out);
			free(client);
		} else {
			link = &client->next;
		}
	}
}

/* --- the host ------------------------------------------------------------- */

/* Only a debug kernel has kmemleak. kmemleak's reports go to the console, which the host reads. */
static void look_for_leaks(void)
{
	static const char path[] = "/sys/kernel/debug/kmemleak";
	char line[500];
	FILE *file;
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	/* kmemleak reports no leak before an object is 5 s old and two scans have missed it. */
	sleep(6);
	for (int scan = 0; scan < 2; scan++)
		if (write(fd, "scan", 4) < 0)
			note("kmemleak: %s", strerror(errno));
	close(fd);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = 0;
		note("%s", line);
	}
	if (file)
		fclose(file);
}

static void finish(void)
{
	note("looking for leaks and ending");
	look_for_leaks();
	/* The host waits for the last line, which follows all messages of the kernel. */
	note("end of the run");
	frame_add(&to_host, FRAME_FINISH, 0, NULL, 0);
}

static void print_tasks(void)
{
	int fd = open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);

	/* Requests backtraces of all CPUs (SysRq l), then the blocked tasks (SysRq w). */
	if (fd >= 0 && (write(fd, "l", 1) < 0 || write(fd, "w", 1) < 0))
		note("sysrq: %s", strerror(errno));
	close(fd);
	note("end of the run");
}

static void obey(const struct frame *frame)
{
	struct session *session;
	struct client *client;

	switch (frame->type) {
	case FRAME_RUN:
		start_session(frame);
		return;
	case FRAME_FINISH:
		finish();
		return;
	case FRAME_TASKS:
		print_tasks();
		return;
	case FRAME_OUT:
	case FRAME_ERR:
	case FRAME_EXIT:
		for (client = clients; client; client = client->next) {
			if (client->id != frame->id)
				continue;
			buffer_add(&client->out, frame, sizeof(*frame) + frame->length);
			client->ended |= frame->type == FRAME_EXIT;
		}
		return;
	}

	session = find_session(frame->id);
	if (!session)
		return;
	switch (frame->type) {
	case FRAME_OUT_READ:
		session->stream[0].window += frame_number(frame);
		return;
	case FRAME_ERR_READ:
		session->stream[1].window += frame_number(frame);
		return;
	case FRAME_SIGNAL:
		if (!session->ended)
			send_signal(session, frame_number(frame));
		return;
	case FRAME_HANGUP:
		if (!session->ended)
			send_signal(session, SIGKILL);
		session->reported = true;
		return;
	}
}

static int listen_for_clients(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = PEER_SOCKET };
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) ||
	    listen(listener, 100))
		note("%s: %s", PEER_SOCKET, strerror(errno));
	return listener;
}

void agent(int port)
{
	int listener = listen_for_clients();
	struct signalfd_siginfo caught;
	struct pollfd *watched = NULL;
	size_t room = 0;
	sigset_t set;
	int children;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, &first_mask);
	signal(SIGPIPE, SIG_IGN);
	children = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	frame_add(&to_host, FRAME_UP, 0, NULL, 0);

	for (;;) {
		struct frame *frame;
		size_t count = 0;

#define WATCH(what, which) do {							\
	if (count == room) {							\
		room = 2 * room + 16;						\
		watched = realloc(watched, room * sizeof(*watched));		\
		if (!watched)							\
			abort();						\
	}									\
	watched[count++] = (struct pollfd){ what, which, 0 };			\
} while (0)
		WATCH(port, POLLIN | (buffer_size(&to_host) ? POLLOUT : 0));
		WATCH(listener, POLLIN);
		WATCH(children, POLLIN);
		for (struct session *session = sessions; session; session = session->next)
			for (int i = 0; i < 2; i++)
				if (session->reported || (session->stream[i].window && !session->ended))
					WATCH(session->stream[i].fd, POLLIN);
		for (struct client *client = clients; client; client = client->next)
			WATCH(client->fd, POLLIN | (buffer_size(&client->out) ? POLLOUT : 0));
#undef WATCH
		poll(watched, count, -1);

		while (read(children, &caught, sizeof(caught)) > 0)
			;
		reap();
		buffer_read(&from_host, port);
		while ((frame = frame_first(&from_host))) {
			obey(frame);
			buffer_consume(&from_host, sizeof(*frame) + frame->length);
		}
		accept_client(listener);
		serve_all();
		pump_all();
		buffer_write(&to_host, port);
	}
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Program inside a guest: first process, agent of the host, and `peer`.
 *
 * Agent and host exchange frames over one virtio-serial port: a header of 12 bytes (type, 3 unused
 * bytes, id, length; little-endian) and `length` bytes of data. `peer` and the agent of its own
 * guest exchange the same frames over a UNIX socket.
 *
 * An id names one command. The top byte of an id is the requester: the host (0), the guest `self`
 * (1) or the guest `peer` (2). The host therefore passes on every frame whose id is not its own to
 * the other guest, and keeps no state.
 *
 * The agent that runs a command sends at most WINDOW bytes of each of its two output streams beyond
 * those that the requester has acknowledged. So a slow or stopped reader blocks its own command
 * only.
 */
#ifndef GUEST_H
#define GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum frame_type {
	FRAME_RUN = 'R',	/* directory, arguments and environment */
	FRAME_OUT = 'O',	/* bytes of standard output */
	FRAME_ERR = 'E',	/* bytes of standard error */
	FRAME_OUT_READ = 'o',	/* number of bytes consumed */
	FRAME_ERR_READ = 'e',
	FRAME_EXIT = 'X',	/* status, as a shell gives it */
	FRAME_SIGNAL = 'S',	/* number of a signal to send to the command */
	FRAME_HANGUP = 'H',	/* the requester is gone: end the command */
	FRAME_UP = 'U',		/* guest to host: ready for commands */
	FRAME_FAILED = 'F',	/* guest to host: could not get ready, and why */
	FRAME_FINISH = 'D',	/* host to guest: search for leaks; and the reply */
	FRAME_TASKS = 'T',	/* host to guest: print running and blocked tasks */
};

#define WINDOW (256u << 10)

struct frame {
	uint8_t type;
	uint8_t zero[3];
	uint32_t id;
	uint32_t length;
	char data[];
} __attribute__((packed));

/* Bytes to be read or written. */
struct buffer {
	char *bytes;
	size_t start, end, room;
};

char *buffer_reserve(struct buffer *buffer, size_t size);
void buffer_add(struct buffer *buffer, const void *bytes, size_t size);
void buffer_consume(struct buffer *buffer, size_t size);
void buffer_free(struct buffer *buffer);
static inline size_t buffer_size(const struct buffer *buffer)
{
	return buffer->end - buffer->start;
}

void frame_add(struct buffer *buffer, uint8_t type, uint32_t id,
	       const void *data, size_t size);
void frame_add_number(struct buffer *buffer, uint8_t type, uint32_t id,
		      uint32_t number);
uint32_t frame_number(const struct frame *frame);
/* Returns the first complete frame, or NULL. */
struct frame *frame_first(const struct buffer *buffer);
/* Write or read until the descriptor would block; return false on its end or an error.
 */
bool buffer_write(struct buffer *buffer, int fd);
bool buffer_read(struct buffer *buffer, int fd);

/* Returns a setting of this run, from the file /config of the initramfs. */
const char *setting(const char *name);

#define RUN_DIRECTORY "/run/guest"
#define PEER_SOCKET RUN_DIRECTORY "/peer.sock"

/* Print to the kernel log, and so to the console. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

void boot(int port);
void agent(int port) __attribute__((noreturn));
int peer(int argc, char **argv);

#endif

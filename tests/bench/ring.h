// SPDX-License-Identifier: GPL-2.0-only
/* Zero-copy sends of io_uring, by bare system calls. Each thread has a ring. */
#ifndef BENCH_RING_H
#define BENCH_RING_H

#include <linux/io_uring.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include "measuring.h"

/* Maximum number of sends whose memory is in use. */
#define RING_IN_FLIGHT 4

static __thread struct {
	int fd;
	int in_flight;
	unsigned int *tail, *array, *heads, *tails, mask, masks;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
} ring;

static void ring_open(void)
{
	struct io_uring_params params = {};
	char *sq, *cq;

	ring.fd = syscall(__NR_io_uring_setup, 2 * RING_IN_FLIGHT, &params);
	if (ring.fd <= 0)
		fail("io_uring_setup: %s", strerror(errno));
#define MAP(offset) mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, offset)
	sq = MAP(IORING_OFF_SQ_RING);
	cq = MAP(IORING_OFF_CQ_RING);
	ring.sqes = MAP(IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || ring.sqes == MAP_FAILED)
		fail("cannot map the ring: %s", strerror(errno));
#define AT(part, member) ((unsigned int *)(part + params.part##_off.member))
	ring.tail = AT(sq, tail);
	ring.array = AT(sq, array);
	ring.mask = *AT(sq, ring_mask);
	ring.heads = AT(cq, head);
	ring.tails = AT(cq, tail);
	ring.masks = *AT(cq, ring_mask);
	ring.cqes = (void *)(cq + params.cq_off.cqes);
}

/* Waits for one completion and consumes it. Returns true if the completion is a result, false if it
 * only returns the memory. */
static int ring_take(int submit, int *result)
{
	unsigned int head = *ring.heads;
	struct io_uring_cqe *cqe = &ring.cqes[head & ring.masks];
	int is_result;

	while (submit || head == __atomic_load_n(ring.tails, __ATOMIC_ACQUIRE)) {
		int wait = head == __atomic_load_n(ring.tails, __ATOMIC_ACQUIRE);

		if (syscall(__NR_io_uring_enter, ring.fd, submit, wait, IORING_ENTER_GETEVENTS, NULL, 0) < 0 && errno != EINTR)
			fail("io_uring_enter: %s", strerror(errno));
		submit = 0;
	}
	is_result = !(cqe->flags & IORING_CQE_F_NOTIF);
	if (is_result) {
		*result = cqe->res;
		ring.in_flight += !!(cqe->flags & IORING_CQE_F_MORE);
	} else {
		ring.in_flight--;
	}
	__atomic_store_n(ring.heads, head + 1, __ATOMIC_RELEASE);
	return is_result;
}

/* Waits until at most this number of sends still use their memory. */
static void ring_settle(int most)
{
	int none;

	while (ring.in_flight > most)
		ring_take(0, &none);
}

/* Sends a whole message in parts; the next message must not overtake it. */
static void ring_send(int fd, struct msghdr *message, size_t length)
{
	unsigned int slot;
	int submit = 1, result;

	if (!ring.fd)
		ring_open();
	ring_settle(RING_IN_FLIGHT - 1);
	slot = *ring.tail & ring.mask;
	if (message->msg_iovlen == 1)
		ring.sqes[slot] = (struct io_uring_sqe){ .opcode = IORING_OP_SEND_ZC, .addr = (unsigned long)message->msg_iov->iov_base,
							 .len = length };
	else
		ring.sqes[slot] = (struct io_uring_sqe){ .opcode = IORING_OP_SENDMSG_ZC, .addr = (unsigned long)message, .len = 1 };
	ring.sqes[slot].fd = fd;
	ring.sqes[slot].msg_flags = MSG_NOSIGNAL | MSG_WAITALL;
	ring.array[slot] = slot;
	__atomic_store_n(ring.tail, *ring.tail + 1, __ATOMIC_RELEASE);
	while (!ring_take(submit, &result))
		submit = 0;
	if (result != (int)length)
		fail("io_uring: %s", result < 0 ? strerror(-result) : "sent in part");
}
#endif

/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SDP_PROTECT_HELPERS_H
#define SDP_PROTECT_HELPERS_H

/* userfaultfd(2) for src/sys/protect.rs; the kernel has no internal interface for it. */

#include <linux/completion.h>
#include <linux/mm_types.h>
#include <linux/poll.h>
#include <linux/rwsem.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

/*
 * A userfaultfd in write-protect mode for one address space. The userfaultfd's ioctls read their
 * arguments from memory of a process: `args` is a page of that address space, divided into slots.
 * The worker uses the first slot.
 */
struct sdp_h_protect {
	struct mm_struct	*mm;		/* the structure is held, not the address space */
	struct rw_semaphore	open;		/* read by callers who use the file, and what is below */
	struct file		*file;
	unsigned long		args;
	struct page		*page;		/* of args, pinned */
	unsigned long		slots;		/* those in use */
	struct completion	made;
	int			error;		/* why there is no file, once made is complete */
	struct work_struct	work;
	struct delayed_work	idle;
	wait_queue_entry_t	wait;
	wait_queue_head_t	*head;		/* of the file, with wait in it */
	poll_table		table;
	void			(*run)(struct sdp_h_protect *p);
	void			(*rest)(struct sdp_h_protect *p);
};

int sdp_h_watch_shrinker_start(unsigned long (*count)(void), void (*free)(void));
void sdp_h_watch_shrinker_stop(void);

/* An event. */
struct sdp_h_protect_event {
	bool			moved;		/* mremap(2), else a write that waits at `from` */
	unsigned long		from;
	unsigned long		len;
};

/* Reasons why memory cannot be protected. */
enum sdp_h_protectable {
	SDP_H_PROTECTABLE,
	SDP_H_PROTECTABLE_FIRST,		/* once it is registered; not reported */
	SDP_H_PROTECT_SHARED,
	SDP_H_PROTECT_FILE,
	SDP_H_PROTECT_HUGE,
	SDP_H_PROTECT_STACK,
	SDP_H_PROTECT_OTHER,			/* under another userfaultfd */
	SDP_H_PROTECT_HOLE,
	SDP_H_PROTECT_MISUSED,			/* the file catches more than writes, and is to be closed */
};

#endif

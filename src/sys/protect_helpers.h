/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SDP_PROTECT_HELPERS_H
#define SDP_PROTECT_HELPERS_H

/* Wrapper of userfaultfd(2) for src/sys/protect.rs; the kernel has no internal interface for it. */

#include <linux/completion.h>
#include <linux/mm_types.h>
#include <linux/poll.h>
#include <linux/rwsem.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

/*
 * A userfaultfd in write-protect mode for one address space. The ioctls of a userfaultfd read their
 * arguments from memory of a process. `args` is a page of the process, divided into slots. The
 * worker uses the first slot.
 */
struct sdp_h_protect {
	struct mm_struct	*mm;		/* mmgrab() reference, without the mappings */
	struct rw_semaphore	open;		/* read-locked while a caller uses the file */
	struct file		*file;
	unsigned long		args;
	struct page		*page;		/* of args, pinned */
	unsigned long		slots;		/* bit mask of slots in use */
	struct completion	made;
	int			error;		/* result of creating the file, set before `made` */
	struct work_struct	work;
	struct delayed_work	idle;
	wait_queue_entry_t	wait;
	wait_queue_head_t	*head;		/* wait queue of the file; contains `wait` */
	poll_table		table;
	void			(*run)(struct sdp_h_protect *p);
	void			(*rest)(struct sdp_h_protect *p);
};

int sdp_h_watch_shrinker_start(unsigned long (*count)(void), void (*free)(void));
void sdp_h_watch_shrinker_stop(void);

/* An event. */
struct sdp_h_protect_event {
	bool			moved;		/* mremap(2), otherwise write fault at `from` */
	unsigned long		from;
	unsigned long		len;
};

/* Reasons why memory cannot be protected. */
enum sdp_h_protectable {
	SDP_H_PROTECTABLE,
	SDP_H_PROTECTABLE_FIRST,		/* protectable once registered; not reported */
	SDP_H_PROTECT_SHARED,
	SDP_H_PROTECT_FILE,
	SDP_H_PROTECT_HUGE,
	SDP_H_PROTECT_STACK,
	SDP_H_PROTECT_OTHER,			/* under another userfaultfd */
	SDP_H_PROTECT_HOLE,
	SDP_H_PROTECT_MISUSED,			/* the file handles other faults: close it */
};

#endif

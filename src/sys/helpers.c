// SPDX-License-Identifier: GPL-2.0-only

/*
 * Inline functions and macros of the kernel as functions for Rust. Each function is local to the
 * module, has the prefix sdp_h_ and contains as little code as possible.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/printk.h>
#include <linux/siphash.h>
#include <linux/workqueue.h>
#include <net/inet_sock.h>
#include <net/sock.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "net_helpers.h"
#include "protect_helpers.h"

struct workqueue_struct *sdp_h_wq, *sdp_h_rdma_wq, *sdp_h_protect_wq;

/* Context: process. sdp_h_stop() destroys all objects, also after an error. */
int sdp_h_start(unsigned long layout, unsigned long (*count)(void), void (*free)(void))
{
	if (layout != SDP_H_LAYOUT) {
		pr_err("bindgen and the compiler disagree about the layout of structures\n");
		return -EINVAL;
	}
	sdp_h_wq = alloc_workqueue("ib_sdp", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	/* frees memory that the shrinker has taken, so memory reclaim may wait for the workqueue */
	sdp_h_rdma_wq = alloc_workqueue("ib_sdp_rdma", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	/* write protection alone: an item may wait for a task that faults with an mmap lock held */
	sdp_h_protect_wq = alloc_workqueue("ib_sdp_protect", WQ_UNBOUND, 0);
	if (!sdp_h_wq || !sdp_h_rdma_wq || !sdp_h_protect_wq)
		return -ENOMEM;
	return percpu_counter_init(&sdp_h_block_bytes, 0, GFP_KERNEL) ?:
	       sdp_h_watch_shrinker_start(count, free);
}

static void stop(struct workqueue_struct **wq)
{
	if (*wq)
		destroy_workqueue(*wq);
	*wq = NULL;
}

void sdp_h_stop(void)
{
	sdp_h_watch_shrinker_stop();
	stop(&sdp_h_wq);
	stop(&sdp_h_rdma_wq);
	/* closes all userfaultfds, so that no event is queued while the workqueue is drained */
	if (sdp_h_protect_wq)
		flush_workqueue(sdp_h_protect_wq);
	stop(&sdp_h_protect_wq);
	percpu_counter_destroy(&sdp_h_block_bytes);
}

/* Computes a hash with a random key that never changes. */
u32 sdp_h_hash(const void *bytes, size_t n)
{
	static siphash_key_t key __read_mostly;

	net_get_random_once(&key, sizeof(key));
	return siphash(bytes, n, &key);
}

/* Prints a line of dynamic debug, which Rust's own pr_debug!() does not support. */
void sdp_h_debug(const void *arguments)
{
	/* %pA is a core::fmt::Arguments; it is only evaluated when the line is printed. */
	pr_debug("%pA\n", arguments);
}

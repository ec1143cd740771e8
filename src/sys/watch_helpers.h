/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SDP_WATCH_HELPERS_H
#define SDP_WATCH_HELPERS_H

/* MMU notifiers and shrinkers for src/sys/watch.rs. */

#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/* A watched range of a process's address space. */
struct sdp_h_watch {
	struct mmu_interval_notifier mni;
	spinlock_t		lock;		/* for mni's sequence and changed */
	bool			changed;
	struct list_head	idle;		/* in the list of what may be given up */
	unsigned long		pages;		/* while it is in there */
	void			(*give_up)(struct sdp_h_watch *w);
};

int sdp_h_watch_start(struct sdp_h_watch *w, unsigned long start, unsigned long len,
		      void (*give_up)(struct sdp_h_watch *w));
void sdp_h_watch_stop(struct sdp_h_watch *w);
unsigned long sdp_h_watch_begin(struct sdp_h_watch *w);
bool sdp_h_watch_valid(struct sdp_h_watch *w, unsigned long seq);
bool sdp_h_watch_changed(struct sdp_h_watch *w);
bool sdp_h_watch_is_mine(const struct sdp_h_watch *w);
void sdp_h_watch_idle(struct sdp_h_watch *w, unsigned long pages);
void sdp_h_watch_busy(struct sdp_h_watch *w);
unsigned long sdp_h_watch_shrink(unsigned long pages);
int sdp_h_watch_shrinker_start(unsigned long (*count)(void), void (*free)(void));
void sdp_h_watch_shrinker_stop(void);

#endif

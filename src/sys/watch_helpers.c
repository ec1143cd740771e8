// SPDX-License-Identifier: GPL-2.0-only

/* Watched address space, and memory dropped under memory pressure. */

#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/sched.h>
#include <linux/shrinker.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "protect_helpers.h"

/* A watched range of a process's address space. */
struct sdp_h_watch {
	struct mmu_interval_notifier mni;	/* mni's sequence changes under idle_lock */
	unsigned long		seq;		/* sequence at the start of the watch */
	struct list_head	idle;		/* in idle_list */
	unsigned long		pages;		/* pages of idle memory while in idle_list */
	void			(*give_up)(struct sdp_h_watch *w);
};

/*
 * Watches with idle memory, the longest idle first. Calls of give_up() hold the lock, which keeps
 * the watch alive.
 */
static LIST_HEAD(idle_list);
static DEFINE_SPINLOCK(idle_lock);
static unsigned long idle_pages;

static struct shrinker *shrinker;

static bool take_out(struct sdp_h_watch *w)
{
	if (list_empty(&w->idle))
		return false;
	list_del_init(&w->idle);
	idle_pages -= w->pages;
	return true;
}

void sdp_h_watch_busy(struct sdp_h_watch *w)
{
	spin_lock(&idle_lock);
	take_out(w);
	spin_unlock(&idle_lock);
}

static bool changed(struct mmu_interval_notifier *mni, const struct mmu_notifier_range *range,
		    unsigned long seq)
{
	struct sdp_h_watch *w = container_of(mni, struct sdp_h_watch, mni);

	spin_lock(&idle_lock);
	mmu_interval_set_seq(mni, seq);
	/* Does not free memory in use: its user detects the change after the use. */
	if (take_out(w))
		w->give_up(w);
	spin_unlock(&idle_lock);
	return true;
}

static const struct mmu_interval_notifier_ops watch_ops = {
	.invalidate = changed,
};

/* Starts watching a range of the calling process's memory, when no change is in progress. */
int sdp_h_watch_start(struct sdp_h_watch *w, unsigned long start, unsigned long len,
		      void (*give_up)(struct sdp_h_watch *w))
{
	int ret;

	INIT_LIST_HEAD(&w->idle);
	w->give_up = give_up;
	if (!current->mm)
		return -EINVAL;
	ret = mmu_interval_notifier_insert(&w->mni, current->mm, start, len, &watch_ops);
	if (!ret)
		w->seq = mmu_interval_read_begin(&w->mni);
	return ret;
}

/* Waits for calls of give_up(). */
void sdp_h_watch_stop(struct sdp_h_watch *w)
{
	mmu_interval_notifier_remove(&w->mni);
	sdp_h_watch_busy(w);
}

bool sdp_h_watch_is_idle(const struct sdp_h_watch *w)
{
	return !list_empty_careful(&w->idle);
}

/* Adds a watch to the list, unless its memory has changed since the start. */
bool sdp_h_watch_idle(struct sdp_h_watch *w, unsigned long pages)
{
	bool valid;

	spin_lock(&idle_lock);
	valid = !mmu_interval_read_retry(&w->mni, w->seq);
	if (valid) {
		w->pages = pages;
		idle_pages += pages;
		list_add_tail(&w->idle, &idle_list);
	}
	spin_unlock(&idle_lock);
	return valid;
}

/* Drops the memory that has been idle longest, up to `pages` pages. */
unsigned long sdp_h_watch_shrink(unsigned long pages)
{
	unsigned long freed = 0;

	spin_lock(&idle_lock);
	while (freed < pages && !list_empty(&idle_list)) {
		struct sdp_h_watch *w = list_first_entry(&idle_list, struct sdp_h_watch, idle);

		freed += w->pages;
		take_out(w);
		w->give_up(w);
	}
	spin_unlock(&idle_lock);
	return freed;
}

/* Functions that count and free the objects kept by connections; free_kept() may sleep. */
static unsigned long (*count_kept)(void);
static void (*free_kept)(void);

static void free_kept_work(struct work_struct *work)
{
	free_kept();
}

static DECLARE_WORK(kept_work, free_kept_work);

static unsigned long shrinker_count(struct shrinker *s, struct shrink_control *sc)
{
	return (READ_ONCE(idle_pages) + count_kept()) ?: SHRINK_EMPTY;
}

static unsigned long shrinker_scan(struct shrinker *s, struct shrink_control *sc)
{
	unsigned long freed = sdp_h_watch_shrink(sc->nr_to_scan);

	if (freed < sc->nr_to_scan && count_kept())
		schedule_work(&kept_work);
	return freed ?: SHRINK_STOP;
}

int sdp_h_watch_shrinker_start(unsigned long (*count)(void), void (*free)(void))
{
	count_kept = count;
	free_kept = free;
	shrinker = shrinker_alloc(0, "ib_sdp_pinned");
	if (!shrinker)
		return -ENOMEM;
	shrinker->count_objects = shrinker_count;
	shrinker->scan_objects = shrinker_scan;
	shrinker_register(shrinker);
	return 0;
}

void sdp_h_watch_shrinker_stop(void)
{
	shrinker_free(shrinker);
	cancel_work_sync(&kept_work);
}

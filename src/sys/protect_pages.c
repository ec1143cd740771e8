// SPDX-License-Identifier: GPL-2.0-only

/* Pages of write-protected memory, and the pins of these pages. */

#include <linux/delay.h>
#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/mutex.h>

#include "pin_helpers.h"
#include "protect_helpers.h"

/* --- Pins for sending ---------------------------------------------------------------------- */

/*
 * Memory that this module has pinned for sending. A pin for sending does not write to the page.
 * Pins are counted within one address space only, so each bucket has its own lock.
 */
static struct bucket {
	struct mutex sent_lock;
	struct list_head list;	/* each entry not `moving` pins each of its pages once */
} ____cacheline_aligned_in_smp buckets[] = {
#define BUCKET(i) { __MUTEX_INITIALIZER(buckets[i].sent_lock), \
		    LIST_HEAD_INIT(buckets[i].list) }
	BUCKET(0), BUCKET(1), BUCKET(2), BUCKET(3), BUCKET(4), BUCKET(5), BUCKET(6), BUCKET(7),
	BUCKET(8), BUCKET(9), BUCKET(10), BUCKET(11), BUCKET(12), BUCKET(13), BUCKET(14), BUCKET(15),
#undef BUCKET
};

static struct bucket *bucket_of(const struct mm_struct *mm)
{
	return &buckets[hash_ptr(mm, ilog2(ARRAY_SIZE(buckets)))];
}

/* Lists memory that has ranges; sets `moving` unless the pages are pinned. */
void sdp_h_sent_list(struct sdp_h_sent *sent, bool moving)
{
	struct bucket *bucket = bucket_of(sent->mm);

	mutex_lock(&bucket->sent_lock);
	list_del_init(&sent->entry);
	sent->moving = moving;
	if (moving || sent->ranges)
		list_add(&sent->entry, &bucket->list);
	mutex_unlock(&bucket->sent_lock);
}

/*
 * Returns the number of pins that listed memory holds on a folio mapped at `start`. Ignores entries
 * whose pages are not the folio's: the address may have been remapped since. May miss pins of a
 * folio that is mapped in several places.
 */
static unsigned long listed(const struct mm_struct *mm, unsigned long start, struct folio *folio)
{
	unsigned long at, end = start + folio_size(folio), found = 0;
	const struct sdp_h_sent *sent;
	unsigned int k;

	list_for_each_entry(sent, &bucket_of(mm)->list, entry) {
		struct page **pages = sent->pages;

		for (k = 0; sent->mm == mm && !sent->moving && k < sent->ranges; pages += sent->range[k++].pages) {
			unsigned long from = sent->range[k].start;
			unsigned long to = min(end, from + sent->range[k].pages * PAGE_SIZE);

			for (at = max(start, from); at < to; at += PAGE_SIZE)
				found += pages[(at - from) / PAGE_SIZE] ==
					 folio_page(folio, (at - start) / PAGE_SIZE);
		}
	}
	return found;
}

/* Returns the pins on all pages of a folio. Many references to a small folio look like a pin. */
static unsigned long pins_of(const struct folio *folio)
{
	if (folio_has_pincount(folio))
		return atomic_read(&folio->_pincount);
	return (unsigned int)folio_ref_count(folio) / GUP_PIN_COUNTING_BIAS;
}

/* Returns true if other users have pinned pages of this memory: any pin beyond its own, or, if
 * `with_list`, beyond the listed pins.
 */
static bool others(const struct sdp_h_sent *sent, bool with_list)
{
	struct page **pages = sent->pages;
	unsigned long i, n, most, pins;
	unsigned int k;

	for (k = 0; k < sent->ranges; k++) {
		for (i = 0; i < sent->range[k].pages; i += n, pages += n) {
			struct folio *folio = page_folio(*pages);
			unsigned long index = folio_page_idx(folio, *pages);
			unsigned long start = sent->range[k].start + (i - index) * PAGE_SIZE;

			most = min(sent->range[k].pages - i, folio_nr_pages(folio) - index);
			/* pages of other folios may be mapped within the range of this folio */
			for (n = 1; n < most && pages[n] == folio_page(folio, index + n); n++)
				;
			pins = pins_of(folio);
			if (pins != n && !(with_list && pins == listed(sent->mm, start, folio)))
				return true;
		}
	}
	return !sent->ranges;
}

/* Returns true if the current process still maps the pages at the same addresses. */
static bool mapped(const struct sdp_h_sent *sent)
{
	bool same = sent->mm == current->mm;
	struct page **pages = sent->pages, *now[16];
	unsigned long i;
	unsigned int k;
	int n, got;

	for (k = 0; same && k < sent->ranges; k++) {
		for (i = 0; same && i < sent->range[k].pages; i += n) {
			n = min(sent->range[k].pages - i, ARRAY_SIZE(now));
			got = get_user_pages_fast(sent->range[k].start + i * PAGE_SIZE, n, 0, now);
			same = got == n && !memcmp(now, pages, n * sizeof(*now));
			while (got > 0)
				put_page(now[--got]);
			pages += n;
		}
	}
	return same;
}

/*
 * Checks listed memory after its protection. -ESTALE: the process has remapped it. -EBUSY: its
 * pages have other pins. -EAGAIN: unknown, because pages of the process are being pinned or
 * unpinned, even after a millisecond of retries. May sleep.
 */
int sdp_h_sent_pins(const struct sdp_h_sent *sent)
{
	struct bucket *bucket = bucket_of(sent->mm);
	int ret = !mapped(sent) ? -ESTALE : others(sent, false) ? -EAGAIN : 0;
	const struct sdp_h_sent *other;
	unsigned int tries;

	for (tries = 0; ret == -EAGAIN && tries < 10; tries++) {
		if (tries)
			usleep_range(50, 100);
		mutex_lock(&bucket->sent_lock);
		ret = others(sent, true) ? -EBUSY : 0;
		list_for_each_entry(other, &bucket->list, entry)
			if (ret && other->moving && other->mm == sent->mm)
				ret = -EAGAIN;
		mutex_unlock(&bucket->sent_lock);
	}
	return ret;
}

// SPDX-License-Identifier: GPL-2.0-only

/* Pages of a process's memory that is write-protected; see protect_helpers.h. */

#include <linux/mm.h>
#include <linux/sched.h>

#include "protect_helpers.h"

/* Names this moment in the life of the calling process's memory, unless mappings are being changed. */
bool sdp_h_protect_moment(unsigned int *moment)
{
	return current->mm && mmap_lock_speculate_try_begin(current->mm, moment);
}

/* Whether no mapping has changed since. */
bool sdp_h_protect_unchanged(unsigned int moment)
{
	return current->mm && !mmap_lock_speculate_retry(current->mm, moment);
}

/* Whether these pages are mapped from `start` on in the calling process. */
bool sdp_h_protect_same(unsigned long start, struct page **pages, unsigned int n)
{
	struct page *page;
	bool same = current->mm;

	for (; same && n; n--, pages++, start += PAGE_SIZE) {
		if (get_user_pages_fast(start, 1, 0, &page) != 1)
			return false;
		same = page == *pages;
		put_page(page);
	}
	return same;
}

/*
 * How often the folio of a page is pinned, each of its pages counted; the page is the one with this index of so many. Of a small one
 * many plain references look like another pin.
 */
unsigned int sdp_h_protect_pins(struct page *page, unsigned long *index, unsigned long *count)
{
	struct folio *folio = page_folio(page);

	*index = folio_page_idx(folio, page);
	*count = folio_nr_pages(folio);
	if (folio_has_pincount(folio))
		return atomic_read(&folio->_pincount);
	return (unsigned int)folio_ref_count(folio) / GUP_PIN_COUNTING_BIAS;
}

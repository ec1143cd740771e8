// SPDX-License-Identifier: GPL-2.0-only

/* Functions for pinned pages and MRs that Rust cannot call directly. */

#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/net.h>
#include <linux/pagemap.h>
#include <linux/uaccess.h>

#include "pin_helpers.h"

/* --- Pinning ------------------------------------------------------------------------------- */

/*
 * Returns the address at the iterator, and how many of the next `most` bytes are contiguous, across
 * any number of vectors: QEMU passes a vector for each page. A program may have tagged its address;
 * watches use the untagged address.
 */
static unsigned long first_piece(const struct iov_iter *i, size_t most, size_t *len)
{
	const struct iovec *iov;
	size_t skip = i->iov_offset, left = min(i->count, most);
	unsigned long k, start = 0;

	*len = 0;
	if (iter_is_ubuf(i)) {
		*len = left;
		return untagged_addr((unsigned long)i->ubuf) + skip;
	}
	if (!iter_is_iovec(i))
		return 0;
	for (k = 0, iov = iter_iov(i); k < i->nr_segs; k++, iov++, skip = 0) {
		unsigned long at = untagged_addr((unsigned long)iov->iov_base) + skip;

		if (iov->iov_len <= skip)
			continue;
		if (!*len)
			start = at;
		else if (at != start + *len)
			break;
		*len += min(iov->iov_len - skip, left - *len);
		if (*len == left)
			break;
	}
	return start;
}

/* Variant of first_piece() for the bytes after the next `skip` bytes. */
unsigned long sdp_h_pin_piece(const struct iov_iter *i, size_t skip, size_t most, size_t *len)
{
	struct iov_iter at = *i;

	iov_iter_advance(&at, skip);
	return first_piece(&at, most, len);
}

/*
 * Advances to the next segment of a run, which has `got` bytes before it: segments that can be
 * registered as one, since only the first begins and only the last ends within a page. Returns 0 at
 * the end of the run.
 */
static size_t next_of_run(struct iov_iter *i, size_t got, size_t most, unsigned int *offset,
			  unsigned long *start)
{
	size_t len;

	*start = first_piece(i, most - got, &len);
	iov_iter_advance(i, len);
	if (!got)
		*offset = offset_in_page(*start);
	else if (offset_in_page(*start) || offset_in_page(*offset + got))
		return 0;
	return len;
}

/* Finds the next run. Returns the address of a run of one segment, else the offset in its first
 * page.
 */
static unsigned long first_run(const struct iov_iter *i, size_t most, size_t *len)
{
	struct iov_iter at;
	unsigned long start, next;
	unsigned int offset;
	size_t n;

	if (iter_is_ubuf(i))
		return first_piece(i, most, len);
	at = *i;
	*len = next_of_run(&at, 0, most, &offset, &start);
	while (*len && (n = next_of_run(&at, *len, most, &offset, &next))) {
		*len += n;
		start = offset;
	}
	return start;
}

/*
 * Finds the next bytes without a gap, up to `most`, of a kernel caller that passes pages, as
 * io_uring does for registered buffers. Takes a reference to each page, stored in `pages` if not
 * NULL.
 */
static size_t page_run(const struct iov_iter *i, size_t most, struct page **pages,
		       unsigned int capacity, unsigned int *offset, unsigned int *taken)
{
	size_t skip = i->iov_offset, left = min(i->count, most), got = 0;
	unsigned long k;

	*offset = *taken = 0;
	for (k = 0; k < i->nr_segs && left; k++, skip = 0) {
		const struct bio_vec *bv = &i->bvec[k];
		size_t at = bv->bv_offset + skip, len;

		if (bv->bv_len <= skip)
			continue;
		len = min(bv->bv_len - skip, left);
		if (!got)
			*offset = offset_in_page(at);
		else if (offset_in_page(at) || offset_in_page(*offset + got))
			break;
		while (len) {
			size_t n = pages ? min(len, PAGE_SIZE - offset_in_page(at)) : len;
			struct page *page = bv->bv_page + (at >> PAGE_SHIFT);

			if (!sendpage_ok(page) || (pages && *taken == capacity))
				return got;
			if (pages) {
				get_page(page);
				pages[(*taken)++] = page;
			}
			got += n;
			at += n;
			len -= n;
			left -= n;
		}
	}
	return got;
}

/*
 * Finds the next bytes that sdp_h_pin() would pin, without a limit of pages. Returns the address if
 * the bytes are one segment of program memory, otherwise the offset in the first page.
 */
unsigned long sdp_h_pin_run(const struct iov_iter *i, size_t most, size_t *len)
{
	unsigned int offset, taken;

	if (!iov_iter_is_bvec(i))
		return first_run(i, most, len);
	*len = page_run(i, most, NULL, 0, &offset, &taken);
	return offset;
}

/* Returns the number of bytes before the next run of at least `least` bytes; stops at `most`. */
size_t sdp_h_pin_short(const struct iov_iter *i, size_t most, size_t least)
{
	struct iov_iter at = *i;
	size_t before = 0, len;

	while (before < most) {
		sdp_h_pin_run(&at, at.count, &len);
		if (!len || len >= least)
			break;
		before += len;
		iov_iter_advance(&at, len);
	}
	return before;
}

/* Pins the pages of one segment, for which there is space, and adds their number. Returns the
 * number of bytes.
 */
static long pin_piece(unsigned long addr, size_t len, unsigned int flags, struct page **pages,
		      unsigned int capacity, unsigned int *pinned)
{
	size_t offset = offset_in_page(addr);
	int n;

	/* A stack grows on a CPU access, but pinning pages below it would log a warning. */
	if (!(flags & FOLL_NOFAULT) && fault_in_readable((const char __user *)addr, 1))
		return -EFAULT;
	n = min_t(size_t, capacity, DIV_ROUND_UP(offset + len, PAGE_SIZE));
	n = pin_user_pages_fast(addr & PAGE_MASK, n, flags, pages);
	if (n <= 0)
		return n ? n : -EFAULT;
	*pinned += n;
	return min_t(size_t, len, n * PAGE_SIZE - offset);
}

/*
 * Pins the pages of the next bytes, up to `most`, while they can be registered as one
 * (next_of_run). The iterator does not advance. Returns the number of bytes, and in `pinned` the
 * number of pages. Lists the pages by `sent`, unless that is NULL.
 */
long sdp_h_pin(const struct iov_iter *i, size_t most, bool longterm, struct page **pages,
	       unsigned int capacity, unsigned int *offset, unsigned int *pinned,
	       struct sdp_h_sent *sent)
{
	struct iov_iter at = *i;
	unsigned int flags = 0, ranges = 0, before;
	size_t got = 0, len;
	unsigned long addr;
	long ret;

	if (iov_iter_is_bvec(i)) {
		len = page_run(i, most, pages, capacity, offset, pinned);
		return len ? len : -EFAULT;
	}
	if (iov_iter_rw(i) == READ)
		flags |= FOLL_WRITE;
	if (longterm)
		flags |= FOLL_LONGTERM;
	if (i->nofault)
		flags |= FOLL_NOFAULT;
	*pinned = 0;
	if (sent) {
		*sent = (struct sdp_h_sent) { .mm = current->mm, .pages = pages };
		INIT_LIST_HEAD(&sent->entry);
		sdp_h_sent_list(sent, true);
	}
	do {
		before = *pinned;
		len = next_of_run(&at, got, most, offset, &addr);
		ret = -EOPNOTSUPP;
		if (len)
			ret = pin_piece(addr, len, flags, pages + before, capacity - before, pinned);
		if (ret > 0)
			got += ret;
		if (sent && ret > 0 && ranges < SDP_H_SENT_RANGES) {
			sent->range[ranges].start = addr & PAGE_MASK;
			sent->range[ranges].pages = *pinned - before;
		}
		ranges += ret > 0;
	} while (ret == (long)len && *pinned < capacity);
	if (sent) {
		/* Memory in more ranges than an entry has space for is not listed. */
		sent->ranges = ranges <= SDP_H_SENT_RANGES ? ranges : 0;
		sdp_h_sent_list(sent, false);
	}
	return got ? (long)got : ret;
}

/* `sent`: the value passed to sdp_h_pin(). */
void sdp_h_unpin(struct page **pages, unsigned int n, bool dirty, struct sdp_h_sent *sent)
{
	if (sent)
		sdp_h_sent_list(sent, true);
	unpin_user_pages_dirty_lock(pages, n, dirty);
	if (sent) {
		sent->ranges = 0;
		sdp_h_sent_list(sent, false);
	}
}

/* Allocates pages that are copies of others. */
int sdp_h_make_pages(struct page **pages, struct page **from, unsigned int n)
{
	unsigned int k;

	for (k = 0; k < n; k++) {
		pages[k] = alloc_page(GFP_HIGHUSER | __GFP_NOWARN);
		if (!pages[k]) {
			release_pages(pages, k);
			return -ENOMEM;
		}
		copy_highpage(pages[k], from[k]);
		cond_resched();
	}
	return 0;
}

/* Copies from pages; the offset counts from the first page. */
void sdp_h_copy_from_pages(void *to, struct page **from, size_t offset, size_t len)
{
	while (len) {
		size_t at = offset_in_page(offset), n = min(len, PAGE_SIZE - at);

		memcpy_from_page(to, from[offset / PAGE_SIZE], at, n);
		to += n;
		offset += n;
		len -= n;
	}
}

/*
 * Copies from pages to a receive call without waiting for its memory; the offset counts from the
 * first page. Returns the number of bytes, fewer if a page is not mapped.
 */
size_t sdp_h_give_pages(struct iov_iter *to, struct page **from, size_t offset, size_t len)
{
	size_t done = 0, n, got;

	pagefault_disable();
	do {
		n = min(len - done, PAGE_SIZE - offset_in_page(offset));
		got = copy_page_to_iter(from[offset / PAGE_SIZE], offset_in_page(offset), n, to);
		offset += got;
		done += got;
	} while (got == n && done < len);
	pagefault_enable();
	return done;
}

/* --- Lists for DMA ------------------------------------------------------------------------- */

/* Returns the maximum length of a segment that the device supports. */
unsigned int sdp_h_sg_longest(struct ib_device *dev)
{
	size_t most = ib_dma_max_seg_size(dev);

	/* The bounce buffer is smaller than the limit of many devices. */
	if (!ib_uses_virt_dma(dev))
		most = min(most, dma_max_mapping_size(dev->dma_device));
	return max(round_down(most, PAGE_SIZE), PAGE_SIZE);
}

/* Returns true if the CPU's writes to mapped memory may be lost, even next to the device's bytes.
 */
bool sdp_h_sg_bounces(struct ib_device *dev)
{
	return !ib_uses_virt_dma(dev) && dma_dev_need_sync(dev->dma_device);
}

/* Lists `len` bytes in pages from `offset` in the first one on; adjacent pages become one entry. */
unsigned int sdp_h_sg_fill(struct scatterlist *sg, struct page **pages, unsigned int n,
			   unsigned int offset, size_t len, unsigned int longest)
{
	unsigned int k, used = 0;
	struct scatterlist *last = NULL;

	sg_init_table(sg, n);
	for (k = 0; k < n && len; k++, offset = 0) {
		unsigned int part = min_t(size_t, PAGE_SIZE - offset, len);

		if (last && page_to_pfn(pages[k]) == page_to_pfn(pages[k - 1]) + 1 &&
		    zone_device_pages_have_same_pgmap(pages[k], pages[k - 1]) &&
		    last->length <= longest - part) {
			last->length += part;
		} else {
			last = &sg[used++];
			sg_set_page(last, pages[k], part, offset);
		}
		len -= part;
	}
	if (last)
		sg_mark_end(last);
	return used;
}

/* Syncs all mapped entries; several entries may share one DMA address. */
void sdp_h_sg_sync(struct ib_device *dev, struct scatterlist *sg, unsigned int n,
		   enum dma_data_direction dir, bool for_cpu)
{
	(for_cpu ? dma_sync_sg_for_cpu : dma_sync_sg_for_device)(dev->dma_device, sg, n, dir);
}

/*
 * Fills in the DMA addresses of the `len` bytes from `offset` on, up to `capacity` entries. Returns
 * the number of bytes.
 */
size_t sdp_h_sg_sges(const struct scatterlist *sg, unsigned int n, size_t offset, size_t len,
		     u32 lkey, struct ib_sge *sges, unsigned int capacity, unsigned int *used)
{
	size_t done = 0;

	*used = 0;
	for (; n && len && *used < capacity; n--, sg++) {
		size_t part = sg_dma_len(sg);

		if (offset >= part) {
			offset -= part;
			continue;
		}
		part = min(part - offset, len);
		sges[*used].addr = sg_dma_address(sg) + offset;
		sges[*used].length = part;
		sges[*used].lkey = lkey;
		++*used;
		done += part;
		len -= part;
		offset = 0;
	}
	return done;
}

/* --- Memory regions ------------------------------------------------------------------------ */

/* Returns the maximum number of pages in a fast registration, 0 if the device supports none with
 * this page size.
 */
u32 sdp_h_mr_pages(const struct ib_device *device)
{
	const struct ib_device_attr *a = &device->attrs;

	if (!(a->device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS) || !(a->page_size_cap & PAGE_SIZE))
		return 0;
	return a->max_fast_reg_page_list_len;
}

/*
 * Prepares an unregistered region for a registration of the list, with a new key. The region's
 * address is `base` plus the offset in the first page, so that DMA addresses stay secret.
 */
int sdp_h_mr_map(struct ib_mr *mr, struct scatterlist *sg, unsigned int n, u64 base)
{
	int mapped = ib_map_mr_sg(mr, sg, n, NULL, PAGE_SIZE);

	if (mapped < 0)
		return mapped;
	if (mapped != n)
		return -EINVAL;
	ib_update_fast_reg_key(mr, ib_inc_rkey(mr->rkey));
	mr->iova = base | (mr->iova & ~PAGE_MASK);
	return 0;
}

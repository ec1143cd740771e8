/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SDP_PIN_HELPERS_H
#define SDP_PIN_HELPERS_H

/*
 * Inline functions and macros of the kernel as plain functions, for src/sys/pin.rs,
 * src/sys/rdma/sg.rs and src/sys/rdma/mr.rs.
 */

#include <linux/scatterlist.h>
#include <linux/skbuff.h>
#include <linux/types.h>
#include <linux/uio.h>
#include <rdma/ib_verbs.h>

/* Charge to a user's RLIMIT_MEMLOCK; none if `user` is NULL. */
struct sdp_h_locked {
	struct user_struct	*user;
	unsigned int		pages;
};

/* Maximum number of ranges of listed memory. */
#define SDP_H_SENT_RANGES	16

/* Memory pinned for sending. Pins of a page that are not in this list belong to others. */
struct sdp_h_sent {
	struct list_head	entry;
	struct mm_struct	*mm;		/* only compared */
	struct page		**pages;
	unsigned int		ranges;		/* 0: not listed */
	struct {
		unsigned long	start;
		unsigned long	pages;
	}			range[SDP_H_SENT_RANGES];
};

/* pin.rs */
void sdp_h_sent_list(struct sdp_h_sent *sent, bool moving);
int sdp_h_sent_pins(const struct sdp_h_sent *sent);
int sdp_h_lock_pages(struct sdp_h_locked *locked, size_t size);
void sdp_h_unlock_pages(struct sdp_h_locked *locked);
long sdp_h_pin(const struct iov_iter *i, size_t most, bool longterm, struct page **pages,
	       unsigned int capacity, unsigned int *offset, unsigned int *pinned,
	       struct sdp_h_sent *sent);
unsigned long sdp_h_pin_piece(const struct iov_iter *i, size_t skip, size_t most, size_t *len);
unsigned long sdp_h_pin_run(const struct iov_iter *i, size_t most, size_t *len);
size_t sdp_h_pin_short(const struct iov_iter *i, size_t most, size_t least);
void sdp_h_put_pages(struct page **pages, unsigned int n);
void sdp_h_unpin(struct page **pages, unsigned int n, bool dirty, struct sdp_h_sent *sent);
int sdp_h_make_pages(struct page **pages, struct page **from, unsigned int n);
void sdp_h_copy_pages(struct page **to, size_t to_offset, struct page **from, size_t from_offset,
		      size_t len);
void sdp_h_copy_from_pages(void *to, struct page **from, size_t offset, size_t len);

/* sg.rs */
unsigned int sdp_h_sg_fill(struct scatterlist *sg, struct page **pages, unsigned int n,
			   unsigned int offset, size_t len, unsigned int longest);
unsigned int sdp_h_sg_longest(struct ib_device *dev);
bool sdp_h_sg_bounces(struct ib_device *dev);
unsigned int sdp_h_sg_map(struct ib_device *dev, struct scatterlist *sg, unsigned int n,
			  enum dma_data_direction dir);
void sdp_h_sg_sync(struct ib_device *dev, struct scatterlist *sg, unsigned int n,
		   enum dma_data_direction dir, bool for_cpu);
size_t sdp_h_sg_sges(const struct scatterlist *sg, unsigned int n, size_t offset, size_t len,
		     u32 lkey, struct ib_sge *sges, unsigned int capacity, unsigned int *used);

/* mr.rs */
u32 sdp_h_mr_pages(const struct ib_device *device);
int sdp_h_mr_map(struct ib_mr *mr, struct scatterlist *sg, unsigned int n, u64 base);

#endif

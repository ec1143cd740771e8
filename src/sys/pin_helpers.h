/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SDP_PIN_HELPERS_H
#define SDP_PIN_HELPERS_H

/* Memory pinned for sending. */

#include <linux/scatterlist.h>
#include <linux/skbuff.h>
#include <linux/types.h>
#include <linux/uio.h>
#include <rdma/ib_verbs.h>

/* Maximum number of ranges of listed memory. */
#define SDP_H_SENT_RANGES	16

/* Memory pinned for sending. Pins of a page beyond those in the list belong to other users. */
struct sdp_h_sent {
	struct list_head	entry;
	struct mm_struct	*mm;		/* only compared */
	struct page		**pages;
	bool			moving;		/* set while pages are pinned or unpinned */
	unsigned int		ranges;		/* 0: not listed */
	struct {
		unsigned long	start;
		unsigned long	pages;
	}			range[SDP_H_SENT_RANGES];
};

void sdp_h_sent_list(struct sdp_h_sent *sent, bool moving);

#endif

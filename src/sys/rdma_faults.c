// SPDX-License-Identifier: GPL-2.0-only

/*
 * Failing work requests, for tests on a debug kernel: error injection makes one of the functions
 * below fail (tests/guest/lib/faults.py). The next work request of that kind is then posted with an
 * error, which the device reports in the completion. With -EACCES the peer's device refuses access;
 * with any other error this end's device does not find the memory. (rxe then flushes the request
 * like those after it. The status that hardware would report is inserted when completions are
 * polled.)
 */

#ifdef CONFIG_FAIL_FUNCTION

#include <linux/error-injection.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>

#include "rdma_faults.h"

/* Added to keys: gives an unused index. */
#define ASTRAY 0xffff0000

union request {
	struct ib_send_wr wr;
	struct ib_rdma_wr rdma;
	struct ib_reg_wr reg;
};

/* Returns 0, which the compiler cannot see. */
#define MAY_FAIL_LATE(name)						\
	int sdp_h_late_##name(void);					\
	noinline int sdp_h_late_##name(void)				\
	{								\
		int ret = 0;						\
									\
		barrier();						\
		OPTIMIZER_HIDE_VAR(ret);				\
		return ret;						\
	}								\
	ALLOW_ERROR_INJECTION(sdp_h_late_##name, ERRNO)

MAY_FAIL_LATE(send);
MAY_FAIL_LATE(recv);
MAY_FAIL_LATE(read);
MAY_FAIL_LATE(write);
MAY_FAIL_LATE(register);
MAY_FAIL_LATE(invalidate);

static int fault_of(const struct ib_send_wr *wr)
{
	switch (wr->opcode) {
	case IB_WR_SEND:
		return sdp_h_late_send();
	case IB_WR_RDMA_READ:
		return sdp_h_late_read();
	case IB_WR_RDMA_WRITE:
		/* A WRITE without bytes is a probe. */
		return wr->num_sge ? sdp_h_late_write() : 0;
	case IB_WR_REG_MR:
		return sdp_h_late_register();
	case IB_WR_LOCAL_INV:
		return sdp_h_late_invalidate();
	default:
		return 0;
	}
}

/* Last request that this end's device has to fail. Its QP may be destroyed by the time its CQ,
 * which is kept, reports it.
 */
static struct {
	const struct ib_qp *qp;
	const struct ib_cq *cq;
	u64 wr_id;
	enum ib_wc_status status;
} doomed;
static DEFINE_SPINLOCK(doomed_lock);

static void doom(struct ib_qp *qp, const struct ib_send_wr *wr)
{
	bool memory = wr->opcode == IB_WR_REG_MR || wr->opcode == IB_WR_LOCAL_INV;
	unsigned long flags;

	spin_lock_irqsave(&doomed_lock, flags);
	doomed.qp = qp;
	doomed.cq = qp->send_cq;
	doomed.wr_id = wr->wr_id;
	doomed.status = memory ? IB_WC_MW_BIND_ERR : IB_WC_LOC_PROT_ERR;
	spin_unlock_irqrestore(&doomed_lock, flags);
}

int sdp_h_faulty_poll(struct ib_cq *cq, int n, struct ib_wc *wc)
{
	int found = ib_poll_cq(cq, n, wc), i;
	unsigned long flags;

	spin_lock_irqsave(&doomed_lock, flags);
	for (i = 0; doomed.qp && i < found; i++) {
		if (wc[i].status != IB_WC_WR_FLUSH_ERR || wc[i].qp != doomed.qp ||
		    wc[i].wr_id != doomed.wr_id || cq != doomed.cq)
			continue;
		wc[i].status = doomed.status;
		doomed.qp = NULL;
	}
	spin_unlock_irqrestore(&doomed_lock, flags);
	return found;
}

/* Returns a copy of the request that will fail. */
static struct ib_send_wr *spoiled(const struct ib_send_wr *wr, bool there, union request *to,
				  struct ib_sge *nowhere)
{
	switch (wr->opcode) {
	case IB_WR_REG_MR:
		to->reg = *reg_wr(wr);
		to->reg.key ^= ASTRAY;
		return &to->wr;
	case IB_WR_LOCAL_INV:
		to->wr = *wr;
		to->wr.ex.invalidate_rkey ^= ASTRAY;
		return &to->wr;
	case IB_WR_SEND:
		to->rdma = (struct ib_rdma_wr){ .wr = *wr };
		break;
	default:
		to->rdma = *rdma_wr(wr);
		break;
	}
	if (there) {
		/* A SEND cannot be refused, so it becomes a request that can be. */
		if (wr->opcode == IB_WR_SEND)
			to->wr.opcode = IB_WR_RDMA_WRITE;
		to->rdma.rkey ^= ASTRAY;
	} else {
		*nowhere = (struct ib_sge){ .length = wr->sg_list->length, .lkey = ASTRAY };
		to->wr.sg_list = nowhere;
		to->wr.num_sge = 1;
		to->wr.send_flags &= ~IB_SEND_INLINE;
	}
	return &to->wr;
}

int sdp_h_faulty_post_send(struct ib_qp *qp, const struct ib_send_wr *first)
{
	const struct ib_send_wr **link = &first, *wr;
	struct ib_sge nowhere;
	union request copy;
	int error, ret;

	/* The SGEs of an inline request contain CPU addresses; headers are always inline. */
	for (wr = first; wr; wr = wr->next)
		WARN_ON_ONCE((wr->send_flags & IB_SEND_INLINE) && wr->num_sge > 1);

	/* one per call is enough; the caller owns the object with the link, and may write to it */
	for (wr = first; wr; link = (const struct ib_send_wr **)&wr->next, wr = wr->next) {
		error = fault_of(wr);
		if (error) {
			if (error != -EACCES)
				doom(qp, wr);
			*link = spoiled(wr, error == -EACCES, &copy, &nowhere);
			break;
		}
	}
	ret = ib_post_send(qp, first, NULL);
	if (wr)
		*link = wr;
	return ret;
}

int sdp_h_faulty_post_recv(struct ib_qp *qp, const struct ib_recv_wr *first)
{
	const struct ib_recv_wr **link = &first, *wr;
	struct ib_recv_wr copy;
	struct ib_sge nowhere;
	int ret, i;

	for (wr = first; wr; link = (const struct ib_recv_wr **)&wr->next, wr = wr->next) {
		if (!sdp_h_late_recv())
			continue;
		nowhere = (struct ib_sge){ .lkey = ASTRAY };
		for (i = 0; i < wr->num_sge; i++)
			nowhere.length += wr->sg_list[i].length;
		copy = *wr;
		copy.sg_list = &nowhere;
		copy.num_sge = 1;
		*link = &copy;
		break;
	}
	ret = ib_post_recv(qp, first, NULL);
	if (wr)
		*link = wr;
	return ret;
}

#endif

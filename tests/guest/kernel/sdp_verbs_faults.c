// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lets /sys/kernel/debug/fail_function make verbs and the connection manager fail: while this
 * module is loaded, the functions listed here may return an error at once. The filter of
 * fail_function selects the affected tasks (see tests/guest/lib/faults.py).
 */
#include <linux/error-injection.h>
#include <linux/module.h>
#include <linux/spinlock.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

/* Functions that create the parts of a connection. A returned pointer contains the errno, so all
 * functions have ERRNO.
 */
ALLOW_ERROR_INJECTION(__rdma_create_kernel_id, ERRNO);
ALLOW_ERROR_INJECTION(rdma_resolve_addr, ERRNO);
ALLOW_ERROR_INJECTION(rdma_resolve_route, ERRNO);
ALLOW_ERROR_INJECTION(ib_find_cached_pkey, ERRNO);
ALLOW_ERROR_INJECTION(ib_create_cm_id, ERRNO);
ALLOW_ERROR_INJECTION(__ib_create_cq, ERRNO);
ALLOW_ERROR_INJECTION(ib_create_qp_kernel, ERRNO);
ALLOW_ERROR_INJECTION(ib_cm_init_qp_attr, ERRNO);
ALLOW_ERROR_INJECTION(ib_modify_qp, ERRNO);

/* Functions that listen, and that send connection-manager messages. */
ALLOW_ERROR_INJECTION(ib_cm_insert_listen, ERRNO);
ALLOW_ERROR_INJECTION(ib_send_cm_req, ERRNO);
ALLOW_ERROR_INJECTION(ib_send_cm_rep, ERRNO);
ALLOW_ERROR_INJECTION(ib_send_cm_rtu, ERRNO);
ALLOW_ERROR_INJECTION(ib_send_cm_rej, ERRNO);
ALLOW_ERROR_INJECTION(ib_send_cm_drep, ERRNO);

/* Registration of advertised memory. */
ALLOW_ERROR_INJECTION(ib_alloc_mr, ERRNO);
ALLOW_ERROR_INJECTION(ib_map_mr_sg, ERRNO);

/*
 * Work requests that are posted successfully and fail later: error injection can make one of the
 * functions late_* fail. The function's next work request is then posted with an error in it, and
 * the device reports the error in the completion. With -EACCES the peer's device refuses access;
 * with any other error this end's device does not find the memory. (rxe then flushes the failed
 * request like the requests behind it. This module puts the status that hardware would report into
 * the polled completion.)
 */

/* A key XORed with this number has an index that is not in use. */
#define ASTRAY 0xffff0000

union request {
	struct ib_send_wr wr;
	struct ib_rdma_wr rdma;
	struct ib_reg_wr reg;
};

/* Always 0, but unknown to the compiler. */
#define MAY_FAIL_LATE(name)						\
	int late_##name(void);					\
	noinline int late_##name(void)				\
	{								\
		int ret = 0;						\
									\
		barrier();						\
		OPTIMIZER_HIDE_VAR(ret);				\
		return ret;						\
	}								\
	ALLOW_ERROR_INJECTION(late_##name, ERRNO)

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
		return late_send();
	case IB_WR_RDMA_READ:
		return late_read();
	case IB_WR_RDMA_WRITE:
		/* A WRITE without bytes is a probe. */
		return wr->num_sge ? late_write() : 0;
	case IB_WR_REG_MR:
		return late_register();
	case IB_WR_LOCAL_INV:
		return late_invalidate();
	default:
		return 0;
	}
}

/* Last request that this end's device shall fail. The QP of that request may be destroyed when its
 * CQ, which is kept, still reports it.
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

/* Verbs of the devices' driver. */
static struct ib_device_ops real;

static int poll_cq(struct ib_cq *cq, int n, struct ib_wc *wc)
{
	int found = real.poll_cq(cq, n, wc), i;
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

/* A copy of the request that will fail. */
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
		/* A SEND cannot be refused, so it becomes a request that can be refused. */
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

static int post_send(struct ib_qp *qp, const struct ib_send_wr *first, const struct ib_send_wr **bad)
{
	const struct ib_send_wr **link = &first, *wr;
	struct ib_sge nowhere;
	union request copy;
	int error, ret;

	/* An inline request of ib_sdp has one SGE, with the CPU address of the headers. */
	for (wr = first; wr; wr = wr->next)
		WARN_ON_ONCE((wr->send_flags & IB_SEND_INLINE) && wr->num_sge > 1);

	/*
	 * One request a call is enough. The object around a link belongs to the caller and is
	 * writable.
	 */
	for (wr = first; wr; link = (const struct ib_send_wr **)&wr->next, wr = wr->next) {
		error = fault_of(wr);
		if (error) {
			if (error != -EACCES)
				doom(qp, wr);
			*link = spoiled(wr, error == -EACCES, &copy, &nowhere);
			break;
		}
	}
	ret = real.post_send(qp, first, bad);
	if (wr)
		*link = wr;
	return ret;
}

static int post_recv(struct ib_qp *qp, const struct ib_recv_wr *first, const struct ib_recv_wr **bad)
{
	const struct ib_recv_wr **link = &first, *wr;
	struct ib_recv_wr copy;
	struct ib_sge nowhere;
	int ret, i;

	for (wr = first; wr; link = (const struct ib_recv_wr **)&wr->next, wr = wr->next) {
		if (!late_recv())
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
	ret = real.post_recv(qp, first, bad);
	if (wr)
		*link = wr;
	return ret;
}

static int add(struct ib_device *device)
{
	if (device->ops.driver_id != RDMA_DRIVER_RXE)
		return -EOPNOTSUPP;
	if (device->ops.poll_cq == poll_cq)
		return 0;
	if (!real.poll_cq)
		real = device->ops;	/* the same for all rxe devices */
	device->ops.poll_cq = poll_cq;
	device->ops.post_send = post_send;
	device->ops.post_recv = post_recv;
	return 0;
}

static struct ib_client client = { .name = "sdp_verbs_faults", .add = add };

/* The module has no exit function: devices keep these verbs. */
static int __init verbs_faults_init(void)
{
	return ib_register_client(&client);
}
module_init(verbs_faults_init);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Which verbs fail_function may have fail, for tests of ib_sdp");

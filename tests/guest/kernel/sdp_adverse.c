// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes rxe behave as other RDMA devices may: between ib_sdp and the driver,
 * in place of some of the device's operations. Without a parameter set, it
 * changes nothing that can be seen. Each parameter is one liberty that the
 * verbs give to a driver; no completion is ever lost.
 *
 * Completions are taken from the driver's queue into one of our own, from
 * which they are given out and told of by rules of our own. Only queues of
 * ib_sdp are treated so, and only those that are made after this was loaded.
 * It cannot be unloaded.
 */
#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/prandom.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>

static bool unarmed;
module_param(unarmed, bool, 0644);
MODULE_PARM_DESC(unarmed, "completions come just after the look at the queue; arming it then says that there are some, and does not arm (bnxt_re)");

static bool one;
module_param(one, bool, 0644);
MODULE_PARM_DESC(one, "one completion at a time");

static uint none;
module_param(none, uint, 0644);
MODULE_PARM_DESC(none, "looks at the queue that do not find what has come, though arming says that there is something");

static uint spurious;
module_param(spurious, uint, 0644);
MODULE_PARM_DESC(spurious, "percent of armings after which a completion is told that there is not");

static uint late;
module_param(late, uint, 0644);
MODULE_PARM_DESC(late, "microseconds that events come late at most, and coalesced");

static uint sent_late;
module_param(sent_late, uint, 0644);
MODULE_PARM_DESC(sent_late, "microseconds that completions of the send queue come late");

static unsigned long seed = 1;
module_param(seed, ulong, 0644);
MODULE_PARM_DESC(seed, "of what is left to chance, for queues that are made from now on");

struct held {
	ktime_t at;	/* when it may be seen */
	struct ib_wc wc;
};

struct queue {
	struct ib_cq *cq;
	ib_comp_handler handler;
	void *context;

	/* The user has asked to be told, and was not. */
	atomic_t armed;
	/* The user is to be told, asked or not. */
	atomic_t owed;
	struct hrtimer tell, due;

	/* Protects what follows. The driver's lock is taken under it. */
	spinlock_t lock;
	struct rnd_state random;
	unsigned int head, tail, size;
	/* Looks that have not found what is at the head. */
	unsigned int missed;
	struct held held[] __counted_by(size);
};

static struct ib_device_ops real;

static bool told_late(void)
{
	return late != 0;
}

static void told(struct queue *q)
{
	q->handler(q->cq, q->context);
}

/* The driver tells, with locks of its own held. */
static void completed(struct ib_cq *cq, void *context)
{
	struct queue *q = context;

	if (!atomic_xchg(&q->armed, 0))
		return;
	if (!told_late()) {
		told(q);
		return;
	}
	atomic_set(&q->owed, 1);
	hrtimer_start(&q->tell, us_to_ktime(late), HRTIMER_MODE_REL_SOFT);
}

static enum hrtimer_restart tell(struct hrtimer *t)
{
	struct queue *q = container_of(t, struct queue, tell);

	if (atomic_xchg(&q->owed, 0))
		told(q);
	return HRTIMER_NORESTART;
}

/* Completions that were held back can be seen now. */
static enum hrtimer_restart due(struct hrtimer *t)
{
	struct queue *q = container_of(t, struct queue, due);

	if (atomic_xchg(&q->armed, 0))
		told(q);
	return HRTIMER_NORESTART;
}

static bool can_be_seen(struct queue *q)
{
	return q->head != q->tail && ktime_compare(q->held[q->head % q->size].at, ktime_get()) <= 0;
}

/* Takes what the driver has. */
static void take(struct queue *q)
{
	while (q->tail - q->head < q->size) {
		struct held *h = &q->held[q->tail % q->size];

		if (real.poll_cq(q->cq, 1, &h->wc) != 1)
			break;
		h->at = ktime_get();
		if (sent_late && !(h->wc.opcode & IB_WC_RECV))
			h->at = ktime_add_us(h->at, sent_late);
		q->tail++;
	}
}

static int poll_cq(struct ib_cq *cq, int most, struct ib_wc *wc)
{
	unsigned int misses = unarmed ? max(none, 1U) : none;
	struct queue *q = cq->cq_context;
	unsigned long flags;
	int n = 0;

	if (cq->comp_handler != completed)
		return real.poll_cq(cq, most, wc);
	if (one)
		most = min(most, 1);
	spin_lock_irqsave(&q->lock, flags);
	take(q);
	if (can_be_seen(q) && q->missed < misses) {
		q->missed++;
	} else {
		for (; n < most && can_be_seen(q); n++)
			wc[n] = q->held[q->head++ % q->size].wc;
		if (q->head == q->tail)
			q->missed = 0;
	}
	spin_unlock_irqrestore(&q->lock, flags);
	return n;
}

static int req_notify_cq(struct ib_cq *cq, enum ib_cq_notify_flags how)
{
	struct queue *q = cq->cq_context;
	unsigned long flags;
	bool there;

	if (cq->comp_handler != completed)
		return real.req_notify_cq(cq, how);
	spin_lock_irqsave(&q->lock, flags);
	take(q);
	there = can_be_seen(q);
	if (!there || !unarmed) {
		atomic_set(&q->armed, 1);
		/* What comes from here on is told. What came before is taken. */
		while (real.req_notify_cq(cq, how | IB_CQ_REPORT_MISSED_EVENTS) > 0) {
			take(q);
			if (q->tail - q->head == q->size)
				break;
		}
		there = can_be_seen(q);
		if (!there && q->head != q->tail)
			hrtimer_start(&q->due, q->held[q->head % q->size].at, HRTIMER_MODE_ABS_SOFT);
		if (!there && spurious > prandom_u32_state(&q->random) % 100) {
			atomic_set(&q->owed, 1);
			hrtimer_start(&q->tell, us_to_ktime(prandom_u32_state(&q->random) % 500),
				      HRTIMER_MODE_REL_SOFT);
		}
	}
	spin_unlock_irqrestore(&q->lock, flags);
	return there && (how & IB_CQ_REPORT_MISSED_EVENTS);
}

static int create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
		     struct uverbs_attr_bundle *attrs)
{
	unsigned int size = attr->cqe + 1;
	struct queue *q;
	int error;

	if (!cq->comp_handler || !cq->res.kern_name || strcmp(cq->res.kern_name, "ib_sdp"))
		return real.create_cq(cq, attr, attrs);
	q = kvzalloc(struct_size(q, held, size), GFP_KERNEL);
	if (!q)
		return -ENOMEM;
	q->cq = cq;
	q->size = size;
	q->handler = cq->comp_handler;
	q->context = cq->cq_context;
	spin_lock_init(&q->lock);
	prandom_seed_state(&q->random, seed++);
	hrtimer_setup(&q->tell, tell, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	hrtimer_setup(&q->due, due, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	cq->cq_context = q;
	cq->comp_handler = completed;
	error = real.create_cq(cq, attr, attrs);
	if (error)
		kvfree(q);
	return error;
}

static int destroy_cq(struct ib_cq *cq, struct ib_udata *udata)
{
	struct queue *q = cq->cq_context;
	int error;

	if (cq->comp_handler != completed)
		return real.destroy_cq(cq, udata);
	/* No QP uses it any more: nothing completes, and nobody arms. */
	hrtimer_cancel(&q->tell);
	hrtimer_cancel(&q->due);
	error = real.destroy_cq(cq, udata);
	if (!error)
		kvfree(q);
	return error;
}

static int add(struct ib_device *device)
{
	if (device->ops.driver_id != RDMA_DRIVER_RXE)
		return -EOPNOTSUPP;
	if (!real.poll_cq)
		real = device->ops;	/* the same for all of its devices */
	device->ops.create_cq = create_cq;
	device->ops.destroy_cq = destroy_cq;
	device->ops.poll_cq = poll_cq;
	device->ops.req_notify_cq = req_notify_cq;
	return 0;
}

static void gone(struct ib_device *device, void *data)
{
}

static struct ib_client client = {
	.name = "sdp_adverse",
	.add = add,
	.remove = gone,
};

static int __init adverse_init(void)
{
	return ib_register_client(&client);
}
module_init(adverse_init);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("An rxe that behaves as other RDMA devices may, for tests of ib_sdp");

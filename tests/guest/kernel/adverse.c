// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes rxe behave as other RDMA devices may. The module replaces some of the device's operations
 * for ib_sdp. Without a parameter set, the module changes nothing visible. Each parameter is one
 * behaviour that the verbs allow a driver; no completion is ever lost.
 *
 * Parameters can also lower the device's limits, and make its calls fail.
 *
 * Completions are moved from the driver's queue to a queue of this module, which returns them and
 * notifies of them by its own rules. The changes apply to queues of ib_sdp only, and only to those
 * created after this module was loaded. The module cannot be unloaded.
 */
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/hash.h>
#include <linux/hrtimer.h>
#include <linux/kprobes.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/prandom.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "adverse.h"

static bool unarmed;
module_param(unarmed, bool, 0644);
MODULE_PARM_DESC(unarmed, "Add completions right after a poll of the CQ; arming it then reports missed events and does not arm (bnxt_re)");

static bool one;
module_param(one, bool, 0644);
MODULE_PARM_DESC(one, "Return one completion per poll");

static uint none;
module_param(none, uint, 0644);
MODULE_PARM_DESC(none, "Polls that return no completion although arming has reported some");

static uint spurious;
module_param(spurious, uint, 0644);
MODULE_PARM_DESC(spurious, "Events of a CQ without a completion (percent of armings)");

static uint late;
module_param(late, uint, 0644);
MODULE_PARM_DESC(late, "Maximum delay of CQ events, which are coalesced (us)");

static uint sent_late;
module_param(sent_late, uint, 0644);
MODULE_PARM_DESC(sent_late, "Delay of send completions (us)");

static uint received_late;
module_param(received_late, uint, 0644);
MODULE_PARM_DESC(received_late, "Delay of receive completions (us)");

static uint overtaken;
module_param(overtaken, uint, 0644);
MODULE_PARM_DESC(overtaken, "Delay of completions of READs, which those of SENDs behind them overtake (us)");

static bool elsewhere;
module_param(elsewhere, bool, 0644);
MODULE_PARM_DESC(elsewhere, "Deliver CQ events on another processor");

static unsigned long seed = 1;
static int set_seed(const char *value, const struct kernel_param *param);
static const struct kernel_param_ops seed_ops = { .set = set_seed, .get = param_get_ulong };
module_param_cb(seed, &seed_ops, &seed, 0644);
MODULE_PARM_DESC(seed, "Seed of the random choices and of the CQs created from now on");

static uint busy;
module_param(busy, uint, 0644);
MODULE_PARM_DESC(busy, "Attempts to destroy a CQ or QP that fail with EBUSY; MRs fail at random");

/* Number of calls, or requests, in a thousand that fail. */
static uint fail_create;
module_param(fail_create, uint, 0644);
MODULE_PARM_DESC(fail_create, "Calls that create a CQ, QP or MR to fail (per thousand)");

static uint fail_post;
module_param(fail_post, uint, 0644);
MODULE_PARM_DESC(fail_post, "Lists of work requests to fail at a random entry (per thousand)");

static uint fail_map;
module_param(fail_map, uint, 0644);
MODULE_PARM_DESC(fail_map, "Calls of ib_map_mr_sg to end too early (per thousand)");

static uint fail_reg;
module_param(fail_reg, uint, 0644);
MODULE_PARM_DESC(fail_reg, "Registrations to fail by their completion (per thousand)");

static uint fatal;
static int set_fatal(const char *value, const struct kernel_param *param);
static const struct kernel_param_ops fatal_ops = { .set = set_fatal, .get = param_get_uint };
module_param_cb(fatal, &fatal_ops, &fatal, 0644);
MODULE_PARM_DESC(fatal, "Move existing QPs to the error state on each write (per thousand)");

static uint event;
static int set_event(const char *value, const struct kernel_param *param);
static const struct kernel_param_ops event_ops = { .set = set_event, .get = param_get_uint };
module_param_cb(event, &event_ops, &event, 0644);
MODULE_PARM_DESC(event, "Event (enum ib_event_type) that each device reports on each write, 0 for none");

/* Limits of a small device; rxe's own are far larger. */
#define MOST_SGE 2
#define MOST_WR 64
#define MOST_PAGES 64
/* Smallest page that can be registered. */
#define LEAST_PAGE 65536

static uint apart;
module_param(apart, uint, 0644);
MODULE_PARM_DESC(apart, "QPs whose CQs need the interrupts of two vectors");

static uint misused;
module_param(misused, uint, 0644);
MODULE_PARM_DESC(misused, "Requests for a capability that the device does not report");

static uint inlined;
module_param(inlined, uint, 0644);
MODULE_PARM_DESC(inlined, "Longest message posted inline (bytes)");

/* Capabilities that a device lacks, as bits of `limits`. */
#define SMALL 1
#define NO_READS 2
#define NO_REGIONS 4
#define LARGE_PAGES 8
#define HUGE 16

static uint limits;
static int set_limits(const char *value, const struct kernel_param *param);
static const struct kernel_param_ops limits_ops = { .set = set_limits, .get = param_get_uint };
module_param_cb(limits, &limits_ops, &limits, 0644);
MODULE_PARM_DESC(limits, "Limits of the device (bits); 1: two SGEs, no inline data, queues of 64, MRs of 64 pages, one READ; 2: no READs as target; 4: no MRs; 8: MRs of large pages only; 16: the largest value of each limit");

static bool overrun;
static int set_overrun(const char *value, const struct kernel_param *param);
static const struct kernel_param_ops overrun_ops = { .set = set_overrun, .get = param_get_bool };
module_param_cb(overrun, &overrun_ops, &overrun, 0644);
MODULE_PARM_DESC(overrun, "Overrun the existing CQs: they return no further completion");

static uint scheduled_late;
static int set_scheduled_late(const char *value, const struct kernel_param *param);
static const struct kernel_param_ops scheduled_late_ops = { .set = set_scheduled_late, .get = param_get_uint };
module_param_cb(scheduled_late, &scheduled_late_ops, &scheduled_late, 0644);
MODULE_PARM_DESC(scheduled_late, "Maximum delay between the queueing of a packet by rxe and its task, as if a hypervisor had stopped the processor (ms)");

struct held {
	ktime_t at;	/* time from which the completion is visible */
	struct ib_wc wc;
};

struct queue {
	struct ib_cq *cq;
	ib_comp_handler handler;
	void (*event_handler)(struct ib_event *event, void *context);
	void *context;
	struct list_head all;
	struct work_struct elsewhere;
	unsigned int busy, vector;
	bool broken;

	/* Set from the arming of the queue until its notification. */
	atomic_t armed;
	/* A notification is due, even if the queue is not armed. */
	atomic_t owed;
	struct hrtimer tell, due;

	/* Protects the following fields. The driver's lock is taken inside this lock. */
	spinlock_t lock;
	struct rnd_state random;
	unsigned int head, tail, size;
	/* Number of polls that have not returned the completion at the head. */
	unsigned int missed;
	struct held held[] __counted_by(size);
};

static struct ib_device_ops real;

/* A device whose attributes this module changes. */
struct device_limits {
	struct list_head all;
	struct ib_device *device;
	struct ib_device_attr attrs;
	int num_comp_vectors;
};

struct pair {
	struct list_head all;
	struct ib_qp *qp;
	unsigned int busy;
};

/* Protects the lists. */
static DEFINE_MUTEX(lists);
static LIST_HEAD(queues);
static LIST_HEAD(pairs);
static LIST_HEAD(devices);

static DEFINE_SPINLOCK(chance_lock);
static struct rnd_state chance;

/* Returns a random number below `most`. */
static u32 any_below(u32 most)
{
	unsigned long flags;
	u32 n;

	spin_lock_irqsave(&chance_lock, flags);
	n = prandom_u32_state(&chance) % most;
	spin_unlock_irqrestore(&chance_lock, flags);
	return n;
}

bool adverse_happens(uint of_a_thousand)
{
	return of_a_thousand && any_below(1000) < of_a_thousand;
}

static int set_seed(const char *value, const struct kernel_param *param)
{
	unsigned long flags;
	int error = param_set_ulong(value, param);

	spin_lock_irqsave(&chance_lock, flags);
	prandom_seed_state(&chance, seed);
	spin_unlock_irqrestore(&chance_lock, flags);
	return error;
}

/* Delays only packets, which arrive in softirqs. A probe may run like an NMI, so it takes no lock.
 */
static int before_scheduling(struct kprobe *probe, struct pt_regs *regs)
{
	static atomic_t packets;

	if (in_serving_softirq() && scheduled_late && !hash_32(atomic_inc_return(&packets) + seed, 2))
		mdelay(scheduled_late);
	return 0;
}

static int set_scheduled_late(const char *value, const struct kernel_param *param)
{
	static struct kprobe probe = { .symbol_name = "rxe_sched_task", .pre_handler = before_scheduling };
	static bool set;
	int error = param_set_uint(value, param);

	if (error || set || !scheduled_late)
		return error;
	error = register_kprobe(&probe);
	set = !error;
	return error;
}

static bool is_ours(const struct rdma_restrack_entry *res)
{
	return res->kern_name && !strcmp(res->kern_name, "ib_sdp");
}

static bool told_late(void)
{
	return late != 0;
}

static void tell_elsewhere(struct work_struct *work)
{
	struct queue *q = container_of(work, struct queue, elsewhere);

	q->handler(q->cq, q->context);
}

static void told(struct queue *q)
{
	if (elsewhere)
		queue_work_on(cpumask_any_but(cpu_online_mask, raw_smp_processor_id()) % nr_cpu_ids,
			      system_percpu_wq, &q->elsewhere);
	else
		q->handler(q->cq, q->context);
}

/* Event handler of the driver's queue, called with the driver's locks held. */
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

/* Makes completions visible that were held back. */
static enum hrtimer_restart due(struct hrtimer *t)
{
	struct queue *q = container_of(t, struct queue, due);

	completed(q->cq, q);
	return HRTIMER_NORESTART;
}

static bool can_be_seen(struct queue *q)
{
	return q->head != q->tail && ktime_compare(q->held[q->head % q->size].at, ktime_get()) <= 0;
}

/* Moves the last completion, of a SEND, before the completions of READs. */
static void overtake(struct queue *q)
{
	unsigned int at;

	for (at = q->tail; at != q->head; at--) {
		struct held *h = &q->held[at % q->size], *before = &q->held[(at - 1) % q->size];

		if (h->wc.opcode != IB_WC_SEND || before->wc.opcode != IB_WC_RDMA_READ)
			break;
		swap(h->wc, before->wc);
		swap(h->at, before->at);
	}
}

/* Moves completions from the driver's queue. */
static void take(struct queue *q)
{
	while (q->tail - q->head < q->size) {
		struct held *h = &q->held[q->tail % q->size];

		if (real.poll_cq(q->cq, 1, &h->wc) != 1)
			break;
		h->at = ktime_add_us(ktime_get(), h->wc.opcode & IB_WC_RECV ? received_late : sent_late);
		if (overtaken && h->wc.opcode == IB_WC_RDMA_READ)
			h->at = ktime_add_us(h->at, overtaken);
		if (overtaken)
			overtake(q);
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
	if (READ_ONCE(q->broken))
		return 0;
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
	if (READ_ONCE(q->broken))
		return 0;
	spin_lock_irqsave(&q->lock, flags);
	take(q);
	there = can_be_seen(q);
	if (!there || !unarmed) {
		atomic_set(&q->armed, 1);
		/* later completions will notify; the loop takes those that have arrived */
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

static void failed(struct ib_event *event, void *context)
{
	struct queue *q = context;

	if (q->event_handler)
		q->event_handler(event, q->context);
}

static int set_overrun(const char *value, const struct kernel_param *param)
{
	struct queue *q;
	int error = param_set_bool(value, param);

	if (error || !overrun)
		return error;
	mutex_lock(&lists);
	list_for_each_entry(q, &queues, all) {
		struct ib_event event = { .device = q->cq->device, .event = IB_EVENT_CQ_ERR };

		event.element.cq = q->cq;
		WRITE_ONCE(q->broken, true);
		failed(&event, q);
	}
	mutex_unlock(&lists);
	return 0;
}

static int create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
		     struct uverbs_attr_bundle *attrs)
{
	unsigned int size = attr->cqe + 1;
	struct queue *q;
	int error;

	if (!cq->comp_handler || !is_ours(&cq->res))
		return real.create_cq(cq, attr, attrs);
	if (limits & SMALL && attr->cqe > MOST_WR)
		return -EINVAL;
	if (adverse_happens(fail_create))
		return -ENOMEM;
	q = kvzalloc(struct_size(q, held, size), GFP_KERNEL);
	if (!q)
		return -ENOMEM;
	q->cq = cq;
	q->size = size;
	q->handler = cq->comp_handler;
	q->event_handler = cq->event_handler;
	q->context = cq->cq_context;
	q->busy = busy;
	q->vector = attr->comp_vector;
	INIT_WORK(&q->elsewhere, tell_elsewhere);
	spin_lock_init(&q->lock);
	prandom_seed_state(&q->random, seed++);
	hrtimer_setup(&q->tell, tell, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	hrtimer_setup(&q->due, due, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	cq->cq_context = q;
	cq->comp_handler = completed;
	cq->event_handler = failed;
	error = real.create_cq(cq, attr, attrs);
	if (error) {
		kvfree(q);
		return error;
	}
	mutex_lock(&lists);
	list_add(&q->all, &queues);
	mutex_unlock(&lists);
	return 0;
}

static int destroy_cq(struct ib_cq *cq, struct ib_udata *udata)
{
	struct queue *q = cq->cq_context;
	int error;

	if (cq->comp_handler != completed)
		return real.destroy_cq(cq, udata);
	if (q->busy) {
		q->busy--;
		return -EBUSY;
	}
	mutex_lock(&lists);
	list_del_init(&q->all);
	mutex_unlock(&lists);
	/* No QP uses the queue any more: no work completes, and no user arms it. */
	hrtimer_cancel(&q->due);
	hrtimer_cancel(&q->tell);
	cancel_work_sync(&q->elsewhere);
	error = real.destroy_cq(cq, udata);
	if (!error)
		kvfree(q);
	return error;
}

/* --- Limits ----------------------------------------------------------------------------------- */

static void limit(struct device_limits *l)
{
	struct ib_device_attr *a = &l->device->attrs;

	*a = l->attrs;
	l->device->num_comp_vectors = limits & HUGE ? 4 : l->num_comp_vectors;
	if (limits & NO_READS)
		a->max_qp_rd_atom = 0;
	if (limits & NO_REGIONS)
		a->device_cap_flags &= ~IB_DEVICE_MEM_MGT_EXTENSIONS;
	if (limits & LARGE_PAGES)
		a->page_size_cap &= ~(u64)(LEAST_PAGE - 1);
	if (limits & HUGE) {
		a->max_send_sge = INT_MAX;
		a->max_recv_sge = INT_MAX;
		a->max_sge_rd = INT_MAX;
		a->max_qp_wr = INT_MAX;
		a->max_cqe = INT_MAX;
		a->max_fast_reg_page_list_len = UINT_MAX;
		a->max_qp_rd_atom = INT_MAX;
		a->max_qp_init_rd_atom = INT_MAX;
	}
	if (!(limits & SMALL))
		return;
	a->max_send_sge = MOST_SGE;
	a->max_recv_sge = MOST_SGE;
	a->max_sge_rd = MOST_SGE;
	a->max_qp_wr = MOST_WR;
	a->max_cqe = MOST_WR;
	a->max_fast_reg_page_list_len = MOST_PAGES;
	a->max_qp_rd_atom = 1;
	a->max_qp_init_rd_atom = 1;
}

static int set_limits(const char *value, const struct kernel_param *param)
{
	struct device_limits *l;
	int error = param_set_uint(value, param);

	mutex_lock(&lists);
	list_for_each_entry(l, &devices, all)
		limit(l);
	mutex_unlock(&lists);
	return error;
}

/* --- Queue pairs and regions ------------------------------------------------------------------ */

static int create_limited(struct ib_qp *qp, struct ib_qp_init_attr *init, struct ib_udata *udata)
{
	const struct ib_qp_cap *cap = &init->cap;
	u32 asked = cap->max_inline_data;
	int error;

	if (!(limits & SMALL)) {
		error = real.create_qp(qp, init, udata);
		/* rxe grants as much as fits */
		init->cap.max_inline_data = min(asked, cap->max_inline_data);
		return error;
	}
	if (cap->max_inline_data || cap->max_send_sge > MOST_SGE || cap->max_recv_sge > MOST_SGE ||
	    cap->max_send_wr > MOST_WR || cap->max_recv_wr > MOST_WR)
		return -EINVAL;
	error = real.create_qp(qp, init, udata);
	/* rxe grants more than was requested */
	init->cap.max_inline_data = 0;
	return error;
}

static void look_at_vectors(const struct ib_qp_init_attr *init)
{
	const struct ib_cq *send = init->send_cq, *recv = init->recv_cq;
	const struct queue *s, *r;

	if (send->comp_handler != completed || recv->comp_handler != completed)
		return;
	s = send->cq_context;
	r = recv->cq_context;
	apart += s->vector != r->vector;
}

static int create_qp(struct ib_qp *qp, struct ib_qp_init_attr *init, struct ib_udata *udata)
{
	struct pair *p;
	int error;

	if (!is_ours(&qp->res))
		return real.create_qp(qp, init, udata);
	look_at_vectors(init);
	p = adverse_happens(fail_create) ? NULL : kzalloc_obj(*p, GFP_KERNEL);
	if (!p)
		return -ENOMEM;
	p->qp = qp;
	p->busy = busy;
	error = create_limited(qp, init, udata);
	if (error) {
		kfree(p);
		return error;
	}
	mutex_lock(&lists);
	list_add(&p->all, &pairs);
	mutex_unlock(&lists);
	return 0;
}

static int destroy_qp(struct ib_qp *qp, struct ib_udata *udata)
{
	struct pair *p, *next;
	bool is_busy = false;

	mutex_lock(&lists);
	list_for_each_entry_safe(p, next, &pairs, all) {
		if (p->qp != qp)
			continue;
		is_busy = p->busy;
		if (is_busy) {
			p->busy--;
			continue;
		}
		list_del(&p->all);
		kfree(p);
	}
	mutex_unlock(&lists);
	return is_busy ? -EBUSY : real.destroy_qp(qp, udata);
}

static int set_fatal(const char *value, const struct kernel_param *param)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	struct pair *p;
	int error = param_set_uint(value, param);

	if (error)
		return error;
	mutex_lock(&lists);
	list_for_each_entry(p, &pairs, all) {
		struct ib_event told = { .device = p->qp->device, .event = IB_EVENT_QP_FATAL };

		if (!adverse_happens(fatal))
			continue;
		told.element.qp = p->qp;
		real.modify_qp(p->qp, &attr, IB_QP_STATE, NULL);
		p->qp->event_handler(&told, p->qp->qp_context);
	}
	mutex_unlock(&lists);
	return 0;
}

static int set_event(const char *value, const struct kernel_param *param)
{
	struct device_limits *l;
	int error = param_set_uint(value, param);

	if (error || !event)
		return error;
	mutex_lock(&lists);
	list_for_each_entry(l, &devices, all) {
		struct ib_event told = { .device = l->device, .event = event };

		told.element.port_num = 1;
		ib_dispatch_event(&told);
	}
	mutex_unlock(&lists);
	return 0;
}

/* Simulates a driver whose completion refuses a registration with another region's key. */
static void spoil(const struct ib_send_wr *list)
{
	for (; list; list = list->next)
		if (list->opcode == IB_WR_REG_MR && adverse_happens(fail_reg))
			((struct ib_reg_wr *)reg_wr(list))->key ^= 1 << 16;
}

/* Posts only a part of the list, as if the driver had run out of memory. */
#define POST_PART(post, type, qp, wr, bad) ({						\
	unsigned int count = 0, part;							\
	const type *w, *last = NULL;							\
	int error = 0;									\
											\
	for (w = (wr); w; w = w->next)							\
		count++;								\
	part = any_below(count);							\
	for (w = (wr); part; part--, w = w->next)					\
		last = w;								\
	if (last) {									\
		((type *)last)->next = NULL;						\
		error = (post)(qp, wr, bad);						\
		((type *)last)->next = (type *)w;					\
	}										\
	if (!error) {									\
		*(bad) = w;								\
		error = -ENOMEM;							\
	}										\
	error; })

static int carry_send(struct ib_qp *qp, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	return iommu_post_send(&real, qp, wr, bad);
}

static int carry_recv(struct ib_qp *qp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	return iommu_post_recv(&real, qp, wr, bad);
}

static int post_send(struct ib_qp *qp, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	const struct ib_send_wr *w;

	if (!is_ours(&qp->res))
		return carry_send(qp, wr, bad);
	if (limits & SMALL)
		for (w = wr; w; w = w->next)
			if (w->num_sge > MOST_SGE || w->send_flags & IB_SEND_INLINE) {
				*bad = wr;
				return -EINVAL;
			}
	for (w = wr; w; w = w->next)
		if (w->send_flags & IB_SEND_INLINE)
			inlined = max(inlined, w->sg_list[0].length);
	spoil(wr);
	if (adverse_happens(fail_post))
		return POST_PART(carry_send, struct ib_send_wr, qp, wr, bad);
	return carry_send(qp, wr, bad);
}

static int post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	if (is_ours(&qp->res) && adverse_happens(fail_post))
		return POST_PART(carry_recv, struct ib_recv_wr, qp, wr, bad);
	return carry_recv(qp, wr, bad);
}

static struct ib_mr *alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 pages)
{
	if (!is_ours(&pd->res))
		return real.alloc_mr(pd, type, pages);
	if (limits & NO_REGIONS || (limits & SMALL && pages > MOST_PAGES)) {
		misused++;
		return ERR_PTR(-EINVAL);
	}
	return adverse_happens(fail_create) ? ERR_PTR(-ENOMEM) : real.alloc_mr(pd, type, pages);
}

static int dereg_mr(struct ib_mr *mr, struct ib_udata *udata)
{
	if (mr->type == IB_MR_TYPE_MEM_REG && is_ours(&mr->pd->res) && any_below(busy + 1))
		return -EBUSY;
	return real.dereg_mr(mr, udata);
}

static int map_mr_sg(struct ib_mr *mr, struct scatterlist *list, int count, unsigned int *offset)
{
	if (!is_ours(&mr->pd->res))
		return iommu_map_mr_sg(&real, mr, list, count, offset);
	/* A driver need not check the page size. */
	misused += limits & LARGE_PAGES && mr->page_size < LEAST_PAGE;
	if (adverse_happens(fail_map))
		count--;
	return count ? iommu_map_mr_sg(&real, mr, list, count, offset) : -ENOMEM;
}

static struct ib_client client;

void adverse_install(struct ib_device *device)
{
	if (device->ops.poll_cq == poll_cq)
		return;
	if (!real.poll_cq)
		real = device->ops;	/* the same for all rxe devices */
	device->ops.create_cq = create_cq;
	device->ops.destroy_cq = destroy_cq;
	device->ops.poll_cq = poll_cq;
	device->ops.req_notify_cq = req_notify_cq;
	device->ops.create_qp = create_qp;
	device->ops.destroy_qp = destroy_qp;
	device->ops.post_send = post_send;
	device->ops.post_recv = post_recv;
	device->ops.alloc_mr = alloc_mr;
	device->ops.dereg_mr = dereg_mr;
	device->ops.map_mr_sg = map_mr_sg;
}

static int add(struct ib_device *device)
{
	struct device_limits *l;

	if (device->ops.driver_id != RDMA_DRIVER_RXE)
		return -EOPNOTSUPP;
	l = kzalloc_obj(*l, GFP_KERNEL);
	if (!l)
		return -ENOMEM;
	l->device = device;
	l->attrs = device->attrs;
	l->num_comp_vectors = device->num_comp_vectors;
	mutex_lock(&lists);
	list_add(&l->all, &devices);
	limit(l);
	mutex_unlock(&lists);
	ib_set_client_data(device, &client, l);
	adverse_install(device);
	return 0;
}

static void gone(struct ib_device *device, void *data)
{
	struct device_limits *l = data;

	mutex_lock(&lists);
	list_del(&l->all);
	mutex_unlock(&lists);
	kfree(l);
}

/* Only tests add and remove devices, and none does so during the count. */
struct ib_device *adverse_device(unsigned int n)
{
	struct device_limits *l;

	list_for_each_entry(l, &devices, all)
		if (!n--)
			return l->device;
	return NULL;
}

static struct ib_client client = {
	.name = "sdp_adverse",
	.add = add,
	.remove = gone,
	.get_net_dev_by_params = infiniband_net_dev,
};

static int __init adverse_init(void)
{
	int error;

	prandom_seed_state(&chance, seed);
	error = iommu_start();
	return error ? error : ib_register_client(&client);
}
module_init(adverse_init);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("An rxe that behaves as other RDMA devices may, for tests of ib_sdp");

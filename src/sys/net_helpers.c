// SPDX-License-Identifier: GPL-2.0-only
/*
 * Plain functions around macros, inline functions and field defines of the
 * network headers, which bindgen cannot see. No policy lives here.
 */
#include <linux/errqueue.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <net/netns/generic.h>
#include <net/addrconf.h>
#include <net/inet_ecn.h>
#include <net/ip.h>
#include <net/route.h>
#include <net/tcp.h>
#include <net/transp_v6.h>
#include "net_helpers.h"

struct sdp_h_params sdp_h_params = {
#define P(name, value, least, most, mode, text) .name = (value),
#include "params.def"
#undef P
};

struct bounded {
	int *value, least, most;
};

static int set_bounded(const char *text, const struct kernel_param *param)
{
	const struct bounded *b = param->arg;
	int value, err = kstrtoint(text, 0, &value);

	if (err)
		return err;
	if (value < b->least || value > b->most)
		return -EINVAL;
	WRITE_ONCE(*b->value, value);
	return 0;
}

static int get_bounded(char *text, const struct kernel_param *param)
{
	const struct bounded *b = param->arg;

	return sysfs_emit(text, "%d\n", READ_ONCE(*b->value));
}

static const struct kernel_param_ops bounded_ops = {
	.set = set_bounded,
	.get = get_bounded,
};

#define P(name, value, least, most, mode, text)				\
	static struct bounded name##_bounded = {			\
		&sdp_h_params.name, least, most				\
	};								\
	module_param_cb(name, &bounded_ops, &name##_bounded, mode);	\
	__MODULE_PARM_TYPE(name, "int");				\
	MODULE_PARM_DESC(name, text);
#include "params.def"
#undef P

u64 sdp_h_nanoseconds(void)
{
	return ktime_get_ns();
}

struct proto sdp_h_proto[4];
struct proto_ops sdp_h_ops[2];
struct net_proto_family sdp_h_family[2];

static struct workqueue_struct *sdp_h_wq;

void sdp_h_async_init(struct sdp_h_sock *s, work_func_t work, work_func_t timer)
{
	INIT_WORK(&s->work, work);
	INIT_DELAYED_WORK(&s->timer, timer);
	init_waitqueue_head(&s->wait);
	atomic_set(&s->events, 0);
	atomic_set(&s->jobs, 0);
	atomic_set(&s->undecided, 0);
	s->tcp = NULL;
	mutex_init(&s->decision);
}

struct sock *sdp_h_sock_create(struct net *net, struct socket *sock, int family,
			       int protocol, struct proto *prot, int kern,
			       work_func_t work, work_func_t timer)
{
	struct sock *sk = sk_alloc(net, family, GFP_KERNEL, prot, kern);
	struct sdp_h_sock *s = (struct sdp_h_sock *)sk;
	struct inet_sock *inet;

	if (!sk)
		return NULL;
	sock_init_data(sock, sk);
	s->data_ready = sk->sk_data_ready;
	inet = inet_sk(sk);
	sk->sk_protocol = protocol;
	sk->sk_txrehash = READ_ONCE(net->core.sysctl_txrehash);
	inet->pmtudisc = READ_ONCE(net->ipv4.sysctl_ip_no_pmtu_disc) ?
			 IP_PMTUDISC_DONT : IP_PMTUDISC_WANT;
	inet->uc_ttl = -1;
	inet->mc_ttl = 1;
	inet_set_bit(MC_LOOP, sk);
	inet_set_bit(MC_ALL, sk);
	if (prot->ipv6_pinfo_offset) {
		struct ipv6_pinfo *np = &s->inet6;

		inet->pinet6 = np;
		np->hop_limit = -1;
		np->mcast_hops = IPV6_DEFAULT_MCASTHOPS;
		np->pmtudisc = IPV6_PMTUDISC_WANT;
		inet6_set_bit(MC6_LOOP, sk);
		inet6_set_bit(MC6_ALL, sk);
		sk->sk_ipv6only = READ_ONCE(net->ipv6.sysctl.bindv6only);
	}
	WRITE_ONCE(sk->sk_sndbuf, READ_ONCE(net->ipv4.sysctl_tcp_wmem[1]));
	WRITE_ONCE(sk->sk_rcvbuf, READ_ONCE(net->ipv4.sysctl_tcp_rmem[1]));
	sdp_h_async_init(s, work, timer);
	return sk;
}

/* A new socket with the listener's options, as TCP makes one for a SYN. */
struct sock *sdp_h_sock_clone(struct sock *listener, work_func_t work,
			      work_func_t timer)
{
	struct sock *sk = sk_clone(listener, GFP_KERNEL, false);
	struct sdp_h_sock *s = (struct sdp_h_sock *)sk;
	struct inet_sock *inet;

	if (!sk)
		return NULL;
	/* sk_clone() returns two references: one is enough here */
	__sock_put(sk);
	inet = inet_sk(sk);
	RCU_INIT_POINTER(inet->inet_opt, NULL);
	RCU_INIT_POINTER(inet->mc_list, NULL);
	inet->ipv6_fl_list = NULL;
	inet->inet_num = 0;
	inet->inet_sport = 0;
	inet->inet_dport = 0;
	if (sk->sk_prot->ipv6_pinfo_offset) {
		struct ipv6_pinfo *np = &s->inet6;

		inet->pinet6 = np;
		np->ipv6_mc_list = NULL;
		np->ipv6_ac_list = NULL;
		np->pktoptions = NULL;
		RCU_INIT_POINTER(np->opt, NULL);
	}
	timer_setup(&sk->sk_timer, NULL, 0);
	sk->sk_state = TCP_CLOSE;
	sk->sk_shutdown = 0;
	sk->sk_max_ack_backlog = 0;
	sk->sk_ack_backlog = 0;
	sdp_h_async_init(s, work, timer);
	return sk;
}

/* What the caller's reference was the last use of, on the way to sk_free(). */
void sdp_h_sock_discard(struct sock *sk)
{
	sock_orphan(sk);
	xfrm_sk_free_policy(sk);
	sock_put(sk);
}

void sdp_h_lock_sock(struct sock *sk)
{
	lock_sock(sk);
}

struct net *sdp_h_sock_net(const struct sock *sk)
{
	return sock_net(sk);
}

void sdp_h_sock_hold(struct sock *sk)
{
	sock_hold(sk);
}

bool sdp_h_sock_hold_not_zero(struct sock *sk)
{
	return refcount_inc_not_zero(&sk->sk_refcnt);
}

void sdp_h_sock_put(struct sock *sk)
{
	sock_put(sk);
}

void sdp_h_sock_orphan(struct sock *sk)
{
	sock_orphan(sk);
}

bool sdp_h_sock_flag(const struct sock *sk, int flag)
{
	return sock_flag(sk, flag);
}

void sdp_h_sock_set_flag(struct sock *sk, int flag, bool on)
{
	sock_valbool_flag(sk, flag, on);
}

int sdp_h_sock_error(struct sock *sk)
{
	return sock_error(sk);
}

long sdp_h_rcvtimeo(const struct sock *sk, bool noblock)
{
	return sock_rcvtimeo(sk, noblock);
}

long sdp_h_sndtimeo(const struct sock *sk, bool noblock)
{
	return sock_sndtimeo(sk, noblock);
}

int sdp_h_intr_errno(long timeo)
{
	return sock_intr_errno(timeo);
}

void sdp_h_wake_async(struct sock *sk, int how, int band)
{
	sk_wake_async(sk, how, band);
}

/*
 * The callbacks are the owner's to change (in-kernel users do) under
 * sk_callback_lock, and a socket may be orphaned at any time: the default ones
 * look at sk_wq under RCU, so they may be called without a lock.
 */
void sdp_h_state_change(struct sock *sk)
{
	READ_ONCE(sk->sk_state_change)(sk);
}

void sdp_h_data_ready(struct sock *sk)
{
	READ_ONCE(sk->sk_data_ready)(sk);
}

void sdp_h_write_space(struct sock *sk)
{
	READ_ONCE(sk->sk_write_space)(sk);
}

static bool is_v6(const struct sock *sk)
{
	return sk->sk_prot->ipv6_pinfo_offset != 0;
}

void sdp_h_local(const struct sock *sk, struct sdp_h_addr *a)
{
	if (is_v6(sk))
		a->ip = sk->sk_v6_rcv_saddr;
	else
		ipv6_addr_set_v4mapped(inet_sk(sk)->inet_rcv_saddr, &a->ip);
	a->port = inet_sk(sk)->inet_sport;
}

void sdp_h_remote(const struct sock *sk, struct sdp_h_addr *a)
{
	if (is_v6(sk))
		a->ip = sk->sk_v6_daddr;
	else
		ipv6_addr_set_v4mapped(inet_sk(sk)->inet_daddr, &a->ip);
	a->port = inet_sk(sk)->inet_dport;
}

void sdp_h_set_local(struct sock *sk, const struct sdp_h_addr *a)
{
	struct inet_sock *inet = inet_sk(sk);

	if (is_v6(sk)) {
		sk->sk_v6_rcv_saddr = a->ip;
		inet->pinet6->saddr = a->ip;
		inet->inet_rcv_saddr = ipv6_addr_v4mapped(&a->ip) ?
				       a->ip.s6_addr32[3] : LOOPBACK4_IPV6;
		if (ipv6_addr_any(&a->ip))
			inet->inet_rcv_saddr = 0;
	} else {
		inet->inet_rcv_saddr = a->ip.s6_addr32[3];
	}
	inet->inet_saddr = inet->inet_rcv_saddr;
	inet->inet_sport = a->port;
}

void sdp_h_set_remote(struct sock *sk, const struct sdp_h_addr *a)
{
	struct inet_sock *inet = inet_sk(sk);

	if (is_v6(sk)) {
		sk->sk_v6_daddr = a->ip;
		inet->inet_daddr = ipv6_addr_v4mapped(&a->ip) ?
				   a->ip.s6_addr32[3] : LOOPBACK4_IPV6;
		if (ipv6_addr_any(&a->ip))
			inet->inet_daddr = 0;
	} else {
		inet->inet_daddr = a->ip.s6_addr32[3];
	}
	inet->inet_dport = a->port;
}

u16 sdp_h_num(const struct sock *sk)
{
	return inet_sk(sk)->inet_num;
}

void sdp_h_set_num(struct sock *sk, u16 num)
{
	inet_sk(sk)->inet_num = num;
	/* getsockname() goes on to tell a port that was given back, as on TCP */
	if (num)
		inet_sk(sk)->inet_sport = htons(num);
}

bool sdp_h_ipv6_only(const struct sock *sk)
{
	return sk->sk_ipv6only;
}

u32 sdp_h_uid(const struct sock *sk)
{
	return from_kuid_munged(&init_user_ns, sk_uid(sk));
}

/* As a number of the user namespace of whoever reads the file. */
u32 sdp_h_uid_for(struct seq_file *seq, const struct sock *sk)
{
	return from_kuid_munged(seq_user_ns(seq), sk_uid(sk));
}

unsigned long sdp_h_ino(struct sock *sk)
{
	return sock_i_ino(sk);
}

u8 sdp_h_tos(const struct sock *sk)
{
	if (is_v6(sk) && !ipv6_addr_v4mapped(&sk->sk_v6_daddr))
		return inet_sk(sk)->pinet6->tclass;
	return inet_sk(sk)->tos;
}

/* The priority that the program has set, -1 if it is only what goes with the type of service. */
int sdp_h_priority(const struct sock *sk)
{
	u32 priority = READ_ONCE(sk->sk_priority);

	if (priority == (u32)rt_tos2priority(READ_ONCE(inet_sk(sk)->tos)))
		return -1;
	return min_t(u32, priority, INT_MAX);
}

bool sdp_h_reserved_port(const struct sock *sk, u16 port)
{
	return inet_is_local_reserved_port(sock_net(sk), port);
}

bool sdp_h_is_own_address(const struct sock *sk, const struct sdp_h_addr *a)
{
	if (ipv6_addr_v4mapped(&a->ip))
		return inet_addr_type(sock_net(sk), a->ip.s6_addr32[3]) == RTN_LOCAL;
	return !ipv6_addr_any(&a->ip) && ipv6_chk_addr(sock_net(sk), &a->ip, NULL, 0);
}

bool sdp_h_is_broadcast(const struct sock *sk, const struct sdp_h_addr *a)
{
	return ipv6_addr_v4mapped(&a->ip) &&
	       inet_addr_type(sock_net(sk), a->ip.s6_addr32[3]) == RTN_BROADCAST;
}

/* The address that a connection to `to` comes from, by the routes; false if there is none. */
bool sdp_h_source(struct sock *sk, const struct sdp_h_addr *to, int ifindex,
		  struct sdp_h_addr *from)
{
	if (ipv6_addr_v4mapped(&to->ip)) {
		struct flowi4 fl4;
		struct rtable *rt = ip_route_connect(&fl4, to->ip.s6_addr32[3], 0, ifindex,
						     IPPROTO_TCP, 0, to->port, sk);

		if (IS_ERR(rt))
			return false;
		ip_rt_put(rt);
		ipv6_addr_set_v4mapped(fl4.saddr, &from->ip);
	} else {
		struct flowi6 fl6 = {
			.flowi6_proto = IPPROTO_TCP,
			.daddr = to->ip,
			.flowi6_oif = ifindex,
			.flowi6_mark = READ_ONCE(sk->sk_mark),
			.flowi6_uid = sk_uid(sk),
			.fl6_dport = to->port,
		};
		struct dst_entry *dst = ip6_dst_lookup_flow(sock_net(sk), sk, &fl6, NULL);

		if (IS_ERR(dst))
			return false;
		dst_release(dst);
		from->ip = fl6.saddr;
	}
	from->port = 0;
	return true;
}

/* What a look for a route that failed comes to: nothing leads there, or there was no memory. */
static int no_way(long err)
{
	return err == -ENOMEM || err == -ENOBUFS ? -ENOMEM : 0;
}

/*
 * The interface that `to` belongs to, by which a packet from `from` (or from the address that is
 * filled in there) counts as received, though it goes by the loopback; 0 if it is no address of
 * this namespace, or if nothing leads there; -ENOMEM.
 */
int sdp_h_local_way(struct net *net, const struct sdp_h_addr *to, int ifindex,
		    struct sdp_h_addr *from)
{
	if (ipv6_addr_v4mapped(&to->ip)) {
		struct flowi4 fl4 = {
			.flowi4_proto = IPPROTO_TCP,
			.flowi4_oif = ifindex,
			.daddr = to->ip.s6_addr32[3],
			.saddr = ipv6_addr_v4mapped(&from->ip) ? from->ip.s6_addr32[3] : 0,
		};
		struct rtable *rt;
		int iif;

		if (!fl4.daddr)
			return 0;
		rt = ip_route_output_key(net, &fl4);
		if (IS_ERR(rt))
			return no_way(PTR_ERR(rt));
		iif = rt->rt_type == RTN_LOCAL ? rt->rt_iif ?: net->loopback_dev->ifindex : 0;
		ip_rt_put(rt);
		ipv6_addr_set_v4mapped(fl4.saddr, &from->ip);
		return iif;
	} else {
		struct flowi6 fl6 = {
			.flowi6_proto = IPPROTO_TCP,
			.flowi6_oif = ifindex,
			.daddr = to->ip,
			.saddr = from->ip,
		};
		struct dst_entry *dst;
		struct inet6_dev *idev;
		int iif = 0, err;

		err = ip6_dst_lookup(net, NULL, &dst, &fl6);
		if (err)
			return no_way(err);
		if (dst_rt6_info(dst)->rt6i_flags & RTF_LOCAL) {
			idev = ip6_dst_idev(dst);
			iif = idev ? idev->dev->ifindex : net->loopback_dev->ifindex;
		}
		dst_release(dst);
		from->ip = fl6.saddr;
		return iif;
	}
}

void sdp_h_custom_sockopt(struct socket *sock)
{
	set_bit(SOCK_CUSTOM_SOCKOPT, &sock->flags);
	/* io_uring's sends of this kind tell by themselves what was copied */
	set_bit(SOCK_SUPPORT_ZC, &sock->flags);
}

int sdp_h_most_rmem(const struct sock *sk)
{
	return READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_rmem[2]);
}

void sdp_h_set_rmem(struct sock *sk, int bytes)
{
	/*
	 * __inet_accept() charges what it finds here to the caller's memory cgroup,
	 * for good; but the buffers have been charged themselves.
	 */
	atomic_set(&sk->sk_rmem_alloc, READ_ONCE(sk->sk_socket) ? bytes : 0);
}

/* Control messages of a send call: those that mean something here, and errors. */
int sdp_h_cmsg_check(struct sock *sk, struct msghdr *msg)
{
	struct sockcm_cookie cookie = {};

	return msg->msg_controllen ? sock_cmsg_send(sk, msg, &cookie) : 0;
}

bool sdp_h_wants_inq(const struct msghdr *msg)
{
	return msg->msg_get_inq;
}

/* As tcp_recvmsg() ends. */
void sdp_h_give_inq(struct msghdr *msg, int inq, bool control)
{
	msg->msg_inq = inq;
	if (control)
		put_cmsg(msg, SOL_TCP, TCP_CM_INQ, sizeof(inq), &inq);
}

/*
 * What the program is to be told of a call with MSG_ZEROCOPY, as on TCP: NULL
 * for nothing. io_uring tells by itself. The socket lock is held.
 */
int sdp_h_notice_begin(struct sock *sk, struct msghdr *msg, struct ubuf_info **notice)
{
	size_t size = msg_data_left(msg);

	*notice = NULL;
	if (!(msg->msg_flags & MSG_ZEROCOPY) || !size || msg->msg_ubuf ||
	    !sock_flag(sk, SOCK_ZEROCOPY))
		return 0;
	*notice = msg_zerocopy_realloc(sk, size, NULL, false);
	return *notice ? 0 : -ENOBUFS;
}

/* The call is over, and has copied what it has sent. The socket lock is held. */
void sdp_h_notice_end(struct ubuf_info *notice, bool sent)
{
	if (!sent) {
		net_zcopy_put_abort(notice, true);
		return;
	}
	uarg_to_msgzc(notice)->zerocopy = 0;
	net_zcopy_put(notice);
}

bool sdp_h_has_notices(const struct sock *sk)
{
	return !skb_queue_empty_lockless(&sk->sk_error_queue);
}

/* As ip_recv_error(), which modules cannot call, does with what lies in the queue here. */
static int recv_error(struct sock *sk, struct msghdr *msg)
{
	struct {
		struct sock_extended_err ee;
		struct sockaddr_in offender;
	} header = {};
	struct sk_buff *skb = sock_dequeue_err_skb(sk);

	if (!skb)
		return -EAGAIN;
	sock_recv_timestamp(msg, sk, skb);
	header.ee = SKB_EXT_ERR(skb)->ee;
	put_cmsg(msg, SOL_IP, IP_RECVERR, sizeof(header), &header);
	msg->msg_flags |= MSG_ERRQUEUE;
	consume_skb(skb);
	return 0;
}

/* recvmsg(2) with MSG_ERRQUEUE. */
int sdp_h_recv_error(struct sock *sk, struct msghdr *msg, int len)
{
	if (sk->sk_family == AF_INET || sk->sk_family == AF_INET6)
		return inet_recv_error(sk, msg, len);
	return is_v6(sk) ? ipv6_recv_error(sk, msg, len) : recv_error(sk, msg);
}

/*
 * Memory that the task takes from now on is charged to the socket's memory
 * cgroup, whose work ever it does. And a kernel user who writes pages out
 * through a socket says by sk_allocation that memory for it must not wait for
 * pages to be written out.
 */
void sdp_h_memory_begin(const struct sock *sk, struct sdp_h_memory *m)
{
	gfp_t allowed = READ_ONCE(sk->sk_allocation);
	struct mem_cgroup *group = NULL;

#ifdef CONFIG_MEMCG
	group = READ_ONCE(sk->sk_memcg);
#endif
	m->charges = group;
	if (group)
		m->charged = set_active_memcg(group);
	m->flags = 0;
	if (!(allowed & __GFP_IO))
		m->flags = memalloc_noio_save();
	else if (!(allowed & __GFP_FS))
		m->flags = memalloc_nofs_save();
}

void sdp_h_memory_end(struct sdp_h_memory *m)
{
	memalloc_flags_restore(m->flags);
	if (m->charges)
		set_active_memcg(m->charged);
}

bool sdp_h_net_eq(const struct net *a, const struct net *b)
{
	return net_eq(a, b);
}

bool sdp_h_keeps_net(const struct sock *sk)
{
	return sk->sk_net_refcnt;
}

bool sdp_h_signal_pending(void)
{
	return signal_pending(current);
}

/* Does another task wait for this processor? need_resched() comes late under lazy preemption. One that sleeps may count for a while. */
bool sdp_h_is_crowded(void)
{
	return need_resched() || !single_task_running();
}

/* cond_resched() does nothing under lazy preemption. */
void sdp_h_give_way(void)
{
	if (need_resched())
		schedule();
}

bool sdp_h_exiting(void)
{
	return current->flags & PF_EXITING;
}

int sdp_h_wq_start(void)
{
	sdp_h_wq = alloc_workqueue("ib_sdp", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	return sdp_h_wq ? 0 : -ENOMEM;
}

void sdp_h_wq_stop(void)
{
	destroy_workqueue(sdp_h_wq);
	sdp_h_wq = NULL;
}

/* Each queued item holds a reference, which the work function drops. */
void sdp_h_schedule(struct sdp_h_sock *s, int job)
{
	atomic_or(job, &s->jobs);
	sock_hold(&s->inet.sk);
	if (!queue_work(sdp_h_wq, &s->work))
		__sock_put(&s->inet.sk);
}

void sdp_h_arm_timer(struct sdp_h_sock *s, unsigned long delay)
{
	unsigned long at = jiffies + delay;

	/* what is pending has not begun, and finds out for itself what comes after it */
	if (delayed_work_pending(&s->timer) &&
	    time_before_eq(READ_ONCE(s->timer.timer.expires), at))
		return;
	sock_hold(&s->inet.sk);
	if (mod_delayed_work(sdp_h_wq, &s->timer, delay))
		__sock_put(&s->inet.sk);
}

void sdp_h_cancel_timer(struct sdp_h_sock *s)
{
	if (cancel_delayed_work(&s->timer))
		sock_put(&s->inet.sk);
}

void sdp_h_wake(struct sdp_h_sock *s)
{
	atomic_inc(&s->events);
	/* pairs with the barrier in prepare_to_wait() of sdp_h_sleep() */
	smp_mb__after_atomic();
	if (waitqueue_active(&s->wait))
		wake_up_all(&s->wait);
}

/* Of those who sleep in sdp_h_sleep_in_turn(), one is enough. */
void sdp_h_wake_one(struct sdp_h_sock *s)
{
	atomic_inc(&s->events);
	smp_mb__after_atomic();	/* as above */
	if (waitqueue_active(&s->wait))
		wake_up(&s->wait);
}

/*
 * Sleeps until sdp_h_wake() has been called since `seen` was read from events.
 * Returns what is left of `timeo` (at least 1), 0 on time-out, -ERESTARTSYS.
 */
long sdp_h_sleep(struct sdp_h_sock *s, int seen, long timeo)
{
	return wait_event_interruptible_timeout(s->wait,
			atomic_read(&s->events) != seen, timeo);
}

/* The same, for one of several who wait for the same. */
long sdp_h_sleep_in_turn(struct sdp_h_sock *s, int seen, long timeo)
{
	might_sleep();
	return ___wait_event(s->wait, ___wait_cond_timeout(atomic_read(&s->events) != seen),
			     TASK_INTERRUPTIBLE, 1, timeo, __ret = schedule_timeout(__ret));
}

/* The same, but only a fatal signal ends it early. */
long sdp_h_sleep_killably(struct sdp_h_sock *s, int seen, long timeo)
{
	return wait_event_killable_timeout(s->wait,
			atomic_read(&s->events) != seen, timeo);
}

/* The same, and nothing does. */
void sdp_h_sleep_through(struct sdp_h_sock *s, int seen, long timeo)
{
	wait_event_timeout(s->wait, atomic_read(&s->events) != seen, timeo);
}

/* Whether somebody polls, wants SIGIO, or has put a callback in place of the default one. */
bool sdp_h_is_watched(struct sock *sk)
{
	struct sdp_h_sock *s = (struct sdp_h_sock *)sk;
	struct socket_wq *wq;
	bool watched;

	rcu_read_lock();
	wq = rcu_dereference(sk->sk_wq);
	watched = skwq_has_sleeper(wq) || (wq && READ_ONCE(wq->fasync_list));
	rcu_read_unlock();
	return watched || READ_ONCE(sk->sk_data_ready) != s->data_ready;
}

struct sock *sdp_h_work_sock(struct work_struct *w)
{
	return &container_of(w, struct sdp_h_sock, work)->inet.sk;
}

struct sock *sdp_h_timer_sock(struct work_struct *w)
{
	return &container_of(to_delayed_work(w), struct sdp_h_sock, timer)->inet.sk;
}

void sdp_h_poll_wait(struct file *file, struct socket *sock, struct poll_table_struct *p)
{
	sock_poll_wait(file, sock, p);
}

void sdp_h_nospace(struct sock *sk)
{
	sk_set_bit(SOCKWQ_ASYNC_NOSPACE, sk);
	if (sk->sk_socket)
		set_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
	/* the caller looks once more for space after this */
	smp_mb__after_atomic();
}

bool sdp_h_clear_nospace(struct sock *sk)
{
	bool was = false;

	read_lock_bh(&sk->sk_callback_lock);
	if (sk->sk_socket)
		was = test_and_clear_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
	read_unlock_bh(&sk->sk_callback_lock);
	return was;
}

int sdp_h_copy_from_sockptr(void *dst, sockptr_t src, size_t len)
{
	return copy_from_sockptr(dst, src, len) ? -EFAULT : 0;
}

int sdp_h_get_user_int(const int __user *p, int *v)
{
	return get_user(*v, p);
}

int sdp_h_put_user_int(int v, int __user *p)
{
	return put_user(v, p);
}

unsigned long sdp_h_copy_to_user(void __user *to, const void *from, unsigned long n)
{
	return copy_to_user(to, from, n);
}

unsigned int sdp_h_netns_id;
static struct pernet_operations *sdp_h_netns_ops;

int sdp_h_netns_start(size_t size, int (*init)(struct net *), void (*exit)(struct net *))
{
	/* id and size are const members, so they can only be initialised */
	struct pernet_operations ops = {
		.init = init,
		.exit = exit,
		.id = &sdp_h_netns_id,
		.size = size,
	};
	int err;

	sdp_h_netns_ops = kmemdup(&ops, sizeof(ops), GFP_KERNEL);
	if (!sdp_h_netns_ops)
		return -ENOMEM;
	err = register_pernet_subsys(sdp_h_netns_ops);
	if (err)
		kfree(sdp_h_netns_ops);
	return err;
}

void sdp_h_netns_stop(void)
{
	unregister_pernet_subsys(sdp_h_netns_ops);
	kfree(sdp_h_netns_ops);
}

void *sdp_h_pernet(const struct net *net, unsigned int id)
{
	return net_generic(net, id);
}

struct proc_dir_entry *sdp_h_proc_single(struct net *net, const char *name,
					 int (*show)(struct seq_file *, void *),
					 int (*write)(struct file *, char *, size_t))
{
	if (write)
		return proc_create_net_single_write(name, 0644, net->proc_net, show, write, NULL);
	return proc_create_net_single(name, 0444, net->proc_net, show, NULL);
}

void sdp_h_proc_remove(struct net *net, const char *name)
{
	remove_proc_entry(name, net->proc_net);
}

struct net *sdp_h_seq_net(struct seq_file *seq)
{
	return seq_file_single_net(seq);
}

struct net *sdp_h_file_net(struct file *file)
{
	return seq_file_single_net(file->private_data);
}

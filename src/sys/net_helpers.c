// SPDX-License-Identifier: GPL-2.0-only
/*
 * C functions for macros, inline functions and #defined fields of the network headers, which
 * bindgen cannot read. Contains no policy.
 */
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <net/inet_ecn.h>
#include <net/ip.h>
#include <net/tcp.h>
#include "net_helpers.h"

struct proto sdp_h_proto[4];
struct proto_ops sdp_h_ops[4];
struct net_proto_family sdp_h_family[2];

static_assert(offsetof(struct sdp_h_sock, inet6) >= sizeof(struct tcp_sock));

/* Drops the timer's reference; tcp_sock_set_keepidle() arms TCP's timer, but SDP has its own. */
static void unused_keepalive(struct timer_list *t)
{
	struct inet_connection_sock *icsk = timer_container_of(icsk, t, icsk_keepalive_timer);

	sock_put(&icsk->icsk_inet.sk);
}

void sdp_h_async_init(struct sdp_h_sock *s, work_func_t work, work_func_t timer)
{
	timer_setup(&inet_csk(&s->inet.sk)->icsk_keepalive_timer, unused_keepalive, 0);
	INIT_WORK(&s->work, work);
	INIT_DELAYED_WORK(&s->timer, timer);
	init_waitqueue_head(&s->wait);
	atomic_set(&s->events, 0);
	atomic_set(&s->jobs, 0);
	atomic_set(&s->undecided, 0);
	spin_lock_init(&s->arming);
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

/* Creates a socket with the listener's options, as TCP does for a SYN. */
struct sock *sdp_h_sock_clone(struct sock *listener, work_func_t work,
			      work_func_t timer)
{
	struct sock *sk = sk_clone(listener, GFP_KERNEL, false);
	struct sdp_h_sock *s = (struct sdp_h_sock *)sk;
	struct inet_sock *inet;

	if (!sk)
		return NULL;
	/* sk_clone() returns two references, of which the caller needs one */
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
	atomic_set(&s->unaccepted, 1);
	return sk;
}

/*
 * Releases the owner's reference. A kernel user may free the data of its callbacks once this
 * function returns. Waits for running callbacks of the socket and of a listener's children, which
 * are SOCK_DEAD by now.
 */
void sdp_h_sock_discard(struct sock *sk)
{
	sock_orphan(sk);
	sk_stop_timer_sync(sk, &inet_csk(sk)->icsk_keepalive_timer);
	if (sk->sk_kern_sock || rcu_access_pointer(sk->sk_user_data))
		synchronize_rcu();
	xfrm_sk_free_policy(sk);
	sock_put(sk);
}

/* Releases a socket without a descriptor, unless the socket was released before. */
void sdp_h_child_discard(struct sock *sk)
{
	bool first;

	write_lock_bh(&sk->sk_callback_lock);
	first = !sk->sk_socket && !sock_flag(sk, SOCK_DEAD);
	if (first)
		sock_set_flag(sk, SOCK_DEAD);
	write_unlock_bh(&sk->sk_callback_lock);
	if (first)
		xfrm_sk_free_policy(sk);
	sock_put(sk);
}

/* Flags share a word, so the change of one flag must be atomic. */
void sdp_h_sock_set_flag(struct sock *sk, int flag, bool on)
{
	assign_bit(flag, &sk->sk_flags, on);
}

/*
 * Kernel users may change the callbacks under sk_callback_lock, and a socket may be orphaned at any
 * time. The default callbacks access sk_wq under RCU, so they need no lock. A child inherits the
 * callbacks of a kernel user, which are valid until the user releases the socket. The release sets
 * SOCK_DEAD, even for children in a listener's queue; sdp_h_sock_discard() then waits for RCU.
 */
void sdp_h_call_back(struct sock *sk, enum sdp_h_callback which)
{
	guard(rcu)();
	if (sock_flag(sk, SOCK_DEAD) || atomic_read(&((struct sdp_h_sock *)sk)->unaccepted))
		return;
	switch (which) {
	case SDP_H_STATE_CHANGE:
		return READ_ONCE(sk->sk_state_change)(sk);
	case SDP_H_DATA_READY:
		return READ_ONCE(sk->sk_data_ready)(sk);
	case SDP_H_WRITE_SPACE:
		return READ_ONCE(sk->sk_write_space)(sk);
	case SDP_H_ERROR_REPORT:
		return sk_error_report(sk);
	}
}

/* Returns true if a kernel user has called tcp_sock_set_nodelay(). */
bool sdp_h_cast_nodelay(const struct sock *sk)
{
	return tcp_sk(sk)->nonagle & TCP_NAGLE_OFF;
}

/* Returns the uid as a number of the reader's user namespace. */
u32 sdp_h_uid_for(struct seq_file *seq, const struct sock *sk)
{
	return from_kuid_munged(seq_user_ns(seq), sk_uid(sk));
}

u8 sdp_h_tos(const struct sock *sk)
{
	if (sdp_h_is_v6(sk) && !ipv6_addr_v4mapped(&sk->sk_v6_daddr))
		return inet_sk(sk)->pinet6->tclass;
	return inet_sk(sk)->tos;
}

/* Returns the priority set by the program, -1 if only the type of service has set it. */
int sdp_h_priority(const struct sock *sk)
{
	u32 priority = READ_ONCE(sk->sk_priority);

	if (priority == (u32)rt_tos2priority(READ_ONCE(inet_sk(sk)->tos)))
		return -1;
	return min_t(u32, priority, INT_MAX);
}

void sdp_h_custom_sockopt(struct socket *sock)
{
	set_bit(SOCK_CUSTOM_SOCKOPT, &sock->flags);
	/* io_uring's zero-copy sends report copies themselves */
	set_bit(SOCK_SUPPORT_ZC, &sock->flags);
}

int sdp_h_most_rmem(const struct sock *sk)
{
	return READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_rmem[2]);
}

void sdp_h_set_rmem(struct sock *sk, int bytes)
{
	/*
	 * __inet_accept() charges this number to the caller's cgroup for good; the buffers are
	 * already charged.
	 */
	atomic_set(&sk->sk_rmem_alloc, READ_ONCE(sk->sk_socket) ? bytes : 0);
}

/*
 * Charges later allocations of the task to the socket's memory cgroup. The task's allocations also
 * use sk_allocation, because an allocation must not wait for writeback when a kernel user writes
 * out pages through the socket.
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
	if (allowed & __GFP_MEMALLOC)
		m->flags = memalloc_noreclaim_save();
	else if (!(allowed & __GFP_IO))
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

/* Returns true if another task is waiting for this processor; need_resched() would report that late
 * under lazy preemption. Tasks that sleep may be counted for a while.
 */
bool sdp_h_is_crowded(void)
{
	return need_resched() || !single_task_running();
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
	unsigned long flags;

	/* without a delay the pending timer would keep its earlier time */
	if (!delay)
		delay = 1;
	/* a later caller must not delay an earlier deadline that was set meanwhile */
	spin_lock_irqsave(&s->arming, flags);
	/* a pending timer function has not started, and will compute the next deadline itself */
	if (!delayed_work_pending(&s->timer) ||
	    time_after(READ_ONCE(s->timer.timer.expires), jiffies + delay)) {
		sock_hold(&s->inet.sk);
		if (mod_delayed_work(sdp_h_wq, &s->timer, delay))
			__sock_put(&s->inet.sk);
	}
	spin_unlock_irqrestore(&s->arming, flags);
}

void sdp_h_cancel_timer(struct sdp_h_sock *s)
{
	if (cancel_delayed_work(&s->timer))
		sock_put(&s->inet.sk);
}

void sdp_h_nospace(struct sock *sk)
{
	sk_set_bit(SOCKWQ_ASYNC_NOSPACE, sk);
	if (sk->sk_socket)
		set_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
	/* the caller checks for space again after setting the flag */
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

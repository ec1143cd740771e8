// SPDX-License-Identifier: GPL-2.0-only
/* Sleeping on a socket, polling it, and wakeups of sleepers and pollers. */
#include <linux/fs.h>
#include <linux/net.h>
#include <net/sock.h>
#include "net_helpers.h"

/*
 * Wakes all sleepers, but only one of the sleepers with `in_turn` unless `all` is set. The caller
 * has incremented `events` (seq.rs), a full barrier that pairs with the barrier of
 * prepare_to_wait() in sdp_h_sleep().
 */
void sdp_h_wake(struct sdp_h_sock *s, bool all)
{
	if (waitqueue_active(&s->wait))
		__wake_up(&s->wait, TASK_NORMAL, all ? 0 : 1, NULL);
}

/*
 * Sleeps until sdp_h_wake() is called after `seen` was read from `events`. Returns the remaining
 * time of `timeo` (at least 1), 0 on time-out, -ERESTARTSYS on a signal that `state` allows.
 */
long sdp_h_sleep(struct sdp_h_sock *s, int seen, long timeo, unsigned int state, bool in_turn)
{
	might_sleep();
	return ___wait_event(s->wait, ___wait_cond_timeout(atomic_read(&s->events) != seen),
			     state, in_turn, timeo, __ret = schedule_timeout(__ret));
}

/*
 * Returns true if the signals of the socket have an owner (F_SETOWN). RCU protects socket and file,
 * and only a pointer in the file is compared. May return a wrong result while the socket is being
 * closed, when no task polls it.
 */
static bool has_owner(const struct sock *sk)
{
	const struct socket *sock = READ_ONCE(sk->sk_socket);
	const struct file *file = sock ? READ_ONCE(sock->file) : NULL;

	return file && file_f_owner(file);
}

/*
 * Returns the kind of tasks to notify of an event, apart from waiting callers. sdp_h_wake_pollers()
 * reaches neither owners that get signals, nor callbacks of kernel users.
 */
enum sdp_h_watchers sdp_h_watchers(struct sock *sk)
{
	struct sdp_h_sock *s = (struct sdp_h_sock *)sk;
	struct socket_wq *wq;
	bool polled;

	guard(rcu)();
	wq = rcu_dereference(sk->sk_wq);
	polled = skwq_has_sleeper(wq);
	if ((wq && READ_ONCE(wq->fasync_list)) || READ_ONCE(sk->sk_data_ready) != s->data_ready ||
	    (polled && has_owner(sk)))
		return SDP_H_OTHERS;
	return polled ? SDP_H_POLLERS : SDP_H_NONE;
}

/*
 * Wakes the pollers without an event mask. poll(), select(), epoll and io_uring then poll the
 * socket again, and report only existing events to the program.
 */
void sdp_h_wake_pollers(struct sock *sk)
{
	struct socket_wq *wq;

	guard(rcu)();
	wq = rcu_dereference(sk->sk_wq);
	if (wq)
		wake_up_interruptible_sync(&wq->wait);
}

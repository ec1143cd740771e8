// SPDX-License-Identifier: GPL-2.0-only
/*
 * Helpers for an IPPROTO_SDP socket and its TCP socket, which use macros and inline functions of
 * the kernel. Contains no policy.
 */
#include <linux/bpf-cgroup.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/tcp.h>
#include <net/inet_common.h>
#include <net/inet_connection_sock.h>
#include <net/ip.h>
#include <net/protocol.h>
#include <net/tcp.h>
#include "net_helpers.h"

static struct inet_protosw sdp_h_protosw[2];

/* Protocol number that no program can request, of an entry that marks a position. */
#define NOBODY 0xffff

static struct inet_protosw *protosw(struct list_head *at)
{
	return list_entry(at, struct inet_protosw, list);
}

/*
 * Returns the protocol entry that holds the number. The list's head is not exported, but always
 * precedes TCP's entry, which is permanent and first.
 */
static struct inet_protosw *holder(struct inet_protosw *me, int number)
{
	struct list_head *at;

	/* without IPv6 the list is empty */
	if (me->list.next == me->list.prev)
		return NULL;
	for (at = me->list.next; at != &me->list; at = at->next) {
		struct inet_protosw *next = protosw(at->next);

		if (next->type == SOCK_STREAM && next->protocol == IPPROTO_TCP)
			continue;
		if (protosw(at)->protocol == number)
			return protosw(at);
	}
	return NULL;
}

static bool is_taken(struct inet_protosw *me, int number, const char *family)
{
	struct inet_protosw *other;
	bool taken;

	rcu_read_lock();
	other = holder(me, number);
	taken = other;
	if (taken)
		pr_err("ib_sdp: protocol %d of %s is taken by %s (%s): load with ipproto=0, or another number\n",
		       number, family, other->prot->name,
		       other->prot->owner ? module_name(other->prot->owner) : "the kernel");
	rcu_read_unlock();
	return taken;
}

/* Sets the entries' number before the registration: a BPF program of sdpctl map reads it. */
int sdp_h_ipproto_register(int number)
{
	struct inet_protosw look = { .type = SOCK_STREAM, .protocol = NOBODY };
	bool taken;
	int err, i;

	inet_register_protosw(&look);
	taken = is_taken(&look, number, "AF_INET");
	inet_unregister_protosw(&look);
	if (taken)
		return -EBUSY;
	if (inet6_register_protosw(&look))
		return -EAFNOSUPPORT;
	taken = is_taken(&look, number, "AF_INET6");
	inet6_unregister_protosw(&look);
	if (taken)
		return -EBUSY;
	for (i = 0; i < 2; i++) {
		sdp_h_protosw[i] = (struct inet_protosw) {
			.type = SOCK_STREAM,
			.protocol = number,
			.prot = &sdp_h_proto[2 + i],
			.ops = &sdp_h_ops[2 + i],
		};
	}
	err = inet6_register_protosw(&sdp_h_protosw[1]);
	if (!err)
		inet_register_protosw(&sdp_h_protosw[0]);
	return err;
}

void sdp_h_ipproto_unregister(void)
{
	inet6_unregister_protosw(&sdp_h_protosw[1]);
	inet_unregister_protosw(&sdp_h_protosw[0]);
}

/*
 * Forwards wakeups of the TCP socket to the pollers of the descriptor, with the same key. A poller
 * thus waits in one queue only, as IOCB_CMD_POLL requires, and stays in that queue when the file
 * switches to TCP. Also wakes accept(2), which waits for both sockets, even when TCP's listener is
 * shut down.
 */
static int forward_wakeup(wait_queue_entry_t *entry, unsigned int mode, int flags, void *key)
{
	struct sdp_h_sock *s = container_of(entry, struct sdp_h_sock, tcp_wakeups);
	struct wait_queue_head *pollers = entry->private;

	/* pairs with the barrier in poll_wait(): TCP has a barrier after its change of state */
	if (waitqueue_active(pollers))
		__wake_up(pollers, mode, key ? 1 : 0, key);
	if (1 << inet_sk_state_load(s->tcp->sk) & (TCPF_LISTEN | TCPF_CLOSE)) {
		atomic_inc_return(&s->events);
		sdp_h_wake(s, !key);
	}
	return 0;
}

static void forward_wakeups(struct sdp_h_sock *s)
{
	/* forwarding takes the lock of the pollers' queue while it holds the TCP queue's lock */
	static struct lock_class_key beneath;

	lockdep_set_class(&s->tcp->wq.wait.lock, &beneath);
	init_waitqueue_func_entry(&s->tcp_wakeups, forward_wakeup);
	s->tcp_wakeups.private = &s->inet.sk.sk_socket->wq.wait;
	add_wait_queue(&s->tcp->wq.wait, &s->tcp_wakeups);
}

/*
 * Completes socket(2) after inet_create(), like sdp_h_sock_create(), and creates a TCP socket of
 * the same owner. Kernel users hold the struct socket, which cannot be replaced.
 */
int sdp_h_ipproto_init(struct sock *sk, work_func_t work, work_func_t timer)
{
	struct sdp_h_sock *s = (struct sdp_h_sock *)sk;
	struct net *net = sock_net(sk);
	int err;

	s->data_ready = sk->sk_data_ready;
	WRITE_ONCE(sk->sk_sndbuf, READ_ONCE(net->ipv4.sysctl_tcp_wmem[1]));
	WRITE_ONCE(sk->sk_rcvbuf, READ_ONCE(net->ipv4.sysctl_tcp_rmem[1]));
	sdp_h_async_init(s, work, timer);
	if (sk->sk_kern_sock)
		return -EPROTONOSUPPORT;
	sdp_h_custom_sockopt(sk->sk_socket);
	err = __sock_create(net, sk->sk_family, SOCK_STREAM, IPPROTO_TCP, &s->tcp, 0);
	if (err)
		return err;
	/* diagnostic tools find the owner of a socket by this inode number */
	WRITE_ONCE(s->tcp->sk->sk_ino, READ_ONCE(sk->sk_ino));
	forward_wakeups(s);
	return 0;
}

/* Completes accept(2). */
void sdp_h_graft(struct socket *sock, struct socket *new, struct sock *sk)
{
	lock_sock(sk);
	__inet_accept(sock, new, sk);
	release_sock(sk);
	sdp_h_custom_sockopt(new);
}

void sdp_h_decide(struct sock *sk)
{
	mutex_lock(&((struct sdp_h_sock *)sk)->decision);
}

/* Does not wait: if another task holds the mutex, sdp_h_decided() schedules the job. */
bool sdp_h_try_decide(struct sock *sk, int job)
{
	struct sdp_h_sock *s = (struct sdp_h_sock *)sk;

	if (mutex_trylock(&s->decision))
		return true;
	atomic_or(job, &s->undecided);
	/* pairs with sdp_h_decided(): the holder sees the job, or has already released the mutex */
	smp_mb__after_atomic();
	if (!mutex_trylock(&s->decision))
		return false;
	atomic_andnot(job, &s->undecided);
	return true;
}

void sdp_h_decided(struct sock *sk)
{
	struct sdp_h_sock *s = (struct sdp_h_sock *)sk;
	int jobs;

	mutex_unlock(&s->decision);
	/* pairs with the barrier of sdp_h_try_decide() */
	smp_mb();
	if (!atomic_read(&s->undecided))
		return;
	jobs = atomic_xchg(&s->undecided, 0);
	if (jobs)
		sdp_h_schedule(s, jobs);
}

/* Removes the TCP socket when its descriptor is closed; waits for a worker that is using it. */
struct socket *sdp_h_tcp_take(struct sock *sk)
{
	struct sdp_h_sock *s = (struct sdp_h_sock *)sk;
	struct socket *tcp;

	sdp_h_decide(sk);
	tcp = s->tcp;
	/* uses s->tcp */
	if (tcp)
		remove_wait_queue(&tcp->wq.wait, &s->tcp_wakeups);
	s->tcp = NULL;
	sdp_h_decided(sk);
	return tcp;
}

/* `sock` is the descriptor that owned `tcp` and whose file is being closed. */
void sdp_h_tcp_drop(struct socket *sock, struct socket *tcp)
{
	struct file *file = sock->file;

	if (file) {
		/* receivers of SIGIO, left by a late fcntl() or an early close() */
		if (sock->wq.fasync_list)
			fasync_helper(-1, file, 0, &sock->wq.fasync_list);
		if (tcp->wq.fasync_list)
			fasync_helper(-1, file, 0, &tcp->wq.fasync_list);
	}
	tcp->file = NULL;
	sock_release(tcp);
}

/* Releases the TCP socket of a sock that never had an open file. */
void sdp_h_tcp_discard(struct sock *sk)
{
	struct socket *tcp = sdp_h_tcp_take(sk);

	if (tcp)
		sock_release(tcp);
}

void sdp_h_tcp_name(const struct socket *tcp, struct sdp_h_addr *a)
{
	sdp_h_name(tcp->sk, false, a);
	/* getsockname() still returns the port after its release */
	if (!READ_ONCE(inet_sk(tcp->sk)->inet_num))
		a->port = 0;
}

/* Copies results of bind(2), except address and port, to `sk`. Context: lock of `sk` held. */
void sdp_h_tcp_share_name(struct sock *sk, const struct socket *tcp)
{
	const u8 bound = SOCK_BINDADDR_LOCK | SOCK_BINDPORT_LOCK;

	sk->sk_userlocks &= ~bound;
	if (tcp) {
		sk->sk_userlocks |= tcp->sk->sk_userlocks & bound;
		WRITE_ONCE(sk->sk_bound_dev_if, READ_ONCE(tcp->sk->sk_bound_dev_if));
	}
}

/*
 * Takes a port exclusively, as TCP does for a socket that no program has bound. If the port is
 * `covered`, only sockets of this module hold the port, by this function, and have excluded any
 * conflict. The bucket stays marked as exclusive, so the socket also excludes all others.
 */
bool sdp_h_tcp_take_port(struct socket *tcp, u16 port, bool covered)
{
	struct sock *sk = tcp->sk;
	unsigned char reuse = sk->sk_reuse;
	bool reuseport = sk->sk_reuseport;
	int err;

	sk->sk_reuse = covered ? SK_FORCE_REUSE : SK_NO_REUSE;
	sk->sk_reuseport = 0;
	err = sk->sk_prot->get_port(sk, port);
	sk->sk_reuse = reuse;
	sk->sk_reuseport = reuseport;
	if (!err)
		inet_sk(sk)->inet_sport = htons(inet_sk(sk)->inet_num);
	cond_resched();
	return !err;
}

/* Undoes that. */
void sdp_h_tcp_give_port(struct sock *sk)
{
	/* getsockname() still returns a port that TCP itself has released */
	if (!inet_sk(sk)->inet_num)
		return;
	sk->sk_prot->put_port(sk);
	inet_sk(sk)->inet_sport = 0;
}

/* Releases the port of a destroyed connection, unless bind(2) has chosen the port. */
void sdp_h_tcp_leave_port(struct socket *tcp)
{
	struct sock *sk = tcp->sk;

	lock_sock(sk);
	if (sk->sk_state == TCP_CLOSE && !(sk->sk_userlocks & SOCK_BINDPORT_LOCK))
		sdp_h_tcp_give_port(sk);
	release_sock(sk);
}

/* Undoes bind(2); `ifindex` is the interface that the socket was bound to before bind(2). */
void sdp_h_tcp_unbind(struct socket *tcp, int ifindex)
{
	struct sock *sk = tcp->sk;

	lock_sock(sk);
	if (sk->sk_state == TCP_CLOSE) {
		sdp_h_tcp_give_port(sk);
		inet_reset_saddr(sk);
		sk->sk_userlocks &= ~(SOCK_BINDADDR_LOCK | SOCK_BINDPORT_LOCK);
		WRITE_ONCE(sk->sk_bound_dev_if, ifindex);
	}
	release_sock(sk);
}

/* Runs the BPF hooks of connect(2), which may change the address. */
int sdp_h_tcp_pre_connect(struct socket *tcp, void *address, int len)
{
	struct sock *sk = tcp->sk;
	int err = 0;

	lock_sock(sk);
	if (BPF_CGROUP_PRE_CONNECT_ENABLED(sk))
		err = sk->sk_prot->pre_connect(sk, address, len);
	release_sock(sk);
	return err;
}

/*
 * Starts connect(2) without the hooks of sdp_h_tcp_pre_connect(). Stores an error in the socket,
 * since no caller can return it.
 */
void sdp_h_tcp_begin(struct socket *tcp, void *address, int len)
{
	struct sock *sk = tcp->sk;
	int err;

	lock_sock(sk);
	if (tcp->state == SS_UNCONNECTED && sk->sk_state == TCP_CLOSE) {
		err = sk->sk_prot->connect(sk, address, len);
		if (err == -EADDRNOTAVAIL && !(sk->sk_userlocks & SOCK_BINDPORT_LOCK)) {
			/* an earlier connection from this port is in TIME_WAIT */
			sdp_h_tcp_give_port(sk);
			err = sk->sk_prot->connect(sk, address, len);
		}
		tcp->state = SS_CONNECTING;
		if (err)
			WRITE_ONCE(sk->sk_err, -err);
	}
	release_sock(sk);
}

/* Moves the receivers of SIGIO from the descriptor to the TCP socket. */
static void take_signals(struct socket *sock, struct socket *tcp)
{
	struct fasync_struct *fa;
	int fd = -1;

	if (!sock->file)
		return;
	rcu_read_lock();
	fa = READ_ONCE(sock->wq.fasync_list);
	if (fa)
		fd = fa->fa_fd;
	rcu_read_unlock();
	if (!fa)
		return;
	fasync_helper(-1, sock->file, 0, &sock->wq.fasync_list);
	lock_sock(tcp->sk);
	if (fasync_helper(fd, sock->file, 1, &tcp->wq.fasync_list) >= 0)
		sock_set_flag(tcp->sk, SOCK_FASYNC);
	release_sock(tcp->sk);
}

/* Gives the TCP socket the cookie, the owner and the receivers of SIGIO of the descriptor. */
void sdp_h_tcp_inherit(struct sock *sk, struct socket *tcp)
{
	u64 cookie = atomic64_read(&sk->sk_cookie);

	/* 0: no cookie was made */
	if (cookie)
		atomic64_set(&tcp->sk->sk_cookie, cookie);
	WRITE_ONCE(tcp->sk->sk_uid, sk_uid(sk));
	take_signals(sk->sk_socket, tcp);
}

/*
 * From now on system calls on the descriptor find the TCP socket. The old struct socket stays with
 * the file, for its calls in progress and for the release.
 */
void sdp_h_tcp_take_file(struct sock *sk, struct socket *tcp)
{
	struct file *file = sk->sk_socket->file;

	if (!file)
		return;
	tcp->file = file;
	/* a task that finds the socket also finds the socket's file */
	smp_store_release(&file->private_data, tcp);
}

/* accept(2), without waiting. The new descriptor belongs to TCP, not to this module. */
int sdp_h_tcp_accept(struct socket *tcp, struct socket *new, struct proto_accept_arg *arg)
{
	const struct proto_ops *ours = new->ops, *ops = READ_ONCE(tcp->ops);
	int flags = arg->flags;
	int err;

	arg->flags |= O_NONBLOCK;
	err = ops->accept(tcp, new, arg);
	arg->flags = flags;
	if (err)
		return err;
	__module_get(ops->owner);
	WRITE_ONCE(new->ops, ops);
	module_put(ours->owner);
	return 0;
}

/* Waits until connect(2) has a result. Returns the remaining time of `timeo`, or -ERESTARTSYS. */
long sdp_h_tcp_wait_connected(struct socket *tcp, long timeo)
{
	const int connecting = TCPF_SYN_SENT | TCPF_SYN_RECV;
	struct sock *sk = tcp->sk;

	return wait_event_interruptible_timeout(*sk_sleep(sk),
			!(1 << inet_sk_state_load(sk) & connecting), timeo);
}

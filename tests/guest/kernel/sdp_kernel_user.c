// SPDX-License-Identifier: GPL-2.0-only
/*
 * A kernel user of sockets of any family. A program writes one line to /proc/sdp_kernel_user and
 * reads the results.
 *
 *   COMMAND FAMILY ADDRESS PORT COUNT
 *
 * serve     listen, accept one connection, echo until its end
 * nobody    listen, and accept without waiting
 * ask       connect, send COUNT bytes, half-close, and compare what comes back
 * refused   connect to a port without a listener
 * events    as ask, but never wait in a call: only callbacks start the next step
 * attend    as serve for COUNT connections at once, by callbacks alone
 * pages     connect and send COUNT pages by MSG_SPLICE_PAGES
 * slab      the same with slab memory, which must be copied: it is freed at once
 * options   set and get options by the kernel's interface
 * casts     send COUNT pages as above and receive the pattern until its end, with
 *           every exported tcp_sock_set_*() between the pages
 * nodelay   tcp_sock_set_nodelay(), then send COUNT single bytes
 * doorbell  as serve, but accept only once a connection's state has changed
 * forsaken  listen, and release the listener when COUNT connections are in its
 *           queue: its callbacks must not run afterwards
 * frugal    as ask, with memory that must not wait for I/O
 * reclaim   as ask, in a task that frees memory by it (PF_MEMALLOC): from the reserves
 * leave     listen, or connect if COUNT is not 0, and leave the socket in the
 *           network namespace until that ends
 *
 * Sockets are made in the writer's network namespace. The write fails only for
 * a malformed line; reading returns the results of the calls.
 */
#include <linux/bvec.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/inet.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/proc_fs.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/tcp.h>
#include <linux/workqueue.h>
#include <net/ipv6.h>
#include <net/netns/generic.h>
#include <net/sock.h>

#define REPORT 4096
#define CHUNK 20000
#define PATIENCE (60 * HZ)

struct report {
	char text[REPORT];
	size_t len;
};

struct order {
	char command[16], address[48];
	int family, port, count;
	struct report *report;
};

static __printf(2, 3) void tell(struct report *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	r->len += vscnprintf(r->text + r->len, REPORT - r->len, format, args);
	va_end(args);
}

static u8 pattern(size_t at)
{
	return at * 7 + (at >> 8);
}

static int make_address(const struct order *o, struct sockaddr_storage *a)
{
	memset(a, 0, sizeof(*a));
	if (o->family == AF_INET || o->family == 27) {
		struct sockaddr_in *in = (struct sockaddr_in *)a;

		in->sin_family = AF_INET;
		in->sin_port = htons(o->port);
		if (!in4_pton(o->address, -1, (u8 *)&in->sin_addr, -1, NULL))
			return -EINVAL;
		return sizeof(*in);
	} else {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)a;

		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(o->port);
		if (!in6_pton(o->address, -1, (u8 *)&in6->sin6_addr, -1, NULL))
			return -EINVAL;
		return sizeof(*in6);
	}
}

static int port_of(const struct sockaddr_storage *a)
{
	return ntohs(a->ss_family == AF_INET ? ((struct sockaddr_in *)a)->sin_port :
					       ((struct sockaddr_in6 *)a)->sin6_port);
}

static int make(const struct order *o, struct socket **sock)
{
	int err = sock_create_kern(current->nsproxy->net_ns, o->family, SOCK_STREAM, 0, sock);

	if (err)
		tell(o->report, "create %d\n", err);
	return err;
}

static int bind_to(const struct order *o, struct socket **sock)
{
	struct sockaddr_storage a;
	int len = make_address(o, &a), err;

	if (len < 0)
		return len;
	err = make(o, sock);
	if (err)
		return err;
	err = kernel_bind(*sock, (struct sockaddr_unsized *)&a, len);
	if (err) {
		tell(o->report, "bind %d\n", err);
		sock_release(*sock);
	}
	return err;
}

static int listen(const struct order *o, struct socket **sock)
{
	int err = bind_to(o, sock);

	if (err)
		return err;
	err = kernel_listen(*sock, 16);
	if (err) {
		tell(o->report, "listen %d\n", err);
		sock_release(*sock);
	}
	return err;
}

static int connect(const struct order *o, struct socket *sock, int flags)
{
	struct sockaddr_storage a;
	int len = make_address(o, &a);

	return len < 0 ? len : kernel_connect(sock, (struct sockaddr_unsized *)&a, len, flags);
}

static int put(struct socket *sock, void *data, size_t len, int flags)
{
	struct msghdr msg = { .msg_flags = flags | MSG_NOSIGNAL };
	struct kvec vec = { data, len };

	return kernel_sendmsg(sock, &msg, &vec, 1, len);
}

static int get(struct socket *sock, void *data, size_t len, int flags)
{
	struct msghdr msg = {};
	struct kvec vec = { data, len };

	return kernel_recvmsg(sock, &msg, &vec, 1, len, flags);
}

/* Sends the pattern from `at` on, at most up to `end`; returns the result of the call. */
static int put_pattern(struct socket *sock, u8 *buffer, size_t at, size_t end, int flags)
{
	size_t n = min_t(size_t, end - at, CHUNK), i;

	for (i = 0; i < n; i++)
		buffer[i] = pattern(at + i);
	return put(sock, buffer, n, flags);
}

static bool is_pattern(const u8 *buffer, size_t at, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (buffer[i] != pattern(at + i))
			return false;
	return true;
}

/* --- blocking calls -------------------------------------------------------------------------- */

static void echo(struct report *r, struct socket *sock, u8 *buffer)
{
	size_t total = 0;
	int n, done, m;

	while ((n = get(sock, buffer, CHUNK, 0)) > 0) {
		for (done = 0; done < n; done += m) {
			m = put(sock, buffer + done, n - done, 0);
			if (m <= 0) {
				tell(r, "send %d after %zu\n", m, total);
				return;
			}
		}
		total += n;
	}
	tell(r, "echoed %zu, then %d\n", total, n);
	tell(r, "shutdown %d\n", kernel_sock_shutdown(sock, SHUT_WR));
}

static void serve(struct order *o, u8 *buffer)
{
	struct report *r = o->report;
	struct socket *listener, *sock;
	struct sockaddr_storage a;
	int err;

	if (listen(o, &listener))
		return;
	err = kernel_getsockname(listener, (struct sockaddr *)&a);
	tell(r, "name %d family %d right port %d\n", err, a.ss_family, port_of(&a) == o->port);
	err = kernel_accept(listener, &sock, 0);
	tell(r, "accept %d\n", err);
	if (!err) {
		err = kernel_getpeername(sock, (struct sockaddr *)&a);
		tell(r, "peer %d family %d has a port %d\n", err, a.ss_family, port_of(&a) != 0);
		echo(r, sock, buffer);
		sock_release(sock);
	}
	sock_release(listener);
}

static void nobody(struct order *o)
{
	struct socket *listener, *sock;
	int err;

	if (listen(o, &listener))
		return;
	err = kernel_accept(listener, &sock, O_NONBLOCK);
	tell(o->report, "accept %d\n", err);
	if (!err)
		sock_release(sock);
	sock_release(listener);
}

static void ask_on(struct order *o, struct socket *sock, u8 *buffer)
{
	struct report *r = o->report;
	size_t sent = 0, got = 0;
	bool good = true;
	int n = connect(o, sock, 0);

	tell(r, "connect %d state %d\n", n, sock->sk->sk_state);
	if (n)
		return;
	/* The peer echoes the bytes, so this function receives before the buffers in between are
	 * full.
	 */
	while (sent < o->count) {
		n = put_pattern(sock, buffer, sent, o->count, 0);
		if (n <= 0)
			break;
		sent += n;
		while (got + 3 * CHUNK < sent && (n = get(sock, buffer, CHUNK, 0)) > 0) {
			good = good && is_pattern(buffer, got, n);
			got += n;
		}
	}
	tell(r, "sent %zu\n", sent);
	tell(r, "shutdown %d\n", kernel_sock_shutdown(sock, SHUT_WR));
	while ((n = get(sock, buffer, CHUNK, 0)) > 0) {
		good = good && is_pattern(buffer, got, n);
		got += n;
	}
	tell(r, "got %zu, then %d, right %d\n", got, n, good);
	tell(r, "send afterwards %d\n", put(sock, buffer, 1, 0));
}

static void ask(struct order *o, u8 *buffer)
{
	struct socket *sock;

	if (make(o, &sock))
		return;
	ask_on(o, sock, buffer);
	sock_release(sock);
}

/* Allocation mode for buffers of the task `watched`. */
static struct task_struct *watched;
static unsigned int expected, blocks, allowed;

static int sees_block(struct kprobe *probe, struct pt_regs *regs)
{
	if (current != watched)
		return 0;
	blocks++;
	allowed += (current->flags & (PF_MEMALLOC | PF_MEMALLOC_NOIO)) == expected;
	return 0;
}

static void ask_allowed(struct order *o, u8 *buffer, bool reserves)
{
	struct kprobe probe = { .symbol_name = "sdp_h_block_alloc", .pre_handler = sees_block };
	struct socket *sock;
	int err;

	if (make(o, &sock))
		return;
	sock->sk->sk_allocation = GFP_NOIO;
	if (reserves)
		sk_set_memalloc(sock->sk);
	sock->sk->sk_use_task_frag = false;
	expected = reserves ? PF_MEMALLOC : PF_MEMALLOC_NOIO;
	blocks = allowed = 0;
	err = register_kprobe(&probe);
	if (!err)
		watched = current;
	ask_on(o, sock, buffer);
	watched = NULL;
	if (!err) {
		unregister_kprobe(&probe);
		tell(o->report, "memory %s\n", blocks && allowed == blocks ? "as allowed" : "not as allowed");
	}
	if (reserves)
		sk_clear_memalloc(sock->sk);
	sock_release(sock);
}

static void frugal(struct order *o, u8 *buffer)
{
	ask_allowed(o, buffer, false);
}

static void for_reclaim(struct order *o, u8 *buffer)
{
	ask_allowed(o, buffer, true);
}

static void refused(struct order *o)
{
	struct socket *sock;
	int err;

	if (make(o, &sock))
		return;
	err = connect(o, sock, 0);
	tell(o->report, "connect %d state %d\n", err, sock->sk->sk_state);
	tell(o->report, "send %d\n", put(sock, "x", 1, 0));
	sock_release(sock);
}

static void options(struct order *o)
{
	struct report *r = o->report;
	struct socket *sock;
	int on = 1, size = 100000;

	if (make(o, &sock))
		return;
	tell(r, "keepalive %d\n", sock_setsockopt(sock, SOL_SOCKET, SO_KEEPALIVE, KERNEL_SOCKPTR(&on), sizeof(on)));
	tell(r, "is on %d\n", sock_flag(sock->sk, SOCK_KEEPOPEN));
	tell(r, "sndbuf %d\n", sock_setsockopt(sock, SOL_SOCKET, SO_SNDBUF, KERNEL_SOCKPTR(&size), sizeof(size)));
	tell(r, "is %d\n", sock->sk->sk_sndbuf);
	tell(r, "nodelay %d\n", sock->ops->setsockopt(sock, SOL_TCP, TCP_NODELAY, KERNEL_SOCKPTR(&on), sizeof(on)));
	tell(r, "short %d\n", sock->ops->setsockopt(sock, SOL_TCP, TCP_NODELAY, KERNEL_SOCKPTR(&on), 1));
	tell(r, "unknown %d\n", sock->ops->setsockopt(sock, SOL_TCP, 9999, KERNEL_SOCKPTR(&on), sizeof(on)));
	sock_set_reuseaddr(sock->sk);
	sock_set_priority(sock->sk, 5);
	sock_no_linger(sock->sk);
	tell(r, "reuse %d priority %d linger %d\n", sock->sk->sk_reuse, sock->sk->sk_priority,
	     sock_flag(sock->sk, SOCK_LINGER));
	sock_release(sock);
}

/* Sends page number `i` of the pattern; returns the error of a failed call. */
static int send_page(struct socket *sock, int i, bool slab, int flags)
{
	u8 *bytes = slab ? kmalloc(PAGE_SIZE, GFP_KERNEL) : (u8 *)__get_free_page(GFP_KERNEL);
	struct msghdr msg = { .msg_flags = MSG_SPLICE_PAGES | MSG_NOSIGNAL | flags };
	struct bio_vec vec;
	int j, n, err = 0;

	if (!bytes)
		return -ENOMEM;
	for (j = 0; j < PAGE_SIZE; j++)
		bytes[j] = pattern(i * PAGE_SIZE + j);
	bvec_set_virt(&vec, bytes, PAGE_SIZE);
	iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, &vec, 1, PAGE_SIZE);
	while (!err && msg_data_left(&msg)) {
		n = sock_sendmsg(sock, &msg);
		if (n <= 0)
			err = n ?: -EIO;
	}
	if (slab) {
		memset(bytes, 0xee, PAGE_SIZE);
		kfree(bytes);
	} else {
		free_page((unsigned long)bytes);
	}
	return err;
}

static void pages(struct order *o, bool slab)
{
	struct report *r = o->report;
	struct socket *sock;
	int i, err;

	if (make(o, &sock))
		return;
	err = connect(o, sock, 0);
	tell(r, "connect %d\n", err);
	for (i = 0; !err && i < o->count; i++)
		err = send_page(sock, i, slab, i + 1 < o->count ? MSG_MORE : 0);
	tell(r, "pages %d, then %d\n", i, err);
	sock_release(sock);
}

/* --- casts of users that take any stream socket for TCP's --------------------------- */

static int cast(struct sock *sk, int turn)
{
	switch (turn % 10) {
	case 0:
		tcp_sock_set_nodelay(sk);
		return 0;
	case 1:
	case 2:
		tcp_sock_set_cork(sk, turn % 10 == 1);
		return 0;
	case 3:
	case 4:
		tcp_sock_set_quickack(sk, turn % 10 - 2);
		return 0;
	case 5:
		return tcp_sock_set_keepidle(sk, 1);
	case 6:
		return tcp_sock_set_keepintvl(sk, 5);
	case 7:
		return tcp_sock_set_keepcnt(sk, 9);
	case 8:
		return tcp_sock_set_user_timeout(sk, 100000);
	default:
		return tcp_sock_set_syncnt(sk, 3);
	}
}

static void casts(struct order *o, u8 *buffer)
{
	struct report *r = o->report;
	struct socket *sock;
	size_t got = 0;
	bool good = true;
	int i, n, err;

	if (make(o, &sock))
		return;
	err = connect(o, sock, 0);
	tell(r, "connect %d\n", err);
	sock_set_keepalive(sock->sk);
	for (i = 0; !err && i < o->count; i++) {
		err = send_page(sock, i, false, i % 64 == 63 ? 0 : MSG_MORE) ?: cast(sock->sk, i);
		while ((n = get(sock, buffer, CHUNK, MSG_DONTWAIT)) > 0) {
			good = good && is_pattern(buffer, got, n);
			got += n;
		}
	}
	tell(r, "pages %d, then %d\n", i, err);
	kernel_sock_shutdown(sock, SHUT_WR);
	while ((n = get(sock, buffer, CHUNK, 0)) > 0) {
		good = good && is_pattern(buffer, got, n);
		got += n;
	}
	/* twice the time of the keepalive timer, which is armed again after expiring */
	msleep(1200);
	tell(r, "got %zu, then %d, right %d, keepidle %d\n", got, n, good, cast(sock->sk, 5));
	sock_release(sock);
}

static void nodelay(struct order *o)
{
	struct socket *sock;
	int i, n;

	if (make(o, &sock))
		return;
	n = connect(o, sock, 0);
	tell(o->report, "connect %d\n", n);
	tcp_sock_set_nodelay(sock->sk);
	for (i = 0, n = 1; n == 1 && i < o->count; i++)
		n = put(sock, "x", 1, 0);
	tell(o->report, "sent %d\n", i);
	sock_release(sock);
}

/* --- listeners whose connections inherit callbacks, as DRBD does ------------------------ */

/* Freed when the module is unloaded, so that a late callback finds `gone`. */
struct bell {
	struct list_head all;
	struct completion established, queued;
	atomic_t wanted, late;
	bool gone;
	void (*state_change)(struct sock *sk);
	void (*data_ready)(struct sock *sk);
	void (*write_space)(struct sock *sk);
	void (*error_report)(struct sock *sk);
};

static LIST_HEAD(bells);
static DEFINE_SPINLOCK(bells_lock);

/* Returns the bell, NULL after the bell's end. Delays callbacks of connections. */
static struct bell *rung(struct sock *sk)
{
	struct bell *b = sk->sk_user_data;

	if (sk->sk_state != TCP_LISTEN)
		mdelay(20);
	if (!READ_ONCE(b->gone))
		return b;
	atomic_inc(&b->late);
	return NULL;
}

static void bell_state(struct sock *sk)
{
	bool established = sk->sk_state == TCP_ESTABLISHED;
	struct bell *b = rung(sk);

	if (b && established)
		complete(&b->established);
	if (b)
		b->state_change(sk);
}

static void bell_data(struct sock *sk)
{
	struct bell *b = rung(sk);

	if (b && sk->sk_state == TCP_LISTEN && atomic_dec_and_test(&b->wanted))
		complete(&b->queued);
	if (b)
		b->data_ready(sk);
}

static void bell_space(struct sock *sk)
{
	struct bell *b = rung(sk);

	if (b)
		b->write_space(sk);
}

static void bell_error(struct sock *sk)
{
	struct bell *b = rung(sk);

	if (b)
		b->error_report(sk);
}

/* Installs the bell's callbacks on a socket, or restores the previous ones. */
static void hang(struct sock *sk, struct bell *b, bool on)
{
	write_lock_bh(&sk->sk_callback_lock);
	sk->sk_user_data = on ? b : NULL;
	sk->sk_state_change = on ? bell_state : b->state_change;
	sk->sk_data_ready = on ? bell_data : b->data_ready;
	sk->sk_write_space = on ? bell_space : b->write_space;
	sk->sk_error_report = on ? bell_error : b->error_report;
	write_unlock_bh(&sk->sk_callback_lock);
}

static struct bell *listen_with_bell(struct order *o, struct socket **sock)
{
	struct bell *b = kzalloc_obj(struct bell, GFP_KERNEL);

	if (!b)
		return NULL;
	if (bind_to(o, sock)) {
		kfree(b);
		return NULL;
	}
	init_completion(&b->established);
	init_completion(&b->queued);
	atomic_set(&b->wanted, o->count);
	b->state_change = (*sock)->sk->sk_state_change;
	b->data_ready = (*sock)->sk->sk_data_ready;
	b->write_space = (*sock)->sk->sk_write_space;
	b->error_report = (*sock)->sk->sk_error_report;
	spin_lock(&bells_lock);
	list_add(&b->all, &bells);
	spin_unlock(&bells_lock);
	hang((*sock)->sk, b, true);
	tell(o->report, "listen %d\n", kernel_listen(*sock, 16));
	return b;
}

static void doorbell(struct order *o, u8 *buffer)
{
	struct socket *listener, *sock;
	struct bell *b = listen_with_bell(o, &listener);
	int err;

	if (!b)
		return;
	tell(o->report, "established %d\n",
	     wait_for_completion_interruptible_timeout(&b->established, 10 * HZ) > 0);
	err = kernel_accept(listener, &sock, 0);
	tell(o->report, "accept %d\n", err);
	if (!err) {
		hang(sock->sk, b, false);
		echo(o->report, sock, buffer);
		sock_release(sock);
	}
	sock_release(listener);
	WRITE_ONCE(b->gone, true);
}

static void forsaken(struct order *o)
{
	struct socket *listener;
	struct bell *b = listen_with_bell(o, &listener);

	if (!b)
		return;
	tell(o->report, "in the queue %d\n", wait_for_completion_interruptible_timeout(&b->queued, PATIENCE) > 0);
	sock_release(listener);
	WRITE_ONCE(b->gone, true);
	msleep(1000);
	tell(o->report, "too late %d\n", atomic_read(&b->late));
}

/* --- non-blocking calls -------------------------------------------------------------------- */

/* Events reported by the callbacks; the saved callbacks are called as well. */
struct watch {
	struct socket *sock;
	struct work_struct work;
	struct completion over, failed;
	atomic_t states, reads, writes, errors;
	void (*state_change)(struct sock *sk);
	void (*data_ready)(struct sock *sk);
	void (*write_space)(struct sock *sk);
	void (*error_report)(struct sock *sk);
	struct attendance *attendance;
	struct order *order;
	u8 *buffer;
	size_t sent, got, kept, kept_at;
	bool good, asked, blocked, ended, done;
	int problem;
};

/* The callbacks may be called in any context, with any lock of the protocol held. */
static void on_event(struct sock *sk, size_t count, size_t saved)
{
	struct watch *w;
	void (*before)(struct sock *sk) = NULL;

	read_lock_bh(&sk->sk_callback_lock);
	w = sk->sk_user_data;
	if (w) {
		atomic_inc((atomic_t *)((char *)w + count));
		if (count == offsetof(struct watch, errors))
			complete(&w->failed);
		before = *(void (**)(struct sock *))((char *)w + saved);
		schedule_work(&w->work);
	}
	read_unlock_bh(&sk->sk_callback_lock);
	if (before)
		before(sk);
}

static void on_state(struct sock *sk)
{
	on_event(sk, offsetof(struct watch, states), offsetof(struct watch, state_change));
}

static void on_data(struct sock *sk)
{
	on_event(sk, offsetof(struct watch, reads), offsetof(struct watch, data_ready));
}

static void on_space(struct sock *sk)
{
	/* sends only if there is enough space, like sunrpc and others */
	if (sk_stream_is_writeable(sk))
		clear_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
	on_event(sk, offsetof(struct watch, writes), offsetof(struct watch, write_space));
}

static void on_error(struct sock *sk)
{
	on_event(sk, offsetof(struct watch, errors), offsetof(struct watch, error_report));
}

static struct watch *begin(struct order *o, struct socket *sock, work_func_t work)
{
	struct watch *w = kzalloc(sizeof(*w), GFP_KERNEL);
	struct sock *sk = sock->sk;

	if (!w)
		return NULL;
	w->buffer = kvmalloc(CHUNK, GFP_KERNEL);
	if (!w->buffer) {
		kfree(w);
		return NULL;
	}
	w->sock = sock;
	w->order = o;
	w->good = true;
	INIT_WORK(&w->work, work);
	init_completion(&w->over);
	init_completion(&w->failed);
	write_lock_bh(&sk->sk_callback_lock);
	w->state_change = sk->sk_state_change;
	w->data_ready = sk->sk_data_ready;
	w->write_space = sk->sk_write_space;
	w->error_report = sk->sk_error_report;
	/* an accepted socket inherits the listener's callbacks */
	if (w->data_ready == on_data) {
		struct watch *of = sk->sk_user_data;

		w->state_change = of->state_change;
		w->data_ready = of->data_ready;
		w->write_space = of->write_space;
		w->error_report = of->error_report;
	}
	sk->sk_user_data = w;
	sk->sk_state_change = on_state;
	sk->sk_data_ready = on_data;
	sk->sk_write_space = on_space;
	sk->sk_error_report = on_error;
	write_unlock_bh(&sk->sk_callback_lock);
	return w;
}

static void end(struct watch *w)
{
	struct sock *sk = w->sock->sk;

	write_lock_bh(&sk->sk_callback_lock);
	sk->sk_user_data = NULL;
	sk->sk_state_change = w->state_change;
	sk->sk_data_ready = w->data_ready;
	sk->sk_write_space = w->write_space;
	sk->sk_error_report = w->error_report;
	write_unlock_bh(&sk->sk_callback_lock);
	cancel_work_sync(&w->work);
	sock_release(w->sock);
	kvfree(w->buffer);
	kfree(w);
}

static void events_work(struct work_struct *work)
{
	struct watch *w = container_of(work, struct watch, work);
	struct sock *sk = w->sock->sk;
	size_t total = w->order->count;
	int n;

	if (w->done || sk->sk_state == TCP_SYN_SENT)
		return;
	while (!w->asked && w->sent < total) {
		n = put_pattern(w->sock, w->buffer, w->sent, total, MSG_DONTWAIT);
		if (n == -EAGAIN) {
			w->blocked = true;
			break;
		}
		if (n <= 0) {
			w->problem = n;
			goto out;
		}
		w->sent += n;
	}
	if (!w->asked && w->sent == total) {
		w->asked = true;
		w->problem = kernel_sock_shutdown(w->sock, SHUT_WR);
		if (w->problem)
			goto out;
	}
	while ((n = get(w->sock, w->buffer, CHUNK, MSG_DONTWAIT)) > 0) {
		w->good = w->good && is_pattern(w->buffer, w->got, n);
		w->got += n;
	}
	if (n == -EAGAIN)
		return;
	w->problem = n;
	w->ended = n == 0;
out:
	w->done = true;
	complete(&w->over);
}

static void events(struct order *o)
{
	struct report *r = o->report;
	struct socket *sock;
	struct watch *w;
	int err;

	if (make(o, &sock))
		return;
	w = begin(o, sock, events_work);
	if (!w) {
		sock_release(sock);
		return;
	}
	err = connect(o, sock, O_NONBLOCK);
	tell(r, "connect %d\n", err);
	if (err == -EINPROGRESS &&
	    wait_for_completion_interruptible_timeout(&w->over, PATIENCE) <= 0)
		tell(r, "never over: state %d sent %zu got %zu\n", sock->sk->sk_state, w->sent, w->got);
	/* the state callback may have read the error before the error callback runs */
	if (w->problem < 0)
		wait_for_completion_interruptible_timeout(&w->failed, PATIENCE);
	tell(r, "sent %zu got %zu right %d end %d problem %d\n", w->sent, w->got, w->good, w->ended, w->problem);
	tell(r, "told of states %d data %d space after blocking %d errors %d\n", atomic_read(&w->states) > 0,
	     atomic_read(&w->reads) > 0, !w->blocked || atomic_read(&w->writes) > 0, atomic_read(&w->errors) > 0);
	end(w);
}

/* A server that runs in callbacks: a listener and its accepted sockets. */
struct attendance {
	struct watch *listener;
	struct watch *guests[64];
	int wanted, came, problem;
	atomic_t left;
	size_t echoed;
	struct completion over;
};

/* Handles the end of a connection. */
static void leave(struct watch *w, int problem)
{
	struct attendance *all = w->attendance;

	w->done = true;
	w->problem = problem;
	if (atomic_dec_and_test(&all->left))
		complete(&all->over);
}

static void guest_work(struct work_struct *work)
{
	struct watch *w = container_of(work, struct watch, work);
	int n;

	while (!w->done) {
		/* bytes that could not be sent last time are sent first */
		while (w->kept) {
			n = put(w->sock, w->buffer + w->kept_at, w->kept, MSG_DONTWAIT);
			if (n == -EAGAIN)
				return;
			if (n <= 0)
				return leave(w, n);
			w->kept_at += n;
			w->kept -= n;
			w->sent += n;
		}
		n = get(w->sock, w->buffer, CHUNK, MSG_DONTWAIT);
		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			kernel_sock_shutdown(w->sock, SHUT_WR);
			return leave(w, n);
		}
		w->kept = n;
		w->kept_at = 0;
	}
}

static void listener_work(struct work_struct *work)
{
	struct watch *w = container_of(work, struct watch, work);
	struct attendance *all = w->attendance;
	struct socket *sock;
	int err;

	while (all->came < all->wanted) {
		struct watch *guest;

		err = kernel_accept(w->sock, &sock, O_NONBLOCK);
		if (err == -EAGAIN)
			return;
		guest = err ? NULL : begin(w->order, sock, guest_work);
		if (!guest) {
			all->problem = err ?: -ENOMEM;
			complete(&all->over);
			return;
		}
		guest->attendance = all;
		all->guests[all->came++] = guest;
		/* the event may have occurred before the callbacks were installed */
		schedule_work(&guest->work);
	}
}

static void attend(struct order *o)
{
	struct report *r = o->report;
	struct attendance *all = kzalloc(sizeof(*all), GFP_KERNEL);
	struct socket *sock;
	int i, problem = 0;

	if (!all)
		return;
	init_completion(&all->over);
	all->wanted = clamp(o->count, 1, 64);
	atomic_set(&all->left, all->wanted);
	if (listen(o, &sock))
		goto out;
	all->listener = begin(o, sock, listener_work);
	if (!all->listener) {
		sock_release(sock);
		goto out;
	}
	all->listener->attendance = all;
	schedule_work(&all->listener->work);
	if (wait_for_completion_interruptible_timeout(&all->over, PATIENCE) <= 0)
		tell(r, "never over: %d came, %d left\n", all->came, atomic_read(&all->left));
	tell(r, "told of connections %d\n", atomic_read(&all->listener->reads) > 0);
	end(all->listener);
	for (i = 0; i < all->came; i++) {
		all->echoed += all->guests[i]->sent;
		problem = problem ?: all->guests[i]->problem;
		end(all->guests[i]);
	}
	tell(r, "came %d echoed %zu problem %d\n", all->came, all->echoed, problem ?: all->problem);
out:
	kfree(all);
}

/* --- sockets that stay until their namespace ends --------------------------------------------- */

static unsigned int net_id;

struct left_behind {
	struct socket *socks[8];
	int count;
};

static void leave_behind(struct order *o)
{
	struct left_behind *left = net_generic(current->nsproxy->net_ns, net_id);
	struct socket *sock;
	int err;

	if (left->count == ARRAY_SIZE(left->socks))
		return;
	if (!o->count) {
		err = listen(o, &sock);
	} else {
		err = make(o, &sock);
		if (err)
			return;
		err = connect(o, sock, 0);
		if (!err)
			err = put(sock, "left behind", 11, 0) == 11 ? 0 : -EIO;
		if (err)
			sock_release(sock);
	}
	tell(o->report, "left %d\n", err);
	if (!err)
		left->socks[left->count++] = sock;
}

/* Releases all sockets except the first while the devices still exist, so that the peer is
 * notified.
 */
static void __net_exit net_goes(struct net *net)
{
	struct left_behind *left = net_generic(net, net_id);

	while (left->count > 1)
		sock_release(left->socks[--left->count]);
}

static void __net_exit net_gone(struct net *net)
{
	struct left_behind *left = net_generic(net, net_id);

	while (left->count)
		sock_release(left->socks[--left->count]);
}

static struct pernet_operations net_ops = {
	.pre_exit = net_goes,
	.exit = net_gone,
	.id = &net_id,
	.size = sizeof(struct left_behind),
};

/* --- orders ----------------------------------------------------------------------------------- */

static int carry_out(struct order *o)
{
	u8 *buffer = kvmalloc(CHUNK, GFP_KERNEL);
	int err = 0;

	if (!buffer)
		return -ENOMEM;
	if (!strcmp(o->command, "serve"))
		serve(o, buffer);
	else if (!strcmp(o->command, "nobody"))
		nobody(o);
	else if (!strcmp(o->command, "ask"))
		ask(o, buffer);
	else if (!strcmp(o->command, "frugal"))
		frugal(o, buffer);
	else if (!strcmp(o->command, "reclaim"))
		for_reclaim(o, buffer);
	else if (!strcmp(o->command, "refused"))
		refused(o);
	else if (!strcmp(o->command, "events"))
		events(o);
	else if (!strcmp(o->command, "attend"))
		attend(o);
	else if (!strcmp(o->command, "pages"))
		pages(o, false);
	else if (!strcmp(o->command, "slab"))
		pages(o, true);
	else if (!strcmp(o->command, "options"))
		options(o);
	else if (!strcmp(o->command, "casts"))
		casts(o, buffer);
	else if (!strcmp(o->command, "nodelay"))
		nodelay(o);
	else if (!strcmp(o->command, "doorbell"))
		doorbell(o, buffer);
	else if (!strcmp(o->command, "forsaken"))
		forsaken(o);
	else if (!strcmp(o->command, "leave"))
		leave_behind(o);
	else
		err = -EINVAL;
	kvfree(buffer);
	return err;
}

static int proc_open(struct inode *inode, struct file *file)
{
	file->private_data = kzalloc_obj(struct report, GFP_KERNEL);
	return file->private_data ? 0 : -ENOMEM;
}

static int proc_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static ssize_t proc_write(struct file *file, const char __user *from, size_t len, loff_t *at)
{
	struct order o = { .report = file->private_data };
	char line[128];
	int err;

	if (len >= sizeof(line) || copy_from_user(line, from, len))
		return -EINVAL;
	line[len] = 0;
	if (sscanf(line, "%15s %d %47s %d %d", o.command, &o.family, o.address, &o.port, &o.count) != 5)
		return -EINVAL;
	o.report->len = 0;
	err = carry_out(&o);
	return err ? err : len;
}

static ssize_t proc_read(struct file *file, char __user *to, size_t len, loff_t *at)
{
	struct report *r = file->private_data;

	return simple_read_from_buffer(to, len, at, r->text, r->len);
}

static const struct proc_ops proc_ops = {
	.proc_open = proc_open,
	.proc_release = proc_release,
	.proc_write = proc_write,
	.proc_read = proc_read,
	.proc_lseek = default_llseek,
};

static int __init user_init(void)
{
	int err = register_pernet_subsys(&net_ops);

	if (err)
		return err;
	if (!proc_create("sdp_kernel_user", 0600, NULL, &proc_ops)) {
		unregister_pernet_subsys(&net_ops);
		return -ENOMEM;
	}
	return 0;
}
module_init(user_init);

static void __exit user_exit(void)
{
	struct bell *b, *next;

	remove_proc_entry("sdp_kernel_user", NULL);
	unregister_pernet_subsys(&net_ops);
	list_for_each_entry_safe(b, next, &bells, all)
		kfree(b);
}
module_exit(user_exit);

MODULE_DESCRIPTION("A user of sockets inside the kernel, for the tests of ib_sdp");
MODULE_LICENSE("GPL");

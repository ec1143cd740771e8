/* SPDX-License-Identifier: GPL-2.0-only */
/* The C part of a socket, and types that its C and Rust code share. */
#ifndef IB_SDP_NET_HELPERS_H
#define IB_SDP_NET_HELPERS_H

#include <linux/net.h>
#include <linux/in6.h>
#include <linux/ipv6.h>
#include <linux/mutex.h>
#include <linux/tcp.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/sockptr.h>
#include <linux/seq_file.h>
#include <linux/seq_file_net.h>
#include <net/sock.h>
#include <net/inet_sock.h>
#include <net/inet_common.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>

/* Hash of structure layouts, which Workqueues::start() compares with bindgen's by clang. */
#define SDP_H_LAYOUT \
	(sizeof(struct sock) + 31 * (offsetof(struct sock, sk_data_ready) + 31 * ( \
	 sizeof(struct inet_sock) + 31 * (sizeof(struct socket) + 31 * ( \
	 sizeof(struct proto) + 31 * (sizeof(struct proto_ops) + 31 * ( \
	 sizeof(struct msghdr) + 31 * (sizeof(struct ib_device) + 31 * ( \
	 sizeof(struct ib_qp_attr) + 31 * (sizeof(struct ib_qp_init_attr) + 31 * ( \
	 sizeof(struct ib_send_wr) + 31 * (sizeof(struct ib_wc) + 31 * ( \
	 sizeof(struct ib_cm_event) + 31 * (sizeof(struct ib_cm_req_param) + 31 * ( \
	 sizeof(struct rdma_cm_id) + 31 * (sizeof(struct ib_client) + 31 * ( \
	 sizeof(struct sdp_h_protect))))))))))))))))))

/* The module's workqueues and a counter of rdma_helpers.c, made by sdp_h_start(). */
extern struct workqueue_struct *sdp_h_wq, *sdp_h_rdma_wq, *sdp_h_protect_wq;
extern struct percpu_counter sdp_h_block_bytes;

/* The C part of a socket; the Rust part follows in the same object. */
struct sdp_h_sock {
	struct inet_sock	inet;	/* must be first */
	/*
	 * Kernel users such as DRBD cast any stream socket of protocol 6 to tcp_sock, and
	 * tcp_sock_set_*() writes to this area. The module reads only NODELAY in `as_tcp`.
	 */
	u8			as_tcp[sizeof(struct tcp_sock) - sizeof(struct inet_sock)];
	struct ipv6_pinfo	inet6;
	struct work_struct	work;
	struct delayed_work	timer;
	spinlock_t		arming;	/* held while setting the timer */
	wait_queue_head_t	wait;
	atomic_t		events;	/* counts wake-ups, see sdp_h_sleep() */
	atomic_t		jobs;	/* bit mask of pending work */
	/* default callback: any other value in sk_data_ready belongs to a kernel user */
	void			(*data_ready)(struct sock *sk);
	/* TCP socket of a descriptor of IPPROTO_SDP */
	struct socket		*tcp;
	wait_queue_entry_t	tcp_wakeups;	/* entry in the wait queue of `tcp` */
	struct mutex		decision;	/* held to choose SDP or TCP; guards `tcp` */
	atomic_t		undecided;	/* jobs to schedule after `decision` is released */
	bool			furnished;	/* the Rust part is initialised */
	atomic_t		unaccepted;	/* set until a descriptor is made for the socket */
};

/* Task state saved by sdp_h_memory_begin(). */
struct sdp_h_memory {
	void		*charged;	/* previous memory cgroup of the task */
	unsigned int	flags;
	bool		charges;
};

/* An address and a port in network byte order, of either family. */
struct sdp_h_addr {
	struct in6_addr		ip;	/* IPv4 as ::ffff:a.b.c.d */
	__be16			port;
};

/* TCP's times in seconds, and its numbers of probes and SYNs. */
struct sdp_h_tcp_timers {
	u32	keep_idle, keep_interval, keep_count, syn_count, fin_timeout;
};

struct sdp_h_route {
	struct sdp_h_addr	from;
	int			ifindex;
	bool			local;	/* `to` is an address of this namespace */
};

static inline bool sdp_h_is_v6(const struct sock *sk)
{
	return sk->sk_prot->ipv6_pinfo_offset != 0;
}

void sdp_h_async_init(struct sdp_h_sock *s, work_func_t work, work_func_t timer);
/*
 * Filled in by registration.rs: [0] is for IPv4, [1] for IPv6, [2] and [3] for IPPROTO_SDP.
 */
extern struct proto sdp_h_proto[4];
extern struct proto_ops sdp_h_ops[4];

enum sdp_h_watchers { SDP_H_NONE, SDP_H_POLLERS, SDP_H_OTHERS };
enum sdp_h_callback { SDP_H_STATE_CHANGE, SDP_H_DATA_READY, SDP_H_WRITE_SPACE, SDP_H_ERROR_REPORT };
void sdp_h_name(const struct sock *sk, bool remote, struct sdp_h_addr *a);
void sdp_h_custom_sockopt(struct socket *sock);
void sdp_h_schedule(struct sdp_h_sock *s, int job);
void sdp_h_wake(struct sdp_h_sock *s, bool all);

/* State of an open file with rows. */
struct sdp_h_rows {
	struct seq_net_private net;
	/* Lower bound of the address of the object in the next row. */
	size_t at;
};

/* Module parameters that root may change at run time. */
struct sdp_h_params {
#define P(name, value, least, most, mode, scope, text) int name;
#include "params.def"
#undef P
	/* Number of writes of 0 to ipproto_memory. */
	int forgotten;
};
extern struct sdp_h_params sdp_h_params;
/* Sysctls of a namespace. INT_MIN: the module's value applies. */
struct ctl_table_header *sdp_h_sysctls_start(struct net *net, struct sdp_h_params *own);
void sdp_h_sysctls_stop(struct ctl_table_header *sysctls);

#endif

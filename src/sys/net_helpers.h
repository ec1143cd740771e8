/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Macros, inline functions and field defines of the kernel's network headers as plain functions,
 * for the socket layer.
 */
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

/* The C part of a socket; the Rust part follows it in the same object. */
struct sdp_h_sock {
	struct inet_sock	inet;	/* must be first */
	/*
	 * Kernel users cast any stream socket of protocol 6 to tcp_sock (as DRBD): tcp_sock_set_*()
	 * writes here. Only NODELAY is read.
	 */
	u8			as_tcp[sizeof(struct tcp_sock) - sizeof(struct inet_sock)];
	struct ipv6_pinfo	inet6;
	struct work_struct	work;
	struct delayed_work	timer;
	spinlock_t		arming;	/* held while the timer is set */
	wait_queue_head_t	wait;
	atomic_t		events;	/* counts wake-ups, see sdp_h_sleep() */
	atomic_t		jobs;	/* bits of work that is to be done */
	/* default callback: any other value in sk_data_ready is a kernel user's */
	void			(*data_ready)(struct sock *sk);
	/* TCP socket of a descriptor of IPPROTO_SDP */
	struct socket		*tcp;
	wait_queue_entry_t	tcp_wakeups;	/* in the queue of tcp */
	struct mutex		decision;	/* guards tcp; see tcp_helpers.h */
	atomic_t		undecided;	/* jobs that are put off while another has that */
	bool			furnished;	/* the Rust part is initialised */
	atomic_t		unaccepted;	/* whether a descriptor may be made for it */
};

/* Task state saved by sdp_h_memory_begin(). */
struct sdp_h_memory {
	void		*charged;	/* the memory cgroup before */
	unsigned int	flags;
	bool		charges;
};

/* An address and a port in network byte order, of either family. */
struct sdp_h_addr {
	struct in6_addr		ip;	/* IPv4 as ::ffff:a.b.c.d */
	__be16			port;
};

/* TCP's times in seconds, and counts. */
struct sdp_h_tcp_timers {
	u32	keep_idle, keep_interval, keep_count, syn_count, fin_timeout;
};

struct sdp_h_route {
	struct sdp_h_addr	from;
	int			ifindex;
	bool			local;	/* to an address of this namespace */
};

static inline bool sdp_h_is_v6(const struct sock *sk)
{
	return sk->sk_prot->ipv6_pinfo_offset != 0;
}

/* life.rs, registration.rs */
struct sock *sdp_h_sock_create(struct net *net, struct socket *sock, int family,
			       int protocol, struct proto *prot, int kern,
			       work_func_t work, work_func_t timer);
struct sock *sdp_h_sock_clone(struct sock *listener, work_func_t work,
			      work_func_t timer);

void sdp_h_async_init(struct sdp_h_sock *s, work_func_t work, work_func_t timer);
void sdp_h_sock_discard(struct sock *sk);
void sdp_h_child_discard(struct sock *sk);
bool sdp_h_child_take(struct sock *sk);
/*
 * Filled in by registration.rs: [0] is IPv4, [1] is IPv6; of the protocols [2] and
 * [3] are those of IPPROTO_SDP.
 */
extern struct proto sdp_h_proto[4];
extern struct proto_ops sdp_h_ops[4];
extern struct net_proto_family sdp_h_family[2];
extern unsigned int sdp_h_netns_id;
int sdp_h_netns_start(size_t size, int (*init)(struct net *), void (*exit)(struct net *));
void sdp_h_netns_stop(void);

/* sock/ */
void sdp_h_sock_set_flag(struct sock *sk, int flag, bool on);
enum sdp_h_callback { SDP_H_STATE_CHANGE, SDP_H_DATA_READY, SDP_H_WRITE_SPACE, SDP_H_ERROR_REPORT };
void sdp_h_call_back(struct sock *sk, enum sdp_h_callback which);
bool sdp_h_cast_nodelay(const struct sock *sk);
void sdp_h_local(const struct sock *sk, struct sdp_h_addr *a);
void sdp_h_remote(const struct sock *sk, struct sdp_h_addr *a);
void sdp_h_set_local(struct sock *sk, const struct sdp_h_addr *a);
void sdp_h_set_remote(struct sock *sk, const struct sdp_h_addr *a);
u16 sdp_h_num(const struct sock *sk);
void sdp_h_set_num(struct sock *sk, u16 num);
u32 sdp_h_uid(const struct sock *sk);
u32 sdp_h_uid_for(struct seq_file *seq, const struct sock *sk);
u8 sdp_h_tos(const struct sock *sk);
int sdp_h_priority(const struct sock *sk);
bool sdp_h_is_own_address(const struct sock *sk, const struct sdp_h_addr *a);
bool sdp_h_is_broadcast(const struct sock *sk, const struct sdp_h_addr *a);
bool sdp_h_tcp_is_anothers(struct sock *sk, const struct sdp_h_addr *local,
			   const struct sdp_h_addr *remote, int dif);
int sdp_h_bind_scope(struct sock *sk, int scope);
bool sdp_h_bound_dev_eq(struct net *net, int bound, int ifindex);
int sdp_h_route(struct net *net, struct sock *sk, const struct sdp_h_addr *to, int ifindex,
		struct sdp_h_route *route);
void sdp_h_tcp_timers(const struct sock *sk, struct sdp_h_tcp_timers *t);
void sdp_h_custom_sockopt(struct socket *sock);
int sdp_h_most_rmem(const struct sock *sk);
void sdp_h_set_rmem(struct sock *sk, int bytes);
int sdp_h_cmsg_check(struct sock *sk, struct msghdr *msg);
void sdp_h_give_inq(struct msghdr *msg, int inq, bool control);
int sdp_h_notice_begin(struct sock *sk, struct msghdr *msg, struct ubuf_info **notice, bool *given);
void sdp_h_notice_end(struct ubuf_info *notice, bool direct);
bool sdp_h_has_notices(const struct sock *sk);
int sdp_h_recv_error(struct sock *sk, struct msghdr *msg, int len);
bool sdp_h_is_crowded(void);
void sdp_h_give_way(void);
bool sdp_h_is_watched(struct sock *sk);
bool sdp_h_has_pollers(struct sock *sk);
void sdp_h_wake_pollers(struct sock *sk);

void sdp_h_memory_begin(const struct sock *sk, struct sdp_h_memory *m);
void sdp_h_memory_end(struct sdp_h_memory *m);

/* Work, timer and waiting. */
int sdp_h_wq_start(void);
void sdp_h_wq_stop(void);
void sdp_h_schedule(struct sdp_h_sock *s, int job);
void sdp_h_arm_timer(struct sdp_h_sock *s, unsigned long delay);
void sdp_h_cancel_timer(struct sdp_h_sock *s);
void sdp_h_wake(struct sdp_h_sock *s, bool all);
long sdp_h_sleep(struct sdp_h_sock *s, int seen, long timeo, unsigned int state, bool in_turn);

/* calls.rs */
void sdp_h_nospace(struct sock *sk);
bool sdp_h_clear_nospace(struct sock *sk);

/* options.rs; the first two are in net_options.c */
int sdp_h_setsockopt(struct sock *sk, int level, int name, sockptr_t value, unsigned int len);
int sdp_h_getsockopt(struct sock *sk, int level, int name, char __user *value, int __user *len);
int sdp_h_get_user_int(const int __user *p, int *v);
int sdp_h_put_user_int(int v, int __user *p);

/* netns.rs, proc.rs */
struct proc_dir_entry *sdp_h_proc_single(struct net *net, const char *name,
					 int (*show)(struct seq_file *, void *),
					 int (*write)(struct file *, char *, size_t));
/* State of an open file with rows. */
struct sdp_h_rows {
	struct seq_net_private net;
	/* Lower bound of the address of the object in the next row. */
	size_t at;
};
struct proc_dir_entry *sdp_h_proc_rows(struct net *net, const char *name,
				       const struct seq_operations *ops);
void sdp_h_proc_remove(struct net *net, const char *name);

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

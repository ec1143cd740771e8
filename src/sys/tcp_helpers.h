/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An IPPROTO_SDP socket and the TCP socket beneath it: what is needed of the
 * kernel's macros and inline functions, as plain functions.
 */
#ifndef IB_SDP_TCP_HELPERS_H
#define IB_SDP_TCP_HELPERS_H

#include <linux/net.h>
#include <linux/socket.h>
#include "net_helpers.h"

int sdp_h_ipproto_register(int number);
void sdp_h_ipproto_unregister(void);
int sdp_h_ipproto_init(struct sock *sk, work_func_t work, work_func_t timer);
void sdp_h_graft(struct socket *sock, struct socket *new, struct sock *sk);

/* Held while deciding between SDP and TCP; guards sdp_h_sock.tcp. */
void sdp_h_decide(struct sock *sk);
bool sdp_h_try_decide(struct sock *sk, int job);
void sdp_h_decided(struct sock *sk);

/* tcp.rs */
struct socket *sdp_h_tcp_take(struct sock *sk);
void sdp_h_tcp_drop(struct socket *sock, struct socket *tcp);
void sdp_h_tcp_discard(struct sock *sk);
void sdp_h_tcp_name(const struct socket *tcp, struct sdp_h_addr *a);
void sdp_h_tcp_share_name(struct sock *sk, const struct socket *tcp);
bool sdp_h_tcp_take_port(struct socket *tcp, u16 port, bool covered);
void sdp_h_tcp_give_port(struct sock *sk);
void sdp_h_tcp_leave_port(struct socket *tcp);
void sdp_h_tcp_unbind(struct socket *tcp, int ifindex);
int sdp_h_tcp_pre_connect(struct socket *tcp, void *address, int len);
void sdp_h_tcp_begin(struct socket *tcp, void *address, int len);
bool sdp_h_tcp_was_connected(const struct socket *tcp);
void sdp_h_tcp_inherit(struct sock *sk, struct socket *tcp);
void sdp_h_tcp_take_file(struct sock *sk, struct socket *tcp);
int sdp_h_tcp_accept(struct socket *tcp, struct socket *new, struct proto_accept_arg *arg);
long sdp_h_tcp_sleep(struct sdp_h_sock *s, int seen, long timeo);
long sdp_h_tcp_wait_connected(struct socket *tcp, long timeo);
bool sdp_h_tcp_queue_empty(const struct socket *tcp);

#endif

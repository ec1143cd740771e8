// SPDX-License-Identifier: GPL-2.0-only
/* Addresses and ports of a socket, with their interfaces and routes. Contains no policy. */
#include <net/addrconf.h>
#include <net/inet6_hashtables.h>
#include <net/inet_hashtables.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/l3mdev.h>
#include <net/route.h>
#include <net/transp_v6.h>
#include "net_helpers.h"

/* Stores the local or the remote address and port of a socket in `a`. */
void sdp_h_name(const struct sock *sk, bool remote, struct sdp_h_addr *a)
{
	const struct inet_sock *inet = inet_sk(sk);

	if (sdp_h_is_v6(sk))
		a->ip = remote ? sk->sk_v6_daddr : sk->sk_v6_rcv_saddr;
	else
		ipv6_addr_set_v4mapped(remote ? inet->inet_daddr : inet->inet_rcv_saddr, &a->ip);
	a->port = remote ? inet->inet_dport : inet->inet_sport;
}

/* Returns an address of a socket in the form that the IPv4 code stores. */
static __be32 in_ipv4(const struct sock *sk, const struct in6_addr *ip)
{
	if (sdp_h_is_v6(sk) && !ipv6_addr_v4mapped(ip) && !ipv6_addr_any(ip))
		return LOOPBACK4_IPV6;
	return ip->s6_addr32[3];
}

void sdp_h_set_local(struct sock *sk, const struct sdp_h_addr *a)
{
	struct inet_sock *inet = inet_sk(sk);

	if (sdp_h_is_v6(sk)) {
		sk->sk_v6_rcv_saddr = a->ip;
		inet->pinet6->saddr = a->ip;
	}
	inet->inet_rcv_saddr = in_ipv4(sk, &a->ip);
	inet->inet_saddr = inet->inet_rcv_saddr;
	inet->inet_sport = a->port;
}

void sdp_h_set_remote(struct sock *sk, const struct sdp_h_addr *a)
{
	if (sdp_h_is_v6(sk))
		sk->sk_v6_daddr = a->ip;
	inet_sk(sk)->inet_daddr = in_ipv4(sk, &a->ip);
	inet_sk(sk)->inet_dport = a->port;
}

u16 sdp_h_num(const struct sock *sk)
{
	return inet_sk(sk)->inet_num;
}

void sdp_h_set_num(struct sock *sk, u16 num)
{
	inet_sk(sk)->inet_num = num;
	/* getsockname() still returns a released port, as on TCP */
	if (num)
		inet_sk(sk)->inet_sport = htons(num);
}

/* Returns RTN_LOCAL for an address of this machine, RTN_BROADCAST for one of its IPv4 networks. */
unsigned int sdp_h_address_type(const struct sock *sk, const struct sdp_h_addr *a)
{
	if (ipv6_addr_v4mapped(&a->ip))
		return inet_addr_type(sock_net(sk), a->ip.s6_addr32[3]);
	return !ipv6_addr_any(&a->ip) && ipv6_chk_addr(sock_net(sk), &a->ip, NULL, 0) ? RTN_LOCAL : 0;
}

/* Returns the TCP listener for packets from `remote` on interface `dif`. Context: RCU reader. */
static const struct sock *tcp_listener(struct net *net, const struct sdp_h_addr *local,
				       const struct sdp_h_addr *remote, int dif)
{
	int l3mdev = l3mdev_master_ifindex_by_index(net, dif);
	int sdif = l3mdev ? dif : 0;

	if (ipv6_addr_v4mapped(&local->ip))
		return __inet_lookup_listener(net, NULL, 0, remote->ip.s6_addr32[3], remote->port,
					      local->ip.s6_addr32[3], ntohs(local->port),
					      l3mdev ?: dif, sdif);
	return inet6_lookup_listener(net, NULL, 0, &remote->ip, remote->port, &local->ip,
				     ntohs(local->port), l3mdev ?: dif, sdif);
}

/*
 * Returns true if a user other than the owner of `sk` has a TCP listener for connections from
 * `remote` to `local`. Returns false if root owns `sk`. Returns false if the TCP socket of `sk`
 * listens, because TCP's port rules have then excluded other users.
 */
bool sdp_h_tcp_is_anothers(struct sock *sk, const struct sdp_h_addr *local,
			   const struct sdp_h_addr *remote, int dif)
{
	struct net *net = sock_net(sk);
	const struct socket *tcp;
	const struct sock *other;
	bool is = false;

	if (uid_eq(sk_uid(sk), make_kuid(net->user_ns, 0)))
		return false;
	rcu_read_lock();
	/* `tcp` is freed after a grace period; TCP's socks are SLAB_TYPESAFE_BY_RCU */
	tcp = READ_ONCE(((struct sdp_h_sock *)sk)->tcp);
	other = tcp ? READ_ONCE(tcp->sk) : NULL;
	if (!other || inet_sk_state_load(other) != TCP_LISTEN) {
		other = tcp_listener(net, local, remote, dif);
		is = other && !uid_eq(sk_uid(other), sk_uid(sk));
	}
	rcu_read_unlock();
	return is;
}

/* Binds to a link-local peer's interface, like tcp_v6_connect(); -EINVAL without an interface. */
int sdp_h_bind_scope(struct sock *sk, int scope)
{
	if (scope) {
		if (!sk_dev_equal_l3scope(sk, scope))
			return -EINVAL;
		WRITE_ONCE(sk->sk_bound_dev_if, scope);
	}
	return sk->sk_bound_dev_if ? 0 : -EINVAL;
}

/* Calls inet_sk_bound_dev_eq() for an interface that may be part of a VRF. */
bool sdp_h_bound_dev_eq(struct net *net, int bound, int ifindex)
{
	int master = l3mdev_master_ifindex_by_index(net, ifindex);

	return inet_sk_bound_dev_eq(net, bound, master ?: ifindex, master ? ifindex : 0);
}

static int route4(struct net *net, struct sock *sk, const struct sdp_h_addr *to, int ifindex,
		  struct sdp_h_route *route)
{
	struct flowi4 fl4 = {
		.flowi4_proto = IPPROTO_TCP,
		.flowi4_oif = ifindex,
		.daddr = to->ip.s6_addr32[3],
		.saddr = ipv6_addr_v4mapped(&route->from.ip) ? route->from.ip.s6_addr32[3] : 0,
	};
	struct rtable *rt;

	if (sk)
		rt = ip_route_connect(&fl4, fl4.daddr, fl4.saddr, ifindex, IPPROTO_TCP,
				      inet_sk(sk)->inet_sport, to->port, sk);
	else if (fl4.daddr)
		rt = ip_route_output_key(net, &fl4);
	else
		return -ENETUNREACH;
	if (IS_ERR(rt))
		return PTR_ERR(rt);
	route->local = rt->rt_type == RTN_LOCAL;
	route->ifindex = route->local ? rt->rt_iif ?: net->loopback_dev->ifindex :
					rt->dst.dev->ifindex;
	ip_rt_put(rt);
	ipv6_addr_set_v4mapped(fl4.saddr, &route->from.ip);
	return 0;
}

static int route6(struct net *net, struct sock *sk, const struct sdp_h_addr *to, int ifindex,
		  struct sdp_h_route *route)
{
	struct flowi6 fl6 = {
		.flowi6_proto = IPPROTO_TCP,
		.flowi6_oif = ifindex,
		.daddr = to->ip,
		.saddr = route->from.ip,
	};
	struct inet6_dev *idev;
	struct dst_entry *dst;

	if (sk) {
		fl6.flowlabel = ip6_make_flowinfo(inet_sk(sk)->pinet6->tclass, 0);
		fl6.flowi6_mark = READ_ONCE(sk->sk_mark);
		fl6.flowi6_uid = sk_uid(sk);
		fl6.fl6_sport = inet_sk(sk)->inet_sport;
		fl6.fl6_dport = to->port;
	}
	dst = ip6_dst_lookup_flow(net, sk, &fl6, NULL);
	if (IS_ERR(dst))
		return PTR_ERR(dst);
	route->local = dst_rt6_info(dst)->rt6i_flags & RTF_LOCAL;
	idev = ip6_dst_idev(dst);
	route->ifindex = !route->local ? dst_dev(dst)->ifindex :
			 idev ? idev->dev->ifindex : net->loopback_dev->ifindex;
	dst_release(dst);
	route->from.ip = fl6.saddr;
	return 0;
}

/*
 * Finds the route to `to` for packets of `sk`, or of no particular socket if `sk` is NULL. Fills in
 * the source address if `route->from` is unspecified. Returns the outgoing interface. For a local
 * address, returns the interface that has the address: packets count as received by it, although
 * they use the loopback device.
 */
int sdp_h_route(struct net *net, struct sock *sk, const struct sdp_h_addr *to, int ifindex,
		struct sdp_h_route *route)
{
	route->from.port = 0;
	if (ipv6_addr_v4mapped(&to->ip))
		return route4(net, sk, to, ifindex, route);
	return route6(net, sk, to, ifindex, route);
}

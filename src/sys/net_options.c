// SPDX-License-Identifier: GPL-2.0-only
/*
 * setsockopt(2) at SOL_IP and SOL_IPV6: most options are handled by the kernel's shared code for
 * inet_socks. This file handles options that the shared code limits to family AF_INET6, and options
 * that RDMA packets cannot implement. Checks packet options as TCP does, and then refuses them.
 */
#include <linux/capability.h>
#include <linux/mroute6.h>
#include <net/inet_ecn.h>
#include <net/inet_sock.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include "net_helpers.h"

static bool capable_in(const struct sock *sk, int cap)
{
	return sockopt_ns_capable(sock_net(sk)->user_ns, cap);
}

/* Accepts only empty policies, because IPsec does not process RDMA traffic. */
static int set_policy(const struct sock *sk, sockptr_t value, unsigned int len)
{
	if (!capable_in(sk, CAP_NET_ADMIN))
		return -EPERM;
	if (sockptr_is_null(value) && !len)
		return 0;
	return len && len <= PAGE_SIZE ? -EINVAL : -EMSGSIZE;
}

/* Sets the extension headers to send with each packet; accepts only an empty value. */
static int set_header(const struct sock *sk, int name, sockptr_t value, unsigned int len)
{
	if (name != IPV6_RTHDR && !capable_in(sk, CAP_NET_RAW))
		return -EPERM;
	if (!len)
		return 0;
	if (sockptr_is_null(value) || len < sizeof(struct ipv6_opt_hdr) || len & 7 || len > 8 * 255)
		return -EINVAL;
	return -EOPNOTSUPP;
}

/* Sets the minimum TTL of received packets. RDMA reports no TTL, so only 0 is accepted. */
static int set_min_hops(struct sock *sk, int level, int name, sockptr_t value, unsigned int len)
{
	u8 *least = level == SOL_IP ? &inet_sk(sk)->min_ttl : &inet_sk(sk)->pinet6->min_hopcount;
	int err;

	err = level == SOL_IP ? ip_setsockopt(sk, level, name, value, len) :
				ipv6_setsockopt(sk, level, name, value, len);
	return xchg(least, 0) && !err ? -EOPNOTSUPP : err;
}

/* Sets the options of the IPv4 header; accepts only an empty list. */
static int set_ip_options(struct sock *sk, sockptr_t value, unsigned int len)
{
	struct ip_options_rcu *opt;
	bool none;
	int err;

	err = ip_setsockopt(sk, SOL_IP, IP_OPTIONS, value, len);
	rcu_read_lock();
	opt = rcu_dereference(inet_sk(sk)->inet_opt);
	none = !opt || !opt->opt.optlen;
	rcu_read_unlock();
	if (err || none)
		return err;
	ip_setsockopt(sk, SOL_IP, IP_OPTIONS, KERNEL_SOCKPTR(NULL), 0);
	return -EOPNOTSUPP;
}

static int set_pktinfo(struct sock *sk, sockptr_t value, unsigned int len)
{
	struct ipv6_pinfo *np = inet_sk(sk)->pinet6;
	struct in6_pktinfo info;

	if (sockptr_is_null(value) || len < sizeof(info))
		return -EINVAL;
	if (copy_from_sockptr(&info, value, sizeof(info)))
		return -EFAULT;
	if (!sk_dev_equal_l3scope(sk, info.ipi6_ifindex))
		return -EINVAL;
	lock_sock(sk);
	np->sticky_pktinfo.ipi6_ifindex = info.ipi6_ifindex;
	np->sticky_pktinfo.ipi6_addr = info.ipi6_addr;
	release_sock(sk);
	return 0;
}

/* Options for control messages of received datagrams, which a stream does not have. */
static const struct {
	typeof_member(struct ipv6_pinfo, rxopt) rxopt;
	int name;
} controls[] = {
	{ { .bits.rxinfo = 1 }, IPV6_RECVPKTINFO },
	{ { .bits.rxoinfo = 1 }, IPV6_2292PKTINFO },
	{ { .bits.rxhlim = 1 }, IPV6_RECVHOPLIMIT },
	{ { .bits.rxohlim = 1 }, IPV6_2292HOPLIMIT },
	{ { .bits.srcrt = 1 }, IPV6_RECVRTHDR },
	{ { .bits.osrcrt = 1 }, IPV6_2292RTHDR },
	{ { .bits.hopopts = 1 }, IPV6_RECVHOPOPTS },
	{ { .bits.ohopopts = 1 }, IPV6_2292HOPOPTS },
	{ { .bits.dstopts = 1 }, IPV6_RECVDSTOPTS },
	{ { .bits.odstopts = 1 }, IPV6_2292DSTOPTS },
	{ { .bits.rxtclass = 1 }, IPV6_RECVTCLASS },
	{ { .bits.rxflow = 1 }, IPV6_FLOWINFO },
	{ { .bits.rxpmtu = 1 }, IPV6_RECVPATHMTU },
	{ { .bits.rxorigdstaddr = 1 }, IPV6_RECVORIGDSTADDR },
	{ { .bits.recvfragsize = 1 }, IPV6_RECVFRAGSIZE },
};

/* Returns the bit of a control message option, 0 for any other option. */
static u16 control_bit(int name)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(controls); i++)
		if (controls[i].name == name)
			return controls[i].rxopt.all;
	return 0;
}

/* Sets an integer option. */
static int set_int(struct sock *sk, int name, int val)
{
	struct ipv6_pinfo *np = inet_sk(sk)->pinet6;
	bool on = val != 0;
	u16 bit;

	switch (name) {
	case IPV6_V6ONLY:
		if (inet_sk(sk)->inet_num)
			return -EINVAL;
		sk->sk_ipv6only = on;
		return 0;
	case IPV6_TCLASS:
		if (val < -1 || val > 0xff)
			return -EINVAL;
		/* RFC 3542: -1 selects the default; a program cannot set the ECN bits */
		val = val == -1 ? 0 : val & ~INET_ECN_MASK;
		val |= np->tclass & INET_ECN_MASK;
		if (np->tclass != val) {
			np->tclass = val;
			sk_dst_reset(sk);
		}
		return 0;
	case IPV6_FREEBIND:
		inet_assign_bit(FREEBIND, sk, on);
		return 0;
	case IPV6_TRANSPARENT:
		if (on && !capable_in(sk, CAP_NET_ADMIN) && !capable_in(sk, CAP_NET_RAW))
			return -EPERM;
		inet_assign_bit(TRANSPARENT, sk, on);
		return 0;
	default:
		bit = control_bit(name);
		np->rxopt.all = on ? np->rxopt.all | bit : np->rxopt.all & ~bit;
		return 0;
	}
}

static int take_int(struct sock *sk, int name, sockptr_t value, unsigned int len)
{
	int val = 0, err;

	if (len >= sizeof(val)) {
		if (copy_from_sockptr(&val, value, sizeof(val)))
			return -EFAULT;
	} else if (name != IPV6_RECVFRAGSIZE) {
		return -EINVAL;
	}
	lock_sock(sk);
	err = set_int(sk, name, val);
	release_sock(sk);
	return err;
}

static int set_ipv6(struct sock *sk, int name, sockptr_t value, unsigned int len)
{
	switch (name) {
	case IPV6_V6ONLY:
	case IPV6_TCLASS:
	case IPV6_FREEBIND:
	case IPV6_TRANSPARENT:
		return take_int(sk, name, value, len);
	case IPV6_HOPOPTS:
	case IPV6_RTHDRDSTOPTS:
	case IPV6_RTHDR:
	case IPV6_DSTOPTS:
		return set_header(sk, name, value, len);
	case IPV6_2292PKTOPTIONS:
		/* a list of control messages; a value too short for one contains no option */
		if (len > 64 * 1024)
			return -EINVAL;
		return len < sizeof(struct cmsghdr) ? 0 : -EOPNOTSUPP;
	case IPV6_MINHOPCOUNT:
		return set_min_hops(sk, SOL_IPV6, name, value, len);
	case IPV6_PKTINFO:
		return set_pktinfo(sk, value, len);
	case IPV6_FLOWLABEL_MGR:
		return len < sizeof(struct in6_flowlabel_req) ? -EINVAL : -EOPNOTSUPP;
	/* multicast groups are for datagrams */
	case IPV6_ADD_MEMBERSHIP:
	case IPV6_DROP_MEMBERSHIP:
	case IPV6_JOIN_ANYCAST:
	case IPV6_LEAVE_ANYCAST:
		return len < sizeof(struct ipv6_mreq) ? -EINVAL : -EPROTO;
	case MCAST_JOIN_GROUP:
	case MCAST_LEAVE_GROUP:
		return len < sizeof(struct group_req) ? -EINVAL : -EPROTO;
	case MCAST_JOIN_SOURCE_GROUP:
	case MCAST_LEAVE_SOURCE_GROUP:
	case MCAST_BLOCK_SOURCE:
	case MCAST_UNBLOCK_SOURCE:
		return len < sizeof(struct group_source_req) ? -EINVAL : -EPROTO;
	case MCAST_MSFILTER:
		return len < GROUP_FILTER_SIZE(0) ? -EINVAL : -EPROTO;
	case IPV6_IPSEC_POLICY:
	case IPV6_XFRM_POLICY:
		return set_policy(sk, value, len);
	default:
		if (control_bit(name))
			return take_int(sk, name, value, len);
		return ipv6_setsockopt(sk, SOL_IPV6, name, value, len);
	}
}

static int set_ip(struct sock *sk, int name, sockptr_t value, unsigned int len)
{
	switch (name) {
	case IP_ADD_MEMBERSHIP:
	case IP_DROP_MEMBERSHIP:
		return -EPROTO;
	case IP_OPTIONS:
		return set_ip_options(sk, value, len);
	case IP_MINTTL:
		return set_min_hops(sk, SOL_IP, name, value, len);
	case IP_IPSEC_POLICY:
	case IP_XFRM_POLICY:
		return set_policy(sk, value, len);
	default:
		return ip_setsockopt(sk, SOL_IP, name, value, len);
	}
}

/* Context: without the socket lock. */
int sdp_h_setsockopt(struct sock *sk, int level, int name, sockptr_t value, unsigned int len)
{
	if (level == SOL_IP)
		return set_ip(sk, name, value, len);
	/* IPV6_ADDRFORM would change the socket to family AF_INET */
	if (level != SOL_IPV6 || name == IPV6_ADDRFORM || !sk->sk_prot->ipv6_pinfo_offset)
		return -ENOPROTOOPT;
	return set_ipv6(sk, name, value, len);
}

/* Returns the same errors as TCP's families, whose errors for unknown levels differ. */
int sdp_h_getsockopt(struct sock *sk, int level, int name, char __user *value, int __user *len)
{
	if (sk->sk_prot->ipv6_pinfo_offset)
		return ipv6_getsockopt(sk, level, name, value, len);
	return ip_getsockopt(sk, level, name, value, len);
}

/* Reads the sysctls of the namespace. */
void sdp_h_tcp_timers(const struct sock *sk, struct sdp_h_tcp_timers *t)
{
	const struct netns_ipv4 *v4 = &sock_net(sk)->ipv4;

	t->keep_idle = READ_ONCE(v4->sysctl_tcp_keepalive_time) / HZ;
	t->keep_interval = READ_ONCE(v4->sysctl_tcp_keepalive_intvl) / HZ;
	t->keep_count = READ_ONCE(v4->sysctl_tcp_keepalive_probes);
	t->syn_count = READ_ONCE(v4->sysctl_tcp_syn_retries);
	t->fin_timeout = READ_ONCE(v4->sysctl_tcp_fin_timeout) / HZ;
}

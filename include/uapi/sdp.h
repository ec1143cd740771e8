/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * The Sockets Direct Protocol as a socket family: for C programs, besides <sys/socket.h>.
 *
 * A socket of the SDP families is used like one of AF_INET or AF_INET6 with SOCK_STREAM and
 * protocol 0 or IPPROTO_TCP, and its addresses are struct sockaddr_in or sockaddr_in6:
 *
 *	int fd = socket(AF_INET_SDP, SOCK_STREAM, 0);
 *
 * bind() and connect() take an address of family AF_INET or AF_INET_SDP (on an IPv6 socket AF_INET6
 * or AF_INET6_SDP). accept(), getsockname() and getpeername() return AF_INET or AF_INET6 addresses.
 *
 * The families, SDP_ZCOPY_THRESH and SDP_LAST_BIND_ERR have the numbers of OFED's ib_sdp, so that
 * programs built for it run unchanged. Other names are new.
 */
#ifndef _UAPI_SDP_H
#define _UAPI_SDP_H

#include <linux/types.h>

/*
 * The families. Linux has since assigned both numbers (AF_IB, AF_MPLS), but no socket of those
 * families can be made.
 */
#define AF_INET_SDP		27
#define AF_INET6_SDP		28
#define PF_INET_SDP		AF_INET_SDP
#define PF_INET6_SDP		AF_INET6_SDP

/*
 * Protocol of AF_INET and AF_INET6 for socket(AF_INET, SOCK_STREAM, IPPROTO_SDP). The socket uses
 * SDP if the peer replies by SDP, else TCP. The module parameter ipproto sets the protocol number.
 */
#define IPPROTO_SDP		257

/*
 * Options at level SOL_TCP, besides the options of TCP that SDP has (TCP_NODELAY, TCP_KEEPIDLE and
 * so on, which work as on TCP). The value is an int, except for SDP_INFO.
 */

/*
 * Minimum size of a send without a copy: 0 for never, else one page to 1 MiB. The default is the
 * module's parameter sdp_zcopy_thresh; if that is -1, getsockopt() returns 65536.
 */
#define SDP_ZCOPY_THRESH	80

/*
 * Read only. Result of the last bind(): 0, or the negative errno. -ENOENT: the address belongs to
 * no RDMA device; bind() itself returned EADDRNOTAVAIL.
 */
#define SDP_LAST_BIND_ERR	81

/*
 * Read only. A struct sdp_info: counters of this connection, besides those of TCP_INFO. As with
 * TCP_INFO, a shorter buffer gets its beginning, and later fields are added at its end.
 */
#define SDP_INFO		82

/*
 * For sockets of IPPROTO_SDP only: protocols for connect() and listen(). Set SDP_ROUTE before
 * connect() and listen(), and best before bind(): a change after bind() releases the port of an
 * excluded protocol and has to take it for an added one. With SDP alone there is no fallback: the
 * program gets an error, and no TCP port is held. A socket that uses TCP returns ENOPROTOOPT.
 */
#define SDP_ROUTE		83

/* SDP, or TCP if the peer does not reply by SDP; listeners accept connections of both. */
#define SDP_ROUTE_BOTH		0
#define SDP_ROUTE_SDP		1
#define SDP_ROUTE_TCP		2

/*
 * 1: a blocking send of a large block returns at once. A thread that writes to the block's memory
 * before the peer has read the block waits. The default is the parameter async_send; if that is -1,
 * the option has no effect.
 */
#define SDP_ASYNC_SEND		84

/* getsockopt(2), SOCK_SEQPACKET: bytes of the longest message that the peer receives. */
#define SDP_MAX_MESSAGE		85

/* Transport: none without a connection, an RDMA device, or local for a peer in this kernel. */
#define SDP_TRANSPORT_NONE	0
#define SDP_TRANSPORT_RDMA	1
#define SDP_TRANSPORT_LOCAL	2

/*
 * Protocol of an IPPROTO_SDP socket. NONE is for other sockets and for sockets accepted by SDP,
 * OPEN for undecided sockets, and SDP for sockets that use SDP. On an IPPROTO_SDP socket that has
 * switched to TCP, SDP_INFO fails with ENOPROTOOPT.
 */
#define SDP_IPPROTO_NONE	0
#define SDP_IPPROTO_OPEN	1
#define SDP_IPPROTO_SDP		2

struct sdp_info {
	/* SDP_TRANSPORT_... */
	__u64	transport;
	/* Bytes sent; the next two counters are those that the module has not copied: */
	__u64	tx_bytes;
	/* bytes that the peer has read from the memory of a send call (SrcAvail), */
	__u64	tx_read;
	/* bytes written from the memory of a send call to that of the peer's reader (SinkAvail). */
	__u64	tx_written;
	/* Bytes received; the next two counters are those that the module has not copied: */
	__u64	rx_bytes;
	/* bytes read from the peer's sender to the memory of a receive call, */
	__u64	rx_read;
	/* bytes that the peer has written to the memory of a receive call. */
	__u64	rx_written;
	/* Advertised blocks of send calls, and those that the peer has not read to the end. */
	__u64	src_avail_sent;
	__u64	src_avail_returned;
	/* Blocks that the peer has advertised, and number of refusals of these blocks. */
	__u64	src_avail_received;
	__u64	src_avail_refused;
	/* Adverts of receive calls' memory, and adverts of the peer's memory. */
	__u64	sink_avail_sent;
	__u64	sink_avail_received;
	/* Blocks of this end that crossed the peer's SinkAvail and were written to its memory. */
	__u64	crossed;
	/* Times that memory of a call could not be pinned, so that the call's bytes were copied. */
	__u64	unpinnable;
	/* Times that sending had to wait for the peer's receive buffers. */
	__u64	credit_stalls;
	/* SDP_IPPROTO_...: protocol of a socket of IPPROTO_SDP. */
	__u64	ipproto;
	/* SDP_ROUTE_...: value of SDP_ROUTE. */
	__u64	route;
};

#endif /* _UAPI_SDP_H */

/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * The Sockets Direct Protocol as a socket family: what a C program needs besides <sys/socket.h>.
 *
 * A socket of these families is used like one of AF_INET or AF_INET6 with SOCK_STREAM and protocol
 * 0 or IPPROTO_TCP, and its addresses are struct sockaddr_in or sockaddr_in6:
 *
 *	int fd = socket(AF_INET_SDP, SOCK_STREAM, 0);
 *
 * bind() and connect() take an address that calls its family AF_INET or AF_INET_SDP (on an IPv6
 * socket AF_INET6 or AF_INET6_SDP). The addresses that accept(), getsockname() and getpeername()
 * give back say AF_INET or AF_INET6.
 *
 * The families, SDP_ZCOPY_THRESH and SDP_LAST_BIND_ERR are numbered as in OFED's ib_sdp, so that programs
 * built for it run unchanged; IPPROTO_SDP, SDP_INFO, SDP_ROUTE and SDP_ASYNC_SEND are new.
 */
#ifndef _UAPI_SDP_H
#define _UAPI_SDP_H

#include <linux/types.h>

/*
 * The families. Linux has given both numbers to others since (AF_IB, AF_MPLS), for uses in which
 * no socket can be made of them.
 */
#define AF_INET_SDP		27
#define AF_INET6_SDP		28
#define PF_INET_SDP		AF_INET_SDP
#define PF_INET6_SDP		AF_INET6_SDP

/*
 * A protocol of AF_INET and AF_INET6, socket(AF_INET, SOCK_STREAM, IPPROTO_SDP): SDP where the peer
 * answers by it, TCP where it does not. The module's parameter ipproto can give it another number.
 */
#define IPPROTO_SDP		257

/*
 * Options at level SOL_TCP, next to those of TCP's that SDP has (TCP_NODELAY, TCP_KEEPIDLE and so on,
 * which work as on TCP). The value is an int, but for SDP_INFO.
 */

/*
 * Bytes from which a send may be done without a copy: 0 for never, else from one page to 1 MiB.
 * Unless set, the module's parameter sdp_zcopy_thresh holds; where that is -1 the value is 65536.
 */
#define SDP_ZCOPY_THRESH	80

/*
 * Read only. How the last bind() ended: 0, or the negative errno; -ENOENT if the address belongs
 * to no RDMA device, for which bind() itself says EADDRNOTAVAIL.
 */
#define SDP_LAST_BIND_ERR	81

/*
 * Read only. A struct sdp_info: what this connection has done, beside what TCP_INFO tells. As with
 * TCP_INFO, a shorter buffer gets the beginning of it, and what is added later comes at its end.
 */
#define SDP_INFO		82

/*
 * Sockets of IPPROTO_SDP only: by what connect() is to connect, and listen() to listen. To be set
 * before those, and best before bind(): where that has taken a port for what is not wanted any more,
 * or has not for what is, the port changes hands then. By SDP alone nothing falls back: an error is
 * the program's to see, and no port of TCP is held. A socket that TCP has won does not know it.
 */
#define SDP_ROUTE		83

/* SDP, and TCP where the peer does not answer by it; listeners take connections of both. */
#define SDP_ROUTE_BOTH		0
#define SDP_ROUTE_SDP		1
#define SDP_ROUTE_TCP		2

/*
 * 1: a blocking send of a large block returns at once. Its memory cannot be written to before the peer
 * has it: whoever writes meanwhile waits. The parameter async_send decides for sockets that do not say;
 * -1 forbids it to all.
 */
#define SDP_ASYNC_SEND		84

/* What carries a connection: nothing (any more), an RDMA device, or this kernel by itself. */
#define SDP_TRANSPORT_NONE	0
#define SDP_TRANSPORT_RDMA	1
#define SDP_TRANSPORT_LOCAL	2

/*
 * No socket of IPPROTO_SDP, or one that accept() has made by SDP; not decided yet; SDP's.
 * A socket of IPPROTO_SDP that has become TCP's does not know SDP_INFO.
 */
#define SDP_IPPROTO_NONE	0
#define SDP_IPPROTO_OPEN	1
#define SDP_IPPROTO_SDP		2

struct sdp_info {
	/* SDP_TRANSPORT_... */
	__u64	transport;
	/* Bytes of the stream sent, and those of them that the module has not copied: */
	__u64	tx_bytes;
	/* read by the peer from the memory of a send call (SrcAvail), */
	__u64	tx_read;
	/* written from the memory of a send call to that of the peer's reader (SinkAvail). */
	__u64	tx_written;
	/* Bytes received, and those of them that the module has not copied: */
	__u64	rx_bytes;
	/* read from the peer's sender to the memory of a receive call, */
	__u64	rx_read;
	/* written by the peer to the memory of a receive call. */
	__u64	rx_written;
	/* Blocks of send calls that were advertised, and that came back not read to the end. */
	__u64	src_avail_sent;
	__u64	src_avail_returned;
	/* Blocks that the peer has advertised, and how often those were refused. */
	__u64	src_avail_received;
	__u64	src_avail_refused;
	/* Memory of receive calls that was advertised, and that of the peer's. */
	__u64	sink_avail_sent;
	__u64	sink_avail_received;
	/* How often blocks of ours met memory of the peer's reader, and were written there. */
	__u64	crossed;
	/* How often memory of a call could not be pinned, so that its bytes were copied. */
	__u64	unpinnable;
	/* How often sending had to wait for the peer's receive buffers. */
	__u64	credit_stalls;
	/* SDP_IPPROTO_...: whether the socket is one of IPPROTO_SDP, and what was chosen. */
	__u64	ipproto;
	/* SDP_ROUTE_...: what SDP_ROUTE says. */
	__u64	route;
};

#endif /* _UAPI_SDP_H */

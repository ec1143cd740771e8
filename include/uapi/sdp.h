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
 * All numbers are those of OFED's ib_sdp, so that programs built for it run unchanged.
 */
#ifndef _UAPI_SDP_H
#define _UAPI_SDP_H

/*
 * The families. Linux has given both numbers to others since (AF_IB, AF_MPLS), for uses in which
 * no socket can be made of them.
 */
#define AF_INET_SDP		27
#define AF_INET6_SDP		28
#define PF_INET_SDP		AF_INET_SDP
#define PF_INET6_SDP		AF_INET6_SDP

/*
 * Options at level SOL_TCP, next to TCP's own (TCP_NODELAY, TCP_KEEPIDLE and so on, which work as
 * on TCP). The value is an int.
 */

/*
 * Bytes from which a send may be done without a copy: 0 for never, else from one page to 1 MiB.
 * Unless set, the module's parameter sdp_zcopy_thresh holds.
 */
#define SDP_ZCOPY_THRESH	80

/*
 * Read only. How the last bind() ended: 0, or the negative errno; -ENOENT if the address belongs
 * to no RDMA device, for which bind() itself says EADDRNOTAVAIL.
 */
#define SDP_LAST_BIND_ERR	81

#endif /* _UAPI_SDP_H */

// SPDX-License-Identifier: GPL-2.0-only

/* Definitions of the tracepoints of trace.h, with functions that Rust calls. */

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ipv6.h>
#include <net/ipv6.h>

#include "sys/net_helpers.h"

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "sys/trace.h"

static void sdp_trace_end(struct sockaddr_in6 *to, const struct sock *sk, bool remote)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)to;
	struct sdp_h_addr a;

	sdp_h_name(sk, remote, &a);
	memset(to, 0, sizeof(*to));
	/* the port is at the same offset in both families */
	to->sin6_port = a.port;
	if (ipv6_addr_v4mapped(&a.ip)) {
		v4->sin_family = AF_INET;
		v4->sin_addr.s_addr = a.ip.s6_addr32[3];
	} else {
		to->sin6_family = AF_INET6;
		to->sin6_addr = a.ip;
	}
}

void sdp_trace_ends(const struct sock *sk, struct sockaddr_in6 *local, struct sockaddr_in6 *remote)
{
	sdp_trace_end(local, sk, false);
	sdp_trace_end(remote, sk, true);
}

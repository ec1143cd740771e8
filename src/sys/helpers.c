// SPDX-License-Identifier: GPL-2.0-only

/*
 * Inline functions and macros of the kernel as functions for Rust. Each function is local to the
 * module, has the prefix sdp_h_ and contains as little code as possible.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/printk.h>
#include <linux/siphash.h>
#include <linux/stddef.h>
#include <net/inet_sock.h>
#include <net/sock.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "protect_helpers.h"

/* In the order of check_layout() in layout.rs. */
const size_t sdp_h_layouts[] = {
	sizeof(struct sock),
	offsetof(struct sock, sk_data_ready),
	sizeof(struct inet_sock),
	sizeof(struct socket),
	sizeof(struct proto),
	sizeof(struct proto_ops),
	sizeof(struct msghdr),
	sizeof(struct ib_device),
	sizeof(struct ib_qp_attr),
	sizeof(struct ib_qp_init_attr),
	sizeof(struct ib_send_wr),
	sizeof(struct ib_wc),
	sizeof(struct ib_cm_event),
	sizeof(struct ib_cm_req_param),
	sizeof(struct rdma_cm_id),
	sizeof(struct ib_client),
	sizeof(struct sdp_h_protect),
};

/* Uses a random key that never changes. */
u32 sdp_h_hash(const void *bytes, size_t n)
{
	static siphash_key_t key __read_mostly;

	net_get_random_once(&key, sizeof(key));
	return siphash(bytes, n, &key);
}

/* Prints a line of dynamic debug, which Rust's own pr_debug!() does not support. */
void sdp_h_debug(const void *arguments)
{
	/* %pA is a core::fmt::Arguments; it is only evaluated when the line is printed. */
	pr_debug("%pA\n", arguments);
}

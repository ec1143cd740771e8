// SPDX-License-Identifier: GPL-2.0-only

/* Dynamic debug for Rust, whose own pr_debug!() does not support it. */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/printk.h>

#include "helpers.h"

void sdp_h_debug(const void *arguments)
{
	/* %pA is a core::fmt::Arguments; it is only evaluated when the line is printed. */
	pr_debug("%pA\n", arguments);
}

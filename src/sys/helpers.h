/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SDP_HELPERS_H
#define SDP_HELPERS_H

/*
 * Functions for what Rust cannot call by itself: the kernel's inline functions and macros. Each is
 * local to the module, has the prefix sdp_h_ and does as little as possible.
 */

#include <linux/types.h>

/* memcpy(), from where others may write meanwhile. */
void sdp_h_copy(void *to, const void *from, size_t n);

/* The n-th entry of the table of layouts that layout.rs compares with, or 0. */
size_t sdp_h_layout(size_t n);

/* By a random key that never changes. */
u32 sdp_h_hash(const void *bytes, size_t n);

/* Prints a core::fmt::Arguments as a line of dynamic debug. */
void sdp_h_debug(const void *arguments);

#endif

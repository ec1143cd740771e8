/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SDP_HELPERS_H
#define SDP_HELPERS_H

/*
 * The kernel's inline functions and macros as functions for Rust. Each is local to the module, has
 * the prefix sdp_h_ and contains as little code as possible.
 */

#include <linux/types.h>

/* Copies memory that others may write meanwhile. */
void sdp_h_copy(void *to, const void *from, size_t n);

/* Returns the n-th entry of the table of layouts that layout.rs compares with, or 0. */
size_t sdp_h_layout(size_t n);

/* Uses a random key that never changes. */
u32 sdp_h_hash(const void *bytes, size_t n);

/* Prints a core::fmt::Arguments as a line of dynamic debug. */
void sdp_h_debug(const void *arguments);

#endif

// SPDX-License-Identifier: GPL-2.0-only

//! Arithmetic of MSeq: 32 bits that wrap, compared by their signed difference.

/// Returns true if `a` comes after `b`.
pub(super) const fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

// SPDX-License-Identifier: GPL-2.0-only

//! Random numbers.

use super::bindings as c;

/// Returns a random number below `limit`, almost uniformly distributed; 0 for a limit of 0.
pub(crate) fn random_below(limit: u32) -> u32 {
    // SAFETY: The function may be called in any context.
    let r = unsafe { kernel::bindings::get_random_u32() };
    // the high half of the product is r / 2^32 of the limit
    (u64::from(r).wrapping_mul(limit.into()) >> 32) as u32
}

/// Returns a hash of `bytes` by a secret key that stays the same while the module is loaded.
pub(crate) fn hash(bytes: &[u8]) -> u32 {
    // SAFETY: The slice has as many readable bytes as its length.
    unsafe { c::sdp_h_hash(bytes.as_ptr().cast(), bytes.len()) }
}

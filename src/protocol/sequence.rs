// SPDX-License-Identifier: GPL-2.0-only

//! Arithmetic of MSeq: 32 bits that wrap, compared by their signed difference.

/// Returns true if `a` comes after `b`.
pub(super) const fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        assert!(after(1, 0));
        assert!(!after(0, 0));
        assert!(!after(0, 1));
        assert!(after(0, u32::MAX));
        assert!(after(3, u32::MAX - 3));
        assert!(!after(u32::MAX, 3));
    }
}

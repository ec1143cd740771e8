// SPDX-License-Identifier: GPL-2.0-only

//! Numbers that look random, for tests that are to be repeatable.

/// A generator; what it gives follows from its seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// A number below `n`.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

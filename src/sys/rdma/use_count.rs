// SPDX-License-Identifier: GPL-2.0-only

//! Counts the uses of an object that is destroyed after the last one.
//!
//! While a use exists, its holder or any other caller may add another use ([`UseCount`]). The count
//! stays at zero until [`UseCount::begin`]. All actions of the users happen before a read of zero.
//!
//! `tests/host/loom` compiles this file and tries all orders of the accesses.

use kernel::sync::atomic::{Atomic, Full, Relaxed};

/// Number of uses of an object.
pub(super) struct UseCount(Atomic<i32>);

impl UseCount {
    pub(super) fn one() -> Self {
        UseCount(Atomic::new(1))
    }

    pub(super) fn none() -> Self {
        UseCount(Atomic::new(0))
    }

    /// Adds the first use; the caller ensures that no use exists. Users see all earlier writes.
    pub(super) fn begin(&self) {
        self.0.xchg(1, Full);
    }

    /// Returns true if no use exists: then all actions of the users have happened.
    pub(super) fn is_over(&self) -> bool {
        self.0.fetch_add(0, Full) == 0
    }

    /// Adds a use; the caller holds a use. Needs no ordering.
    pub(super) fn more(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Adds a use unless the count is zero. Returns false if no use exists.
    #[must_use]
    pub(super) fn any_more(&self) -> bool {
        let mut n = self.0.load(Relaxed);
        while n > 0 {
            match self.0.cmpxchg(n, n.wrapping_add(1), Full) {
                Ok(_) => return true,
                Err(now) => n = now,
            }
        }
        false
    }

    /// Ends a use. Returns true if the dropped use was the last use.
    pub(super) fn end(&self) -> bool {
        self.0.fetch_sub(1, Full) == 1
    }
}

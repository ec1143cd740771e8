// SPDX-License-Identifier: GPL-2.0-only

//! How many use something that goes away.
//!
//! Who has a use may make another one of it, and others may as long as there is any ([`UseCount`]).
//! Once there is none there is none again before somebody [begins](UseCount::begin), and all that was done
//! by them has been done.
//!
//! `tests/host/loom` compiles this file and tries all orders in which that can come about.

use kernel::sync::atomic::{Atomic, Full, Relaxed};

/// The number of uses of something.
pub(super) struct UseCount(Atomic<i32>);

impl UseCount {
    /// One use.
    pub(super) fn one() -> Self {
        UseCount(Atomic::new(1))
    }

    /// No use.
    pub(super) fn none() -> Self {
        UseCount(Atomic::new(0))
    }

    /// The first use, of who knows that there is none. What was done before it is seen by all others.
    pub(super) fn begin(&self) {
        self.0.xchg(1, Full);
    }

    /// Whether there is none. Then what was done by all of them has been done.
    pub(super) fn is_over(&self) -> bool {
        self.0.fetch_add(0, Full) == 0
    }

    /// One more, of who has one: no first one, so there is nothing to order.
    pub(super) fn more(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// One more, unless there is none any more. Returns whether there is.
    #[must_use]
    pub(super) fn any_more(&self) -> bool {
        let mut n = self.0.load(Relaxed);
        while n > 0 {
            match self.0.cmpxchg(n, n + 1, Full) {
                Ok(_) => return true,
                Err(now) => n = now,
            }
        }
        false
    }

    /// The end of one. Returns whether it was the last; then what was done by all the others has
    /// been done.
    #[must_use]
    pub(super) fn end(&self) -> bool {
        self.0.fetch_sub(1, Full) == 1
    }
}

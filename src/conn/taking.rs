// SPDX-License-Identifier: GPL-2.0-only

//! Lets the local peer's task continue a sender whose small messages wait until the peer has
//! drained its queue.
//!
//! The peer's task sends them, under the sender's connection lock. The peer's task does not wait
//! for that lock: it sets `told`, then tries the lock. A holder releases the lock, then checks
//! `told`. So at least one of the two sees the other's flag and sends. `tests/host/loom` compiles
//! this file.

use kernel::sync::atomic::{Atomic, Full, Relaxed};

/// Flags of the sender and of the peer's task.
pub(crate) struct Taking {
    /// Set while messages wait. Written under the connection's lock.
    awaited: Atomic<i32>,
    /// Set by the peer's task once it has drained its queue, until consumed.
    told: Atomic<i32>,
    /// Set while a task sends the waiting messages, perhaps the same task further up its stack.
    pub(super) going_on: Atomic<i32>,
}

impl Taking {
    pub(crate) fn new() -> Self {
        Taking {
            awaited: Atomic::new(0),
            told: Atomic::new(0),
            going_on: Atomic::new(0),
        }
    }

    /// Sets whether messages wait. Called under the connection's lock.
    pub(crate) fn set_awaited(&self, awaited: bool) {
        let awaited = i32::from(awaited);
        if self.awaited.load(Relaxed) != awaited {
            self.awaited.store(awaited, Relaxed);
        }
    }

    /// Records that the peer has drained its queue. The peer's task tries the lock afterwards.
    pub(crate) fn notify(&self) {
        self.told.xchg(1, Full);
    }

    /// Consumes `told`; the caller polls afterwards. Called under the connection's lock.
    pub(crate) fn check(&self) {
        if self.told.load(Relaxed) != 0 {
            self.told.xchg(0, Full);
        }
    }

    /// Returns true if work was left to the task that has just released the connection's lock.
    #[must_use]
    pub(crate) fn is_left(&self) -> bool {
        self.awaited.load(Relaxed) != 0 && self.told.fetch_add(0, Full) != 0
    }
}

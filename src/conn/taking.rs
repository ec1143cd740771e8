// SPDX-License-Identifier: GPL-2.0-only

//! Who goes on when the peer, within this machine, has taken what came to it.
//!
//! Small messages wait until then. The peer's task has them sent, with the lock of the connection that holds
//! them back. Where somebody has that, it does not wait for it: whoever lets go of the lock looks whether something was
//! left to him. One notes that all is taken and then tries the lock, the other lets go of the lock and then looks
//! at the note, so that at least one of the two sees the other. `tests/host/loom` compiles this file.

use kernel::sync::atomic::{Atomic, Full, Relaxed};

/// Whether the peer's taking is awaited, and what was told of it.
pub(crate) struct Taking {
    /// Messages wait for it. Written under the connection's lock.
    awaited: Atomic<i32>,
    /// It was told and not yet looked at.
    told: Atomic<i32>,
    /// Set while a task goes on with what was left, perhaps the same one further up its stack.
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

    /// Says whether messages wait. Called under the connection's lock.
    pub(crate) fn set_awaited(&self, awaited: bool) {
        let awaited = i32::from(awaited);
        if self.awaited.load(Relaxed) != awaited {
            self.awaited.store(awaited, Relaxed);
        }
    }

    /// The peer has taken all. Its task tries the lock after that.
    pub(crate) fn tell(&self) {
        self.told.xchg(1, Full);
    }

    /// Looks at what the peer has taken from now on. Called under the connection's lock.
    pub(crate) fn look(&self) {
        if self.told.load(Relaxed) != 0 {
            self.told.xchg(0, Full);
        }
    }

    /// Whether something was left to whoever has just let go of the connection's lock.
    #[must_use]
    pub(crate) fn is_left(&self) -> bool {
        self.awaited.load(Relaxed) != 0 && self.told.fetch_add(0, Full) != 0
    }
}

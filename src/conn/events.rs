// SPDX-License-Identifier: GPL-2.0-only

//! Who looks at the completion queues.
//!
//! That a queue has something is told in a context in which nobody may look. A caller who waits
//! looks, which spares a change of threads; a worker does when nobody waits. Both sides agree by
//! [`Events`], without a lock: one notes the event and then looks whether anybody waits, the other
//! says that it does not wait any more and then takes what is noted. At least one of the two sees
//! the other, so that no event is left to nobody.
//!
//! `tests/host/loom` compiles this file and tries all orders in which that can come about.

use kernel::sync::atomic::{Atomic, Full, Relaxed};

/// Which queue has something.
#[derive(Clone, Copy)]
pub(crate) enum Queue {
    Receive,
    Send,
}

/// What was told of a socket's queues, and how many callers will look at them.
pub(crate) struct Events {
    /// Callers who wait and will look when they are woken.
    waiters: Atomic<i32>,
    /// A receive completion was told and not yet looked for.
    receive: Atomic<i32>,
    /// A send completion was told and not yet looked for.
    send: Atomic<i32>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Events {
            waiters: Atomic::new(0),
            receive: Atomic::new(0),
            send: Atomic::new(0),
        }
    }

    /// A queue has something. Returns whether to wake those who wait; else a worker has to look.
    #[must_use]
    pub(crate) fn tell(&self, queue: Queue) -> bool {
        let noted = match queue {
            Queue::Receive => &self.receive,
            Queue::Send => &self.send,
        };
        noted.store(1, Relaxed);
        // orders the note before the look at who waits; pairs with the fetch_sub in `leave`
        self.waiters.fetch_add(0, Full) > 0
    }

    /// Takes what was told since the last time, of (receive, send). Who does so looks then.
    pub(crate) fn take(&self) -> (bool, bool) {
        let take = |e: &Atomic<i32>| e.load(Relaxed) != 0 && e.xchg(0, Full) != 0;
        (take(&self.receive), take(&self.send))
    }

    /// Whether something was told that nobody has taken yet.
    pub(crate) fn are_noted(&self) -> bool {
        self.receive.load(Relaxed) != 0 || self.send.load(Relaxed) != 0
    }

    /// A caller is going to wait. He looks once more before he does: what was told until now may be
    /// on its way to a worker.
    pub(crate) fn enter(&self) {
        self.waiters.fetch_add(1, Full);
    }

    /// How many wait who will look.
    pub(crate) fn awaited(&self) -> u32 {
        self.waiters.load(Relaxed).max(0) as u32
    }

    /// Whether somebody waits who will look.
    pub(crate) fn are_awaited(&self) -> bool {
        self.awaited() > 0
    }

    /// A caller has waited, and looks once more: what was told until now may have been told to him.
    pub(crate) fn leave(&self) {
        self.waiters.fetch_sub(1, Full);
    }
}

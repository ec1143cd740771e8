// SPDX-License-Identifier: GPL-2.0-only

//! Events of the completion queues, and the party that polls.
//!
//! A completion event arrives in a context that must not poll. A waiting caller polls, which saves
//! a thread switch. Otherwise pollers, by poll(2) or epoll(7), are woken for any event and poll
//! themselves. A worker polls when there is no poller either, and for work that must go on while
//! the program does something else. [`Events`] settles this without a lock: one side notes the
//! event and then checks for waiters and unfinished work; the other notes that it waits no more,
//! or that work is unfinished, and then takes noted events. At least one of the two sees the
//! other, so no event is lost.
//!
//! `tests/host/loom` compiles this file and tries all orders.

use kernel::sync::atomic::{Atomic, Full, Relaxed};

#[derive(Clone, Copy)]
pub(crate) enum Queue {
    Receive,
    Send,
}

/// Party that polls after an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notify {
    /// Waiting callers, which have to be woken.
    Caller,
    /// The pollers: the caller wakes them without another condition.
    Poller,
    Worker,
    /// Another task, which has taken the note.
    Taker,
}

/// Result of [`Events::take`].
pub(crate) struct Pending {
    /// Set if there was an event of the receive queue.
    pub(crate) receive: bool,
    /// Set if the pollers were woken for all events, or are just being woken.
    pub(crate) to_pollers: bool,
}

/// A note for a caller or a worker.
const NOTED: i32 = 1;
/// A note for pollers.
const FOR_POLLERS: i32 = 2;

/// Noted events of a socket's queues, and the waiting callers.
pub(crate) struct Events {
    /// Number of waiting callers, which poll when they are woken.
    waiters: Atomic<i32>,
    /// Note of a receive event that was not polled yet.
    receive: Atomic<i32>,
    /// Note of a send event that was not polled yet.
    send: Atomic<i32>,
    /// Set if the next event makes progress without a call. Written under the connection's lock.
    unfinished: Atomic<i32>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Events {
            waiters: Atomic::new(0),
            receive: Atomic::new(0),
            send: Atomic::new(0),
            unfinished: Atomic::new(1),
        }
    }

    /// Notes an event of a queue and returns its [`Notify`]. `has_pollers` decides, once, whether a
    /// wakeup of the pollers reaches all that have to be notified.
    #[must_use]
    pub(crate) fn notify(&self, queue: Queue, has_pollers: impl FnOnce() -> bool) -> Notify {
        let note = match queue {
            Queue::Receive => &self.receive,
            Queue::Send => &self.send,
        };
        note.store(NOTED, Relaxed);
        // orders the note before the checks for waiters and unfinished work; pairs with the
        // fetch_sub in `leave` and the exchange in `set_unfinished`
        if self.waiters.fetch_add(0, Full) > 0 {
            return Notify::Caller;
        }
        if self.unfinished.load(Relaxed) != 0 || !has_pollers() {
            return Notify::Worker;
        }
        // From here on a poller may take the note without waking the others. So the caller wakes
        // them, even if the state has changed since.
        match note.cmpxchg(NOTED, FOR_POLLERS, Full) {
            Ok(_) => Notify::Poller,
            Err(_) => Notify::Taker,
        }
    }

    /// Sets whether the next event makes progress without a call, so that a worker has to poll.
    /// Returns true if an event was noted before: then the caller polls. Called under the
    /// connection's lock.
    #[must_use]
    pub(crate) fn set_unfinished(&self, unfinished: bool) -> bool {
        let unfinished = i32::from(unfinished);
        if self.unfinished.load(Relaxed) == unfinished {
            return false;
        }
        self.unfinished.xchg(unfinished, Full);
        unfinished != 0 && self.are_noted()
    }

    /// Consumes the pending completion events. The caller must poll the CQs afterwards.
    pub(crate) fn take(&self) -> Option<Pending> {
        let take = |e: &Atomic<i32>| match e.load(Relaxed) {
            0 => 0,
            _ => e.xchg(0, Full),
        };
        let notes = [take(&self.receive), take(&self.send)];
        notes.iter().any(|n| *n != 0).then(|| Pending {
            receive: notes[0] != 0,
            to_pollers: !notes.contains(&NOTED),
        })
    }

    /// Returns true if there are pending events.
    pub(crate) fn are_noted(&self) -> bool {
        self.receive.load(Relaxed) != 0 || self.send.load(Relaxed) != 0
    }

    /// Registers a caller that is about to wait. It polls once more before: an earlier event may
    /// be on its way to a worker.
    pub(crate) fn enter(&self) {
        self.waiters.fetch_add(1, Full);
    }

    pub(crate) fn awaited(&self) -> u32 {
        self.waiters.load(Relaxed).max(0) as u32
    }

    pub(crate) fn are_awaited(&self) -> bool {
        self.awaited() > 0
    }

    /// Unregisters a caller that has waited. It polls once more: earlier events may have been left
    /// to it.
    pub(crate) fn leave(&self) {
        self.waiters.fetch_sub(1, Full);
    }
}

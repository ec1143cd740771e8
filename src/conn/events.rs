// SPDX-License-Identifier: GPL-2.0-only

//! Pending completion events, and the choice of the task that polls the queues.
//!
//! A completion event arrives in a context that must not poll. A task that waits in a socket call
//! polls first, which saves a thread switch. If no caller waits, pollers (poll(2), epoll(7)) are
//! woken for any event and poll themselves. A worker polls if no task waits, and for work that must
//! continue while the program runs. [`Events`] selects the polling task without a lock. The event
//! side sets the pending event, then checks for waiters and unfinished work. The waiting side
//! clears its registration or reports unfinished work, then takes pending events. At least one of
//! the two sides reads the value that the other has written, so no event is lost.
//!
//! `tests/host/loom` compiles this file and tries all interleavings.

use kernel::sync::atomic::{Atomic, Full, Relaxed};

#[derive(Clone, Copy)]
pub(crate) enum Queue {
    Receive,
    Send,
}

/// Task that polls after an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notify {
    /// Waiting callers, which have to be woken.
    Caller,
    /// The pollers, which the caller of [`Events::notify`] wakes.
    Poller,
    Worker,
    /// A task that has already consumed the event.
    Taker,
}

/// Result of [`Events::take`].
pub(crate) struct Pending {
    /// Set if the pending events include one of the receive queue.
    pub(crate) receive: bool,
    /// Set if the pollers were woken for all of the pending events, or are being woken.
    pub(crate) to_pollers: bool,
}

/// Pending event for a caller or a worker.
const NOTED: i32 = 1;
/// Pending event for pollers.
const FOR_POLLERS: i32 = 2;

/// Pending events of a socket's queues, and number of waiting callers.
pub(crate) struct Events {
    /// Number of waiting callers, which poll when woken.
    waiters: Atomic<i32>,
    /// Pending receive event.
    receive: Atomic<i32>,
    /// Pending send event.
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

    /// Records an event of a queue and returns the task that polls. `has_pollers` returns true if a
    /// wakeup of the pollers reaches every task that needs the event.
    #[must_use]
    pub(crate) fn notify(&self, queue: Queue, has_pollers: impl FnOnce() -> bool) -> Notify {
        let note = match queue {
            Queue::Receive => &self.receive,
            Queue::Send => &self.send,
        };
        note.store(NOTED, Relaxed);
        // orders the pending event before the checks for waiters and unfinished work; pairs with
        // the fetch_sub in `leave` and the exchange in `set_unfinished`
        if self.waiters.fetch_add(0, Full) > 0 {
            return Notify::Caller;
        }
        if self.unfinished.load(Relaxed) != 0 || !has_pollers() {
            return Notify::Worker;
        }
        // Once the event is marked for pollers, a poller may take it without waking other pollers.
        // The caller of this function wakes all pollers, even if the socket's state has changed
        // since.
        match note.cmpxchg(NOTED, FOR_POLLERS, Full) {
            Ok(_) => Notify::Poller,
            Err(_) => Notify::Taker,
        }
    }

    /// Records whether the next completion event makes progress without a socket call, so that a
    /// worker has to poll. Returns true if an event was pending, so that the caller has to poll.
    /// Context: connection's lock held.
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

    pub(crate) fn are_noted(&self) -> bool {
        self.receive.load(Relaxed) != 0 || self.send.load(Relaxed) != 0
    }

    /// Registers a caller that is about to wait. The caller then polls once more before the wait,
    /// since a worker may be about to handle an earlier event.
    pub(crate) fn enter(&self) {
        self.waiters.fetch_add(1, Full);
    }

    pub(crate) fn awaited(&self) -> u32 {
        self.waiters.load(Relaxed).max(0) as u32
    }

    /// Unregisters a caller after its wait. The caller then polls once more for remaining events.
    pub(crate) fn leave(&self) {
        self.waiters.fetch_sub(1, Full);
    }
}

/// Returns the result of the check `first` if this check has found send space. Otherwise registers
/// a waiter by `register` and checks again by `check`. Space that appears later causes a
/// notification.
pub(crate) fn last_check<T>(
    first: T,
    is_full: impl FnOnce(&T) -> bool,
    register: impl FnOnce(),
    check: impl FnOnce() -> T,
) -> T {
    if !is_full(&first) {
        return first;
    }
    register();
    check()
}

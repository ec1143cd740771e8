// SPDX-License-Identifier: GPL-2.0-only

//! Wakeups collected while the connection's state is updated.
//!
//! [`Wakeups`] are collected under the connection's lock and delivered without it, when the
//! [`Guard`](super::guard::Guard) of the lock is dropped.

use super::JOB_ADMIT;
use crate::sys::net::sock::SockCore;

/// A wakeup, or deferred work.
#[derive(Clone, Copy)]
pub(crate) enum Wakeup {
    /// Data, or the end of the stream, can be read.
    Readable = 1,
    /// The send queue has space.
    Writable = 2,
    /// The socket state has changed.
    State = 4,
    /// An error is pending.
    Error = 8,
    /// Urgent data has been announced.
    Urgent = 16,
    /// The peer has hung up.
    Hup = 32,
    /// The data that accept(2) waits for has arrived (`TCP_DEFER_ACCEPT`).
    Admit = 64,
    /// Zero copy has made progress.
    Zcopy = 128,
    /// Deferred work: release the memory of sent blocks.
    Released = 256,
    /// Deferred work: allocate receive buffers.
    Buffers = 512,
    /// Deferred work: disconnect.
    Disconnect = 1024,
    /// Deferred work: notify the local peer of the end of the stream.
    Fin = 2048,
}

/// Wakeups of callers that wait.
const WAKES_CALLS: u32 = Wakeup::Readable as u32
    | Wakeup::Writable as u32
    | Wakeup::State as u32
    | Wakeup::Error as u32
    | Wakeup::Zcopy as u32;

/// Set of wakeups found by [`Connection::run`](super::Connection::run).
#[derive(Clone, Copy, Default)]
pub(crate) struct Wakeups {
    /// Bits of [`Wakeup`].
    set: u32,
    /// Number of completion events consumed.
    pub(super) events: u32,
    /// Number of consumed completion events that had woken pollers.
    pub(super) to_pollers: u32,
}

impl Wakeups {
    pub(crate) fn add(&mut self, w: Wakeup) {
        self.set |= w as u32;
    }

    pub(crate) fn add_if(&mut self, condition: bool, w: Wakeup) {
        if condition {
            self.add(w);
        }
    }

    pub(super) fn has(&self, w: Wakeup) -> bool {
        self.set & w as u32 != 0
    }

    /// Removes a wakeup from the set. Returns true if the set contained this wakeup.
    pub(super) fn take(&mut self, w: Wakeup) -> bool {
        let had = self.has(w);
        self.set &= !(w as u32);
        had
    }

    pub(crate) fn merge(&mut self, o: Wakeups) {
        self.set |= o.set;
        self.events = self.events.saturating_add(o.events);
        self.to_pollers = self.to_pollers.saturating_add(o.to_pollers);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.set == 0
    }

    /// Returns true if the pollers were woken for all consumed completion events.
    pub(super) fn is_left_to_pollers(&self) -> bool {
        self.events > 0 && self.to_pollers == self.events
    }

    /// Wakes the waiters, and the pollers unless excluded. Context: without the connection's lock.
    pub(super) fn notify(self, sk: &SockCore, pollers: bool) {
        if self.has(Wakeup::State) && pollers {
            // runs before the waiter continues: a later change would look like the waiter's own
            sk.state_changed();
        }
        if self.set & WAKES_CALLS != 0 {
            sk.wake();
        }
        if self.has(Wakeup::Admit) {
            sk.schedule(JOB_ADMIT);
        }
        if self.has(Wakeup::Urgent) {
            sk.send_sigurg();
        }
        if self.has(Wakeup::Readable) && pollers {
            sk.data_ready();
        }
        if self.has(Wakeup::Writable) && sk.take_want_space() && pollers {
            sk.write_space();
        }
        if self.has(Wakeup::Error) && pollers {
            sk.error_report();
        }
        if self.has(Wakeup::Hup) {
            sk.sigio_hup();
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Table of a connection's deadlines; the socket's only kernel timer is set to the earliest one.
//! The code does not depend on the kernel; `tests/host/conn` compiles this file, too.
//!
//! Jiffies wrap around: a deadline is past if it lies before now by less than half of the range.

use crate::sys::time::Jiffies;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// Timeout of closing the connection, or of the wait for an SDP reply before the switch to TCP.
    Close,
    /// Time to send corked bytes.
    Cork,
    /// End of `TCP_DEFER_ACCEPT`: accept(2) may return the connection without data.
    DeferAccept,
    /// Retry of a failed allocation of receive buffers.
    Memory,
    /// Check if the send queue can get memory.
    Space,
    /// Check that the peer's adapter has acknowledged sends.
    Ack,
    /// Retry of a local connect(2) that found a full backlog, or next first probe of an iWARP peer.
    Retry,
    /// Check that blocks with a waiting writer have become writable, or retry to copy such blocks.
    GiveBack,
    /// Freeing of spare blocks of an idle connection.
    Trim,
}

const TIMERS: usize = Timer::Trim as usize + 1;

/// Deadlines of one connection.
pub(crate) struct Timers {
    at: [Option<Jiffies>; TIMERS],
}

/// Returns the time until `at`; 0 if `at` is past.
fn left(at: Jiffies, now: Jiffies) -> Jiffies {
    match at.wrapping_sub(now) {
        left if left > Jiffies::MAX / 2 => 0,
        left => left,
    }
}

impl Timers {
    pub(crate) const fn new() -> Self {
        Timers { at: [None; TIMERS] }
    }

    pub(crate) fn set(&mut self, timer: Timer, at: Jiffies) {
        self.put(timer, Some(at));
    }

    fn put(&mut self, timer: Timer, at: Option<Jiffies>) {
        if let Some(place) = self.at.get_mut(timer as usize) {
            *place = at;
        }
    }

    pub(crate) fn clear(&mut self, timer: Timer) {
        self.put(timer, None);
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.get(timer).is_some()
    }

    pub(crate) fn get(&self, timer: Timer) -> Option<Jiffies> {
        self.at.get(timer as usize).copied().flatten()
    }

    pub(crate) fn is_due(&self, timer: Timer, now: Jiffies) -> bool {
        self.get(timer).is_some_and(|at| left(at, now) == 0)
    }

    /// Returns true if the deadline is past, and clears it.
    pub(crate) fn take_due(&mut self, timer: Timer, now: Jiffies) -> bool {
        let due = self.is_due(timer, now);
        if due {
            self.clear(timer);
        }
        due
    }

    /// Returns the time until the earliest deadline of the table and of `others`.
    pub(crate) fn next<const N: usize>(
        &self,
        others: [Option<Jiffies>; N],
        now: Jiffies,
    ) -> Option<Jiffies> {
        let all = self.at.iter().chain(&others).flatten();
        all.map(|at| left(*at, now)).min()
    }
}

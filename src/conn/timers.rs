// SPDX-License-Identifier: GPL-2.0-only

//! When what is to be done for a connection: a table of times, of which the kernel's one timer is set to
//! the nearest. Needs nothing of the kernel; `tests/host/conn` compiles this file, too.
//!
//! Jiffies wrap around. So a time counts as past if it lies less than half of all jiffies behind now.

use crate::sys::time::Jiffies;

/// What has a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// The connection's end, or SDP's time to answer, if that can be TCP as well.
    Close,
    /// Corked bytes go nevertheless.
    Cork,
    /// accept(2) may have a connection though nothing has come (`TCP_DEFER_ACCEPT`).
    DeferAccept,
    /// Memory for receive buffers is asked for again.
    Memory,
    /// Memory for what is to be sent may be there again.
    Space,
    /// The peer, which has given no credits and may not look, is told of what waits.
    Kick,
    /// The peer has to have given blocks back that somebody waits to write to.
    GiveBack,
}

const TIMERS: usize = 7;

/// The times of one connection.
pub(crate) struct Timers {
    at: [Option<Jiffies>; TIMERS],
}

/// How long it is until then; 0 if it is past.
fn left(at: Jiffies, now: Jiffies) -> Jiffies {
    match at.wrapping_sub(now) {
        left if left > Jiffies::MAX / 2 => 0,
        left => left,
    }
}

impl Timers {
    /// None is set.
    pub(crate) const fn new() -> Self {
        Timers { at: [None; TIMERS] }
    }

    /// Sets one.
    pub(crate) fn set(&mut self, timer: Timer, at: Jiffies) {
        self.at[timer as usize] = Some(at);
    }

    /// Clears one.
    pub(crate) fn clear(&mut self, timer: Timer) {
        self.at[timer as usize] = None;
    }

    /// Whether one is set.
    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.get(timer).is_some()
    }

    /// What one is set to.
    pub(crate) fn get(&self, timer: Timer) -> Option<Jiffies> {
        self.at[timer as usize]
    }

    /// Whether the time of one has come.
    pub(crate) fn is_due(&self, timer: Timer, now: Jiffies) -> bool {
        self.get(timer).is_some_and(|at| left(at, now) == 0)
    }

    /// The same, and clears it then.
    pub(crate) fn take_due(&mut self, timer: Timer, now: Jiffies) -> bool {
        let due = self.is_due(timer, now);
        if due {
            self.clear(timer);
        }
        due
    }

    /// How long it is until the nearest of them, and of others that are not in the table.
    pub(crate) fn next<const N: usize>(
        &self,
        others: [Option<Jiffies>; N],
        now: Jiffies,
    ) -> Option<Jiffies> {
        let all = self.at.iter().chain(&others).flatten();
        all.map(|at| left(*at, now)).min()
    }
}

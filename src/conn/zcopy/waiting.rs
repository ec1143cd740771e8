// SPDX-License-Identifier: GPL-2.0-only

//! The wait of a call for memory that the peer has, or that a transfer of its own is for.

use super::super::{Connection, SdpSock};
use super::posted::Way;
use super::transfer::Progress;
use super::{CANCEL_TIME, OFED_CANCEL_TIME};
use crate::sys::net::sock::{Locked, FOREVER};
use crate::sys::time::{jiffies, milliseconds, Jiffies};
use kernel::prelude::*;

/// How long the call of a task that is to die still waits for bytes that are on their way.
const DYING_TIME: Jiffies = milliseconds(1000);

/// The end of a task whose call has memory at work. What was sent before is to come to the peer, as on
/// TCP, and its device or kernel sees to that in no time: a reset would take from its program even what
/// it is just reading.
pub(super) struct Dying {
    since: Option<Jiffies>,
    /// The time is over, and the caller looks once more: what it waits for may have come while it slept.
    late: bool,
}

impl Dying {
    pub(super) const fn new() -> Self {
        Dying {
            since: None,
            late: false,
        }
    }

    /// Whether the task is to die.
    pub(super) fn has_begun(&self) -> bool {
        self.since.is_some()
    }

    /// Sleeps until something happens after `seq`, which only a fatal signal ends earlier; then for a
    /// little while in spite of that. Returns whether to look again: not if nothing was found after the time
    /// was over.
    pub(super) fn sleep(
        &mut self,
        sk: &SdpSock,
        lock: &mut Locked<'_>,
        seq: i32,
        limit: Jiffies,
    ) -> bool {
        match sk.wait_killably(lock, seq, limit) {
            Ok(()) => return true,
            Err(e) if e != EINTR => return self.may_look(),
            Err(_) => {}
        }
        let since = *self.since.get_or_insert_with(jiffies);
        let left = DYING_TIME.saturating_sub(jiffies().wrapping_sub(since));
        if left > 0 {
            lock.unlocked(|| sk.sleep_through(seq, left));
            return true;
        }
        self.may_look()
    }

    fn may_look(&mut self) -> bool {
        !core::mem::replace(&mut self.late, true)
    }
}

/// A call that waits for the peer to be done with its memory: for a while, then until it has taken
/// it back, which needs the peer's kernel only.
pub(super) struct Waiting {
    since: Jiffies,
    patience: Jiffies,
    /// When it began to take it back.
    taken_back: Option<Jiffies>,
    dying: Dying,
}

/// What a call is to do after it has slept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// See what has come.
    Look,
    /// Take its memory back.
    TakeBack,
    /// The same, because of a signal.
    Interrupted,
}

impl Waiting {
    pub(super) fn new(patience: Jiffies) -> Self {
        Waiting {
            since: jiffies(),
            patience,
            taken_back: None,
            dying: Dying::new(),
        }
    }

    /// Sleeps until something happens after `seq`: by `sleep`, for so many jiffies of `timeout`; once the
    /// memory is being taken back, for nothing but a fatal signal, and not at once for that. Says once that it is to be, as soon
    /// as the wait is `over` or has been long enough. A peer that does not give it back then loses the
    /// connection.
    pub(super) fn sleep(
        &mut self,
        sk: &SdpSock,
        lock: &mut Locked<'_>,
        seq: i32,
        over: bool,
        timeout: &mut isize,
        sleep: impl FnOnce(&mut Locked<'_>, isize) -> Result<isize>,
    ) -> Turn {
        if let Some(since) = self.taken_back {
            let most = match &sk.connection().protocol {
                Some(p) if !p.own_line() => OFED_CANCEL_TIME,
                _ => CANCEL_TIME,
            };
            let left = most.saturating_sub(jiffies().wrapping_sub(since));
            if !self.dying.sleep(sk, lock, seq, left) {
                if !self.dying.has_begun() {
                    sk.connection().stats.withheld += 1;
                }
                sk.give_up();
            }
            return Turn::Look;
        }
        let left = self
            .patience
            .saturating_sub(jiffies().wrapping_sub(self.since));
        let limit = (left as isize).min(*timeout);
        let turn = if over || limit == 0 {
            Turn::TakeBack
        } else {
            match sleep(lock, limit) {
                Ok(left) => {
                    spend(timeout, limit - left);
                    return Turn::Look;
                }
                Err(_) => Turn::Interrupted,
            }
        };
        self.taken_back = Some(jiffies());
        turn
    }
}

/// So many jiffies of a call's time have passed.
pub(super) fn spend(timeout: &mut isize, passed: isize) {
    if *timeout != FOREVER {
        *timeout -= passed;
    }
}

/// Waits until all requests of the oldest piece are complete; whether the connection is lost instead, or
/// nothing if `sooner` is true of the connection before. Only death makes this end earlier, and not at
/// once.
pub(super) fn wait_moved(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    way: Way,
    dying: &mut Dying,
    sooner: impl Fn(&Connection) -> bool,
) -> Option<bool> {
    loop {
        let seq = sk.event_seq();
        {
            let mut c = sk.connection();
            match c.transfers(way).progress() {
                Some(Progress::Done) | None => return Some(false),
                Some(Progress::Lost) => return Some(true),
                Some(Progress::Moving) if sooner(&c) => return None,
                Some(Progress::Moving) => {}
            }
        }
        if !dying.sleep(sk, lock, seq, FOREVER as usize) {
            sk.give_up();
        }
    }
}

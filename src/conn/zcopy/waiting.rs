// SPDX-License-Identifier: GPL-2.0-only

//! Waits of a call until neither the peer nor a transfer of this end uses the call's memory.

use super::super::SdpSock;
use super::{CANCEL_TIME, OFED_CANCEL_TIME};
use crate::sys::net::sock::{Locked, FOREVER};
use crate::sys::time::{jiffies, milliseconds, Jiffies};
use kernel::prelude::*;

/// Time for which the call of a dying task still waits for bytes in flight.
const DYING_TIME: Jiffies = milliseconds(1000);

/// State of a call with memory in use after a fatal signal. Bytes sent before the signal must
/// arrive, as in TCP. A reset would drop even bytes that the peer is reading.
#[derive(Default)]
pub(super) struct FatalSignal {
    since: Option<Jiffies>,
    /// Set after the timeout, when the caller checks once more for an event during the sleep.
    late: bool,
}

impl FatalSignal {
    pub(super) fn has_begun(&self) -> bool {
        self.since.is_some()
    }

    /// Sleeps until an event after `seq` or a fatal signal. After a fatal signal, the sleep is
    /// limited. Returns true if the caller has to check again, false after the time-out.
    pub(super) fn sleep(
        &mut self,
        sk: &SdpSock,
        lock: &mut Locked<'_>,
        seq: i32,
        limit: Jiffies,
    ) -> bool {
        match sk.looking(lock, || sk.sleep_killably(seq, limit)) {
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

/// Wait of a call until the peer returns the call's memory: first for the time limit of an advert,
/// then until a cancel completes. The cancel depends only on the peer's kernel.
pub(super) struct Waiting {
    since: Jiffies,
    patience: Jiffies,
    /// Time of the cancel.
    taken_back: Option<Jiffies>,
    dying: FatalSignal,
}

/// Next step of a call after its sleep.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterSleep {
    /// Check for events.
    Look,
    TakeBack,
    /// Take the memory back because of a signal.
    Interrupted,
}

impl Waiting {
    pub(super) fn new(patience: Jiffies) -> Self {
        Waiting {
            since: jiffies(),
            patience,
            taken_back: None,
            dying: FatalSignal::default(),
        }
    }

    /// Restarts the time limit of the wait.
    pub(super) fn restart(&mut self) {
        self.since = jiffies();
    }

    /// Sleeps until an event after `seq`, if the event does not depend on the peer's program.
    /// Returns true after a fatal signal.
    pub(super) fn sleep_through(&mut self, sk: &SdpSock, lock: &mut Locked<'_>, seq: i32) -> bool {
        if !self.dying.sleep(sk, lock, seq, FOREVER as usize) {
            sk.give_up();
        }
        self.dying.has_begun()
    }

    /// Sleeps by `sleep` until an event after `seq`, for at most `timeout` jiffies. When the wait
    /// is `over` or has taken too long, requests the caller to cancel, once. After the cancel only
    /// a fatal signal interrupts the sleep, after a delay. If the peer then does not return the
    /// memory, aborts the connection.
    pub(super) fn sleep(
        &mut self,
        sk: &SdpSock,
        lock: &mut Locked<'_>,
        seq: i32,
        over: bool,
        timeout: &mut isize,
        sleep: impl FnOnce(&mut Locked<'_>, isize) -> Result<isize>,
    ) -> AfterSleep {
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
            return AfterSleep::Look;
        }
        let left = self
            .patience
            .saturating_sub(jiffies().wrapping_sub(self.since));
        let limit = (left as isize).min(*timeout);
        let turn = if over || limit == 0 {
            AfterSleep::TakeBack
        } else {
            match sleep(lock, limit) {
                Ok(left) => {
                    if *timeout != FOREVER {
                        *timeout = timeout.saturating_sub(limit.saturating_sub(left));
                    }
                    return AfterSleep::Look;
                }
                Err(_) => AfterSleep::Interrupted,
            }
        };
        self.taken_back = Some(jiffies());
        turn
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! The wait of a call for memory that the peer has.

use super::super::{SdpSock, Socket};
use super::CANCEL_TIME;
use crate::sys::errno::ECONNABORTED;
use crate::sys::net::sock::{Locked, FOREVER};
use crate::sys::time::{jiffies, Jiffies};
use kernel::prelude::*;

/// A call that waits for the peer to be done with its memory: for a while, then until it has taken
/// it back, which needs the peer's kernel only.
pub(super) struct Waiting {
    since: Jiffies,
    patience: Jiffies,
    /// When it began to take it back.
    taken_back: Option<Jiffies>,
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
        }
    }

    /// Sleeps until something happens after `mark`: by `sleep`, for so many jiffies of `timeout`; once the
    /// memory is being taken back, for nothing but a fatal signal. Says once that it is to be, as soon
    /// as the wait is `over` or has been long enough. A peer that does not give it back then loses the
    /// connection.
    pub(super) fn sleep(
        &mut self,
        sk: &SdpSock,
        lock: &mut Locked<'_, Socket>,
        mark: i32,
        over: bool,
        timeout: &mut isize,
        sleep: impl FnOnce(&mut Locked<'_, Socket>, isize) -> Result<isize>,
    ) -> Turn {
        if let Some(since) = self.taken_back {
            let left = CANCEL_TIME.saturating_sub(jiffies().wrapping_sub(since));
            if sk.wait_killably(lock, mark, left).is_err() {
                sk.give_up(ECONNABORTED);
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

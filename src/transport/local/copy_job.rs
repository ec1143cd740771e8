// SPDX-License-Identifier: GPL-2.0-only

//! Carrying out READs and WRITEs.
//!
//! A [`CopyJob`] is one task that copies what one end has posted, piece by piece, until somebody has
//! begun with the last one. A large transfer has two of them: the task of its owner, and one of the
//! other end's owner that would only wait for its end, unless it would have to share a processor
//! with somebody.

use super::loans::Accessed;
use super::pair::{Ends, Pair, Side};
use super::pair_end::PairEnd;
use super::ready::call;
use super::waiting::PartialTransfer;
use crate::sys::net::sock::{cpu_contended, yield_cpu};
use crate::sys::pin::{Pages, PAGE};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::time::{Delta, Instant, Monotonic};

/// Bytes that are copied at a time: the fewer are left, the sooner both have to be through.
const STEP: u32 = 16384;
const MOST_STEP: u32 = 65536;
/// Bytes of a transfer from which on two copy it.
const SHARED: u32 = 8 * STEP;
/// Bytes that whoever comes to help has to find.
const WORTH_HELP: u32 = 2 * STEP;
/// How long to watch for the end of a piece.
const MOST_WATCH: Delta = Delta::from_micros(20);

/// A piece of a transfer.
struct Step {
    ours: Arc<Pages>,
    /// Where in those.
    offset: usize,
    theirs: Accessed,
    len: u32,
    /// Whether it is copied from theirs to ours.
    read: bool,
}

impl Step {
    fn copy(&self) -> Result {
        let (theirs, at) = (&self.theirs.pages, self.theirs.at);
        let len = self.len as usize;
        match self.read {
            true => theirs.copy_to(at, &self.ours, self.offset, len),
            false => self.ours.copy_to(self.offset, theirs, at, len),
        }
    }
}

impl PairEnd {
    /// Bytes of the transfer that is next which nobody has begun with.
    fn left(&mut self) -> u32 {
        self.next_transfer().map_or(0, |t| t.left())
    }

    /// Whether there is something to carry out for a task of the owner.
    fn has_copy_job(&mut self) -> bool {
        !self.carries && self.left() > 0
    }

    /// Whether there is something for a task of the other end's owner.
    fn wants_help(&mut self) -> bool {
        let is_shared =
            |t: &mut PartialTransfer| t.transfer.len >= SHARED && t.left() >= WORTH_HELP;
        !self.is_helped && self.next_transfer().is_some_and(is_shared)
    }

    /// Begins with the next piece, if there is one.
    fn begin(&mut self, peer: &mut PairEnd) -> Option<Step> {
        let next = self.next_transfer().filter(|t| t.left() > 0)?;
        let (loan, t, begun) = (next.loan, next.transfer, next.begun);
        let part = (next.left() / 4).next_multiple_of(PAGE as u32);
        let len = part.clamp(STEP, MOST_STEP).min(next.left());
        next.begun += len;
        let step = self.loans.pages(loan).and_then(|ours| {
            Ok(Step {
                ours,
                offset: t.offset as usize + begun as usize,
                theirs: peer.loans.begin_access(&t, begun)?,
                len,
                read: t.read,
            })
        });
        step.inspect_err(|_| self.broke()).ok()
    }

    /// A piece was copied, or was not.
    fn end(&mut self, len: u32, result: Result) {
        let Some(t) = self.next_transfer() else {
            return;
        };
        t.copied += len;
        if result.is_err() {
            self.broke();
        } else if t.copied == t.transfer.len {
            self.moved();
        }
    }
}

impl Pair {
    /// Whether a task of the owner of an end has something to carry out. Without the other end there
    /// is nothing that could be: what waits stays until the links tell that all is over.
    pub(super) fn has_copy_job(&self, side: Side) -> bool {
        match self.both().ends(side) {
            (Some(mine), Some(other)) => {
                mine.has_copy_job() || other.wants_help() && !cpu_contended()
            }
            _ => false,
        }
    }

    /// What that is. Another task that waits is asked to help.
    pub(super) fn copy_job(self: &Arc<Self>, side: Side) -> Option<CopyJob> {
        let mut both = self.both();
        let (Some(mine), Some(other)) = both.ends(side) else {
            return None;
        };
        let (of, helper) = if mine.has_copy_job() {
            mine.carries = true;
            (side, mine.wants_help().then(|| other.owner()))
        } else if other.wants_help() && !cpu_contended() {
            other.is_helped = true;
            (side.other(), None)
        } else {
            return None;
        };
        drop(both);
        if let Some(helper) = helper {
            helper.help();
        }
        Some(CopyJob {
            pair: self.clone(),
            side: of,
            helps: of != side,
        })
    }
}

/// Transfers that a task carries out without the lock of the connection.
pub(crate) struct CopyJob {
    pair: Arc<Pair>,
    /// Whose transfers they are.
    side: Side,
    /// Whether the task is one of the other end's owner.
    helps: bool,
}

impl CopyJob {
    /// Carries them out, until there is something to poll for whose task it is. How many bytes it
    /// has copied for the other end's owner. Process context; sleeps.
    pub(crate) fn run(self) -> u64 {
        let mut done = None;
        let mut copied = 0;
        while let Some(step) = self.turn(done.take()) {
            let result = step.copy();
            copied += u64::from(step.len);
            done = Some((step, result));
            yield_cpu();
        }
        self.see_it_end();
        match self.helps {
            true => copied,
            false => 0,
        }
    }

    /// From one piece to the next: that there is none ends the copy job. The other end's owner is told
    /// of what has come of it; the task's will poll.
    fn turn(&self, done: Option<(Step, Result)>) -> Option<Step> {
        let mut both = self.pair.both();
        if let Some((step, result)) = done {
            self.end(&mut both, &step, result);
        }
        let (mine, other) = both.ends(self.side);
        if let Some(mine) = mine {
            mine.carry_on(other);
        }
        if let Some(other) = other {
            other.carry_on(mine);
        }
        let next = match (mine.as_mut(), other.as_mut()) {
            (Some(_), Some(o)) if self.helps && o.has_done() => None,
            (Some(m), Some(_)) if !self.helps && m.has_done() => None,
            (Some(mine), Some(other)) => mine.begin(other),
            _ => None,
        };
        if let (Some(mine), None) = (mine.as_mut(), &next) {
            match self.helps {
                true => mine.is_helped = false,
                false => mine.carries = false,
            }
        }
        let told = if self.helps { mine } else { other };
        let tell = told.as_mut().map(|t| [t.take_event(), t.take_done()]);
        both.copying += u32::from(next.is_some());
        drop(both);
        call(tell.unwrap_or([None, None]));
        next
    }

    /// A piece was copied, or was not.
    fn end(&self, both: &mut Ends, step: &Step, result: Result) {
        self.pair.copied(both);
        let (mine, other) = both.ends(self.side);
        if let Some(other) = other {
            other.loans.end_access(&step.theirs);
        }
        if let Some(mine) = mine {
            mine.end(step.len, result);
        }
    }

    /// Watches a little for the end of the piece that the helper is copying: going to sleep for it
    /// takes longer.
    fn see_it_end(&self) {
        let start = Instant::<Monotonic>::now();
        while !self.helps && self.is_ending() && !cpu_contended() && start.elapsed() < MOST_WATCH {
            core::hint::spin_loop();
        }
    }

    /// Whether nothing is left to begin with, but something to be ended.
    fn is_ending(&self) -> bool {
        let mut both = self.pair.both();
        let (mine, _) = both.ends(self.side);
        let next = mine.as_mut().and_then(|m| m.next_transfer());
        next.is_some_and(|t| t.left() == 0)
    }
}

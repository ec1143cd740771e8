// SPDX-License-Identifier: GPL-2.0-only

//! Execution of RDMA READs and WRITEs between local ends.
//!
//! A [`CopyJob`] is run by one task, which copies the transfers of one end in segments until all
//! have begun. A large transfer may have two: one run by its owner's task, one by a task of the
//! other end's owner that would only wait otherwise. The second one runs only if no other task
//! wants its processor.

use super::blocks::Accessed;
use super::pair::{Ends, Pair, Side};
use super::pair_end::PairEnd;
use super::ready::call;
use super::waiting::PartialTransfer;
use crate::sys::net::sock::{cpu_contended, yield_cpu};
use crate::sys::pin::{Pages, PAGE};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::time::{Delta, Instant, Monotonic};

/// Bytes copied at a time. A segment is a quarter of the rest, so that both tasks end at about the
/// same time.
const STEP: u32 = 16384;
const MOST_STEP: u32 = 65536;
/// Bytes of a transfer that two tasks copy.
const SHARED: u32 = 8 * STEP;
/// Bytes that must be left for a second task.
const WORTH_HELP: u32 = 2 * STEP;
/// Maximum time to poll for the other task's last segment.
const MOST_WATCH: Delta = Delta::from_micros(20);

/// Segment of a transfer.
struct Step {
    ours: Arc<Pages>,
    /// Offset in `ours`.
    offset: usize,
    theirs: Accessed,
    len: u32,
    /// True to copy from `theirs` to `ours`.
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
    /// Returns the bytes of the next transfer that have not begun.
    fn left(&mut self) -> u32 {
        self.next_transfer().map_or(0, |t| t.left())
    }

    /// Returns true if a task of the owner can copy.
    fn has_copy_job(&mut self) -> bool {
        !self.carries && self.left() > 0
    }

    /// Returns true if a task of the other end's owner can help.
    fn wants_help(&mut self) -> bool {
        let is_shared =
            |t: &mut PartialTransfer| t.transfer.len >= SHARED && t.left() >= WORTH_HELP;
        !self.is_helped && self.next_transfer().is_some_and(is_shared)
    }

    /// Begins the next segment, if any.
    fn begin(&mut self, peer: &mut PairEnd) -> Option<Step> {
        let next = self.next_transfer().filter(|t| t.left() > 0)?;
        let (block, t, begun) = (next.block, next.transfer, next.begun);
        let part = (next.left() / 4).next_multiple_of(PAGE as u32);
        let len = part.clamp(STEP, MOST_STEP).min(next.left());
        next.begun = next.begun.saturating_add(len);
        let step = self.blocks.pages(block).and_then(|ours| {
            Ok(Step {
                ours,
                offset: (t.offset as usize).saturating_add(begun as usize),
                theirs: peer.blocks.begin_access(&t, begun)?,
                len,
                read: t.read,
            })
        });
        step.inspect_err(|_| self.broke()).ok()
    }

    /// Records the result of a segment.
    fn end(&mut self, len: u32, result: Result) {
        let Some(t) = self.next_transfer() else {
            return;
        };
        t.copied = t.copied.saturating_add(len);
        if result.is_err() {
            self.broke();
        } else if t.copied == t.transfer.len {
            self.moved();
        }
    }
}

impl Pair {
    /// Returns true if a task of this end's owner can copy. Without the other end, requests wait
    /// until the links report the end.
    pub(super) fn has_copy_job(&self, side: Side) -> bool {
        match self.both().ends(side) {
            (Some(mine), Some(other)) => {
                mine.has_copy_job() || other.wants_help() && !cpu_contended()
            }
            _ => false,
        }
    }

    /// Returns the copy job of this end, or else of the other one to help. Wakes a waiting task of
    /// the other end to help.
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

/// Execution of transfers by a task without the connection's lock.
pub(crate) struct CopyJob {
    pair: Arc<Pair>,
    /// Owner of the transfers.
    side: Side,
    /// True if the task belongs to the other end's owner.
    helps: bool,
}

impl CopyJob {
    /// Copies until the calling task has a completion to poll. Returns the bytes copied for the
    /// other end's owner. Context: process, may sleep.
    pub(crate) fn run(self) -> u64 {
        let mut done = None;
        let mut copied = 0u64;
        while let Some(step) = self.turn(done.take()) {
            let result = step.copy();
            copied = copied.saturating_add(step.len.into());
            done = Some((step, result));
            yield_cpu();
        }
        self.see_it_end();
        match self.helps {
            true => copied,
            false => 0,
        }
    }

    /// Records the result of one segment and begins the next; without one the job ends. Notifies
    /// the other end's owner; the calling task polls its own completions.
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
        both.copying = both.copying.saturating_add(next.is_some().into());
        drop(both);
        call(tell.unwrap_or([None, None]));
        next
    }

    /// Records the result of a segment at both ends.
    fn end(&self, both: &mut Ends, step: &Step, result: Result) {
        self.pair.copied(both);
        let (mine, other) = both.ends(self.side);
        if let Some(other) = other {
            other.blocks.end_access(&step.theirs);
        }
        if let Some(mine) = mine {
            mine.end(step.len, result);
        }
    }

    /// Polls up to [`MOST_WATCH`] for the end of the helper's segment: sleeping takes longer.
    fn see_it_end(&self) {
        let start = Instant::<Monotonic>::now();
        while !self.helps && self.is_ending() && !cpu_contended() && start.elapsed() < MOST_WATCH {
            core::hint::spin_loop();
        }
    }

    /// Returns true if all bytes of a transfer have begun and some are not copied.
    fn is_ending(&self) -> bool {
        let mut both = self.pair.both();
        let (mine, _) = both.ends(self.side);
        let next = mine.as_mut().and_then(|m| m.next_transfer());
        next.is_some_and(|t| t.left() == 0)
    }
}

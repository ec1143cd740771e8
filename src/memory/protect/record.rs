// SPDX-License-Identifier: GPL-2.0-only

//! Record of the protected memory of one address space, and of its owners.
//!
//! A block consists of one or more ranges of whole pages in flight, its parts. Blocks may overlap:
//! a page is protected until the last block that covers it has ended. mremap(2) may move a part of
//! a range. Memory of ended blocks stays in the record, too, until the worker has made it writable
//! ([`Record::next_loose`], [`Record::cleared`]). No block may begin on memory with a waiting
//! writer: a write fault is reported once, and must not wait for later blocks.
//!
//! Memory that the program unmaps or maps again may stay in the record: that only delays its
//! unprotection.
//!
//! mremap(2) returns as soon as its event is read, before the move is recorded here. A block that
//! began in between may be recorded under an address that its memory never had, and has to be
//! dropped ([`Record::is_settled`]).

use core::ops::DerefMut;

/// Address range of whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// First address.
    pub(crate) start: usize,
    /// First address after the range.
    pub(crate) end: usize,
}

impl Range {
    /// Makes a range if it consists of whole pages, whose size is a power of two.
    pub(crate) fn whole_pages(start: usize, len: usize, page: usize) -> Option<Self> {
        let end = start.checked_add(len)?;
        let whole = (start | end) & page.wrapping_sub(1) == 0;
        (whole && start < end).then_some(Range { start, end })
    }

    pub(crate) fn common(self, other: Range) -> Option<Range> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (start < end).then_some(Range { start, end })
    }
}

/// Distinguishes a block from all earlier and later ones of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) struct BlockId(u64);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    range: Range,
    /// Block of this part; `None` once it has ended.
    block: Option<BlockId>,
    /// Set if a task may wait to write to this part.
    wanted: bool,
}

/// A block in flight.
#[derive(Debug)]
pub(crate) struct ProtectedBlock<O> {
    id: BlockId,
    owner: O,
    /// Set once its owner was notified of a write fault.
    notified: bool,
    /// Value of [`Record::moves`] when the block began.
    moves: u64,
}

/// Record of one address space, in memory of the caller.
#[derive(Debug)]
pub(crate) struct Record<P, B> {
    /// Slots for parts: half for blocks that begin, half for parts split by moves.
    parts: P,
    /// Index of the first empty slot.
    top: usize,
    blocks: B,
    last: u64,
    /// Range that the worker is making writable.
    clearing: Option<Range>,
    /// Number of moves recorded so far.
    moves: u64,
    /// Set while the worker reads events that it has not recorded yet.
    pub(crate) reading: bool,
    /// Set when a part was lost: the record is incomplete.
    pub(crate) overflown: bool,
}

impl<P, B, O: Clone> Record<P, B>
where
    P: DerefMut<Target = [Option<Part>]>,
    B: DerefMut<Target = [Option<ProtectedBlock<O>>]>,
{
    pub(crate) const fn new(parts: P, blocks: B) -> Self {
        Record {
            parts,
            top: 0,
            blocks,
            last: 0,
            clearing: None,
            moves: 0,
            reading: false,
            overflown: false,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Part> + '_ {
        self.parts.iter().take(self.top).flatten()
    }

    /// Returns the ranges of blocks in flight.
    fn live(&self) -> impl Iterator<Item = Range> + '_ {
        self.all().filter(|p| p.block.is_some()).map(|p| p.range)
    }

    /// Begins a block of these ranges, before it is protected. `None`: no free slot, or the worker
    /// is making a part of it writable.
    pub(crate) fn begin(
        &mut self,
        ranges: impl Iterator<Item = Range> + Clone,
        owner: O,
    ) -> Option<BlockId> {
        let used = self.all().count().saturating_add(ranges.clone().count());
        let wanted = self.all().filter(|p| p.wanted).map(|p| p.range);
        let taken = wanted
            .chain(self.clearing)
            .any(|t| ranges.clone().any(|r| r.common(t).is_some()));
        if used > self.parts.len() / 2 || taken || self.overflown {
            return None;
        }
        let place = self.blocks.iter_mut().find(|b| b.is_none())?;
        self.last = self.last.wrapping_add(1);
        let id = BlockId(self.last);
        *place = Some(ProtectedBlock {
            id,
            owner,
            notified: false,
            moves: self.moves,
        });
        ranges.for_each(|range| {
            self.add(Part {
                range,
                block: Some(id),
                wanted: false,
            })
        });
        Some(id)
    }

    /// Ends a block. Returns its owner, the first time.
    pub(crate) fn end(&mut self, id: BlockId) -> Option<O> {
        for part in self.parts.iter_mut().take(self.top).flatten() {
            if part.block == Some(id) {
                part.block = None;
            }
        }
        let place = self
            .blocks
            .iter_mut()
            .find(|b| b.as_ref().is_some_and(|b| b.id == id))?;
        place.take().map(|b| b.owner)
    }

    /// Takes out a range that no block needs; [`Record::cleared`] follows.
    pub(crate) fn next_loose(&mut self) -> Option<Range> {
        if self.clearing.is_some() {
            return None;
        }
        let last = self.parts.iter().take(self.top).rposition(Option::is_some);
        self.top = last.map_or(0, |n| n.saturating_add(1));
        for n in 0..self.top {
            let Some(part) = self.parts.get(n).copied().flatten() else {
                continue;
            };
            if part.block.is_some() {
                continue;
            }
            let loose = self.first_loose(part.range);
            let rest = loose.map_or(part.range.end, |l| l.end);
            let left = Range {
                start: rest,
                ..part.range
            };
            if let Some(place) = self.parts.get_mut(n) {
                *place = (left.start < left.end).then_some(Part {
                    range: left,
                    ..part
                });
            }
            if loose.is_some() {
                self.clearing = loose;
                return loose;
            }
        }
        None
    }

    /// Returns the first part of a range that no block in flight covers.
    fn first_loose(&self, range: Range) -> Option<Range> {
        let mut start = range.start;
        while let Some(over) = self.live().find(|l| l.start <= start && start < l.end) {
            start = over.end;
        }
        let next = self.live().map(|l| l.start).filter(|s| *s > start).min();
        let end = next.unwrap_or(range.end).min(range.end);
        (start < end).then_some(Range { start, end })
    }

    /// Handles a write fault on a page. Returns true if no block contains it, so that it has to be
    /// made writable; [`Record::cleared`] follows.
    pub(crate) fn take_stray(&mut self, page: Range) -> bool {
        let covered = self.live().any(|l| l.common(page).is_some());
        // an unknown page may belong to any block
        let known = !self.overflown || self.is_idle();
        let stray = known && !covered && self.clearing.is_none();
        if stray {
            self.clearing = Some(page);
        }
        stray
    }

    /// Finishes the range taken out. If not `done`, it will be taken out again.
    pub(crate) fn cleared(&mut self, done: bool) {
        let Some(range) = self.clearing.take().filter(|_| !done) else {
            return;
        };
        self.add(Part {
            range,
            block: None,
            wanted: true,
        });
    }

    /// Returns the next owner to notify of a write fault on a page. Each owner is returned once.
    pub(crate) fn next_touched(&mut self, page: Range) -> Option<(BlockId, O)> {
        for part in self.parts.iter_mut().take(self.top).flatten() {
            if part.range.common(page).is_none() {
                continue;
            }
            part.wanted = true;
            let mut blocks = self.blocks.iter_mut().flatten();
            let found = blocks.find(|b| part.block == Some(b.id) && !b.notified);
            if let Some(block) = found {
                block.notified = true;
                return Some((block.id, block.owner.clone()));
            }
        }
        None
    }

    /// Returns true if the owner of a block was notified of a write fault.
    pub(crate) fn has_fault(&self, id: BlockId) -> bool {
        let mut blocks = self.blocks.iter().flatten();
        blocks.any(|b| b.id == id && b.notified)
    }

    /// Returns true if a block whose protection has succeeded is recorded under its own addresses.
    /// `None`: unknown while the worker reads events. While the event of a move is unread, no
    /// protection succeeds.
    pub(crate) fn is_settled(&self, id: BlockId) -> Option<bool> {
        let mut blocks = self.blocks.iter().flatten();
        let same = blocks.any(|b| b.id == id && b.moves == self.moves);
        (!self.reading).then_some(same)
    }

    /// Records memory moved by mremap(2). A range being made writable was
    /// [finished](Record::cleared) before.
    pub(crate) fn moved(&mut self, from: Range, to: usize) {
        self.moves = self.moves.wrapping_add(1);
        for n in 0..self.top {
            let part = self.parts.get(n).copied().flatten();
            let common = part.and_then(|p| Some((p, p.range.common(from)?)));
            let Some((part, common)) = common else {
                continue;
            };
            if let Some(place) = self.parts.get_mut(n) {
                *place = None;
            }
            let rest = [
                (part.range.start, common.start),
                (common.end, part.range.end),
            ];
            for (start, end) in rest.into_iter().filter(|(start, end)| start < end) {
                self.add(Part {
                    range: Range { start, end },
                    ..part
                });
            }
            let there = |at: usize| to.wrapping_add(at.wrapping_sub(from.start));
            let (start, end) = (there(common.start), there(common.end));
            self.add(Part {
                range: Range { start, end },
                ..part
            });
        }
    }

    fn add(&mut self, part: Part) {
        let free = self.parts.iter_mut().zip(1..).find(|(p, _)| p.is_none());
        match free {
            Some((place, behind)) => {
                *place = Some(part);
                self.top = self.top.max(behind);
            }
            None => self.overflown = true,
        }
    }

    /// Returns true if no block is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.blocks.iter().all(Option::is_none)
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;

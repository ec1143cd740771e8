// SPDX-License-Identifier: GPL-2.0-only

//! Which memory of one address space is protected, and for whom.
//!
//! A block is one or more ranges of whole pages that its owner has in flight, its parts. Blocks may overlap: a page is
//! protected until the last one that covers it has ended. mremap(2) may move a part of a range. What a block leaves behind stays here, too, until the worker has made it writable
//! ([`Record::next_loose`], [`Record::cleared`]). Nothing begins where somebody waits to write: who waits is heard of once, and is to
//! wait for no block that came later.
//!
//! Memory that the program unmaps, or maps anew, may stay in here: that only makes it writable later than
//! could be.
//!
//! mremap(2) returns as soon as its event is read, which is before the move is recorded here. A block that began in between may have
//! been filed under an address that its memory never had, and is to be given up ([`Record::is_settled`]).

use core::ops::DerefMut;

/// A range of addresses, of whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// The first one.
    pub(crate) start: usize,
    /// The first one behind it.
    pub(crate) end: usize,
}

impl Range {
    /// A part of memory, if that is whole pages.
    pub(crate) fn whole_pages(start: usize, len: usize, page: usize) -> Option<Self> {
        let end = start.checked_add(len)?;
        let whole = start % page == 0 && end % page == 0 && start < end;
        whole.then_some(Range { start, end })
    }

    /// What both have.
    pub(crate) fn common(self, other: Range) -> Option<Range> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (start < end).then_some(Range { start, end })
    }
}

/// The name of a block, which no other one of the address space has, before or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) struct BlockId(u64);

/// A part of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    range: Range,
    /// `None`: it has ended.
    block: Option<BlockId>,
    /// Somebody may wait to write there.
    wanted: bool,
}

/// A block in flight.
#[derive(Debug)]
pub(crate) struct Block<O> {
    id: BlockId,
    owner: O,
    /// It knows that somebody waits to write to it.
    told: bool,
    /// [`Record::moves`] when it began.
    moves: u64,
}

/// The record of one address space, in memory that its maker has.
#[derive(Debug)]
pub(crate) struct Record<P, B> {
    /// Room for parts: half of it for blocks that begin, and half for parts that are torn by moving.
    parts: P,
    /// Those from here on are empty.
    top: usize,
    blocks: B,
    last: u64,
    /// What the worker makes writable just now.
    clearing: Option<Range>,
    /// Moves recorded so far.
    moves: u64,
    /// Set while the worker reads events that it has not recorded yet.
    pub(crate) reading: bool,
    /// A part was lost: what is protected is not all known.
    pub(crate) overflown: bool,
}

impl<P, B, O: Clone> Record<P, B>
where
    P: DerefMut<Target = [Option<Part>]>,
    B: DerefMut<Target = [Option<Block<O>>]>,
{
    /// Nothing is protected. Both are empty places.
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

    /// All parts.
    fn all(&self) -> impl Iterator<Item = &Part> + '_ {
        self.parts.iter().take(self.top).flatten()
    }

    /// The ranges of blocks in flight.
    fn live(&self) -> impl Iterator<Item = Range> + '_ {
        self.all().filter(|p| p.block.is_some()).map(|p| p.range)
    }

    /// A block of these ranges begins: before it is protected. `None`: there is no room, or a part of it is just being made
    /// writable, or is to be.
    pub(crate) fn begin(
        &mut self,
        ranges: impl Iterator<Item = Range> + Clone,
        owner: O,
    ) -> Option<BlockId> {
        let used = self.all().count() + ranges.clone().count();
        let wanted = self.all().filter(|p| p.wanted).map(|p| p.range);
        let taken = wanted
            .chain(self.clearing)
            .any(|t| ranges.clone().any(|r| r.common(t).is_some()));
        if used > self.parts.len() / 2 || taken || self.overflown {
            return None;
        }
        let place = self.blocks.iter_mut().find(|b| b.is_none())?;
        self.last += 1;
        let id = BlockId(self.last);
        *place = Some(Block {
            id,
            owner,
            told: false,
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

    /// A block has ended. Returns its owner, once.
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

    /// Takes a range out that nobody needs protected any more; [`Record::cleared`] follows.
    pub(crate) fn next_loose(&mut self) -> Option<Range> {
        if self.clearing.is_some() {
            return None;
        }
        let last = self.parts.iter().take(self.top).rposition(Option::is_some);
        self.top = last.map_or(0, |n| n + 1);
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

    /// The first part of a range that no block in flight covers.
    fn first_loose(&self, range: Range) -> Option<Range> {
        let mut start = range.start;
        while let Some(over) = self.live().find(|l| l.start <= start && start < l.end) {
            start = over.end;
        }
        let next = self.live().map(|l| l.start).filter(|s| *s > start).min();
        let end = next.unwrap_or(range.end).min(range.end);
        (start < end).then_some(Range { start, end })
    }

    /// A page that somebody waits to write to: whether it is nobody's, and is to be made writable;
    /// [`Record::cleared`] follows.
    pub(crate) fn take_stray(&mut self, page: Range) -> bool {
        let covered = self.live().any(|l| l.common(page).is_some());
        // what is not known may be anybody's
        let known = !self.overflown || self.is_idle();
        let stray = known && !covered && self.clearing.is_none();
        if stray {
            self.clearing = Some(page);
        }
        stray
    }

    /// What was taken out is writable, or not yet (`done`): then it comes once more.
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

    /// Somebody waits to write to a page: the next owner to be told of that. Each is told once.
    pub(crate) fn next_touched(&mut self, page: Range) -> Option<(BlockId, O)> {
        for part in self.parts.iter_mut().take(self.top).flatten() {
            if part.range.common(page).is_none() {
                continue;
            }
            part.wanted = true;
            let mut blocks = self.blocks.iter_mut().flatten();
            let told = blocks.find(|b| part.block == Some(b.id) && !b.told);
            if let Some(block) = told {
                block.told = true;
                return Some((block.id, block.owner.clone()));
            }
        }
        None
    }

    /// Whether the owner of a block was told that somebody waits to write to it.
    pub(crate) fn is_told(&self, id: BlockId) -> bool {
        let mut blocks = self.blocks.iter().flatten();
        blocks.any(|b| b.id == id && b.told)
    }

    /// Returns whether a block whose protection has succeeded is filed under its own addresses. `None`: not known while events
    /// are read. A move whose event nobody has read yet lets no protection succeed.
    pub(crate) fn is_settled(&self, id: BlockId) -> Option<bool> {
        let mut blocks = self.blocks.iter().flatten();
        let same = blocks.any(|b| b.id == id && b.moves == self.moves);
        (!self.reading).then_some(same)
    }

    /// mremap(2) has moved memory, to where it was not. What is being made writable is
    /// [given back](Record::cleared) before.
    pub(crate) fn moved(&mut self, from: Range, to: usize) {
        self.moves += 1;
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
            let start = to.wrapping_add(common.start - from.start);
            let end = start.wrapping_add(common.end - common.start);
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

    /// Whether no block is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.blocks.iter().all(Option::is_none)
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;

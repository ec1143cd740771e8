// SPDX-License-Identifier: GPL-2.0-only

//! Record of the protected memory of one address space, and of the owners of its blocks.
//!
//! A block consists of one or more ranges of whole pages in flight (its parts). Blocks may overlap:
//! a page is protected until the last block that covers it has ended. Memory of an ended block
//! stays in the record until the worker has made this memory writable ([`Record::next_loose`],
//! [`Record::cleared`]). No block may begin on memory with a waiting writer: a write fault is
//! reported once, and the writer must not wait for later blocks.
//!
//! Memory that the program unmaps or remaps may stay recorded, and protected, for longer.

use core::ops::DerefMut;

/// Number of slots for pages without a block.
pub(crate) const LOOSE_PAGES: usize = 32;

/// Address range of whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// First address.
    pub(crate) start: usize,
    /// First address after the range.
    pub(crate) end: usize,
}

impl Range {
    fn overlaps(self, other: Range) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Distinguishes a block from all other blocks of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockId(u64);

#[derive(Debug)]
pub(crate) struct Part<O> {
    range: Range,
    block: BlockId,
    /// Owner of the block; `None` once the block has ended.
    owner: Option<O>,
    /// Set if a task may wait to write to this part, or if the worker is making the part writable.
    wanted: bool,
}

/// Record of one address space, in slots of the caller. Empty slots follow used slots.
#[derive(Debug)]
pub(crate) struct Record<P> {
    parts: P,
    last: u64,
}

impl<P, O: Clone + 'static> Record<P>
where
    P: DerefMut<Target = [Option<Part<O>>]>,
{
    pub(crate) const fn new(parts: P) -> Self {
        Record { parts, last: 0 }
    }

    fn all(&self) -> impl Iterator<Item = &Part<O>> + '_ {
        self.parts.iter().map_while(Option::as_ref)
    }

    fn find(&self, f: impl Fn(&Part<O>) -> bool) -> Option<usize> {
        self.all().position(f)
    }

    /// Returns the ranges of blocks in flight.
    fn live(&self) -> impl Iterator<Item = Range> + '_ {
        self.all().filter(|p| p.owner.is_some()).map(|p| p.range)
    }

    /// Begins a block of `ranges`, before they are protected. Returns `None` without a free slot,
    /// or if a task may wait to write to a part of the ranges.
    pub(crate) fn begin(
        &mut self,
        ranges: impl Iterator<Item = Range> + Clone,
        owner: &O,
    ) -> Option<BlockId> {
        let used = self.all().count().saturating_add(ranges.clone().count());
        let taken = self.find(|p| p.wanted && ranges.clone().any(|r| r.overlaps(p.range)));
        if used.saturating_add(LOOSE_PAGES) > self.parts.len() || taken.is_some() {
            return None;
        }
        self.last = self.last.wrapping_add(1);
        let id = BlockId(self.last);
        for range in ranges {
            self.add(range, id, Some(owner.clone()));
        }
        Some(id)
    }

    /// Adds a part: without `owner`, a page with a waiting writer. Returns false if no slot is
    /// left.
    fn add(&mut self, range: Range, block: BlockId, owner: Option<O>) -> bool {
        let Some(free) = self.parts.iter_mut().find(|p| p.is_none()) else {
            return false;
        };
        *free = Some(Part {
            range,
            block,
            wanted: owner.is_none(),
            owner,
        });
        true
    }

    /// Ends a part of a block. Returns the part's owner, or `None` once all parts have ended.
    pub(crate) fn end(&mut self, id: BlockId) -> Option<O> {
        let mut parts = self.parts.iter_mut().map_while(Option::as_mut);
        parts.find_map(|p| p.owner.take_if(|_| p.block == id))
    }

    /// Returns a range that no block needs. The caller makes the range writable and calls
    /// [`Record::cleared`].
    pub(crate) fn next_loose(&mut self) -> Option<Range> {
        loop {
            let at = self.find(|p| p.owner.is_none())?;
            let range = self.parts.get(at)?.as_ref()?.range;
            let loose = self.first_loose(range);
            self.shorten(at, loose.map_or(range.end, |l| l.start));
            if loose.is_some() {
                return loose;
            }
        }
    }

    /// Moves up the start of an ended part. Pages before the new start need not be made writable.
    fn shorten(&mut self, at: usize, start: usize) {
        let last = self.all().count().saturating_sub(1);
        let Some(Some(part)) = self.parts.get_mut(at) else {
            return;
        };
        (part.range.start, part.wanted) = (start, true);
        if start >= part.range.end {
            self.parts.swap(at, last);
            if let Some(place) = self.parts.get_mut(last) {
                *place = None;
            }
        }
    }

    /// Returns the first subrange of a range that no block in flight covers.
    fn first_loose(&self, range: Range) -> Option<Range> {
        let mut start = range.start;
        while let Some(over) = self.live().find(|l| l.start <= start && start < l.end) {
            start = over.end;
        }
        let next = self.live().map(|l| l.start).filter(|s| *s > start).min();
        let end = next.unwrap_or(range.end).min(range.end);
        (start < end).then_some(Range { start, end })
    }

    /// Records that the range of [`Record::next_loose`] is writable.
    pub(crate) fn cleared(&mut self, range: Range) {
        let ended = self.find(|p| {
            p.owner.is_none() && p.range.start == range.start && range.end <= p.range.end
        });
        if let Some(at) = ended {
            self.shorten(at, range.end);
        }
    }

    /// Returns the next owner to notify of a write fault in a range, once for each block.
    pub(crate) fn next_fault(&mut self, range: Range) -> Option<O> {
        loop {
            let at = self.find(|p| !p.wanted && p.range.overlaps(range))?;
            let part = self.parts.get(at)?.as_ref()?;
            let known = self.has_fault(part.block);
            let part = self.parts.get_mut(at)?.as_mut()?;
            part.wanted = true;
            if part.owner.is_some() && !known {
                return part.owner.clone();
            }
        }
    }

    /// Returns true if the owner of a block was notified of a write fault.
    pub(crate) fn has_fault(&self, id: BlockId) -> bool {
        self.all().any(|p| p.block == id && p.wanted)
    }

    /// Returns true if memory of the range is recorded.
    pub(crate) fn contains_any_of(&self, range: Range) -> bool {
        self.all().any(|p| p.range.overlaps(range))
    }

    /// Records a page without a block that has a waiting writer. Returns false if no slot is free.
    pub(crate) fn add_loose(&mut self, page: Range) -> bool {
        self.add(page, BlockId(0), None)
    }

    /// Returns true if no block is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.live().next().is_none()
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;

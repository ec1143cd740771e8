// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of one receive call's room that the peer writes to, several at a time.
//!
//! The blocks lie one behind the other, in the order of the stream. The peer fills them in that
//! order, but may leave each before it is full, or send a message in place of one. So what it has
//! written need not lie where the call wants it: behind a block that *fell short* nothing more is
//! advertised, the others are taken back, and when all are back, what was written behind the hole
//! is moved down to it: see [`super::order`].

use super::adverts::Block;
use super::lending::{Lent, Stage};

/// Most blocks that a call has out.
pub const MOST_PLACES: usize = 4;

/// A block that is the caller's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned<L> {
    /// What the transport calls it.
    pub loan: L,
    /// Bytes of it.
    pub size: u32,
    /// Bytes that were written, at its start.
    pub done: u32,
    /// Where in the stream these begin.
    pub at: u64,
}

/// The blocks of a call, the oldest first.
#[derive(Debug)]
pub struct Places<L> {
    /// The blocks, and where in the stream what was written to each begins.
    blocks: [Option<(Lent<L>, u64)>; MOST_PLACES],
    len: usize,
}

impl<L: Copy> Places<L> {
    /// None.
    pub const fn new() -> Self {
        Places {
            blocks: [None; MOST_PLACES],
            len: 0,
        }
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is room for another one.
    pub fn has_room(&self) -> bool {
        self.len < MOST_PLACES
    }

    /// Adds a block behind the others. Returns whether there was room.
    #[must_use]
    pub fn push(&mut self, lent: Lent<L>) -> bool {
        let free = self.blocks.get_mut(self.len);
        let added = free.is_some();
        if let Some(place) = free {
            *place = Some((lent, 0));
            self.len += 1;
        }
        added
    }

    /// The blocks.
    pub fn iter(&self) -> impl Iterator<Item = &Lent<L>> {
        self.blocks.iter().flatten().map(|(lent, _)| lent)
    }

    /// The blocks.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Lent<L>> {
        self.blocks.iter_mut().flatten().map(|(lent, _)| lent)
    }

    /// The oldest block.
    pub fn oldest(&self) -> Option<&Lent<L>> {
        self.iter().next()
    }

    /// Whether some block came back before it was full.
    pub fn fell_short(&self) -> bool {
        self.iter().any(|b| !b.is_out() && b.done < b.block.size)
    }

    /// What is to be advertised next.
    pub fn offered(&self) -> Option<Block> {
        if self.fell_short() {
            return None;
        }
        self.iter().find_map(Lent::offered)
    }

    /// How many the peer may be writing to.
    pub fn advertised(&self) -> usize {
        self.iter().filter(|b| b.stage == Stage::Advertised).count()
    }

    /// The advert of what was [`offered`](Self::offered) is posted. Returns whether there was one.
    pub fn advertise(&mut self) -> bool {
        let next = self.iter_mut().find(|b| b.stage == Stage::Offered);
        let found = next.is_some();
        if let Some(block) = next {
            block.stage = Stage::Advertised;
        }
        found
    }

    /// The peer is done with the oldest block that it has, and has written `bytes` to it, which are
    /// at this position of the stream. Returns how many count, if it has one.
    pub fn written(&mut self, bytes: u32, position: u64) -> Option<u32> {
        let mut blocks = self.blocks.iter_mut().flatten();
        let (block, at) = blocks.find(|(b, _)| b.stage == Stage::Advertised)?;
        block.done = bytes.min(block.block.size);
        block.over();
        *at = position;
        Some(block.done)
    }

    /// The peer has written to none of those that it has, nor will it. Returns whether it had any.
    pub fn void(&mut self) -> bool {
        let had = self.advertised() > 0;
        for b in self.iter_mut().filter(|b| b.stage == Stage::Advertised) {
            b.over();
        }
        had
    }

    /// What the peer was not told of yet, it will not be told of.
    pub fn withdraw(&mut self) {
        for b in self.iter_mut().filter(|b| b.stage == Stage::Offered) {
            b.over();
        }
    }

    /// Access has ended to the block with this cookie. Returns whether there is one.
    pub fn ended(&mut self, cookie: u64) -> bool {
        self.iter_mut().any(|b| b.ended(cookie))
    }

    /// The connection is lost.
    pub fn lost(&mut self) {
        for b in self.iter_mut() {
            b.stage = Stage::Lost;
        }
    }

    /// Takes the oldest block out, if it is the caller's again.
    pub fn take(&mut self) -> Option<Returned<L>> {
        let [first, ..] = &mut self.blocks;
        let (lent, at) = first.take_if(|(lent, _)| lent.is_back())?;
        self.blocks.rotate_left(1);
        self.len = self.len.saturating_sub(1);
        Some(Returned {
            loan: lent.loan,
            size: lent.block.size,
            done: lent.done,
            at,
        })
    }
}

impl<L: Copy> Default for Places<L> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;

// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of the stream that the peer is to read: SrcAvail (IBA Annex A4).
//!
//! They are consecutive, the oldest first. While the peer reads the oldest one, the next ones are pinned
//! and advertised. What the peer gives back ends the row: what it has not read of that one, and all
//! behind it, goes another way, in its order; so nothing of what follows counts, and nothing is added
//! until all are taken out.

use super::advert::Advert;
use crate::protocol::Block;

/// Most blocks at a time.
pub(crate) const MOST_BLOCKS: usize = 4;

/// A block.
#[derive(Debug)]
struct TxBlock<M> {
    advert: Advert<M>,
    /// Its first byte, which goes in the SrcAvail.
    first: u8,
    /// Its position in what is sent.
    at: u64,
    /// The peer has read it to the end.
    finished: bool,
}

/// A block that is its owner's again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Returned<M> {
    /// Where its memory is.
    pub(crate) memory: M,
    /// Its bytes.
    pub(crate) size: u32,
    /// Those of them, from its start, that the peer has.
    pub(crate) done: u32,
    /// The peer did not want it, or not all of it, or not in time.
    pub(crate) refused: bool,
}

/// The blocks of one call.
#[derive(Debug)]
pub(crate) struct TxBlocks<M> {
    blocks: [Option<TxBlock<M>>; MOST_BLOCKS],
    /// One that was taken out had not gone as a whole.
    broken: bool,
    /// They came back for a reader of the peer that waits with memory of its own, so they were not refused.
    voided: bool,
}

impl<M> TxBlocks<M> {
    /// None.
    pub(crate) const fn new() -> Self {
        TxBlocks {
            blocks: [const { None }; MOST_BLOCKS],
            broken: false,
            voided: false,
        }
    }

    fn iter(&self) -> impl Iterator<Item = &TxBlock<M>> {
        self.blocks.iter().flatten()
    }

    /// The adverts of all.
    pub(crate) fn adverts(&self) -> impl Iterator<Item = &Advert<M>> {
        self.iter().map(|b| &b.advert)
    }

    /// The adverts of all.
    pub(crate) fn adverts_mut(&mut self) -> impl Iterator<Item = &mut Advert<M>> {
        self.blocks.iter_mut().flatten().map(|b| &mut b.advert)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Whether another one may follow: there is room, and the peer has those that are here, or will read
    /// them.
    pub(crate) fn is_open(&self) -> bool {
        let goes = |b: &TxBlock<M>| b.finished || b.advert.is_out();
        let full = self.blocks.iter().all(Option::is_some);
        self.is_empty() || !full && !self.broken && self.iter().all(goes)
    }

    /// Adds a block behind the others, with its first byte, at this position in what is sent.
    ///
    /// # Errors
    ///
    /// The memory, unless they are [open](Self::is_open).
    pub(crate) fn push(&mut self, advert: Advert<M>, first: u8, at: u64) -> Result<(), M> {
        if !self.is_open() {
            return Err(advert.memory);
        }
        if self.is_empty() {
            (self.broken, self.voided) = (false, false);
        }
        if let Some(place) = self.blocks.iter_mut().find(|b| b.is_none()) {
            *place = Some(TxBlock {
                advert,
                first,
                at,
                finished: false,
            });
        }
        Ok(())
    }

    /// What to advertise next, and its position in what is sent.
    pub(crate) fn queued(&self) -> Option<(Block, u64)> {
        self.iter().find_map(|b| Some((b.advert.queued()?, b.at)))
    }

    /// Its SrcAvail is posted, with so many bytes in it. Returns its first byte, if there was one.
    pub(crate) fn posted(&mut self, inline: u32) -> Option<u8> {
        let mut blocks = self.blocks.iter_mut().flatten();
        let block = blocks.find(|b| b.advert.queued().is_some())?;
        block.advert.posted();
        block.advert.moved(inline);
        Some(block.first)
    }

    fn oldest_posted(&mut self) -> Option<&mut TxBlock<M>> {
        let mut blocks = self.blocks.iter_mut().flatten();
        blocks.find(|b| b.advert.is_out() && b.advert.queued().is_none())
    }

    /// Whether the peer has any.
    pub(crate) fn any_posted(&mut self) -> bool {
        self.oldest_posted().is_some()
    }

    /// The peer has read `bytes` more of the oldest that it has; `finished`: that was all. Returns whether
    /// it has one.
    pub(crate) fn read(&mut self, bytes: u32, finished: bool) -> bool {
        let Some(block) = self.oldest_posted() else {
            return false;
        };
        block.advert.moved(block.advert.done.saturating_add(bytes));
        if finished {
            block.finished = true;
            block.advert.finish();
        }
        true
    }

    /// The peer gives all back, and has `done` bytes of the oldest that it has. Returns how many of these
    /// are new, if it has one.
    pub(crate) fn returned(&mut self, done: u32) -> Option<u32> {
        let new = self.oldest_posted().map(|b| b.advert.moved(done));
        // those that were to follow must not go before the rest of it
        self.adverts_mut().for_each(Advert::finish);
        new
    }

    /// The peer is not told of those that it was not told of yet. Returns whether there were any.
    pub(crate) fn withdraw(&mut self) -> bool {
        let mut any = false;
        for advert in self.adverts_mut().filter(|a| a.queued().is_some()) {
            advert.finish();
            any = true;
        }
        any
    }

    /// What comes back next is not refused: a reader of the peer waits with memory of its own.
    pub(crate) fn void(&mut self) {
        self.voided = true;
    }

    /// How large the oldest is, if the peer was not told of it yet.
    pub(crate) fn waits(&self) -> Option<u32> {
        Some(self.iter().next()?.advert.queued()?.size)
    }

    /// The oldest, and whether the peer has read it to the end.
    pub(crate) fn oldest(&self) -> Option<(&Advert<M>, bool)> {
        self.iter().next().map(|b| (&b.advert, b.finished))
    }

    /// Takes the oldest out, if it is its owner's again.
    pub(crate) fn take(&mut self) -> Option<Returned<M>> {
        let [oldest, ..] = &mut self.blocks;
        let block = oldest.take_if(|b| b.advert.is_back())?;
        self.blocks.rotate_left(1);
        let whole = !self.broken;
        let voided = !block.finished && core::mem::take(&mut self.voided);
        self.broken |= !block.finished;
        Some(Returned {
            memory: block.advert.memory,
            size: block.advert.segment.size,
            done: if whole { block.advert.done } else { 0 },
            refused: whole && !block.finished && !voided,
        })
    }
}

#[cfg(test)]
#[path = "tx_blocks_tests.rs"]
mod tests;

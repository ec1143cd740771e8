// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of the stream that are sent from a program's own pages.
//!
//! They lie in the stream in the order in which they were added, each behind the copied bytes that there were then,
//! whichever calls they are of. As a rule the peer reads them (SrcAvail, IBA Annex A4), several at a time. What it does not
//! want as that, or cannot have, it gives back: all of them at once, and of the oldest perhaps the beginning read. What
//! becomes of the rest depends on whose block it is:
//!
//! * a **call's**, which waits: it is the call's again, to be copied behind all that there is by then;
//! * a **detached** one, which nobody waits for: it goes from its pages as RDMA WRITE or in messages, in its
//!   place in the stream, and nothing behind it goes before.
//!
//! Whoever moves the connection on takes out what has gone ([`TxBlocks::retire`]); a call, its own ([`TxBlocks::take`]).

use super::advert::{Advert, AdvertState};
use crate::protocol::Block;

/// Most blocks at a time.
pub(crate) const MOST_BLOCKS: usize = 8;
/// Most blocks of a call that waits.
pub(crate) const MOST_OF_CALL: usize = 4;

/// A block.
#[derive(Debug)]
struct TxBlock<M> {
    advert: Advert<M>,
    /// Its first byte, which goes in the SrcAvail.
    first: u8,
    /// Copied bytes that lie before it in the stream.
    at: u64,
    /// The peer has read it to the end.
    finished: bool,
    /// No call waits for it.
    detached: bool,
    /// Bytes from its start that were posted as WRITE or message, with those that went before.
    posted: u32,
    /// Some went in messages.
    in_messages: bool,
    /// The program cannot write to its memory, and its bytes may be moved elsewhere.
    protected: bool,
    /// Since when somebody waits to, in jiffies.
    wanted: Option<usize>,
    /// There was no memory to move its bytes to.
    stuck: bool,
    /// They just are: nobody uses its memory.
    away: bool,
}

impl<M> TxBlock<M> {
    /// Where its rest begins that is to go otherwise than by the peer's reading, if it is to.
    fn rest(&self) -> Option<u32> {
        let back = self.advert.state == AdvertState::Invalid && !self.away;
        let goes = self.detached && back && !self.finished;
        goes.then(|| self.posted.max(self.advert.done))
    }

    /// Whether what is behind it may go, as far as the order of the stream is concerned.
    fn is_passed(&self) -> bool {
        match self.advert.state {
            _ if self.away => false,
            AdvertState::New | AdvertState::Queued => false,
            AdvertState::Posted | AdvertState::Lost => true,
            AdvertState::Done | AdvertState::Invalidating => self.finished || !self.detached,
            AdvertState::Invalid => self.rest().is_none_or(|at| at == self.advert.segment.size),
        }
    }

    /// Whether all of it has gone, and nobody accesses it any more.
    fn has_gone(&self) -> bool {
        let all = self.finished || self.advert.done == self.advert.segment.size;
        self.advert.state == AdvertState::Invalid && all
    }
}

/// A block that is its call's again.
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

/// A detached block that has gone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Retired<M> {
    /// Where its memory is.
    pub(crate) memory: M,
    /// Its bytes.
    pub(crate) size: u32,
    /// Some of it went in messages.
    pub(crate) in_messages: bool,
}

/// What is next of the blocks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a, M> {
    /// A block that is not registered yet.
    New {
        /// Its memory.
        memory: &'a M,
        /// Its bytes.
        size: u32,
    },
    /// This is to be advertised.
    Advert(Block),
    /// The rest of a block is to be sent.
    Rest {
        /// Its memory.
        memory: &'a M,
        /// What it is called.
        cookie: u64,
        /// Where the rest begins.
        offset: u32,
        /// Its bytes.
        len: u32,
    },
    /// The peer's access to it is being ended; then so many bytes are to be sent.
    Ending(u32),
}

/// The blocks of a connection.
#[derive(Debug)]
pub(crate) struct TxBlocks<M> {
    /// Those that there are, without gaps.
    blocks: [Option<TxBlock<M>>; MOST_BLOCKS],
    count: usize,
    /// One that was taken out by its call had not gone as a whole.
    broken: bool,
    /// They came back for a reader of the peer that waits with memory of its own, so they were not refused.
    voided: bool,
}

impl<M> TxBlocks<M> {
    /// None.
    pub(crate) const fn new() -> Self {
        TxBlocks {
            blocks: [const { None }; MOST_BLOCKS],
            count: 0,
            broken: false,
            voided: false,
        }
    }

    fn iter(&self) -> impl Iterator<Item = &TxBlock<M>> {
        self.blocks.iter().take(self.count).flatten()
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut TxBlock<M>> {
        self.blocks.iter_mut().take(self.count).flatten()
    }

    /// The adverts of all.
    pub(crate) fn adverts(&self) -> impl Iterator<Item = &Advert<M>> {
        self.iter().map(|b| &b.advert)
    }

    /// The adverts of all.
    pub(crate) fn adverts_mut(&mut self) -> impl Iterator<Item = &mut Advert<M>> {
        self.iter_mut().map(|b| &mut b.advert)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Blocks of a call that waits.
    fn of_call(&self) -> impl Iterator<Item = &TxBlock<M>> {
        self.iter().filter(|b| !b.detached)
    }

    /// Whether a call waits for blocks of its own.
    pub(crate) fn has_call(&self) -> bool {
        self.of_call().next().is_some()
    }

    /// Bytes of detached blocks that have not gone.
    pub(crate) fn detached_bytes(&self) -> usize {
        let left = |b: &TxBlock<M>| (b.advert.segment.size - b.advert.done) as usize;
        self.iter().filter(|b| b.detached).map(left).sum()
    }

    /// Whether another one of a call that waits may follow: there is room, and the peer has those that are
    /// here, or will read them.
    pub(crate) fn is_open(&self) -> bool {
        let goes = |b: &TxBlock<M>| b.finished || b.advert.is_out();
        let few = self.of_call().count() < MOST_OF_CALL && !(self.broken && self.has_call());
        self.has_room() && few && self.iter().all(goes)
    }

    /// Whether another detached one may follow.
    pub(crate) fn has_room(&self) -> bool {
        self.count < MOST_BLOCKS
    }

    /// Adds a call's block behind the others, with its first byte, behind so many copied bytes.
    ///
    /// # Errors
    ///
    /// The memory, unless they are [open](Self::is_open).
    pub(crate) fn push(&mut self, advert: Advert<M>, first: u8, at: u64) -> Result<(), M> {
        if !self.is_open() {
            return Err(advert.memory);
        }
        if !self.has_call() {
            (self.broken, self.voided) = (false, false);
        }
        self.add(advert, first, at, false)
    }

    /// Adds one that no call waits for.
    ///
    /// # Errors
    ///
    /// The memory, unless there is [room](Self::has_room).
    pub(crate) fn push_detached(&mut self, advert: Advert<M>, first: u8, at: u64) -> Result<(), M> {
        self.add(advert, first, at, true)
    }

    fn add(&mut self, advert: Advert<M>, first: u8, at: u64, detached: bool) -> Result<(), M> {
        let Some(place) = self.blocks.get_mut(self.count) else {
            return Err(advert.memory);
        };
        *place = Some(TxBlock {
            advert,
            first,
            at,
            finished: false,
            detached,
            posted: 0,
            in_messages: false,
            protected: false,
            wanted: None,
            stuck: false,
            away: false,
        });
        self.count += 1;
        Ok(())
    }

    fn remove(&mut self, at: usize) -> Option<TxBlock<M>> {
        let behind = self.blocks.get_mut(at..self.count)?;
        let block = behind.first_mut()?.take()?;
        behind.rotate_left(1);
        self.count -= 1;
        Some(block)
    }

    fn next_block(&mut self) -> Option<&mut TxBlock<M>> {
        self.iter_mut().find(|b| !b.is_passed())
    }

    /// Which block is next, and how many copied bytes lie before it.
    pub(crate) fn next(&self) -> Option<(Next<'_, M>, u64)> {
        let block = self.iter().find(|b| !b.is_passed())?;
        let (advert, size) = (&block.advert, block.advert.segment.size);
        let next = match (advert.state, block.rest()) {
            _ if block.away => Next::Ending(size - advert.done),
            (AdvertState::New, _) => Next::New {
                memory: &advert.memory,
                size,
            },
            (AdvertState::Queued, _) => Next::Advert(advert.segment),
            (_, Some(offset)) => Next::Rest {
                memory: &advert.memory,
                cookie: advert.cookie,
                offset,
                len: size - offset,
            },
            (_, None) => Next::Ending(size - advert.done),
        };
        Some((next, block.at))
    }

    /// The next block, a new one, is registered as this.
    pub(crate) fn registered(&mut self, segment: Block) {
        if let Some(block) = self.next_block() {
            block.advert.registered(segment);
        }
    }

    /// The next block is not to be advertised, which nobody has refused. If it is a call's, so are those
    /// that it has behind it.
    pub(crate) fn pass_over(&mut self) {
        match self.next_block() {
            Some(b) if b.detached && b.advert.is_unsent() => b.advert.finish(),
            Some(b) if !b.detached => {
                self.withdraw();
                self.voided = true;
            }
            _ => {}
        }
    }

    /// Its SrcAvail is posted, with so many bytes in it. Returns its first byte, if there was one.
    pub(crate) fn posted(&mut self, inline: u32) -> Option<u8> {
        let block = self.next_block().filter(|b| b.advert.queued().is_some())?;
        block.advert.posted();
        block.advert.moved(inline);
        Some(block.first)
    }

    /// So many bytes of the rest that is next were posted; as a `message`, or as WRITE.
    pub(crate) fn rest_posted(&mut self, bytes: u32, message: bool) {
        let block = self.next_block().and_then(|b| b.rest().map(|at| (b, at)));
        if let Some((block, at)) = block {
            block.in_messages |= message;
            block.posted = at.saturating_add(bytes).min(block.advert.segment.size);
        }
    }

    /// So many bytes of the rest of this one have gone.
    pub(crate) fn rest_gone(&mut self, cookie: u64, bytes: u32) {
        if let Some(b) = self.iter_mut().find(|b| b.advert.cookie == cookie) {
            let done = b.advert.done.saturating_add(bytes).min(b.posted);
            b.advert.moved(done);
        }
    }

    /// Whether the completion of bytes is waited for.
    pub(crate) fn is_sending(&self) -> bool {
        self.iter().any(|b| b.posted > b.advert.done)
    }

    fn oldest_posted(&mut self) -> Option<&mut TxBlock<M>> {
        self.iter_mut()
            .find(|b| b.advert.state == AdvertState::Posted)
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

    /// The peer gives all back that it has, and has `done` bytes of the oldest. Returns how many of these
    /// are new, if it has one.
    pub(crate) fn returned(&mut self, done: u32) -> Option<u32> {
        let new = self.oldest_posted().map(|b| b.advert.moved(done));
        // a call's that were to follow must not go before the rest of it; the others are in order
        let back = |b: &&mut TxBlock<M>| !b.detached || b.advert.state == AdvertState::Posted;
        self.iter_mut().filter(back).for_each(|b| b.advert.finish());
        new
    }

    /// The peer is not told of the call's blocks that it was not told of yet. Returns whether there were
    /// any.
    pub(crate) fn withdraw(&mut self) -> bool {
        let mut any = false;
        let unsent = |b: &&mut TxBlock<M>| !b.detached && b.advert.is_unsent();
        for block in self.iter_mut().filter(unsent) {
            block.advert.finish();
            any = true;
        }
        any
    }

    /// What of the detached the peer was not told of is not to wait for its reading: bytes behind are urgent.
    pub(crate) fn hurry(&mut self) {
        let unsent = |b: &&mut TxBlock<M>| b.detached && b.advert.is_unsent();
        for block in self.iter_mut().filter(unsent) {
            block.advert.finish();
        }
    }

    /// What comes back next is not refused: a reader of the peer waits with memory of its own.
    pub(crate) fn void(&mut self) {
        self.voided = true;
    }

    /// The call's oldest, and whether the peer has read it to the end.
    pub(crate) fn oldest(&self) -> Option<(&Advert<M>, bool)> {
        self.of_call().next().map(|b| (&b.advert, b.finished))
    }

    /// Takes the call's oldest out, if it is the call's again.
    pub(crate) fn take(&mut self) -> Option<Returned<M>> {
        let at = self.iter().position(|b| !b.detached)?;
        let back = self.iter().nth(at)?.advert.is_back();
        let block = back.then(|| self.remove(at)).flatten()?;
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

    /// Takes a detached block out that has gone, the oldest first.
    pub(crate) fn retire(&mut self) -> Option<Retired<M>> {
        let at = self.iter().position(|b| b.detached)?;
        let gone = self.iter().nth(at)?.has_gone();
        let block = gone.then(|| self.remove(at)).flatten()?;
        Some(Retired {
            memory: block.advert.memory,
            size: block.advert.segment.size,
            in_messages: block.in_messages,
        })
    }

    /// The connection is lost: the transport lets go of what is detached when it goes, and a call has to
    /// know.
    pub(crate) fn lost(&mut self) {
        for at in (0..self.count).rev() {
            if self.iter().nth(at).is_some_and(|b| b.detached) {
                drop(self.remove(at));
            }
        }
        for advert in self.adverts_mut() {
            advert.state = AdvertState::Lost;
        }
    }
}

#[path = "tx_blocks_collected.rs"]
mod collected;
#[path = "tx_blocks_protected.rs"]
mod protected;
#[cfg(test)]
#[path = "tx_blocks_tests.rs"]
mod tests;

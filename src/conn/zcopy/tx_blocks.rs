// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of the byte stream that are sent from program pages.
//!
//! Blocks are sent in the order of addition, each after the bytes that were queued before the
//! block. Usually the peer reads the blocks (SrcAvail, IBA Annex A4), several at a time. A peer
//! that refuses blocks returns all of them at once; the oldest may be partly read. Bytes that the
//! peer does not read are sent from the same pages, by RDMA WRITE to a waiting reader of the peer
//! or in messages. A block keeps its place in the stream: later bytes wait for it.
//!
//! A waiting **call** may recall its blocks: the unsent rest returns to the call, which copies it
//! behind all queued bytes. A **detached** block has no waiting call. [`TxBlocks::retire`] removes
//! sent detached blocks, and [`TxBlocks::take`] removes the blocks of a call.

use super::advert::{Advert, AdvertState};
use crate::protocol::Block;

pub(crate) const MOST_BLOCKS: usize = 8;

/// User of a block at the sender's end. Without a call, the block is *detached*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockUser {
    /// A call that waits until the block is sent.
    Call,
    /// A call that waits like `Call`, with a whole message: nothing returns to the call, but the
    /// block's bytes may be moved.
    Message,
    /// No task. The block is released when its bytes are sent, possibly with a notification.
    None,
    /// Tasks that may write to the write-protected block. The block's bytes may be moved.
    Writers,
}

#[derive(Debug)]
struct TxBlock<M> {
    advert: Advert<M>,
    /// First byte of the block, which the SrcAvail carries.
    first: u8,
    /// Position of the block among the copied bytes of the stream.
    at: u64,
    /// Set if the peer has read the block to its end.
    finished: bool,
    user: BlockUser,
    /// Set if the block's unsent rest returns to the call.
    recalled: bool,
    /// Number of bytes from the block's start that were posted as WRITE or message, or that the
    /// peer had read before.
    posted: u32,
    /// Number of bytes that were posted in messages.
    in_messages: u32,
    /// Time since which a task has waited to write to the block (jiffies).
    wanted: Option<usize>,
    /// Set if the block's bytes could not be moved for lack of memory.
    stuck: bool,
    /// Set while the block's bytes are being moved or collected, so that nothing is sent.
    away: bool,
}

impl<M> TxBlock<M> {
    fn is_detached(&self) -> bool {
        !matches!(self.user, BlockUser::Call | BlockUser::Message)
    }

    /// Returns the offset of the first byte that the peer will not read, if any.
    fn rest(&self) -> Option<u32> {
        let back = self.advert.state == AdvertState::Invalid && !self.away;
        let goes = !self.recalled && back && !self.finished;
        goes.then(|| self.posted.max(self.advert.done))
    }

    /// Returns true if bytes after this block may be sent.
    fn is_passed(&self) -> bool {
        match self.advert.state {
            _ if self.away => false,
            AdvertState::New | AdvertState::Queued => false,
            AdvertState::Posted | AdvertState::Lost => true,
            AdvertState::Done | AdvertState::Invalidating => self.finished || self.recalled,
            AdvertState::Invalid => self.rest().is_none_or(|at| at == self.advert.segment.size),
        }
    }

    fn is_sent(&self) -> bool {
        self.finished || self.advert.done == self.advert.segment.size
    }
}

/// Bytes of a block that the peer does not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rest<'a, M> {
    pub(crate) memory: &'a M,
    pub(crate) cookie: u64,
    /// Offset of the bytes in the block, and number of bytes.
    pub(crate) offset: u32,
    pub(crate) len: u32,
    /// Set if earlier bytes of the block were written to a reader: the rest is sent by WRITE only.
    pub(crate) written: bool,
}

/// Next step of sending the blocks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a, M> {
    /// A block that is not registered yet.
    New {
        memory: &'a M,
        /// Size of the block in bytes.
        size: u32,
    },
    Advert(Block),
    /// Rest of a block that the peer does not read.
    Rest(Rest<'a, M>),
    /// The peer's access is being invalidated, after which this number of bytes is sent.
    Ending(u32),
}

/// Blocks of a connection.
#[derive(Debug)]
pub(crate) struct TxBlocks<M> {
    /// Blocks in order, without gaps.
    blocks: [Option<TxBlock<M>>; MOST_BLOCKS],
    count: usize,
    /// Set while a call waits for its message, even after the block was moved.
    message_waits: bool,
}

impl<M> TxBlocks<M> {
    pub(crate) const fn new() -> Self {
        TxBlocks {
            blocks: [const { None }; MOST_BLOCKS],
            count: 0,
            message_waits: false,
        }
    }

    fn iter(&self) -> impl Iterator<Item = &TxBlock<M>> {
        self.blocks.iter().take(self.count).flatten()
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut TxBlock<M>> {
        self.blocks.iter_mut().take(self.count).flatten()
    }

    pub(crate) fn adverts(&self) -> impl Iterator<Item = &Advert<M>> {
        self.iter().map(|b| &b.advert)
    }

    pub(crate) fn adverts_mut(&mut self) -> impl Iterator<Item = &mut Advert<M>> {
        self.iter_mut().map(|b| &mut b.advert)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of unsent bytes of detached blocks.
    pub(crate) fn detached_bytes(&self) -> usize {
        let left = |b: &TxBlock<M>| b.advert.segment.size.saturating_sub(b.advert.done) as usize;
        self.iter().filter(|b| b.is_detached()).map(left).sum()
    }

    /// Returns true if a detached block can be added.
    pub(crate) fn has_space(&self) -> bool {
        self.count < MOST_BLOCKS
    }

    /// Adds a block after the others, at position `at` among the copied bytes. `first` is the
    /// block's first byte. Returns the memory if [`Self::has_space`] is false.
    pub(crate) fn push(
        &mut self,
        advert: Advert<M>,
        first: u8,
        at: u64,
        user: BlockUser,
    ) -> Result<(), M> {
        let Some(place) = self.blocks.get_mut(self.count) else {
            return Err(advert.memory);
        };
        *place = Some(TxBlock {
            advert,
            first,
            at,
            finished: false,
            user,
            recalled: false,
            posted: 0,
            in_messages: 0,
            wanted: None,
            stuck: false,
            away: false,
        });
        self.count = self.count.saturating_add(1);
        self.message_waits |= user == BlockUser::Message;
        Ok(())
    }

    /// Queues a detached block whose bytes are still being [added](Self::grow). Later bytes are not
    /// sent before [`TxBlocks::moved`]. Returns the memory if [`TxBlocks::has_space`] is false.
    pub(crate) fn push_open(&mut self, advert: Advert<M>, first: u8, at: u64) -> Result<(), M> {
        self.push(advert, first, at, BlockUser::None)?;
        if let Some(block) = self.iter_mut().last() {
            block.away = true;
        }
        Ok(())
    }

    /// Returns the block with this cookie, if its bytes are still being collected.
    fn open(&mut self, cookie: u64) -> Option<&mut TxBlock<M>> {
        let mut away = self.iter_mut().filter(|b| b.away);
        away.find(|b| b.advert.cookie == cookie)
    }

    /// Returns true if the block with this cookie is queued and still being collected.
    pub(crate) fn has_open(&mut self, cookie: u64) -> bool {
        self.open(cookie).is_some()
    }

    /// Adds a number of bytes to a block that is being collected.
    pub(crate) fn grow(&mut self, cookie: u64, bytes: u32) {
        if let Some(block) = self.open(cookie) {
            let segment = &mut block.advert.segment;
            segment.size = segment.size.saturating_add(bytes);
        }
    }

    /// Marks a block that is being collected as not to be advertised.
    pub(crate) fn hide(&mut self, cookie: u64) {
        if let Some(block) = self.open(cookie) {
            block.advert.finish();
        }
    }

    fn remove(&mut self, at: usize) -> Option<TxBlock<M>> {
        let behind = self.blocks.get_mut(at..self.count)?;
        let block = behind.first_mut()?.take()?;
        behind.rotate_left(1);
        self.count = self.count.saturating_sub(1);
        Some(block)
    }

    fn next_block(&mut self) -> Option<&mut TxBlock<M>> {
        self.iter_mut().find(|b| !b.is_passed())
    }

    /// Returns the next step, and the position of its block among the copied bytes.
    pub(crate) fn next(&self) -> Option<(Next<'_, M>, u64)> {
        let block = self.iter().find(|b| !b.is_passed())?;
        let (advert, size) = (&block.advert, block.advert.segment.size);
        let next = match (advert.state, block.rest()) {
            _ if block.away => Next::Ending(size.saturating_sub(advert.done)),
            (AdvertState::New, _) => Next::New {
                memory: &advert.memory,
                size,
            },
            (AdvertState::Queued, _) => Next::Advert(advert.segment),
            (_, Some(offset)) => Next::Rest(Rest {
                memory: &advert.memory,
                cookie: advert.cookie,
                offset,
                len: size.saturating_sub(offset),
                written: block.user == BlockUser::Call
                    && block.posted > 0
                    && block.in_messages == 0,
            }),
            (_, None) => Next::Ending(size.saturating_sub(advert.done)),
        };
        Some((next, block.at))
    }

    pub(crate) fn registered(&mut self, segment: Block) {
        if let Some(block) = self.next_block() {
            block.advert.registered(segment);
        }
    }

    /// Skips the advert of the next block.
    pub(crate) fn pass_over(&mut self) {
        if let Some(b) = self.next_block().filter(|b| b.advert.is_unsent()) {
            b.advert.finish();
        }
    }

    /// Records that the SrcAvail of the next block was posted with `inline` bytes of the block.
    /// Returns the block's first byte, if a block was queued.
    pub(crate) fn posted(&mut self, inline: u32) -> Option<u8> {
        let block = self.next_block().filter(|b| b.advert.queued().is_some())?;
        block.advert.posted();
        block.advert.moved(inline);
        Some(block.first)
    }

    /// Records posted bytes of the next rest, as a `message` or as WRITE. Returns true if the last
    /// byte of the block is posted.
    pub(crate) fn rest_posted(&mut self, bytes: u32, message: bool) -> bool {
        let block = self.next_block().and_then(|b| b.rest().map(|at| (b, at)));
        let Some((block, at)) = block else {
            return true;
        };
        block.posted = at.saturating_add(bytes).min(block.advert.segment.size);
        if message {
            block.in_messages = block.in_messages.saturating_add(bytes);
        }
        block.posted == block.advert.segment.size
    }

    /// Records completed bytes of the rest of a block.
    pub(crate) fn rest_gone(&mut self, cookie: u64, bytes: u32) {
        if let Some(b) = self.iter_mut().find(|b| b.advert.cookie == cookie) {
            let done = b.advert.done.saturating_add(bytes).min(b.posted);
            b.advert.moved(done);
        }
    }

    /// Returns true if posted bytes are not completed.
    pub(crate) fn is_sending(&self) -> bool {
        self.iter().any(|b| b.posted > b.advert.done)
    }

    fn oldest_posted(&mut self) -> Option<&mut TxBlock<M>> {
        self.iter_mut()
            .find(|b| b.advert.state == AdvertState::Posted)
    }

    /// Returns true if the peer has an advert of any block.
    pub(crate) fn any_posted(&mut self) -> bool {
        self.oldest_posted().is_some()
    }

    /// Handles a report that the peer has read `bytes` more of the oldest posted block, to its end
    /// if `finished`. Returns false if no block is posted.
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

    /// Handles the return of all posted blocks. The peer has `done` bytes of the oldest block.
    /// Returns the number of newly reported bytes, or `None` if no block is posted.
    pub(crate) fn returned(&mut self, done: u32) -> Option<u32> {
        let new = self.oldest_posted().map(|b| b.advert.moved(done));
        let back = |b: &&mut TxBlock<M>| b.advert.state == AdvertState::Posted;
        self.iter_mut().filter(back).for_each(|b| b.advert.finish());
        new
    }

    /// Cancels unsent adverts of detached blocks, because bytes behind these blocks are urgent.
    pub(crate) fn expedite(&mut self) {
        let unsent = |b: &&mut TxBlock<M>| b.is_detached() && b.advert.is_unsent();
        for block in self.iter_mut().filter(unsent) {
            block.advert.finish();
        }
    }

    /// Handles the loss of the connection. Waiting calls see the loss; the destruction of the
    /// transport releases detached blocks.
    pub(crate) fn lost(&mut self) {
        for at in (0..self.count).rev() {
            if self.iter().nth(at).is_some_and(TxBlock::is_detached) {
                drop(self.remove(at));
            }
        }
        self.recall();
        self.adverts_mut().for_each(|a| a.state = AdvertState::Lost);
    }
}

#[path = "tx_blocks_call.rs"]
pub(crate) mod call;
#[cfg(test)]
#[path = "tx_blocks_model_tests.rs"]
mod model_tests;
#[cfg(test)]
#[path = "tx_blocks_tests.rs"]
mod tests;

// SPDX-License-Identifier: GPL-2.0-only

//! Tasks that wait for blocks, and the removal of sent blocks.
//!
//! A call waits until its blocks are sent. A thread that writes to a write-protected block waits,
//! too. The bytes of a block with a waiting thread are moved as soon as nothing accesses the
//! block's memory.

use super::super::advert::AdvertState;
use super::{BlockUser, TxBlock, TxBlocks};

/// Maximum number of blocks of one call.
const MOST_OF_CALL: usize = 4;

/// Event that a call waits for on its oldest block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// The peer reads or returns the block, or advertises space.
    Peer,
    /// Completion of WRITEs in flight, which does not depend on the peer's program.
    Write,
    /// No event, since the block is back, or the connection was `lost`.
    Nothing { lost: bool },
}

/// A block that is sent, or that returns to its call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Returned<M> {
    pub(crate) memory: M,
    /// Size of the block in bytes.
    pub(crate) size: u32,
    /// Number of bytes from the block's start that the peer has.
    pub(crate) done: u32,
    /// Number of bytes that were sent in messages.
    pub(crate) in_messages: u32,
    /// Set if the peer has not read the block in time, or only partly.
    pub(crate) refused: bool,
    /// Set if a part of the block was written to a reader of the peer.
    pub(crate) written: bool,
}

impl<M> TxBlock<M> {
    /// Returns true if a call may queue another block after this block: the peer has the block or
    /// will read it, or the rest is being written.
    fn goes(&self) -> bool {
        let sends = self.is_passed() || self.advert.is_out() || self.posted > 0;
        sends && !self.recalled
    }

    /// Returns the event that the block's call waits for.
    fn awaits(&self) -> Awaits {
        match self.advert.state {
            AdvertState::Lost => Awaits::Nothing { lost: true },
            AdvertState::Invalid if self.posted > self.advert.done => Awaits::Write,
            AdvertState::Invalid if self.recalled || self.is_sent() => {
                Awaits::Nothing { lost: false }
            }
            _ => Awaits::Peer,
        }
    }

    /// Returns true if a thread waits to write to the block and its unsent bytes can be moved.
    fn may_move(&self) -> bool {
        let unused = match self.advert.state {
            AdvertState::New => true,
            AdvertState::Invalid => self.rest().is_some() && self.posted <= self.advert.done,
            _ => false,
        };
        let wanted = self.wanted.is_some() && !self.away && !self.stuck;
        wanted && unused && self.advert.done < self.advert.segment.size
    }
}

impl<M> TxBlocks<M> {
    pub(super) fn of_call(&self) -> impl Iterator<Item = &TxBlock<M>> {
        self.iter().filter(|b| !b.is_detached())
    }

    /// Returns true if a call has blocks, or waits for its message.
    pub(crate) fn has_call(&self) -> bool {
        self.message_waits || self.of_call().next().is_some()
    }

    /// Records that the call of a message has returned from its wait.
    pub(crate) fn message_returned(&mut self) {
        self.message_waits = false;
    }

    /// Returns true if another block of a waiting call may follow. The queue must have space, and
    /// the peer must have the queued blocks or be about to read them.
    pub(crate) fn is_open(&self) -> bool {
        let few = self.of_call().count() < MOST_OF_CALL;
        self.has_space() && few && self.iter().all(TxBlock::goes)
    }

    /// Returns true if the next block to send belongs to a call.
    pub(crate) fn is_next_of_call(&self) -> bool {
        let next = self.iter().find(|b| !b.is_passed());
        next.is_some_and(|b| !b.is_detached())
    }

    /// Returns the number of bytes of the call that are neither posted nor advertised.
    pub(crate) fn unposted(&self) -> u32 {
        let left = |b: &TxBlock<M>| match b.is_passed() {
            true => 0,
            false => b.advert.segment.size.saturating_sub(b.posted),
        };
        let all = self.of_call().map(left);
        all.fold(0, u32::saturating_add)
    }

    /// Recalls the call's blocks: adverts that are not sent are cancelled, and the unsent rest
    /// returns, except that of a message.
    pub(crate) fn recall(&mut self) {
        for block in self.iter_mut().filter(|b| !b.is_detached()) {
            if block.advert.is_unsent() {
                block.advert.finish();
            }
            block.recalled = block.user == BlockUser::Call;
        }
    }

    /// Returns the event that the call waits for, and true if its oldest block is completely read.
    pub(crate) fn oldest(&self) -> Option<(Awaits, bool)> {
        self.of_call().next().map(|b| (b.awaits(), b.finished))
    }

    /// Removes the call's oldest block, if returned. `whole` is true if all bytes before were sent.
    pub(crate) fn take(&mut self, whole: bool) -> Option<Returned<M>> {
        let at = self.iter().position(|b| !b.is_detached())?;
        self.take_at(at, whole)
    }

    /// Removes the oldest detached block, if all its bytes are sent.
    pub(crate) fn retire(&mut self) -> Option<Returned<M>> {
        let at = self.iter().position(TxBlock::is_detached)?;
        self.take_at(at, true)
    }

    fn take_at(&mut self, at: usize, whole: bool) -> Option<Returned<M>> {
        let back = matches!(self.iter().nth(at)?.awaits(), Awaits::Nothing { .. });
        let block = back.then(|| self.remove(at)).flatten()?;
        let unread = !block.is_sent() && block.posted == 0;
        Some(Returned {
            size: block.advert.segment.size,
            done: if whole { block.advert.done } else { 0 },
            refused: whole && (unread || block.in_messages > 0),
            in_messages: block.in_messages,
            written: block.posted > 0 && block.in_messages == 0,
            memory: block.advert.memory,
        })
    }

    /// Records that a thread waits since `now` to write to protected blocks, or for the end of a
    /// message's call. Returns true if the queue has movable blocks.
    pub(crate) fn want(&mut self, now: usize) -> bool {
        let mut any = false;
        let movable =
            |b: &&mut TxBlock<M>| matches!(b.user, BlockUser::Writers | BlockUser::Message);
        for block in self.iter_mut().filter(movable) {
            block.wanted.get_or_insert(now);
            any = true;
        }
        any
    }

    /// Returns the longest time for which a thread has waited to write to a protected block.
    pub(crate) fn longest_wait(&self, now: usize) -> Option<usize> {
        let since = self.iter().filter_map(|b| b.wanted);
        since.map(|since| now.wrapping_sub(since)).max()
    }

    /// Returns true if the bytes of any block can be moved for a waiting thread.
    pub(crate) fn any_to_move(&self) -> bool {
        self.iter().any(TxBlock::may_move)
    }

    /// Returns the cookie and memory of a block to move. The caller later calls
    /// [`TxBlocks::moved`].
    pub(crate) fn take_to_move(&mut self) -> Option<(u64, M)>
    where
        M: Clone,
    {
        let block = self.iter_mut().find(|b| b.may_move())?;
        block.away = true;
        Some((block.advert.cookie, block.advert.memory.clone()))
    }

    /// Records the memory of a moved block: a copy, or the same memory if the copy failed for lack
    /// of memory. Sending continues from the recorded memory. [`TxBlocks::retry`] repeats a failed
    /// copy.
    ///
    /// # Errors
    ///
    /// Returns the memory if the connection was lost during the move.
    pub(crate) fn moved(&mut self, cookie: u64, memory: M, copied: bool) -> Result<(), M> {
        let Some(block) = self.open(cookie) else {
            return Err(memory);
        };
        block.advert.memory = memory;
        (block.away, block.stuck) = (false, !copied);
        if copied {
            (block.user, block.wanted) = (BlockUser::None, None);
        }
        Ok(())
    }

    /// Retries moves that failed for lack of memory.
    pub(crate) fn retry(&mut self) {
        self.iter_mut().for_each(|b| b.stuck = false);
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of write-protected memory. A thread that writes to a block waits. The bytes of a block
//! with a waiting thread are moved as soon as nothing accesses the block's memory.

use super::{AdvertState, BlockUser, TxBlock, TxBlocks};

impl<M> TxBlock<M> {
    fn is_movable(&self) -> bool {
        matches!(self.user, BlockUser::Writers | BlockUser::Message)
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
    /// Records that a thread waits since `now` to write to protected blocks, or for the end of a
    /// message's call. Returns true if the queue has movable blocks.
    pub(crate) fn want(&mut self, now: usize) -> bool {
        let mut any = false;
        for block in self.iter_mut().filter(|b| b.is_movable()) {
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

#[cfg(test)]
#[path = "tx_blocks_protected_tests.rs"]
mod tests;

// SPDX-License-Identifier: GPL-2.0-only

//! Blocks queued in the stream while their bytes are still being collected.

use super::{Advert, BlockUser, TxBlock, TxBlocks};

impl<M> TxBlocks<M> {
    /// Queues a detached block whose bytes are still being [added](Self::grow). Later bytes are not
    /// sent until [`TxBlocks::moved`].
    ///
    /// # Errors
    ///
    /// Returns the memory if [`TxBlocks::has_space`] is false.
    pub(crate) fn push_open(&mut self, advert: Advert<M>, first: u8, at: u64) -> Result<(), M> {
        self.push(advert, first, at, BlockUser::None)?;
        if let Some(block) = self.iter_mut().last() {
            block.away = true;
        }
        Ok(())
    }

    /// Returns the block with this cookie, if its bytes are still being collected.
    pub(super) fn open(&mut self, cookie: u64) -> Option<&mut TxBlock<M>> {
        let mut away = self.iter_mut().filter(|b| b.away);
        away.find(|b| b.advert.cookie == cookie)
    }

    /// Returns true if the open block is still queued.
    pub(crate) fn has_open(&mut self, cookie: u64) -> bool {
        self.open(cookie).is_some()
    }

    /// Adds `bytes` to the block.
    pub(crate) fn grow(&mut self, cookie: u64, bytes: u32) {
        if let Some(block) = self.open(cookie) {
            let segment = &mut block.advert.segment;
            segment.size = segment.size.saturating_add(bytes);
        }
    }

    /// Marks the block as not to be advertised.
    pub(crate) fn hide(&mut self, cookie: u64) {
        if let Some(block) = self.open(cookie) {
            block.advert.finish();
        }
    }
}

#[cfg(test)]
#[path = "tx_blocks_collected_tests.rs"]
mod tests;

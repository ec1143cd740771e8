// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of program memory that one end has passed to its transport.

use crate::memory::pinned::Pinned;
use crate::sys::pin::Pages;
use crate::sys::random::random_below;
use crate::sys::vec::filled;
use crate::transport::{Access, BlockId, BlockSpan, Key, Transfer};
use kernel::prelude::*;
use kernel::sync::Arc;

/// Maximum number of blocks.
const BLOCKS: usize = 16;

/// Block that the transport owns.
struct BlockEntry {
    block: BlockId,
    memory: Pinned,
    /// Transfers and messages of this end in flight.
    users: u16,
    /// Key and access of the peer.
    key: Option<(Key, Access)>,
    /// Segments that are being copied for the peer.
    accesses: u16,
    /// Set once the end of the peer's access is posted.
    ending: bool,
}

/// Segment of a block that is being copied for the peer.
pub(super) struct Accessed {
    block: BlockId,
    pub(super) pages: Arc<Pages>,
    /// Offset in `pages`.
    pub(super) at: usize,
}

/// Blocks of an end. Allocated for the first block: most connections have none.
pub(super) struct BlockList {
    entries: KVec<Option<BlockEntry>>,
    next: u32,
}

impl BlockList {
    pub(super) const fn new() -> Self {
        BlockList {
            entries: KVec::new(),
            next: 0,
        }
    }

    fn prepare(&mut self) -> Result {
        if self.entries.is_empty() {
            self.entries = filled(BLOCKS, GFP_ATOMIC, || None)?;
        }
        Ok(())
    }

    fn find(&mut self, block: BlockId) -> Result<&mut BlockEntry> {
        self.entries
            .get_mut(block.index())
            .and_then(Option::as_mut)
            .filter(|l| l.block == block)
            .ok_or(ENOENT)
    }

    /// Takes over pinned memory as a block.
    ///
    /// # Errors
    ///
    /// Returns the memory if it is pinned for a device or empty, if there are [`BLOCKS`] blocks, or
    /// out of memory.
    pub(super) fn post_block(&mut self, memory: Pinned) -> Result<BlockId, Pinned> {
        let fits = memory.len() != 0 && memory.shared().is_some();
        if !fits || self.prepare().is_err() {
            return Err(memory);
        }
        let free = self.entries.iter().position(Option::is_none);
        let Some((index, place)) = free.and_then(|i| Some((i, self.entries.get_mut(i)?))) else {
            return Err(memory);
        };
        let block = BlockId::new(index as u8, self.next);
        self.next = self.next.wrapping_add(1);
        *place = Some(BlockEntry {
            block,
            memory,
            users: 0,
            key: None,
            accesses: 0,
            ending: false,
        });
        Ok(block)
    }

    /// Returns the memory of a block that nothing accesses. `EBUSY`: it is in use.
    pub(super) fn take_back(&mut self, block: BlockId) -> Result<Pinned> {
        let entry = self.find(block)?;
        if entry.users != 0 || entry.key.is_some() {
            return Err(EBUSY);
        }
        let entry = self.entries.get_mut(block.index()).and_then(Option::take);
        Ok(entry.ok_or(ENOENT)?.memory)
    }

    /// Grants the peer access and returns the key.
    pub(super) fn register(&mut self, block: BlockId, access: Access) -> Result<Key> {
        // 2^31 addresses with 2^31 bytes each; memory uses the first few.
        let address = u64::from(random_below(1 << 31).saturating_add(1)) << 31;
        let entry = self.find(block)?;
        if entry.key.is_some() || entry.users != 0 {
            return Err(EBUSY);
        }
        let pages = entry.memory.shared().ok_or(EINVAL)?;
        if access == Access::Write && !pages.writable() {
            return Err(EINVAL);
        }
        let key = Key {
            rkey: random_below(u32::MAX),
            address: address.saturating_add(pages.offset().into()),
            len: u32::try_from(pages.len())?,
        };
        entry.key = Some((key, access));
        Ok(key)
    }

    /// Marks the end of the peer's access as posted.
    pub(super) fn stop_access(&mut self, block: BlockId) -> Result {
        let entry = self.find(block)?;
        if entry.key.is_none() {
            return Err(EINVAL);
        }
        match core::mem::replace(&mut entry.ending, true) {
            true => Err(crate::sys::errno::EALREADY.into()),
            false => Ok(()),
        }
    }

    /// Ends the peer's access.
    pub(super) fn access_ended(&mut self, block: BlockId) {
        if let Ok(entry) = self.find(block) {
            (entry.key, entry.ending) = (None, false);
        }
    }

    /// Counts a message as a user of the block.
    pub(super) fn begin_message(&mut self, part: &BlockSpan) -> Result {
        self.begin_part(part.block, part.offset, part.len, false)
    }

    /// Counts a transfer as a user of the block.
    ///
    /// # Errors
    ///
    /// `EBUSY`: the peer has access. `EINVAL`: empty, beyond the block, or not writable. `ENOENT`:
    /// no such block.
    pub(super) fn begin(&mut self, block: BlockId, t: &Transfer) -> Result {
        self.begin_part(block, t.offset, t.len, t.read)
    }

    fn begin_part(&mut self, block: BlockId, offset: u32, len: u32, written: bool) -> Result {
        let entry = self.find(block)?;
        let pages = entry.memory.shared().ok_or(EINVAL)?;
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if len == 0 || end as usize > pages.len() || (written && !pages.writable()) {
            return Err(EINVAL);
        }
        if entry.key.is_some() {
            return Err(EBUSY);
        }
        entry.users = entry.users.checked_add(1).ok_or(EBUSY)?;
        Ok(())
    }

    /// Ends the use by a transfer or message.
    pub(super) fn over(&mut self, block: BlockId) {
        if let Ok(entry) = self.find(block) {
            entry.users = entry.users.saturating_sub(1);
        }
    }

    pub(super) fn pages(&mut self, block: BlockId) -> Result<Arc<Pages>> {
        self.find(block)?.memory.shared().cloned().ok_or(ENOENT)
    }

    /// Begins a segment of the peer's transfer at its byte `begun`. `EACCES`: the key does not
    /// allow it.
    pub(super) fn begin_access(&mut self, t: &Transfer, begun: u32) -> Result<Accessed> {
        let wanted = match t.read {
            true => Access::Read,
            false => Access::Write,
        };
        let is_meant = |(key, access): (Key, Access)| key.rkey == t.rkey && access == wanted;
        let mut entry = self.entries.iter_mut().flatten();
        let entry = entry.find(|l| l.key.is_some_and(is_meant));
        let entry = entry.ok_or(EACCES)?;
        let (key, _) = entry.key.ok_or(EACCES)?;
        let at = t.address.checked_sub(key.address).ok_or(EACCES)?;
        let end = at.checked_add(u64::from(t.len)).ok_or(EACCES)?;
        if end > u64::from(key.len) {
            return Err(EACCES);
        }
        let pages = entry.memory.shared().cloned().ok_or(EACCES)?;
        let at = usize::try_from(at)?.checked_add(begun as usize);
        let at = at.ok_or(EACCES)?;
        entry.accesses = entry.accesses.checked_add(1).ok_or(EBUSY)?;
        Ok(Accessed {
            block: entry.block,
            pages,
            at,
        })
    }

    /// Ends a segment.
    pub(super) fn end_access(&mut self, a: &Accessed) {
        if let Ok(entry) = self.find(a.block) {
            entry.accesses = entry.accesses.saturating_sub(1);
        }
    }

    /// Returns true if a segment of the block is being copied for the peer.
    pub(super) fn is_accessed(&mut self, block: BlockId) -> bool {
        self.find(block).is_ok_and(|l| l.accesses > 0)
    }

    /// Releases all blocks. Returns true if there were any. Context: process.
    pub(super) fn destroy(&mut self) -> bool {
        let mut any = false;
        for entry in self.entries.iter_mut().filter_map(Option::take) {
            entry.memory.destroy();
            any = true;
        }
        any
    }
}

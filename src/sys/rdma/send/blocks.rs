// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of program memory posted to a send queue, for work requests or for access by the peer.
//!
//! The queue owns a block until neither the device nor the peer can access the block. The following
//! events end the accesses:
//!
//! * READs and WRITEs of this end: their completions with any status;
//! * accesses of the peer: a successful IB_WR_LOCAL_INV (a flushed request was not executed);
//! * all accesses: the destruction of the QP, which is the only QP in its PD.
//!
//! On rxe, IB_WR_LOCAL_INV is not a barrier. The module invalidates the region while the peer's
//! last accepted packet may still be copied, 4 KiB at most. A peer that follows the protocol has no
//! packets in flight when it reports the end of its access, because requests on one QP are executed
//! in order. For any other peer, the copy of the last packet is a race of a few microseconds that
//! rxe leaves open; hardware does not.

use super::super::super::bindings as c;
use super::super::block::OwnedBlock;
use super::super::mr::{Key, SgMapping};
use super::super::queues::GATHER;
use crate::sys::vec::filled;
use kernel::alloc;
use kernel::dma::DataDirection as Direction;
use kernel::prelude::*;

/// Maximum number of blocks at a time.
const BLOCKS: usize = 16;
/// Maximum number of SGEs in a request with a block.
pub(super) const MAX_LIST: usize = GATHER as usize;
/// Maximum number of requests with the most SGEs that can be queued before posting.
const LISTS: usize = 4;

/// Identifies a block of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockId {
    index: u8,
    /// Distinguishes the block from earlier and later blocks with the same index.
    number: u32,
}

impl BlockId {
    /// Identifies no block.
    pub(crate) const NONE: Self = BlockId {
        index: u8::MAX,
        number: 0,
    };
}

/// An RDMA READ or WRITE.
#[derive(Clone, Copy)]
pub(crate) struct Transfer {
    /// True: READ from the peer into the block. False: WRITE.
    pub(crate) read: bool,
    /// Offset of the segment in the block.
    pub(crate) offset: u32,
    /// Maximum number of bytes.
    pub(crate) len: u32,
    /// Address in the peer's memory.
    pub(crate) address: u64,
    /// Key of the peer's memory.
    pub(crate) rkey: u32,
    /// Cookie that the completion returns.
    pub(crate) cookie: u64,
}

/// Part of a block.
#[derive(Clone, Copy)]
pub(crate) struct BlockSpan {
    pub(crate) block: BlockId,
    pub(crate) offset: u32,
    /// Number of bytes.
    pub(crate) len: u32,
}

/// One block. Owned by the queue, so that memory is not released while a device may access it.
pub(super) struct BlockEntry<T: Send + 'static> {
    number: u32,
    block: OwnedBlock<T>,
    /// Number of incomplete work requests.
    users: u16,
    /// Set when IB_WR_LOCAL_INV is queued.
    pub(super) ending: bool,
    /// Set if the key is for READs of this end, until the release. iWARP has one key for both ends.
    pub(super) is_sink: bool,
}

impl<T: Send + 'static> BlockEntry<T> {
    pub(super) fn sg(&mut self) -> Result<&mut SgMapping> {
        self.block.sg_mut().ok_or(EINVAL)
    }

    /// Returns the mapping and its key for READs of this end, if a work request may use the memory
    /// in this direction.
    pub(super) fn usable(&mut self, direction: Direction) -> Result<(&SgMapping, Option<Key>)> {
        let is_sink = self.is_sink;
        let sg = self.sg()?;
        match sg.key() {
            Some(_) if !is_sink => Err(EBUSY),
            key if sg.is_mapped(direction) => Ok((sg, key)),
            _ => Err(EINVAL),
        }
    }
}

/// Blocks of a queue, and SGE lists for work requests. Allocated for the first block: most
/// connections have no blocks.
pub(in super::super) struct BlockTable<T: Send + 'static> {
    entries: KVec<Option<BlockEntry<T>>>,
    next: u32,
    /// SGEs of queued requests: the first `used`.
    sges: KVec<c::ib_sge>,
    used: usize,
    /// Number of READs in flight.
    pub(super) reads: u16,
}

impl<T: Send + 'static> BlockTable<T> {
    pub(in super::super) const fn new() -> Self {
        BlockTable {
            entries: KVec::new(),
            next: 0,
            sges: KVec::new(),
            used: 0,
            reads: 0,
        }
    }

    /// Allocates the tables if they are missing. Does not sleep.
    fn prepare(&mut self) -> Result {
        if self.entries.is_empty() {
            let charged = alloc::flags::GFP_KERNEL_ACCOUNT & !GFP_KERNEL;
            let flags = GFP_ATOMIC | charged;
            let n = MAX_LIST.saturating_mul(LISTS);
            self.sges = filled(n, flags, c::ib_sge::default)?;
            self.entries = filled(BLOCKS, flags, || None)?;
        }
        Ok(())
    }

    pub(super) fn find(&mut self, block: BlockId) -> Result<&mut BlockEntry<T>> {
        self.entries
            .get_mut(usize::from(block.index))
            .and_then(Option::as_mut)
            .filter(|l| l.number == block.number)
            .ok_or(ENOENT)
    }

    /// Records that a work request with the block is queued.
    pub(super) fn begin_use(&mut self, block: BlockId, is_read: bool) {
        if let Ok(entry) = self.find(block) {
            entry.users = entry.users.saturating_add(1);
        }
        self.reads = self.reads.saturating_add(is_read.into());
    }

    /// Records the completion of a work request with the block, which has ended the peer's access
    /// if `invalidated`.
    pub(super) fn end_use(&mut self, block: BlockId, is_read: bool, invalidated: bool) {
        self.reads = self.reads.saturating_sub(is_read.into());
        let Ok(entry) = self.find(block) else { return };
        entry.users = entry.users.saturating_sub(1);
        if invalidated {
            entry.ending = false;
            if let Ok(sg) = entry.sg() {
                sg.invalidated();
            }
        }
    }

    /// Copies the SGEs of a queued request to the place where they stay until the request is
    /// posted. `None`: no space; the caller must post the queued requests first.
    pub(super) fn keep_list(&mut self, list: &[c::ib_sge]) -> Option<*mut c::ib_sge> {
        let end = self.used.saturating_add(list.len());
        let place = self.sges.get_mut(self.used..end)?;
        place.copy_from_slice(list);
        self.used = end;
        Some(place.as_mut_ptr())
    }

    /// Marks all SGEs as free: no queued work request uses any SGE.
    pub(super) fn lists_are_free(&mut self) {
        self.used = 0;
    }

    /// Returns true if blocks are posted.
    pub(in super::super) fn is_in_use(&self) -> bool {
        self.entries.iter().any(Option::is_some)
    }

    /// Takes over a block.
    ///
    /// # Errors
    ///
    /// Returns the block if too many blocks are posted, or if the tables cannot be allocated.
    pub(super) fn add(&mut self, block: OwnedBlock<T>) -> Result<BlockId, OwnedBlock<T>> {
        if self.prepare().is_err() {
            return Err(block);
        }
        let free = self.entries.iter().position(Option::is_none);
        let Some((index, place)) = free.and_then(|i| Some((i, self.entries.get_mut(i)?))) else {
            return Err(block);
        };
        let number = self.next;
        self.next = number.wrapping_add(1);
        *place = Some(BlockEntry {
            number,
            block,
            users: 0,
            ending: false,
            is_sink: false,
        });
        Ok(BlockId {
            index: index as u8,
            number,
        })
    }

    /// Returns a block that nothing can access any more.
    ///
    /// # Errors
    ///
    /// `EBUSY`: the device or the peer can access the block. `ENOENT`: the block does not exist.
    pub(in super::super) fn take_back(&mut self, block: BlockId) -> Result<OwnedBlock<T>> {
        let entry = self.find(block)?;
        if entry.users != 0 || !entry.is_sink && entry.sg()?.is_registered() {
            return Err(EBUSY);
        }
        let place = self.entries.get_mut(usize::from(block.index));
        Ok(place.and_then(Option::take).ok_or(ENOENT)?.block)
    }

    /// Drops all blocks. The caller has destroyed the QP. Context: process.
    pub(super) fn destroy(&mut self) {
        for entry in self.entries.iter_mut().filter_map(Option::take) {
            entry.block.drop_now();
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Memory for access by a device and the CPU.
//!
//! A [`Block`] is kernel memory whose DMA addresses are contiguous, too. Only a [`Memory`] lets the
//! CPU read and write a block; other holders ([`Memory::block`]), such as a message in flight, only
//! keep the block allocated.

use super::bindings as c;
use core::ptr::NonNull;
use kernel::alloc::Flags;
use kernel::ffi::c_void;
use kernel::prelude::*;
use kernel::sync::Arc;

pub(crate) const MAX_BLOCK: usize = 1 << 20;
pub(crate) const MIN_BLOCK: usize = 512;

/// Returns the bytes of all blocks, without up to 64 KiB for each processor.
pub(crate) fn about_in_use() -> usize {
    // SAFETY: The counter exists while the module runs.
    unsafe { c::percpu_counter_read_positive(&raw mut c::sdp_h_block_bytes) as usize }
}

/// Returns the exact number of bytes of all blocks, by summing each processor's share.
pub(crate) fn in_use() -> usize {
    // SAFETY: The counter exists while the module runs.
    unsafe { c::percpu_counter_sum_positive(&raw mut c::sdp_h_block_bytes) as usize }
}

/// Contiguous kernel memory.
///
/// # Invariants
///
/// `start` points to `size` initialised bytes that `sdp_h_block_alloc` returned for `size`, freed
/// only by [`Drop`].
pub(crate) struct Block {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: A block owns plain memory and is not tied to a thread.
unsafe impl Send for Block {}
// SAFETY: A `&Block` gives no access to the bytes.
unsafe impl Sync for Block {}

impl Block {
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns `n` bytes from `offset` on.
    ///
    /// # Safety
    ///
    /// The holder of the [`Memory`] guarantees that nobody writes to the bytes during the borrow.
    pub(in crate::sys) unsafe fn part(&self, offset: usize, n: usize) -> &[u8] {
        let n = n.min(self.size.saturating_sub(offset));
        let offset = offset.min(self.size);
        // SAFETY: By the invariants the bytes are initialised; the caller prevents writes.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr().add(offset), n) }
    }

    /// Returns all bytes from `offset` on, for writing.
    ///
    /// # Safety
    ///
    /// The holder of the [`Memory`] prevents other accesses to the bytes during the borrow.
    #[expect(
        clippy::mut_from_ref,
        reason = "the caller has exclusive access to these bytes"
    )]
    pub(in crate::sys) unsafe fn part_mut(&self, offset: usize) -> &mut [u8] {
        let offset = offset.min(self.size);
        let n = self.size.saturating_sub(offset);
        // SAFETY: By the invariants the bytes are initialised; the caller has exclusive access.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr().add(offset), n) }
    }

    /// Returns true while another user may read the block's pages that were passed to a pipe. The
    /// block must consist of whole pages.
    pub(crate) fn is_shared(&self) -> bool {
        // SAFETY: By the invariants the block is allocated.
        unsafe { c::sdp_h_block_is_shared(self.start.as_ptr().cast()) }
    }

    /// Returns the start address. Only the holder of the [`Memory`] may access the memory.
    pub(in crate::sys) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: By the invariants the block was allocated with `size` and not freed yet.
        unsafe { c::sdp_h_block_free(self.start.as_ptr().cast::<c_void>(), self.size) }
    }
}

/// Exclusive access to the bytes of a block.
///
/// # Invariants
///
/// A block has at most one `Memory`.
pub(crate) struct Memory {
    block: Arc<Block>,
}

impl Memory {
    /// Allocates `size` bytes, a power of two from [`MIN_BLOCK`] to [`MAX_BLOCK`], all zero.
    ///
    /// May sleep unless `gfp` is `GFP_ATOMIC`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `size` is not supported. `ENOMEM`.
    pub(crate) fn new(size: usize, gfp: Flags) -> Result<Self> {
        if !size.is_power_of_two() || !(MIN_BLOCK..=MAX_BLOCK).contains(&size) {
            return Err(EINVAL);
        }
        let atomic = gfp == GFP_ATOMIC || gfp == GFP_NOWAIT;
        // SAFETY: The function has no requirements except on the context, which the caller ensures.
        let start = unsafe { c::sdp_h_block_alloc(size, atomic) };
        let start = NonNull::new(start.cast::<u8>()).ok_or(ENOMEM)?;
        // INVARIANT: The memory was allocated above and is all zero; if `Arc::new` fails, the
        // block's drop frees it.
        let block = Arc::new(Block { start, size }, gfp)?;
        // INVARIANT: The block is new, and no other function makes a `Memory` of it.
        Ok(Memory { block })
    }

    /// Passes the right to read and write on to the caller.
    pub(in crate::sys) fn into_block(self) -> Arc<Block> {
        self.block
    }

    /// Returns a reference to the block that keeps it allocated.
    pub(crate) fn block(&self) -> &Arc<Block> {
        &self.block
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: Only the holder of `&mut self` writes to the block on the CPU, which the borrow
        // of `&self` excludes. A device writes to the block only while the queue that the block was
        // posted to owns the `Memory` (see `rdma::receive`), so no caller has it.
        unsafe { self.block.part(0, self.block.size) }
    }

    /// Returns the bytes for writing. A device that is reading may send old or new bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: The device writes only to blocks without a caller, as in `bytes`; only `&mut
        // self` lets the CPU access the block.
        unsafe { self.block.part_mut(0) }
    }
}

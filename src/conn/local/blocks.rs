// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of the sender's memory in a local stream, which replace copies in the kernel.
//!
//! The reader copies a block straight from the sender's pages to the buffer of its call, in steps.
//! A step never waits for a program: if the reader's buffer is not present, the step copies to
//! kernel memory first. The reader releases the memory before it consumes the last byte.
//!
//! A sender that needs its memory earlier replaces the block by a kernel copy
//! (`LocalLink::replace_blocks`), and waits at most for the end of one step.

use crate::conn::zcopy::BlockUser;
use crate::memory::pinned::{Pinned, Pinning, Spare};
use crate::memory::spares::BlockPool;
use crate::sys::pin::Pages;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_spinlock, Arc, SpinLock};

/// A block of the sender's memory, protected by the lock of the queue.
pub(crate) struct Offered {
    /// Memory of the block; `None` once the reader has read all bytes.
    pub(super) memory: Option<Pinned>,
    /// Copy that replaces the memory at the end of the reader's step.
    replacement: Option<Pinned>,
    user: BlockUser,
    /// Process ID of the task that added the block.
    task: i32,
    /// Number of bytes that the reader has read.
    read: usize,
    /// True while the reader copies.
    busy: bool,
    /// True if the memory is a copy in the kernel.
    is_copy: bool,
}

impl Offered {
    pub(super) fn new(memory: Pinned, user: BlockUser) -> Self {
        Offered {
            memory: Some(memory),
            replacement: None,
            user,
            task: kernel::current!().pid(),
            read: 0,
            busy: false,
            is_copy: false,
        }
    }

    /// Returns true if the block has this `user` and, with `own`, was added by the calling task.
    fn is_of(&self, user: BlockUser, own: bool) -> bool {
        self.user == user && (!own || self.task == kernel::current!().pid())
    }

    /// Returns the number of unread bytes, if any, of a block that [belongs](Self::is_of) to
    /// `user`.
    pub(super) fn unread_of(&self, user: BlockUser, own: bool) -> Option<usize> {
        let memory = self.memory.as_ref().filter(|_| self.is_of(user, own))?;
        Some(memory.len().saturating_sub(self.read))
    }

    /// Returns the pages to copy, if the block belongs to `user` and is not replaced yet. For
    /// [`BlockUser::Call`], the calling task must have added the block.
    pub(super) fn pages_of(&self, user: BlockUser) -> Option<&Arc<Pages>> {
        let is_it = self.is_of(user, user == BlockUser::Call) && self.replacement.is_none();
        self.pages().filter(|_| is_it)
    }

    /// Returns the memory of the block, if the block has no user and no byte was read.
    pub(super) fn unread_memory(&mut self) -> Option<&mut Pinned> {
        let is_free = !self.busy && self.read == 0 && self.user == BlockUser::None && !self.is_copy;
        self.memory.as_mut().filter(|_| is_free)
    }

    pub(super) fn pages(&self) -> Option<&Arc<Pages>> {
        self.memory.as_ref()?.pages()
    }

    /// Begins a step of the reader, which copies from the returned pages.
    pub(super) fn begin(&mut self) -> Option<Arc<Pages>> {
        let pages = self.pages()?.clone();
        self.busy = true;
        Some(pages)
    }

    /// Ends a step that has read `n` bytes. Returns memory that the caller has to release.
    pub(super) fn end(&mut self, n: usize, counts: &Blocks) -> Option<Pinned> {
        self.busy = false;
        self.read = self.read.saturating_add(n);
        let is_copy = self.is_copy;
        if !is_copy {
            counts.pinned.fetch_sub(n as i64, Relaxed);
            counts.direct.fetch_add(n as u64, Relaxed);
        }
        if self.read == self.memory.as_ref()?.len() {
            counts.count.fetch_sub(i32::from(!is_copy), Relaxed);
            self.replacement = None;
            return self.memory.take();
        }
        let copy = self.replacement.take()?;
        self.replace(copy, counts)
    }

    /// Replaces the memory by a copy, now or at the end of the reader's step. Returns memory that
    /// the caller has to release.
    pub(super) fn replace(&mut self, copy: Pinned, counts: &Blocks) -> Option<Pinned> {
        let memory = self.memory.as_mut()?;
        if self.busy {
            self.replacement = Some(copy);
            return None;
        }
        self.user = BlockUser::None;
        let left = memory.len().saturating_sub(self.read);
        counts.add(-1, (left as i64).wrapping_neg());
        self.is_copy = true;
        Some(memory.replace_by(copy))
    }
}

/// Blocks of the sender's memory in one direction.
#[pin_data]
pub(super) struct Blocks {
    /// Unused blocks of the sender; `None` once the sender's socket is closed.
    #[pin]
    pub(super) pool: SpinLock<Option<BlockPool>>,
    /// Number of unread blocks in the sender's memory. Written with the queue's lock held.
    count: Atomic<i32>,
    /// Number of unread bytes in the sender's memory.
    pinned: Atomic<i64>,
    /// Number of bytes that were read from the sender's memory.
    pub(super) direct: Atomic<u64>,
}

impl Blocks {
    pub(super) fn new() -> Result<Arc<Self>> {
        let pool = Some(BlockPool::new(Pinning::new(None)));
        let blocks = pin_init!(Blocks {
            pool <- new_spinlock!(pool, "ib_sdp_block_pool"),
            count: Atomic::new(0),
            pinned: Atomic::new(0),
            direct: Atomic::new(0),
        });
        Arc::pin_init(blocks, GFP_KERNEL)
    }

    /// Returns the number of unread bytes in the sender's memory.
    #[inline]
    pub(super) fn pinned(&self) -> usize {
        usize::try_from(self.pinned.load(Relaxed)).unwrap_or(0)
    }

    /// Returns the number of unread blocks in the sender's memory.
    pub(super) fn count(&self) -> usize {
        usize::try_from(self.count.load(Relaxed)).unwrap_or(0)
    }

    /// Resets the counters, once the queue has no more blocks.
    pub(super) fn clear(&self) {
        self.count.store(0, Relaxed);
        self.pinned.store(0, Relaxed);
    }

    pub(super) fn add(&self, blocks: i32, bytes: i64) {
        self.count.fetch_add(blocks, Relaxed);
        self.pinned.fetch_add(bytes, Relaxed);
    }

    /// Releases memory of a block, and keeps the empty block. Context: process, sleeps.
    pub(super) fn keep(&self, memory: Pinned) {
        let spare = match memory.into_spare() {
            // a copy in progress holds a reference to the list of pages
            Spare::Empty(block) if block.pages().is_none() => return,
            spare => spare,
        };
        let mut pool = self.pool.lock();
        let left = match &mut *pool {
            Some(pool) => {
                pool.keep(spare);
                None
            }
            None => Some(spare),
        };
        drop(pool);
        drop(left);
    }
}

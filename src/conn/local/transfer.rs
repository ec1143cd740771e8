// SPDX-License-Identifier: GPL-2.0-only

//! Transfer of blocks between the two ends of a local stream.

use super::blocks::Offered;
use super::{LocalEnd, LocalLink, Special};
use crate::conn::zcopy::{BlockUser, MOST_BLOCKS};
use crate::conn::SdpSock;
use crate::memory::pinned::{Pinned, Pinning};
use crate::memory::spares::BlockPool;
use crate::sys::errno::EFAULT;
use crate::sys::net::message::RecvMsg;
use crate::sys::net::sock::State;
use crate::sys::pages::Memory;
use crate::sys::pin::Pages;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Maximum number of bytes copied at a time.
const STEP: usize = 65536;
/// Maximum number of bytes copied through kernel memory if the reader's buffer is not present.
const ASIDE: usize = 16384;

impl LocalLink {
    /// Runs `f` on the unused blocks of this end, while its socket is open.
    pub(crate) fn with_spares<R>(&self, f: impl FnOnce(&mut BlockPool) -> R) -> Option<R> {
        Option::as_mut(&mut self.outgoing.blocks.pool.lock()).map(f)
    }

    /// Returns true if the queue accepts another block.
    pub(crate) fn has_block_space(&self) -> bool {
        self.outgoing.blocks.count() < MOST_BLOCKS
    }

    /// Returns the number of bytes that have not arrived, without the bytes that a call waits for.
    pub(crate) fn outstanding(&self) -> usize {
        let detached = match self.outgoing.blocks.pinned() {
            0 => 0,
            n => n.saturating_sub(self.blocks_of(BlockUser::Call, false).1),
        };
        self.queued().saturating_add(detached)
    }

    /// Returns the numbers of unread blocks and unread bytes of `user`. If `own`, counts only
    /// blocks of the calling task.
    pub(crate) fn blocks_of(&self, user: BlockUser, own: bool) -> (usize, usize) {
        let (mut blocks, mut bytes) = (0_usize, 0_usize);
        let _ = self.outgoing.queue.blocks(|b, _| -> Option<()> {
            bytes = bytes.saturating_add(b.unread_of(user, own)?);
            blocks = blocks.saturating_add(1);
            None
        });
        (blocks, bytes)
    }

    /// Replaces the memory of unread blocks of `user` by copies. For [`BlockUser::Call`], affects
    /// only blocks of the calling task. Passes the old memory to `release`, unless the reader
    /// releases it after a step. Fails with `ENOMEM`. Context: process, may sleep.
    pub(crate) fn replace_blocks(
        &self,
        user: BlockUser,
        mut release: impl FnMut(Option<Pinned>),
    ) -> Result {
        let d = &self.outgoing;
        let next = |b: &mut Offered, at| b.pages_of(user).map(|pages| (at, pages.clone()));
        while let Some((start, pages)) = d.queue.blocks(next) {
            let mut copy = Some(Pinning::new(None).copy_of(&pages)?);
            drop(pages);
            let replace = |b: &mut Offered, at| {
                let copy = copy.take_if(|_| at == start)?;
                Some(b.replace(copy, &d.blocks))
            };
            release(d.queue.blocks(replace).flatten());
        }
        Ok(())
    }

    /// Drops the unread blocks of this end, their copies and all later bytes, since the connection
    /// is reset. Copies are dropped, too, since they are charged to their sender.
    pub(crate) fn drop_blocks(&self) {
        let d = &self.outgoing;
        d.queue.cut(|b| b.pages().is_some());
        d.blocks.clear();
    }
}

impl LocalEnd {
    /// Adds memory as the next bytes of the stream, or returns the memory if the queue is full.
    pub(crate) fn offer(
        &mut self,
        sk: &SdpSock,
        memory: Pinned,
        user: BlockUser,
    ) -> Result<(), Pinned> {
        let len = memory.len();
        let block = Offered::new(memory, user);
        if self.link.has(Special::Send) {
            self.link.watch_progress(sk);
        }
        let blocks = &self.link.outgoing.blocks;
        blocks.add(1, len as i64);
        match self.writer.push(block, len) {
            Ok(waits) => self.link.has_written(waits),
            Err(b) => {
                blocks.add(-1, (len as i64).wrapping_neg());
                return b.memory.map_or(Ok(()), Err);
            }
        }
        if sk.state() == State::Close {
            // the connection was reset while the call pinned the memory
            self.link.drop_blocks();
        }
        Ok(())
    }

    /// Calls `add` to extend the last block, if the block ends the stream and is completely unread.
    /// The function `add` returns the number of added bytes.
    pub(crate) fn grow_block(&mut self, add: impl FnOnce(&mut Pinned) -> usize) -> usize {
        let blocks = &self.link.outgoing.blocks;
        let (n, waits) = self.writer.grow(|b| {
            let n = b.unread_memory().map_or(0, add);
            blocks.add(0, n as i64);
            n
        });
        if n > 0 {
            self.link.has_written(waits);
        }
        n
    }

    /// Copies up to `n` bytes at `offset` of the block that begins at `start` to a call, or skips
    /// the bytes if `discard`, and consumes the bytes unless `peek`. Returns the number of bytes,
    /// or 0 if a reset has dropped the block. Fails with `EFAULT` if the call's memory cannot be
    /// written, or with `ENOMEM`.
    pub(crate) fn give_block(
        &mut self,
        to: &mut RecvMsg<'_>,
        (start, offset): (i64, usize),
        n: usize,
        (peek, discard): (bool, bool),
    ) -> Result<usize> {
        let n = n.min(STEP);
        let Some(pages) = self.begin_step(start) else {
            return Ok(0);
        };
        let mut given = match discard {
            true => {
                to.skip(n);
                n
            }
            false => to.give_pages(&pages, offset, n),
        };
        drop(pages);
        if given == 0 {
            self.end_step(start, 0);
            let n = n.min(ASIDE);
            let bytes = self.copy_aside((start, offset), n)?;
            given = match bytes.as_ref().and_then(|b| b.bytes().get(..n)) {
                Some(bytes) => to.give(bytes),
                None => return Ok(0),
            };
            if given == 0 {
                return Err(EFAULT.into());
            }
        }
        let read = if peek { 0 } else { given };
        Ok(if self.end_step(start, read) { given } else { 0 })
    }

    /// Copies `n` bytes of a block to kernel memory. Returns `None` if a reset dropped the block.
    #[cold]
    fn copy_aside(&mut self, (start, offset): (i64, usize), n: usize) -> Result<Option<Memory>> {
        let mut bytes = Memory::new(ASIDE, GFP_KERNEL)?;
        let to = bytes.bytes_mut().get_mut(..n).ok_or(EINVAL)?;
        let Some(pages) = self.begin_step(start) else {
            return Ok(None);
        };
        let copied = pages.copy_out(offset, to);
        drop(pages);
        self.end_step(start, 0);
        copied.map(|()| Some(bytes))
    }

    /// Begins a step that reads the block at `start`. Returns `None` if a reset dropped the block.
    fn begin_step(&self, start: i64) -> Option<Arc<Pages>> {
        let queue = &self.link.incoming.queue;
        let begin = |b: &mut Offered, at| (at == start).then(|| b.begin());
        queue.blocks(begin).flatten()
    }

    /// Ends a step that has read `n` bytes of a block. Returns false if the block was dropped.
    fn end_step(&mut self, start: i64, n: usize) -> bool {
        let d = &self.link.incoming;
        let end = |b: &mut Offered, at| (at == start).then(|| b.end(n, &d.blocks));
        let Some(released) = d.queue.blocks(end) else {
            return false;
        };
        let has_released = released.is_some();
        if let Some(memory) = released {
            d.blocks.keep(memory);
        }
        if self.reader.consume(n) || has_released {
            self.link.has_read();
        }
        true
    }
}

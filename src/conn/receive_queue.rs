// SPDX-License-Identifier: GPL-2.0-only

//! Received bytes that no call has read yet.
//!
//! Bytes stay in the buffers of their messages: `offset` and `len` of a [`Buffer`] give the unread
//! part. A receive call takes the memory of the first buffer out of the queue, copies from this
//! memory without a lock, and puts it back. Many unread small messages are merged, so that the
//! memory stays in proportion to the unread bytes.
//!
//! Bytes received by RDMA into a reader's memory are not in this queue. RDMA delivers bytes only
//! while the queue is empty ([`ReceiveQueue::passed`]).

use super::unread::{Unread, Urgent};
use crate::memory::ring::Ring;
use crate::sys::errno::EPROTO;
use crate::sys::pages::Memory;
use crate::sys::rdma::buffer::Buffer;
use core::ops::Range;
use kernel::alloc::flags::*;
use kernel::prelude::*;

/// Initial capacity in buffers: about the maximum number of posted buffers. More capacity needs an
/// atomic allocation; if the allocation fails, the peer has to wait.
const SLOTS: usize = 32;
/// Maximum number of buffers in the queue.
const MAX_SLOTS: usize = 4096;

/// The queue of one connection.
pub(crate) struct ReceiveQueue {
    buffers: Ring<Buffer>,
    /// Sum of the capacities of the queued buffers in bytes.
    memory: usize,
    pub(crate) unread: Unread,
    /// Set while several messages are unread, so that further messages are merged.
    compact: bool,
}

impl ReceiveQueue {
    pub(crate) fn new() -> Self {
        ReceiveQueue {
            buffers: Ring::new(),
            memory: 0,
            unread: Unread::default(),
            compact: false,
        }
    }

    /// Allocates the initial capacity.
    pub(crate) fn prepare(&mut self) -> Result {
        self.buffers.reserve(SLOTS, GFP_KERNEL)
    }

    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Returns the number of messages that may be added to the queue, if memory is available.
    pub(crate) fn most_more(&self) -> u16 {
        MAX_SLOTS.saturating_sub(self.buffers.len()) as u16
    }

    /// Reserves capacity for `more` messages. Returns false if there is no memory.
    pub(crate) fn make_space(&mut self, more: usize) -> bool {
        let need = self.buffers.len().saturating_add(more);
        need <= self.buffers.capacity()
            || (need <= MAX_SLOTS
                && self
                    .buffers
                    .reserve(need.saturating_mul(2).min(MAX_SLOTS), GFP_NOWAIT)
                    .is_ok())
    }

    /// Adds a message's payload. Returns the buffer if its bytes were merged into another buffer.
    /// Fails with the buffer if [`ReceiveQueue::make_space`] was not called before.
    pub(crate) fn push(
        &mut self,
        buffer: Buffer,
        urgent: bool,
    ) -> core::result::Result<Option<Buffer>, Buffer> {
        let n = u64::from(buffer.len);
        let end = buffer.offset.saturating_add(buffer.len) as usize;
        let last = buffer.bytes().get(end.saturating_sub(1)).copied();
        let last = last.filter(|_| urgent);
        // a reader that keeps up reads each message from the buffer in which it arrived
        let compact = self.compact;
        let tail = self.buffers.back_mut().filter(|_| compact);
        let spare = if tail.is_some_and(|tail| append(tail, &buffer)) {
            Some(buffer)
        } else {
            let memory = buffer.capacity();
            self.buffers.push_back(buffer)?;
            self.memory = self.memory.saturating_add(memory);
            None
        };
        self.unread.received(n, last);
        self.compact = self.buffers.len() > 1;
        Ok(spare)
    }

    /// Drops the urgent byte if it is the next to read. Returns the byte's buffer if now empty.
    pub(crate) fn skip_mark(&mut self) -> Option<Buffer> {
        self.unread.at_mark().then_some(())?;
        let (memory, _) = self.take(self.unread.position())?;
        self.consumed(memory, 1)
    }

    /// Takes out the memory that contains the byte at position `at`. Returns the memory and the
    /// range of its bytes from `at` on. The caller holds the socket lock, and ends the access by
    /// [`ReceiveQueue::put_back`] or [`ReceiveQueue::consumed`].
    #[inline]
    pub(crate) fn take(&mut self, at: u64) -> Option<(Memory, Range<usize>)> {
        let mut ahead = at.wrapping_sub(self.unread.position()) as usize;
        if ahead >= self.unread.bytes() {
            return None;
        }
        for i in 0..self.buffers.len() {
            let buffer = self.buffers.get_mut(i)?;
            let (start, len) = (buffer.offset as usize, buffer.len as usize);
            if ahead < len {
                let bytes = start.saturating_add(ahead)..start.saturating_add(len);
                return Some((buffer.take_memory()?, bytes));
            }
            ahead = ahead.saturating_sub(len);
        }
        None
    }

    /// Returns the first buffer, even if its memory is taken out.
    pub(crate) fn front(&mut self) -> Option<&mut Buffer> {
        self.buffers.front_mut()
    }

    /// Puts back the memory that was taken out, with all bytes unread. Earlier buffers may have
    /// been removed in between ([`ReceiveQueue::skip_mark`]).
    pub(crate) fn put_back(&mut self, memory: Memory) {
        for i in 0..self.buffers.len() {
            if let Some(buffer) = self.buffers.get_mut(i).filter(|b| !b.has_memory()) {
                return buffer.put_memory(memory);
            }
        }
    }

    /// Puts the first buffer's memory back after `n` bytes were read. Returns the empty buffer.
    #[inline]
    pub(crate) fn consumed(&mut self, memory: Memory, n: usize) -> Option<Buffer> {
        let buffer = self.buffers.front_mut()?;
        buffer.put_memory(memory);
        let n = u32::try_from(n).unwrap_or(u32::MAX).min(buffer.len);
        buffer.offset = buffer.offset.saturating_add(n);
        buffer.len = buffer.len.saturating_sub(n);
        let empty = (buffer.len == 0).then_some(buffer.capacity());
        self.unread.consume(n.into());
        self.memory = self.memory.saturating_sub(empty?);
        let buffer = self.buffers.pop_front();
        self.compact = self.buffers.len() > 1;
        buffer
    }

    /// Counts `n` bytes that were received into a reader's memory. Returns `EPROTO` if the queue
    /// has bytes, which a reader takes before it advertises. A message with payload cancels the
    /// advert.
    pub(super) fn passed(&mut self, n: usize) -> Result {
        if n > 0 && self.unread.bytes() > 0 {
            return Err(EPROTO.into());
        }
        self.unread.received(n as u64, None);
        self.unread.consume(n as u64);
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        while !self.buffers.is_empty() {
            self.buffers.pop_front();
        }
        self.memory = 0;
        self.unread.consume(self.unread.bytes() as u64);
        self.unread.urgent = Urgent::None;
    }
}

/// Appends the bytes of `from` to those of `to`, if `to` has space.
fn append(to: &mut Buffer, from: &Buffer) -> bool {
    let (at, n) = (to.offset.saturating_add(to.len) as usize, from.len as usize);
    let Some(bytes) = from
        .bytes()
        .get(from.offset as usize..)
        .and_then(|b| b.get(..n))
    else {
        return false;
    };
    let Some(space) = to.bytes_mut().get_mut(at..).and_then(|b| b.get_mut(..n)) else {
        return false;
    };
    space.copy_from_slice(bytes);
    to.len = to.len.saturating_add(from.len);
    true
}

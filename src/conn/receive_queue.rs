// SPDX-License-Identifier: GPL-2.0-only

//! Bytes that a connection has received and no call has read.
//!
//! They stay in the buffers of their messages; `offset` and `len` of a [`Buffer`] are the unread
//! part. A receive call takes the memory of the first buffer out of the queue, copies from it
//! without a lock, and puts it back. Many unread small messages are merged, so that the memory
//! stays in proportion to the bytes.
//!
//! Bytes received by RDMA into a reader's memory are not in this queue. They arrive only while the
//! queue is empty ([`ReceiveQueue::passed`]).

use crate::memory::ring::Ring;
use crate::sys::errno::EPROTO;
use crate::sys::pages::Memory;
use crate::sys::rdma::buffer::Buffer;
use core::ops::Range;
use kernel::alloc::flags::*;
use kernel::prelude::*;

/// Initial capacity in buffers: about the maximum number of posted ones. More capacity needs an
/// allocation that cannot sleep; if it fails, the peer has to wait.
const SLOTS: usize = 32;
/// Maximum number of buffers in the queue.
const MAX_SLOTS: usize = 4096;

/// Urgent data (`MSG_OOB`): at most one byte, as on TCP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgent {
    None,
    /// Announced, but not arrived.
    Pending,
    /// Arrived and not read: the byte and its position in the stream.
    Valid(u8, u64),
    /// Arrived, and read by `MSG_OOB`.
    Read(u64),
}

/// The queue of one connection.
pub(crate) struct ReceiveQueue {
    buffers: Ring<Buffer>,
    /// Memory in the queue: the sum of the capacities, in bytes.
    memory: usize,
    /// Stream position of the next byte to read.
    read: u64,
    /// Stream position after the last received byte.
    end: u64,
    /// The urgent byte.
    pub(crate) urgent: Urgent,
    /// Set while several messages are unread: further ones are merged.
    compact: bool,
}

impl ReceiveQueue {
    pub(crate) const fn new() -> Self {
        ReceiveQueue {
            buffers: Ring::new(),
            memory: 0,
            read: 0,
            end: 0,
            urgent: Urgent::None,
            compact: false,
        }
    }

    /// Allocates the initial capacity.
    pub(crate) fn prepare(&mut self) -> Result {
        self.buffers.reserve(SLOTS, GFP_KERNEL)
    }

    /// Returns the number of readable bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.end.wrapping_sub(self.read) as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.end == self.read
    }

    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    pub(crate) fn position(&self) -> u64 {
        self.read
    }

    /// Returns the number of bytes up to the urgent mark, or of all if `inline` (`SIOCINQ`).
    pub(crate) fn readable(&self, inline: bool) -> usize {
        match self.urgent {
            Urgent::Valid(_, at) | Urgent::Read(at) if !inline => {
                let before = at.wrapping_sub(self.read) as usize;
                before.min(self.bytes())
            }
            _ => self.bytes(),
        }
    }

    /// Returns true if the next byte to read is the urgent one (`SIOCATMARK`).
    pub(crate) fn at_mark(&self) -> bool {
        match self.urgent {
            Urgent::Valid(_, at) | Urgent::Read(at) => at == self.read,
            Urgent::Pending | Urgent::None => false,
        }
    }

    /// Returns the number of messages that the queue may still take, memory permitting.
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

    /// Adds the payload of a message. Returns the buffer if its bytes were merged into another one.
    ///
    /// # Errors
    ///
    /// `Err`: the buffer, without capacity in the queue; [`ReceiveQueue::make_space`] prevents
    /// that.
    pub(crate) fn push(
        &mut self,
        buffer: Buffer,
        urgent: bool,
    ) -> core::result::Result<Option<Buffer>, Buffer> {
        let n = u64::from(buffer.len);
        let last = buffer
            .bytes()
            .get((buffer.offset.saturating_add(buffer.len)).saturating_sub(1) as usize);
        let last = last.copied().unwrap_or(0);
        // a reader that keeps up reads each message where it arrived
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
        if urgent && n > 0 {
            self.urgent = Urgent::Valid(last, self.end.wrapping_add(n).wrapping_sub(1));
        }
        self.end = self.end.wrapping_add(n);
        self.compact = self.buffers.len() > 1;
        Ok(spare)
    }

    /// Returns the index of the buffer that contains the byte `ahead` bytes after the next one to
    /// read, and the offset in it.
    pub(crate) fn locate(&self, mut ahead: usize) -> Option<(usize, usize)> {
        if ahead >= self.bytes() {
            return None;
        }
        for i in 0..self.buffers.len() {
            let len = self.buffers.get(i)?.len as usize;
            if ahead < len {
                return Some((i, ahead));
            }
            ahead = ahead.saturating_sub(len);
        }
        None
    }

    /// Drops the urgent byte if it is the next to read. Returns the buffer if that makes it empty.
    pub(crate) fn skip_mark(&mut self) -> Option<Buffer> {
        if !self.at_mark() || self.bytes() == 0 {
            return None;
        }
        let (memory, _) = self.take(0)?;
        self.consumed(memory, 1)
    }

    /// Takes the `i`-th buffer's memory out, and returns it with the range of its bytes. The
    /// caller holds the socket lock and ends this by [`ReceiveQueue::put_back`] or
    /// [`ReceiveQueue::consumed`].
    #[inline]
    pub(crate) fn take(&mut self, i: usize) -> Option<(Memory, Range<usize>)> {
        let buffer = self.buffers.get_mut(i)?;
        let start = buffer.offset as usize;
        let bytes = start..start.saturating_add(buffer.len as usize);
        Some((buffer.take_memory()?, bytes))
    }

    /// Puts back the memory of the `i`-th buffer, unread. Earlier buffers may have been removed
    /// meanwhile ([`ReceiveQueue::skip_mark`]), so the memory goes to the buffer without memory.
    pub(crate) fn put_back(&mut self, i: usize, memory: Memory) {
        for j in 0..=i {
            if let Some(buffer) = self.buffers.get_mut(j).filter(|b| !b.has_memory()) {
                return buffer.put_memory(memory);
            }
        }
    }

    /// Puts the first buffer's memory back after `n` bytes were read. Returns the buffer if it is
    /// empty.
    #[inline]
    pub(crate) fn consumed(&mut self, memory: Memory, n: usize) -> Option<Buffer> {
        let buffer = self.buffers.front_mut()?;
        buffer.put_memory(memory);
        let n = u32::try_from(n).unwrap_or(u32::MAX).min(buffer.len);
        buffer.offset = buffer.offset.saturating_add(n);
        buffer.len = buffer.len.saturating_sub(n);
        let empty = (buffer.len == 0).then_some(buffer.capacity());
        self.read = self.read.wrapping_add(n.into());
        self.forget_mark();
        self.memory = self.memory.saturating_sub(empty?);
        let buffer = self.buffers.pop_front();
        self.compact = self.buffers.len() > 1;
        buffer
    }

    /// Counts `n` bytes that were received into a reader's memory.
    ///
    /// # Errors
    ///
    /// `EPROTO`: earlier bytes are in the queue. The protocol excludes this: readers take queued
    /// bytes first, and a message with payload voids the advert of their memory.
    pub(super) fn passed(&mut self, n: usize) -> Result {
        if n > 0 && !self.is_empty() {
            return Err(EPROTO.into());
        }
        self.read = self.read.wrapping_add(n as u64);
        self.end = self.end.wrapping_add(n as u64);
        self.forget_mark();
        Ok(())
    }

    /// Clears an urgent byte that the reader has passed.
    fn forget_mark(&mut self) {
        if let Urgent::Valid(_, at) | Urgent::Read(at) = self.urgent {
            if at < self.read {
                self.urgent = Urgent::None;
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        while !self.buffers.is_empty() {
            self.buffers.pop_front();
        }
        self.memory = 0;
        self.read = self.end;
        self.urgent = Urgent::None;
    }
}

/// Appends the bytes of `from` to those of `to`, if there is space.
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

// SPDX-License-Identifier: GPL-2.0-only

//! The bytes that a connection has received and that no receive call has taken yet.
//!
//! They stay in the buffers that the messages arrived in; `offset` and `len` of a [`Buffer`] tell
//! which part of it is left. A receive call takes the first one's memory out, copies from it without any
//! lock, and puts it back. Where a program lets many small messages lie, they are
//! moved together, so that the memory stays in proportion to the bytes.
//!
//! Bytes that went straight to a reader's memory are not here. They come only while nothing is
//! ([`ReceiveQueue::passed`]).

use crate::memory::ring::Ring;
use crate::sys::errno::EPROTO;
use crate::sys::pages::Memory;
use crate::sys::rdma::buffer::Buffer;
use core::ops::Range;
use kernel::alloc::flags::*;
use kernel::prelude::*;

/// Buffers that the queue has room for at first: about as many as are posted at most. More takes memory that nobody may wait
/// for, and without it the peer has to.
const SLOTS: usize = 32;
/// Most buffers that lie in the queue.
const MAX_SLOTS: usize = 4096;

/// Urgent data (`MSG_OOB`), of which there is one byte at most, as on TCP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgent {
    /// None.
    None,
    /// Announced, has not arrived.
    Pending,
    /// Arrived as this byte at this position of the stream, not read yet.
    Valid(u8, u64),
    /// As above, and read by `MSG_OOB`.
    Read(u64),
}

/// The queue of one connection.
pub(crate) struct ReceiveQueue {
    buffers: Ring<Buffer>,
    /// Memory in the queue, in bytes of capacity.
    memory: usize,
    /// Position of the next byte to be read.
    read: u64,
    /// Position behind the last byte received.
    end: u64,
    /// The urgent byte.
    pub(crate) urgent: Urgent,
    /// Messages lie behind one another unread: further ones are moved together.
    compact: bool,
}

impl ReceiveQueue {
    /// An empty queue that cannot hold anything yet.
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

    /// Makes room for the bookkeeping.
    pub(crate) fn prepare(&mut self) -> Result {
        self.buffers.reserve(SLOTS, GFP_KERNEL)
    }

    /// Bytes that can be read.
    pub(crate) fn bytes(&self) -> usize {
        (self.end - self.read) as usize
    }

    /// Whether nothing lies here.
    pub(crate) fn is_empty(&self) -> bool {
        self.end == self.read
    }

    /// Memory that the queue holds.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Position of the next byte to be read.
    pub(crate) fn position(&self) -> u64 {
        self.read
    }

    /// Bytes up to the urgent mark, or all (`SIOCINQ`).
    pub(crate) fn readable(&self, inline: bool) -> usize {
        match self.urgent {
            Urgent::Valid(_, at) | Urgent::Read(at)
                if !inline && at >= self.read && at < self.read + self.bytes() as u64 =>
            {
                (at - self.read) as usize
            }
            _ => self.bytes(),
        }
    }

    /// Whether the next byte to be read is the urgent one (`SIOCATMARK`).
    pub(crate) fn at_mark(&self) -> bool {
        match self.urgent {
            Urgent::Valid(_, at) | Urgent::Read(at) => at == self.read,
            Urgent::Pending | Urgent::None => false,
        }
    }

    /// How many further messages may find a place, memory permitting.
    pub(crate) fn most_more(&self) -> u16 {
        MAX_SLOTS.saturating_sub(self.buffers.len()) as u16
    }

    /// Makes sure that `more` further messages find a place; false if there is no memory for it.
    pub(crate) fn make_room(&mut self, more: usize) -> bool {
        let need = self.buffers.len() + more;
        need <= self.buffers.capacity()
            || (need <= MAX_SLOTS
                && self
                    .buffers
                    .reserve((need * 2).min(MAX_SLOTS), GFP_NOWAIT)
                    .is_ok())
    }

    /// Adds the payload of a message. `Ok` gives the buffer back when its bytes fitted elsewhere.
    ///
    /// # Errors
    ///
    /// The buffer, if there is no place, which [`ReceiveQueue::make_room`] rules out.
    pub(crate) fn push(
        &mut self,
        buffer: Buffer,
        urgent: bool,
    ) -> core::result::Result<Option<Buffer>, Buffer> {
        let n = u64::from(buffer.len);
        let last = buffer
            .bytes()
            .get((buffer.offset + buffer.len).saturating_sub(1) as usize);
        let last = last.copied().unwrap_or(0);
        // a reader that keeps up finds each message where it arrived
        let compact = self.compact;
        let tail = self.buffers.back_mut().filter(|_| compact);
        let spare = if tail.is_some_and(|tail| append(tail, &buffer)) {
            Some(buffer)
        } else {
            let memory = buffer.capacity();
            self.buffers.push_back(buffer)?;
            self.memory += memory;
            None
        };
        self.end += n;
        self.compact = self.buffers.len() > 1;
        if urgent {
            self.urgent = Urgent::Valid(last, self.end - 1);
        }
        Ok(spare)
    }

    /// Finds the byte that is `ahead` of the next to be read: in which buffer, and where there.
    pub(crate) fn locate(&self, mut ahead: usize) -> Option<(usize, usize)> {
        if ahead >= self.bytes() {
            return None;
        }
        for i in 0..self.buffers.len() {
            let len = self.buffers.get(i)?.len as usize;
            if ahead < len {
                return Some((i, ahead));
            }
            ahead -= len;
        }
        None
    }

    /// Drops the urgent byte if it is the next to be read. Returns a buffer that became empty.
    pub(crate) fn skip_mark(&mut self) -> Option<Buffer> {
        if !self.at_mark() || self.bytes() == 0 {
            return None;
        }
        let (memory, _) = self.take(0)?;
        self.consumed(memory, 1)
    }

    /// Takes the `i`-th buffer's memory out, and says where in it the bytes lie. For a reader that has the
    /// socket lock; ended by [`ReceiveQueue::put_back`] or [`ReceiveQueue::consumed`].
    #[inline]
    pub(crate) fn take(&mut self, i: usize) -> Option<(Memory, Range<usize>)> {
        let buffer = self.buffers.get_mut(i)?;
        let start = buffer.offset as usize;
        let bytes = start..start + buffer.len as usize;
        Some((buffer.take_memory()?, bytes))
    }

    /// Puts back what was the `i`-th buffer's memory, after a look. Meanwhile those before it may have gone
    /// ([`ReceiveQueue::skip_mark`]): it is of the one that has none.
    pub(crate) fn put_back(&mut self, i: usize, memory: Memory) {
        for j in 0..=i {
            if let Some(buffer) = self.buffers.get_mut(j).filter(|b| !b.has_memory()) {
                return buffer.put_memory(memory);
            }
        }
    }

    /// Puts the first buffer's memory back, of which `n` bytes were read. Returns the buffer when it is empty.
    #[inline]
    pub(crate) fn consumed(&mut self, memory: Memory, n: usize) -> Option<Buffer> {
        let buffer = self.buffers.front_mut()?;
        buffer.put_memory(memory);
        buffer.offset += n as u32;
        buffer.len -= n as u32;
        let empty = (buffer.len == 0).then_some(buffer.capacity());
        self.read += n as u64;
        self.forget_mark();
        self.memory -= empty?;
        let buffer = self.buffers.pop_front();
        self.compact = self.buffers.len() > 1;
        buffer
    }

    /// The next `n` bytes of the stream have gone, or go, to a reader's memory.
    ///
    /// # Errors
    ///
    /// `EPROTO` if bytes before them lie here, which the protocol rules out: readers take what lies here
    /// first, and a message with payload voids their memory's advert.
    pub(super) fn passed(&mut self, n: usize) -> Result {
        if n > 0 && !self.is_empty() {
            return Err(EPROTO.into());
        }
        self.read += n as u64;
        self.end += n as u64;
        self.forget_mark();
        Ok(())
    }

    /// Forgets an urgent byte that was passed.
    fn forget_mark(&mut self) {
        if let Urgent::Valid(_, at) | Urgent::Read(at) = self.urgent {
            if at < self.read {
                self.urgent = Urgent::None;
            }
        }
    }

    /// Throws everything away.
    pub(crate) fn clear(&mut self) {
        while !self.buffers.is_empty() {
            self.buffers.pop_front();
        }
        self.memory = 0;
        self.read = self.end;
        self.urgent = Urgent::None;
    }
}

/// Copies the bytes of `from` behind those of `to`, if there is room.
fn append(to: &mut Buffer, from: &Buffer) -> bool {
    let (at, n) = ((to.offset + to.len) as usize, from.len as usize);
    let Some(bytes) = from
        .bytes()
        .get(from.offset as usize..)
        .and_then(|b| b.get(..n))
    else {
        return false;
    };
    let Some(room) = to.bytes_mut().get_mut(at..).and_then(|b| b.get_mut(..n)) else {
        return false;
    };
    room.copy_from_slice(bytes);
    to.len += from.len;
    true
}

// SPDX-License-Identifier: GPL-2.0-only

//! Queue of the bytes that send calls have passed, until the peer acknowledges them.
//!
//! Unsent and unacknowledged bytes form a stream with 64-bit positions in chunks of kernel memory.
//! A send call takes the last chunk's memory out ([`SendQueue::open`]), fills this memory without a
//! lock, and puts it back ([`SendQueue::close`]). A message may begin and end anywhere in the
//! stream, so small sends coalesce. Chunks are mapped once and reused.

use crate::memory::pressure;
use crate::memory::ring::Ring;
use crate::sys::pages::Memory;
use crate::sys::rdma::buffer::Buffer;
use crate::sys::vec;
use crate::transport::Sge;
use kernel::alloc::flags::{GFP_KERNEL, GFP_NOWAIT};
use kernel::prelude::*;

/// Chunk size for occasional small sends.
pub(crate) const SMALL_CHUNK: usize = 2048;
/// Chunk size for single sends of a few pages.
pub(crate) const MIDDLE_CHUNK: usize = 8192;
/// Size of all other chunks, and of the largest receive buffer.
pub(crate) const LARGE_CHUNK: usize = 65536;
/// Maximum number of chunks before the next message; a `SOCK_SEQPACKET` message may double it.
const CHUNKS: usize = 64;
/// Initial capacity in chunks.
const FIRST_CHUNKS: usize = 4;
/// Maximum number of unused chunks kept for the next send; 16 large ones fill a send buffer.
const SPARE: usize = 16;
/// Maximum number of chunks in the payload of one message, if the device supports as many SGEs.
const SGES: usize = 2;

/// Part of the stream: bytes `start..start + len`, at the beginning of `buffer`.
struct Chunk {
    buffer: Buffer,
    start: u64,
    len: u32,
}

impl Chunk {
    fn len(&self) -> usize {
        self.len as usize
    }

    fn end(&self) -> u64 {
        self.start.wrapping_add(self.len.into())
    }

    fn has_space(&self) -> bool {
        self.len() < self.buffer.capacity()
    }

    /// Returns true if a send call is filling the chunk, so that no bytes are sent from it.
    fn is_open(&self) -> bool {
        !self.buffer.has_memory()
    }
}

/// Memory of the last chunk while a send call fills it.
pub(crate) struct OpenChunk {
    memory: Memory,
    /// Number of filled bytes.
    len: usize,
}

impl OpenChunk {
    /// Returns the free space of the chunk.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.memory
            .bytes_mut()
            .get_mut(self.len..)
            .unwrap_or_default()
    }
}

/// The queue of one connection.
pub(crate) struct SendQueue {
    most_sges: usize,
    chunks: Ring<Chunk>,
    /// Number of chunks at the front that are completely sent.
    sent_whole: usize,
    spare: KVec<Buffer>,
    /// Stream position after the last byte that may be sent.
    end: u64,
    /// Position of the next byte to send.
    sent: u64,
    /// Position up to which all bytes are acknowledged.
    done: u64,
    /// Position after the last small message.
    small: u64,
    /// Position after the unsent urgent byte.
    urgent: Option<u64>,
    /// Set if the last send call had `MSG_MORE`.
    more: bool,
    /// Set if the bytes queued now are to be sent despite a cork.
    lifted: bool,
}

impl SendQueue {
    pub(crate) const fn new() -> Self {
        SendQueue {
            most_sges: SGES,
            chunks: Ring::new(),
            sent_whole: 0,
            spare: KVec::new(),
            end: 0,
            sent: 0,
            done: 0,
            small: 0,
            urgent: None,
            more: false,
            lifted: false,
        }
    }

    /// Allocates the initial capacity. `sges` is the maximum number of segments in a message.
    pub(crate) fn prepare(&mut self, sges: u8) -> Result {
        self.most_sges = usize::from(sges).min(SGES);
        self.chunks.reserve(FIRST_CHUNKS, GFP_KERNEL)
    }

    /// Returns the number of accepted and unacknowledged bytes (`SIOCOUTQ`).
    pub(crate) fn queued(&self) -> usize {
        self.end.wrapping_sub(self.done) as usize
    }

    /// Returns the number of unsent bytes.
    pub(crate) fn unsent(&self) -> usize {
        self.end.wrapping_sub(self.sent) as usize
    }

    /// Returns true if a small message is still unacknowledged.
    pub(crate) fn small_in_flight(&self) -> bool {
        self.small > self.done
    }

    /// Records that the last message had space for more bytes.
    pub(crate) fn was_small(&mut self) {
        self.small = self.sent;
    }

    /// Returns true if another message may begin, with fewer than `CHUNKS` chunks and a free slot.
    pub(crate) fn has_space(&self) -> bool {
        self.chunks.len() < CHUNKS && !self.chunks.is_full()
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Opens a chunk for the next bytes: the last chunk if it has space, else an unused one of at
    /// least `size` bytes. If no chunk is usable, the caller allocates one for
    /// [`SendQueue::open_new`].
    pub(crate) fn open(&mut self, size: usize) -> Option<OpenChunk> {
        if self.chunks.back_mut().is_some_and(|c| c.has_space()) {
            return self.open_last();
        }
        let at = self.spare.iter().rposition(|b| b.capacity() >= size)?;
        let buffer = self.spare.remove(at).ok()?;
        self.open_new(buffer)
    }

    /// Opens a chunk on a buffer that is mapped for sending. Returns `None` if the queue is full.
    pub(crate) fn open_new(&mut self, buffer: Buffer) -> Option<OpenChunk> {
        let chunk = Chunk {
            buffer,
            // the chunk follows the bytes of [`SendQueue::hold`]
            start: self.chunks.back_mut().map_or(self.end, |last| last.end()),
            len: 0,
        };
        self.chunks.push_back(chunk).ok()?;
        self.open_last()
    }

    #[inline]
    fn open_last(&mut self) -> Option<OpenChunk> {
        self.sent_whole = self.sent_whole.min(self.chunks.len().saturating_sub(1));
        let last = self.chunks.back_mut()?;
        let len = last.len();
        let memory = last.buffer.take_memory()?;
        Some(OpenChunk { memory, len })
    }

    /// Closes a chunk with `n` new bytes, which may be sent after the next [`SendQueue::close`].
    /// Before that close, [`SendQueue::rewind`] can remove the new bytes.
    pub(crate) fn hold(&mut self, chunk: OpenChunk, n: usize) {
        let _ = self.put(chunk, n);
        self.chunks.grow(2 * CHUNKS, GFP_NOWAIT);
    }

    /// Puts the memory of a chunk back, with `n` new bytes.
    #[inline(always)]
    fn put(&mut self, chunk: OpenChunk, n: usize) -> Option<&mut Chunk> {
        let last = self.chunks.back_mut().filter(|c| c.is_open())?;
        last.buffer.put_memory(chunk.memory);
        let len = last.len().saturating_add(n).min(last.buffer.capacity());
        last.len = len as u32;
        Some(last)
    }

    /// Allows the bytes added by [`SendQueue::hold`] to be sent.
    pub(crate) fn publish(&mut self) {
        self.end = self.chunks.back_mut().map_or(self.end, |last| last.end());
    }

    /// Removes the bytes added by [`SendQueue::hold`].
    pub(crate) fn rewind(&mut self) {
        while let Some(last) = self.chunks.back_mut().filter(|c| !c.is_open()) {
            let len = self.end.saturating_sub(last.start).min(last.len.into());
            last.len = len as u32;
            if len > 0 {
                break;
            }
            if let Some(unused) = self.chunks.pop_back() {
                self.keep(unused.buffer);
            }
        }
        self.sent_whole = self.sent_whole.min(self.chunks.len());
    }

    /// Closes a chunk with `n` new bytes, which may now be sent.
    pub(crate) fn close(&mut self, chunk: OpenChunk, n: usize) {
        let Some(last) = self.put(chunk, n) else {
            return;
        };
        let (end, len) = (last.end(), last.len);
        self.end = end;
        if len == 0 {
            if let Some(unused) = self.chunks.pop_back() {
                self.keep(unused.buffer);
            }
        }
        // If the allocation fails, space appears once the peer has acknowledged some chunks.
        self.chunks.grow(CHUNKS, GFP_NOWAIT);
    }

    /// Marks the last byte of the stream as urgent.
    pub(crate) fn mark_urgent(&mut self) {
        self.urgent = Some(self.end);
    }

    /// Returns the number of unsent bytes up to and including the urgent byte.
    pub(crate) fn urgent(&self) -> Option<u32> {
        self.urgent
            .map(|at| u32::try_from(at.saturating_sub(self.sent)).unwrap_or(u32::MAX))
    }

    pub(crate) fn set_more(&mut self, more: bool) {
        self.more = more;
    }

    /// Sends the queued bytes now, even if corked. The cork holds later bytes back again.
    pub(crate) fn uncork(&mut self) {
        self.lifted = true;
    }

    /// Returns true if partial messages are held back. `option` is the value of `TCP_CORK`.
    pub(crate) fn is_corked(&self, option: bool) -> bool {
        (option || self.more) && !self.lifted
    }

    /// Ends the exception made by [`Self::uncork`], once all queued bytes are sent.
    pub(crate) fn settle(&mut self) {
        self.lifted = false;
    }

    /// Returns the index of the chunk that contains the next byte to send, and that byte's offset.
    fn next(&self) -> Option<(usize, usize)> {
        let c = self.chunks.get(self.sent_whole)?;
        let off = usize::try_from(self.sent.checked_sub(c.start)?).ok()?;
        (off < c.len() && !c.is_open()).then_some((self.sent_whole, off))
    }

    /// Returns the number of unsent bytes that one message can take.
    pub(crate) fn contiguous(&self) -> usize {
        let Some((i, off)) = self.next() else {
            return 0;
        };
        let len = |i| {
            let chunk = self.chunks.get(i).filter(|c| !c.is_open());
            chunk.map_or(0, Chunk::len)
        };
        let behind = (1..self.most_sges).map(|k| len(i.saturating_add(k)));
        behind.fold(len(i).saturating_sub(off), usize::saturating_add)
    }

    /// Returns the segments of the next `n` unsent bytes, at most [`SendQueue::contiguous`].
    pub(crate) fn sges(&self, n: usize) -> [Option<Sge<'_>>; SGES] {
        let mut sges = [const { None }; SGES];
        let mut left = n;
        if let Some((i, mut off)) = self.next() {
            for (k, sge) in sges.iter_mut().enumerate() {
                let Some(c) = self.chunks.get(i.saturating_add(k)).filter(|_| left > 0) else {
                    break;
                };
                let len = left.min(c.len().saturating_sub(off));
                *sge = Some(Sge {
                    buffer: &c.buffer,
                    offset: off as u32,
                    len: len as u32,
                });
                (left, off) = (left.saturating_sub(len), 0);
            }
        }
        sges
    }

    /// Advances past the next `n` bytes, which are posted to the transport.
    pub(crate) fn advance(&mut self, n: usize, urgent: bool) {
        let sent = self.sent.saturating_add(n as u64).min(self.end);
        self.sent = sent;
        let is_sent = |c: &Chunk| c.end() <= sent && !c.is_open();
        while self.chunks.get(self.sent_whole).is_some_and(is_sent) {
            self.sent_whole = self.sent_whole.saturating_add(1);
        }
        if urgent {
            self.urgent = None;
        }
    }

    /// Frees all bytes before position `to`, which have arrived.
    pub(crate) fn complete(&mut self, to: u64) {
        self.done = self.done.max(to.min(self.sent));
        let done = self.done;
        let has_arrived = |c: &Chunk| c.end() <= done && !c.is_open();
        while self.chunks.front().is_some_and(has_arrived) {
            self.sent_whole = self.sent_whole.saturating_sub(1);
            if let Some(c) = self.chunks.pop_front() {
                self.keep(c.buffer);
            }
        }
    }

    /// Keeps an unused chunk, if fewer than [`SPARE`] are kept and its slot can be allocated.
    fn keep(&mut self, buffer: Buffer) {
        if !pressure::is_exhausted() {
            let _ = vec::push(&mut self.spare, SPARE, buffer, GFP_NOWAIT);
        }
    }

    /// Drops the chunks kept for the next send.
    pub(crate) fn shed(&mut self) {
        self.spare.clear();
    }

    /// Returns true if more bytes fit into the minimum of memory that every connection may use.
    pub(crate) fn needs_little(&self) -> bool {
        let last = self.chunks.len().checked_sub(1);
        let last = last.and_then(|i| self.chunks.get(i));
        !self.spare.is_empty() || last.is_none_or(Chunk::has_space)
    }

    pub(crate) fn clear(&mut self) {
        while self.chunks.pop_front().is_some() {}
        self.spare.clear();
        (self.end, self.sent, self.done, self.small) = (0, 0, 0, 0);
        (self.sent_whole, self.urgent) = (0, None);
        (self.more, self.lifted) = (false, false);
    }
}

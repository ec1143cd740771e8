// SPDX-License-Identifier: GPL-2.0-only

//! The bytes that a socket has accepted from send calls and that are not yet known to have arrived.
//!
//! They lie in chunks of kernel memory, one behind the other as a stream with 64-bit positions.
//! A send call takes the last chunk's memory out ([`SendQueue::open`]), fills it without any lock, and
//! puts it back ([`SendQueue::close`]); messages are cut from the stream at any place, so small sends
//! coalesce by themselves. Chunks are mapped once and used again and again.

use crate::memory::pressure;
use crate::memory::ring::Ring;
use crate::sys::pages::Memory;
use crate::sys::rdma::buffer::Buffer;
use crate::transport::Sge;
use kernel::alloc::flags::{GFP_KERNEL, GFP_NOWAIT};
use kernel::prelude::*;

/// Chunk for a trickle of small sends.
pub(crate) const SMALL_CHUNK: usize = 2048;
/// Chunk for sends of a few pages, each on its own.
pub(crate) const MIDDLE_CHUNK: usize = 8192;
/// Chunk for everything else; also the largest receive buffer.
pub(crate) const LARGE_CHUNK: usize = 65536;
/// Most chunks at once.
const CHUNKS: usize = 64;
/// Chunks that there is room for at first.
const FIRST_CHUNKS: usize = 4;
/// Unused chunks that are kept for the next send: as many large ones as a send buffer has.
const SPARE: usize = 16;
/// Most chunks that one message takes its payload from, where the device can do that.
const SGES: usize = 2;

/// Part of the stream: bytes `start..start + len` of it, at the beginning of `buffer`.
struct Chunk {
    buffer: Buffer,
    start: u64,
    len: u32,
    /// Nothing more is to be filled in.
    sealed: bool,
}

impl Chunk {
    fn len(&self) -> usize {
        self.len as usize
    }

    fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }

    fn has_room(&self) -> bool {
        !self.sealed && self.len() < self.buffer.capacity()
    }

    /// Whether a send call has its memory. Nothing is sent of it meanwhile. One without memory that is sealed
    /// was exchanged.
    fn is_open(&self) -> bool {
        !self.sealed && !self.buffer.has_memory()
    }
}

/// The memory of the last chunk, while a send call fills it.
pub(crate) struct OpenChunk {
    memory: Memory,
    /// So much of it is filled.
    len: usize,
}

impl OpenChunk {
    /// Room that is left.
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
    /// So many chunks at the front have been sent whole.
    sent_whole: usize,
    spare: KVec<Buffer>,
    /// Position behind the last byte that may be sent.
    end: u64,
    /// Position of the next byte to be sent.
    sent: u64,
    /// Position up to which everything is known to have arrived.
    done: u64,
    /// Position behind the last small message.
    small: u64,
    /// Position behind the urgent byte that waits to be sent.
    urgent: Option<u64>,
}

impl SendQueue {
    /// An empty queue that cannot hold anything yet.
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
        }
    }

    /// Makes room for the bookkeeping.
    /// `sges`: how many pieces of memory a message can be in.
    pub(crate) fn prepare(&mut self, sges: u8) -> Result {
        self.most_sges = usize::from(sges).min(SGES);
        self.chunks.reserve(FIRST_CHUNKS, GFP_KERNEL)
    }

    /// Bytes accepted and not yet known to have arrived (`SIOCOUTQ`).
    pub(crate) fn queued(&self) -> usize {
        (self.end - self.done) as usize
    }

    /// Bytes that wait to be sent.
    pub(crate) fn unsent(&self) -> usize {
        (self.end - self.sent) as usize
    }

    /// Whether a small message was sent that is not known to have arrived.
    pub(crate) fn small_in_flight(&self) -> bool {
        self.small > self.done
    }

    /// The message that was just sent had room for more bytes.
    pub(crate) fn was_small(&mut self) {
        self.small = self.sent;
    }

    /// Whether another chunk fits.
    pub(crate) fn has_room(&self) -> bool {
        !self.chunks.is_full()
    }

    /// Position behind the last byte that may be sent.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Position behind the last byte sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Opens the chunk that the next bytes go to: the last one if it has room, else an unused one of at least
    /// `size`. `None`: the caller makes one and opens that ([`SendQueue::open_new`]).
    pub(crate) fn open(&mut self, size: usize) -> Option<OpenChunk> {
        if self.chunks.back_mut().is_some_and(|c| c.has_room()) {
            return self.open_last();
        }
        let at = self.spare.iter().rposition(|b| b.capacity() >= size)?;
        let buffer = self.spare.remove(at).ok()?;
        self.open_new(buffer)
    }

    /// Opens a chunk of this buffer, from which messages can be sent; `None` if there is no room.
    pub(crate) fn open_new(&mut self, buffer: Buffer) -> Option<OpenChunk> {
        let chunk = Chunk {
            buffer,
            start: self.end,
            len: 0,
            sealed: false,
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

    /// Closes a chunk, of whose room the first `n` bytes may be sent from now on.
    pub(crate) fn close(&mut self, chunk: OpenChunk, n: usize) {
        let Some(last) = self.chunks.back_mut().filter(|c| c.is_open()) else {
            return;
        };
        last.buffer.put_memory(chunk.memory);
        last.len += n as u32;
        self.end = last.end();
        if last.len == 0 {
            if let Some(unused) = self.chunks.pop_back() {
                self.keep(unused.buffer);
            }
        }
        // Without memory there is no room until some of them have arrived.
        self.chunks.grow(CHUNKS, GFP_NOWAIT);
    }

    /// The byte before the end of the stream is urgent.
    pub(crate) fn mark_urgent(&mut self) {
        self.urgent = Some(self.end);
    }

    /// How many of the unsent bytes there are up to and including the urgent byte.
    pub(crate) fn urgent(&self) -> Option<u32> {
        self.urgent
            .map(|at| u32::try_from(at.saturating_sub(self.sent)).unwrap_or(u32::MAX))
    }

    /// Finds the chunk that the next byte to be sent lies in, and its offset there.
    fn next(&self) -> Option<(usize, usize)> {
        let c = self.chunks.get(self.sent_whole)?;
        let off = usize::try_from(self.sent.checked_sub(c.start)?).ok()?;
        (off < c.len() && !c.is_open()).then_some((self.sent_whole, off))
    }

    /// Unsent bytes that one message can take.
    pub(crate) fn contiguous(&self) -> usize {
        let Some((i, off)) = self.next() else {
            return 0;
        };
        let len = |i| {
            let chunk = self.chunks.get(i).filter(|c| !c.is_open());
            chunk.map_or(0, Chunk::len)
        };
        (1..self.most_sges).fold(len(i) - off, |n, k| n + len(i + k))
    }

    /// The buffer that the next `n` unsent bytes lie in from its beginning, with no others behind
    /// them. Nothing is added to it any more, so it may be exchanged for another one.
    pub(crate) fn whole(&mut self, n: usize) -> Option<&mut Buffer> {
        let (i, off) = self.next()?;
        let c = self.chunks.get_mut(i)?;
        if off != 0 || c.len() != n {
            return None;
        }
        c.sealed = true;
        Some(&mut c.buffer)
    }

    /// Where the next `n` unsent bytes lie, `n` at most [`SendQueue::contiguous`].
    pub(crate) fn sges(&self, n: usize) -> ([Option<Sge<'_>>; SGES], usize) {
        let mut sges = [const { None }; SGES];
        let (mut left, mut count) = (n, 0);
        if let Some((i, mut off)) = self.next() {
            for (k, sge) in sges.iter_mut().enumerate() {
                let Some(c) = self.chunks.get(i + k).filter(|_| left > 0) else {
                    break;
                };
                let len = left.min(c.len() - off);
                *sge = Some(Sge {
                    buffer: &c.buffer,
                    offset: off as u32,
                    len: len as u32,
                });
                (left, off, count) = (left - len, 0, count + 1);
            }
        }
        (sges, count)
    }

    /// The next `n` bytes were given to the transport.
    pub(crate) fn advance(&mut self, n: usize, urgent: bool) {
        self.sent += n as u64;
        let sent = self.sent;
        let is_sent = |c: &Chunk| c.end() <= sent && !c.is_open();
        while self.chunks.get(self.sent_whole).is_some_and(is_sent) {
            self.sent_whole += 1;
        }
        if urgent {
            self.urgent = None;
        }
    }

    /// Everything before position `to` has arrived.
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

    /// Keeps an unused chunk, unless there are enough, or no memory for its place. One that was exchanged for a
    /// buffer without memory is gone.
    fn keep(&mut self, buffer: Buffer) {
        let few = self.spare.len() < SPARE;
        if few && buffer.has_memory() && !pressure::is_exhausted() {
            let _ = self.spare.push(buffer, GFP_NOWAIT);
        }
    }

    /// Gives back the chunks that are kept for the next send.
    pub(crate) fn shed(&mut self) {
        self.spare.clear();
    }

    /// Whether more bytes can be queued with no more memory than each connection may have.
    pub(crate) fn needs_little(&self) -> bool {
        let last = self.chunks.len().checked_sub(1);
        let last = last.and_then(|i| self.chunks.get(i));
        !self.spare.is_empty() || last.is_none_or(Chunk::has_room)
    }

    /// Forgets everything that was not sent, and gives back all memory.
    pub(crate) fn clear(&mut self) {
        while self.chunks.pop_front().is_some() {}
        self.spare.clear();
        (self.end, self.sent, self.done, self.small) = (0, 0, 0, 0);
        (self.sent_whole, self.urgent) = (0, None);
    }
}

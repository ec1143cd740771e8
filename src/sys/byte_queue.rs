// SPDX-License-Identifier: GPL-2.0-only

//! One direction of a local byte stream: an ordered list of segments of kernel memory and blocks.
//!
//! A [`ByteQueue`] has one [`Writer`] and one [`Reader`], each used by one task at a time. Both
//! ends share the positions ([`Flow`]) without a lock, so a call within one segment takes no lock.
//! A spinlock protects the list of entries. `tests/host/loom` compiles this file.
//!
//! `B` is a block of memory that its owner has queued instead of a copy ([`Writer::push`]). The
//! reader copies from a block, or removes the block unread. [`ByteQueue::blocks`] may replace the
//! bytes of a block while the reader does not use the block.

use super::flow::{Flow, Next, OPEN};
use super::pages::{Block, Memory};
use super::vec;
use core::pin::Pin;
use kernel::alloc::Flags;
use kernel::prelude::*;
use kernel::sync::{new_spinlock, Arc, SpinLock};

/// Maximum number of entries: a queue with all entries is full, even below its limit of bytes.
const ENTRIES: usize = 256;
/// Unused segments kept for the next bytes.
const SPARE: usize = 16;

/// Memory of an entry.
enum Content<B> {
    Segment(Arc<Block>),
    Block(B),
}

struct Entry<B> {
    /// Position of the content's first byte.
    start: i64,
    /// Position behind the content's last byte, or [`OPEN`].
    end: i64,
    place: Content<B>,
}

/// Entries, from the entry that is being read to the entry that is being written.
struct Entries<B> {
    list: KVec<Entry<B>>,
    spare: KVec<Arc<Block>>,
    /// Position behind the last byte that the writer has held back ([`Writer::hold`]).
    held: i64,
    /// Set when the reader has been dropped.
    gone: bool,
}

/// One direction of a stream.
///
/// # Invariants
///
/// Only the writer and the reader access the bytes of the segments. [`Writer`] writes at positions
/// at or above its `filled`, and `filled` is not below [`Flow::written`]. [`Reader`] reads
/// positions from [`Flow::read`] up to [`Flow::written`]. A segment is reused only after its
/// removal from the list, when the reader has read all of it and the writer has left it.
pub(crate) struct ByteQueue<B> {
    flow: Flow,
    entries: Pin<KBox<SpinLock<Entries<B>>>>,
}

/// The writing end.
pub(crate) struct Writer<B> {
    queue: Arc<ByteQueue<B>>,
    /// Segment that the next bytes are written to: the last entry.
    last: Option<Arc<Block>>,
    /// Position of the first byte of `last`.
    start: i64,
    /// Position behind the last byte of the stream, including bytes held back.
    filled: i64,
    /// Set while bytes may be held back.
    holds: bool,
}

/// The reading end.
pub(crate) struct Reader<B> {
    queue: Arc<ByteQueue<B>>,
    /// Position of the next byte: [`Flow::read`].
    read: i64,
    /// The first entry, once found.
    front: Option<Front>,
    /// The entry behind the front, in use by [`Reader::at`].
    peeked: Option<Front>,
}

/// An entry that the reader uses.
struct Front {
    start: i64,
    /// `None` for a block.
    memory: Option<Arc<Block>>,
}

impl Front {
    fn of<B>(entry: &Entry<B>) -> Self {
        let memory = match &entry.place {
            Content::Segment(memory) => Some(memory.clone()),
            Content::Block(_) => None,
        };
        let start = entry.start;
        Front { start, memory }
    }

    /// Returns `n` published, unread bytes at a position.
    fn place(&self, at: i64, n: usize) -> Found<'_> {
        let offset = size(at.wrapping_sub(self.start));
        match &self.memory {
            // SAFETY: By the invariants of the queue nobody writes to bytes that are published but
            // not consumed. Only the reader's `&mut self` consumes bytes.
            Some(memory) => Found::Bytes(unsafe { memory.part(offset, n) }),
            None => Found::Block {
                start: self.start,
                offset,
                len: n,
            },
        }
    }
}

/// Bytes found by [`Reader::at`].
pub(crate) enum Found<'a> {
    Bytes(&'a [u8]),
    /// `len` bytes at `offset` of a block that begins at position `start`.
    Block {
        start: i64,
        offset: usize,
        len: usize,
    },
    Nothing,
}

fn size(n: i64) -> usize {
    usize::try_from(n).unwrap_or(0)
}

impl<B> ByteQueue<B> {
    /// Makes a queue with its two ends.
    pub(crate) fn new() -> Result<(Arc<Self>, Writer<B>, Reader<B>)> {
        let entries = Entries {
            list: KVec::new(),
            spare: KVec::new(),
            held: 0,
            gone: false,
        };
        let lock = new_spinlock!(entries, "ib_sdp_byte_queue");
        let queue = ByteQueue {
            flow: Flow::new(),
            entries: KBox::pin_init(lock, GFP_KERNEL)?,
        };
        let queue = Arc::new(queue, GFP_KERNEL)?;
        let writer = Writer {
            queue: queue.clone(),
            last: None,
            start: 0,
            filled: 0,
            holds: false,
        };
        let reader = Reader {
            queue: queue.clone(),
            read: 0,
            front: None,
            peeked: None,
        };
        Ok((queue, writer, reader))
    }

    pub(crate) fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Publishes bytes that the writer has held back, if any. Returns true if the caller has to
    /// notify a waiting reader. Context: any.
    #[must_use]
    pub(crate) fn publish_held(&self) -> Option<bool> {
        let entries = self.entries.lock();
        let n = size(entries.held.wrapping_sub(self.flow.written()));
        (n > 0).then(|| self.flow.wrote(n))
    }

    /// Makes space for another entry. Only the writer adds entries and calls this function.
    /// Context: may sleep if `gfp` allows.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the list has the maximum number of entries. `ENOMEM`.
    fn reserve(&self, gfp: Flags) -> Result {
        let (len, capacity) = {
            let entries = self.entries.lock();
            (entries.list.len(), entries.list.capacity())
        };
        if len < capacity {
            return Ok(());
        }
        if len >= ENTRIES {
            return Err(ENOSPC);
        }
        let mut list = vec::with_capacity(len.saturating_mul(2).clamp(4, ENTRIES), gfp)?;
        let mut entries = self.entries.lock();
        for e in entries.list.drain_all() {
            // the reader only removes entries
            let _ = list.push_within_capacity(e);
        }
        core::mem::swap(&mut entries.list, &mut list);
        drop(entries);
        Ok(())
    }

    /// Calls `f` for each block, with its position, until it returns a result. Context: any.
    pub(crate) fn blocks<R>(&self, mut f: impl FnMut(&mut B, i64) -> Option<R>) -> Option<R> {
        let mut entries = self.entries.lock();
        entries.list.iter_mut().find_map(|e| match &mut e.place {
            Content::Block(b) => f(b, e.start),
            Content::Segment(_) => None,
        })
    }

    /// Removes all bytes from the first block on for which `goes` returns true.
    pub(crate) fn cut(&self, mut goes: impl FnMut(&B) -> bool) {
        let mut pop = || {
            let mut entries = self.entries.lock();
            let goes = |e: &Entry<B>| matches!(&e.place, Content::Block(b) if goes(b));
            let any = entries.list.iter().any(goes);
            any.then(|| entries.list.pop()).flatten()
        };
        // drop each block without the lock
        while pop().is_some() {}
    }

    /// Frees the spare segments.
    pub(crate) fn shed(&self) {
        let spare = core::mem::replace(&mut self.entries.lock().spare, KVec::new());
        drop(spare);
    }
}

impl<B> Entries<B> {
    /// Adds an entry at `at`, the end of the last entry. Returns the content if the list has no
    /// space ([`ByteQueue::reserve`]) or the reader is dropped.
    fn push(
        &mut self,
        flow: &Flow,
        at: i64,
        end: i64,
        place: Content<B>,
    ) -> Result<(), Content<B>> {
        if self.gone || self.list.len() == self.list.capacity() {
            return Err(place);
        }
        let only = self.list.len() == 1;
        if let Some(last) = self.list.last_mut() {
            last.end = at;
            if only {
                flow.set_first_end(at);
            }
        }
        // `reserve` has made space
        let _ = self.list.push_within_capacity(Entry {
            start: at,
            end,
            place,
        });
        Ok(())
    }
}

impl<B> Writer<B> {
    /// Returns the position behind the last byte, including bytes held back.
    pub(crate) fn position(&self) -> i64 {
        self.filled
    }

    /// Returns an upper bound of the number of bytes held back.
    pub(crate) fn held(&self) -> usize {
        match self.holds {
            true => size(self.filled.wrapping_sub(self.queue.flow.written())),
            false => 0,
        }
    }

    /// Returns the free bytes of the last segment; an empty slice if the segment is full.
    #[inline]
    pub(crate) fn space(&mut self) -> &mut [u8] {
        let used = size(self.filled.wrapping_sub(self.start));
        match &self.last {
            // SAFETY: By the invariants of the queue nobody else accesses the bytes from `filled`
            // on, and `&mut self` is the only writer.
            Some(memory) => unsafe { memory.part_mut(used) },
            None => &mut [],
        }
    }

    /// Adds a segment of `least` bytes, a power of two, or more. May sleep if `gfp` allows it.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the list has the maximum number of entries, or the reader is dropped. `ENOMEM`.
    pub(crate) fn extend(&mut self, least: usize, gfp: Flags) -> Result {
        self.queue.reserve(gfp)?;
        let spare = {
            let mut entries = self.queue.entries.lock();
            let at = entries.spare.iter().rposition(|m| m.size() >= least);
            at.and_then(|at| entries.spare.remove(at).ok())
        };
        let memory = match spare {
            Some(memory) => memory,
            None => Memory::new(least, gfp)?.into_block(),
        };
        let place = Content::Segment(memory.clone());
        let (queue, at) = (&self.queue, self.filled);
        let pushed = queue.entries.lock().push(&queue.flow, at, OPEN, place);
        pushed.map_err(|_| ENOSPC)?;
        (self.last, self.start) = (Some(memory), self.filled);
        Ok(())
    }

    /// Publishes `n` bytes, and bytes held back. Returns true if the caller must notify the reader.
    #[must_use]
    #[inline(always)] // in a small send
    pub(crate) fn publish(&mut self, n: usize) -> bool {
        self.filled = self.filled.wrapping_add_unsigned(n as u64);
        match core::mem::take(&mut self.holds) {
            false => self.queue.flow.wrote(n),
            true => {
                self.queue.entries.lock().held = self.filled;
                self.queue.publish_held() == Some(true)
            }
        }
    }

    /// Adds the next `n` bytes; [`Writer::publish`] or [`Writer::rewind`] must follow.
    pub(crate) fn fill(&mut self, n: usize) {
        self.filled = self.filled.wrapping_add_unsigned(n as u64);
        self.holds = true;
    }

    /// Removes the bytes added by [`Writer::fill`], and segments that contain only such bytes.
    pub(crate) fn rewind(&mut self) {
        self.filled = self.queue.flow.written();
        (self.last, self.holds) = (None, false);
        let mut entries = self.queue.entries.lock();
        while entries.list.last().is_some_and(|e| e.start > self.filled) {
            entries.list.pop();
        }
        let only = entries.list.len() == 1;
        if let Some(Entry {
            start,
            end,
            place: Content::Segment(memory),
        }) = entries.list.last_mut()
        {
            (*end, self.start, self.last) = (OPEN, *start, Some(memory.clone()));
            if only {
                self.queue.flow.set_first_end(OPEN);
            }
        }
    }

    /// Adds `n` bytes, which [`ByteQueue::publish_held`] or [`Writer::publish`] publishes later.
    pub(crate) fn hold(&mut self, n: usize) {
        self.fill(n);
        self.queue.entries.lock().held = self.filled;
    }

    /// Adds a block of `len` bytes, and publishes the block and all bytes held back. Returns true
    /// if the caller has to notify the reader. Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `Err`: returns the block if the list has no space for its entry, or the reader is dropped.
    pub(crate) fn push(&mut self, block: B, len: usize) -> Result<bool, B> {
        if self.queue.reserve(GFP_KERNEL).is_err() {
            return Err(block);
        }
        let (at, end) = (self.filled, self.filled.wrapping_add_unsigned(len as u64));
        let mut entries = self.queue.entries.lock();
        let pushed = entries.push(&self.queue.flow, at, end, Content::Block(block));
        drop(entries);
        if let Err(Content::Block(block)) = pushed {
            return Err(block);
        }
        self.last = None;
        Ok(self.publish(len))
    }

    /// Publishes the next bytes as part of the last block; `add` adds them to the block under the
    /// lock. `add` returns the number of bytes. Returns the number of bytes, and true if the caller
    /// has to notify the reader.
    pub(crate) fn grow(&mut self, add: impl FnOnce(&mut B) -> usize) -> (usize, bool) {
        let mut entries = self.queue.entries.lock();
        let only = entries.list.len() == 1;
        let Some(Entry {
            end,
            place: Content::Block(b),
            ..
        }) = entries.list.last_mut()
        else {
            return (0, false);
        };
        if *end != self.filled {
            return (0, false);
        }
        let n = add(b);
        *end = end.wrapping_add_unsigned(n as u64);
        if only {
            self.queue.flow.set_first_end(*end);
        }
        drop(entries);
        (n, n > 0 && self.publish(n))
    }
}

impl<B> Reader<B> {
    /// Returns contiguous unread bytes, starting `ahead` bytes after the next byte.
    #[inline]
    pub(crate) fn at(&mut self, ahead: usize) -> Found<'_> {
        let n = loop {
            match self.queue.flow.next(self.read) {
                Next::Bytes(n) if n == 0 || self.front.is_some() => break n,
                // [`ByteQueue::cut`] may have removed all later entries
                _ if !self.turn() => return Found::Nothing,
                _ => {}
            }
        };
        let at = self.read.wrapping_add_unsigned(ahead as u64);
        if ahead > 0 && ahead >= n {
            return self.behind(at);
        }
        let front = self.front.as_ref().filter(|_| ahead < n);
        front.map_or(Found::Nothing, |f| f.place(at, n.wrapping_sub(ahead)))
    }

    /// Returns the bytes at a position behind the first entry.
    #[cold]
    fn behind(&mut self, at: i64) -> Found<'_> {
        let written = self.queue.flow.written();
        let entries = self.queue.entries.lock();
        let entry = entries.list.iter().find(|e| e.start <= at && at < e.end);
        let Some(entry) = entry.filter(|_| at < written) else {
            return Found::Nothing;
        };
        let n = size(entry.end.min(written).wrapping_sub(at));
        let peeked = Front::of(entry);
        drop(entries);
        self.peeked.insert(peeked).place(at, n)
    }

    /// Removes the first entry, which has been read to its end, and advances to the next entry.
    /// Returns false if the list has no further entry.
    #[cold] // keeps the function's registers out of calls in one segment
    fn turn(&mut self) -> bool {
        self.peeked = None;
        let had = self.front.take().is_some();
        let mut entries = self.queue.entries.lock();
        let old = had.then(|| entries.list.remove(0).ok()).flatten();
        if let Some(first) = entries.list.first() {
            self.front = Some(Front::of(first));
            self.queue.flow.set_first_end(first.end);
        }
        let kept = match old.map(|e| e.place) {
            Some(Content::Segment(memory)) => {
                vec::push(&mut entries.spare, SPARE, memory, GFP_NOWAIT).err()
            }
            // the reader has read the segment to its end
            Some(Content::Block(_)) | None => None,
        };
        drop(entries);
        drop(kept);
        self.front.is_some()
    }

    /// Returns the position of the next byte to read.
    pub(crate) fn position(&self) -> i64 {
        self.read
    }

    /// Consumes `n` bytes that [`Reader::at`] returned without `ahead`. Returns true if the caller
    /// has to notify the writer.
    #[must_use]
    pub(crate) fn consume(&mut self, n: usize) -> bool {
        self.read = self.read.wrapping_add_unsigned(n as u64);
        self.queue.flow.has_read(n)
    }
}

impl<B> Drop for Reader<B> {
    fn drop(&mut self) {
        let mut entries = self.queue.entries.lock();
        entries.gone = true;
        let rest = core::mem::replace(&mut entries.list, KVec::new());
        drop(entries);
        drop(rest);
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Positions of one direction of a local byte stream with one writer, one reader and no lock.
//!
//! A list of entries contains the bytes ([`super::byte_queue`]). The writer fills the last entry
//! and the reader empties the first entry; both may be the same entry. Only a side that reaches the
//! end of an entry takes the lock of the list.
//!
//! Each side becomes a waiter before its last check ([`Flow::await_bytes`], [`Flow::await_space`]),
//! and the other side then notifies the waiter once. `tests/host/loom` compiles this file.

use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed};

/// End of an entry that the writer may still append to: above any position.
pub(crate) const OPEN: i64 = i64::MAX;

/// Next bytes to read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Number of bytes in the first entry, perhaps 0.
    Bytes(usize),
    /// The reader is at the end of the first entry: the caller removes the entry and calls again.
    Turned,
}

/// Positions in the stream. The positions [`Flow::written`] and [`Flow::read`] only grow.
pub(crate) struct Flow {
    /// Number of bytes written, changed by the writer only.
    written: Atomic<i64>,
    /// Number of bytes read, changed by the reader only.
    read: Atomic<i64>,
    /// End of the first entry, or [`OPEN`]. Writers hold the lock of the list.
    first_end: Atomic<i64>,
    /// Set while the writer has to notify the reader of new bytes.
    reader_waits: Atomic<i32>,
    /// Number of unread bytes below which the reader notifies the writer; 0: no wait.
    writer_waits: Atomic<i64>,
}

impl Flow {
    pub(crate) fn new() -> Self {
        Flow {
            written: Atomic::new(0),
            read: Atomic::new(0),
            // the list is empty, so the reader searches for an entry once bytes are published
            first_end: Atomic::new(0),
            reader_waits: Atomic::new(0),
            writer_waits: Atomic::new(0),
        }
    }

    /// Returns the number of bytes written and not read. The other side's position may be stale.
    pub(crate) fn unread(&self) -> usize {
        let read = self.read.load(Acquire);
        usize::try_from(self.written.load(Acquire).wrapping_sub(read)).unwrap_or(0)
    }

    /// Returns the position behind the last byte that may be read.
    pub(crate) fn written(&self) -> i64 {
        self.written.load(Acquire)
    }

    /// Returns the position of the next byte to read.
    pub(crate) fn read(&self) -> i64 {
        self.read.load(Acquire)
    }

    /// Publishes `n` bytes of the writer. Returns true if the caller has to notify the reader.
    #[must_use]
    pub(crate) fn wrote(&self, n: usize) -> bool {
        // full barrier: after the write of the bytes, and before the check for a waiting reader
        self.written.fetch_add(i64::try_from(n).unwrap_or(0), Full);
        self.reader_waits.load(Relaxed) != 0 && self.reader_waits.xchg(0, Full) != 0
    }

    /// Sets the end of the first entry, when the entry is new or the writer has closed it. The
    /// writer calls this function under the list's lock, before it publishes bytes behind `end`.
    pub(crate) fn set_first_end(&self, end: i64) {
        // the increment in `wrote` publishes this store, too
        self.first_end.store(end, Relaxed);
    }

    /// Returns the bytes to read from `read` on, the reader's position. Only the reader calls this
    /// function.
    pub(crate) fn next(&self, read: i64) -> Next {
        // acquire: orders the reads of the bytes, and of the first entry's end, after this load
        let written = self.written.load(Acquire);
        let end = self.first_end.load(Relaxed);
        if read >= end && written > end {
            return Next::Turned;
        }
        let n = written.min(end).wrapping_sub(read);
        Next::Bytes(usize::try_from(n).unwrap_or(0))
    }

    /// Consumes `n` bytes. Returns true if the caller has to notify the writer, which waits for
    /// fewer unread bytes. Only the reader calls this function.
    #[must_use]
    pub(crate) fn has_read(&self, n: usize) -> bool {
        // full barrier: after the accesses to the bytes, and before the check for a waiting writer
        self.read.fetch_add(i64::try_from(n).unwrap_or(0), Full);
        let below = self.writer_waits.load(Relaxed);
        if below == 0 || self.unread() as i64 >= below {
            return false;
        }
        self.writer_waits.xchg(0, Full) != 0
    }

    /// Registers the reader as a waiter for bytes; the caller then calls [`Flow::next`] once more.
    pub(crate) fn await_bytes(&self) {
        self.reader_waits.xchg(1, Full);
    }

    /// Registers the writer as a waiter for at most `low` unread bytes. The caller must then check
    /// for space once more.
    pub(crate) fn await_space(&self, low: usize) {
        let below = i64::try_from(low).unwrap_or(OPEN).saturating_add(1);
        self.writer_waits.xchg(below, Full);
    }
}

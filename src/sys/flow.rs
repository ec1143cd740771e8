// SPDX-License-Identifier: GPL-2.0-only

//! Positions of one direction of a local byte stream: one writer, one reader, no lock.
//!
//! The bytes are in entries of a list ([`super::byte_queue`]). The writer fills the last entry and
//! the reader empties the first one, which may be the same. Only a side that reaches the end of an
//! entry takes the lock of the list.
//!
//! Each side registers as a waiter before its last check ([`Flow::await_bytes`],
//! [`Flow::await_space`]). The other side then notifies the waiter, once. `tests/host/loom`
//! compiles this file.

use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed};

/// End of an entry that the writer may append to. No stream has as many bytes.
pub(crate) const OPEN: i64 = i64::MAX;

/// Next bytes to read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Number of bytes in the first entry, perhaps 0, and the position of the first.
    Bytes(i64, usize),
    /// The reader is at the end of the first entry, removes it and repeats the call.
    Turned,
}

/// Positions in the stream. The positions [`Flow::written`] and [`Flow::read`] only grow.
pub(crate) struct Flow {
    /// Number of bytes written. Only the writer changes it.
    written: Atomic<i64>,
    /// Number of bytes read. Only the reader changes it.
    read: Atomic<i64>,
    /// End of the first entry, or [`OPEN`]. Written with the lock of the list.
    first_end: Atomic<i64>,
    /// Set while the reader is to be notified of bytes.
    reader_waits: Atomic<i32>,
    /// Number of unread bytes below which the writer gets notified; 0: it does not wait.
    writer_waits: Atomic<i64>,
}

impl Flow {
    pub(crate) fn new() -> Self {
        Flow {
            written: Atomic::new(0),
            read: Atomic::new(0),
            // there is no entry, so the reader looks for one once there are bytes
            first_end: Atomic::new(0),
            reader_waits: Atomic::new(0),
            writer_waits: Atomic::new(0),
        }
    }

    /// Returns the number of bytes written and not read. Exact for the reader and the writer as far
    /// as their own position goes, otherwise possibly out of date.
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
        // full: after the bytes, and before the check for a waiting reader
        self.written.fetch_add(i64::try_from(n).unwrap_or(0), Full);
        self.reader_waits.load(Relaxed) != 0 && self.reader_waits.xchg(0, Full) != 0
    }

    /// Sets the end of the first entry: a new one, or one that was closed. Called with the lock of
    /// the list, by the writer before it publishes bytes behind that end.
    pub(crate) fn set_first_end(&self, end: i64) {
        // the increment in `wrote` publishes this store, too
        self.first_end.store(end, Relaxed);
    }

    /// Returns the bytes to read. Called by the reader.
    pub(crate) fn next(&self) -> Next {
        let read = self.read.load(Relaxed);
        // acquire: the bytes, and the end of the first entry if there are bytes behind it
        let written = self.written.load(Acquire);
        let end = self.first_end.load(Relaxed);
        if read >= end && written > end {
            return Next::Turned;
        }
        let n = written.min(end).wrapping_sub(read);
        Next::Bytes(read, usize::try_from(n).unwrap_or(0))
    }

    /// Consumes `n` bytes. Returns true if the caller has to notify the writer, which waits for
    /// fewer unread bytes. Called by the reader.
    #[must_use]
    pub(crate) fn has_read(&self, n: usize) -> bool {
        // full: after the accesses to these bytes, and before the check for a waiting writer
        self.read.fetch_add(i64::try_from(n).unwrap_or(0), Full);
        let below = self.writer_waits.load(Relaxed);
        if below == 0 || self.unread() as i64 >= below {
            return false;
        }
        self.writer_waits.xchg(0, Full) != 0
    }

    /// Registers a waiter for bytes, which then calls [`Flow::next`] once more.
    pub(crate) fn await_bytes(&self) {
        self.reader_waits.xchg(1, Full);
    }

    /// Registers a waiter for at most `low` unread bytes, which then checks for it once more.
    pub(crate) fn await_space(&self, low: usize) {
        let below = i64::try_from(low).unwrap_or(OPEN).saturating_add(1);
        self.writer_waits.xchg(below, Full);
    }
}

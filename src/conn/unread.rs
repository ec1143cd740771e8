// SPDX-License-Identifier: GPL-2.0-only

//! Positions in the stream of received bytes, and rules for the urgent byte. The code depends
//! neither on the kernel nor on the memory that holds the bytes.

use core::cmp::Ordering;

/// Urgent data (`MSG_OOB`): at most one byte, as in TCP.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Urgent {
    #[default]
    None,
    /// An urgent byte is announced, but has not arrived.
    Pending,
    /// Value and position of an urgent byte that has arrived and is unread.
    Valid(u8, u64),
    /// Position of an urgent byte that was read by `MSG_OOB`.
    Read(u64),
}

/// Stream positions of the bytes that were received and not read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Unread {
    /// Position of the next byte to read.
    read: u64,
    /// Position behind the last received byte.
    end: u64,
    /// State of the urgent byte.
    pub(crate) urgent: Urgent,
}

/// Bytes that a receive call may take at once; result of [`Unread::next`].
pub(crate) struct NextRead {
    /// Position of the first byte.
    pub(crate) at: u64,
    /// 1 if the first byte is for `MSG_OOB` and not part of the stream, else 0.
    pub(crate) skip: usize,
    most: usize,
}

impl NextRead {
    /// Returns how many of `n` bytes from position `at` on the caller gets.
    #[inline]
    pub(crate) fn len_of(&self, n: usize) -> usize {
        n.saturating_sub(self.skip).min(self.most)
    }

    /// Returns the part of `bytes` to pass to the caller; `bytes` begin at position `at`.
    #[inline]
    pub(crate) fn of<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let bytes = bytes.get(self.skip..).unwrap_or(&[]);
        bytes.get(..self.most).unwrap_or(bytes)
    }
}

impl Unread {
    /// Returns the bytes from position `read` to `end`.
    pub(super) fn new(read: u64, end: u64, urgent: Urgent) -> Self {
        Unread { read, end, urgent }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.end.wrapping_sub(self.read) as usize
    }

    /// Returns the position of the next byte to read.
    pub(crate) fn position(&self) -> u64 {
        self.read
    }

    fn mark(&self) -> Option<u64> {
        match self.urgent {
            Urgent::Valid(_, at) | Urgent::Read(at) => Some(at),
            Urgent::Pending | Urgent::None => None,
        }
    }

    /// Returns true if the next byte to read is the urgent one (`SIOCATMARK`).
    pub(crate) fn at_mark(&self) -> bool {
        self.mark() == Some(self.read)
    }

    /// Returns the number of bytes before the urgent mark, or of all bytes without one (`SIOCINQ`).
    pub(crate) fn readable(&self, inline: bool) -> usize {
        let mark = self.mark().filter(|_| !inline).unwrap_or(self.end);
        (mark.wrapping_sub(self.read) as usize).min(self.bytes())
    }

    /// Returns true if poll(2) reports bytes: at least `least`, or any number if no more can arrive
    /// (`full`, as in TCP). A byte for `MSG_OOB` at the read position does not count.
    pub(crate) fn reaches(&self, least: usize, inline: bool, full: impl FnOnce() -> bool) -> bool {
        let ahead = usize::from(!inline && self.at_mark());
        self.bytes() >= least.saturating_add(ahead) || self.bytes() > ahead && full()
    }

    /// Returns up to `most` next bytes for a receive call at position `from`, before the urgent
    /// mark. Returns `None` if the mark is next, and the call has `got` bytes before the mark.
    #[inline]
    pub(crate) fn next(&self, from: u64, most: usize, got: bool, inline: bool) -> Option<NextRead> {
        // an old urgent byte before the peeked bytes may have been dropped
        let at = self.read.max(from);
        let mut next = NextRead { at, skip: 0, most };
        if let Some(mark) = self.mark() {
            match mark.cmp(&at) {
                Ordering::Equal if got => return None,
                Ordering::Equal => next.skip = usize::from(!inline),
                Ordering::Greater => next.most = most.min(mark.wrapping_sub(at) as usize),
                Ordering::Less => {}
            }
        }
        Some(next)
    }

    /// Counts `n` received bytes, of which the last may be `urgent`.
    pub(super) fn received(&mut self, n: u64, urgent: Option<u8>) {
        self.end = self.end.wrapping_add(n);
        if let Some(byte) = urgent.filter(|_| n > 0) {
            self.urgent = Urgent::Valid(byte, self.end.wrapping_sub(1));
        }
    }

    /// Counts `n` bytes as read. Forgets an urgent byte before the new position.
    pub(super) fn consume(&mut self, n: u64) {
        self.read = self.read.wrapping_add(n);
        if self.mark().is_some_and(|at| at < self.read) {
            self.urgent = Urgent::None;
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Pieces of one call's memory that the call itself moves, by RDMA READ or WRITE.
//!
//! The pieces are consecutive bytes of the stream. While the oldest one is in flight, the next one
//! may be pinned and join the [`TransferQueue`], so that transfers follow one another without a
//! pause. Their sizes need not match the peer's adverts: a piece may go to several blocks, and a
//! block may take several pieces.
//!
//! When the peer's adverts are used up, the queue is *cut*: the current piece ends with the posted
//! bytes, and those behind it do not go. The call is notified at once, since it may wait for the
//! posting of bytes that will not be posted.

/// Maximum number of pieces that a call has queued.
pub(crate) const MOST_PIECES: usize = 2;

/// A piece.
#[derive(Debug)]
struct Transfer<M> {
    memory: M,
    /// Number of bytes.
    size: u32,
    /// Bytes to move: fewer once the queue was cut.
    len: u32,
    /// Posted bytes.
    started: u32,
    /// Arrived bytes.
    done: u32,
    /// Identifies the piece among all earlier and later ones.
    number: u64,
}

/// Next bytes to post.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Next<'a, M> {
    pub(crate) memory: &'a M,
    /// Offset in the memory.
    pub(crate) offset: u32,
    /// Maximum number of bytes.
    pub(crate) len: u32,
    /// Number of the piece.
    pub(crate) number: u64,
}

/// State of the oldest piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// In flight.
    Moving,
    /// Complete.
    Done,
    /// Ended because the connection is lost.
    Lost,
}

/// A piece that is returned to the caller.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Moved<M> {
    pub(crate) memory: M,
    /// Number of bytes.
    pub(crate) size: u32,
    /// Bytes that were to be moved in the end.
    pub(crate) len: u32,
    /// Bytes moved.
    pub(crate) done: u32,
    /// Set if the connection was lost: the memory belongs to its transport.
    pub(crate) lost: bool,
}

/// Pieces of one call, the oldest first.
#[derive(Debug)]
pub(crate) struct TransferQueue<M> {
    pieces: [Option<Transfer<M>>; MOST_PIECES],
    /// Pieces so far.
    numbers: u64,
    /// Set while the call has more pieces.
    open: bool,
    /// Set when no more pieces may join.
    cut: bool,
    /// Set until the call was notified of the cut.
    tell: bool,
    lost: bool,
}

impl<M> TransferQueue<M> {
    /// Makes an empty queue.
    pub(crate) const fn new() -> Self {
        TransferQueue {
            pieces: [const { None }; MOST_PIECES],
            numbers: 0,
            open: false,
            cut: false,
            tell: false,
            lost: false,
        }
    }

    /// Returns true if there is no piece.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.iter().all(Option::is_none)
    }

    /// Returns true if another piece may join.
    pub(crate) fn has_room(&self) -> bool {
        let full = self.pieces.iter().all(Option::is_some);
        self.is_empty() || (!full && !self.cut && !self.lost)
    }

    /// Adds a piece of `len` bytes behind the others. `open`: another one will follow, if the peer
    /// has space for it.
    ///
    /// # Errors
    ///
    /// The memory, unless [`Self::has_room`].
    pub(crate) fn push(&mut self, memory: M, len: u32, open: bool) -> Result<(), M> {
        if !self.has_room() {
            return Err(memory);
        }
        if self.is_empty() {
            (self.cut, self.tell, self.lost) = (false, false, false);
        }
        self.numbers = self.numbers.wrapping_add(1);
        let number = self.numbers;
        if let Some(place) = self.pieces.iter_mut().find(|p| p.is_none()) {
            *place = Some(Transfer {
                memory,
                size: len,
                len,
                started: 0,
                done: 0,
                number,
            });
        }
        self.open = open;
        Ok(())
    }

    /// Ends the pieces of the call. Returns true if everything was posted by then: the
    /// announcement of more has to be withdrawn.
    pub(crate) fn close(&mut self) -> bool {
        let was = core::mem::replace(&mut self.open, false);
        was && self.unstarted() == 0
    }

    /// Returns the unposted bytes.
    pub(crate) fn unstarted(&self) -> u32 {
        let left = |p: &Transfer<M>| p.len.saturating_sub(p.started);
        self.pieces
            .iter()
            .flatten()
            .fold(0, |sum: u32, p| sum.saturating_add(left(p)))
    }

    /// Returns the next bytes to post.
    pub(crate) fn next(&self) -> Option<Next<'_, M>> {
        let left = |p: &&Transfer<M>| p.started < p.len;
        let piece = self.pieces.iter().flatten().find(left)?;
        (!self.lost).then_some(Next {
            memory: &piece.memory,
            offset: piece.started,
            len: piece.len - piece.started,
            number: piece.number,
        })
    }

    /// Records posted bytes. Returns true if these were the last of the call.
    pub(crate) fn posted(&mut self, bytes: u32) -> bool {
        let mut pieces = self.pieces.iter_mut().flatten();
        if let Some(piece) = pieces.find(|p| p.started < p.len) {
            piece.started = piece.started.saturating_add(bytes).min(piece.len);
        }
        !self.open && self.unstarted() == 0
    }

    /// Cuts the queue: the peer's adverts are used up.
    pub(crate) fn cut(&mut self) {
        for p in self.pieces.iter_mut().flatten() {
            p.len = p.started;
        }
        (self.cut, self.tell) = (true, true);
    }

    /// Returns true, once, if the call has to be notified of a cut.
    pub(crate) fn has_to_tell(&mut self) -> bool {
        core::mem::take(&mut self.tell)
    }

    /// Records arrived bytes of the piece with this number. Returns true if it is complete, so
    /// that the call has to be notified.
    pub(crate) fn moved(&mut self, number: u64, bytes: u32) -> bool {
        let mut pieces = self.pieces.iter_mut().flatten();
        let Some(piece) = pieces.find(|p| p.number == number) else {
            return false;
        };
        piece.done = piece.done.saturating_add(bytes).min(piece.len);
        piece.done == piece.len
    }

    /// Handles the loss of the connection.
    pub(crate) fn lost(&mut self) {
        self.lost = !self.is_empty();
    }

    /// Returns the state of the oldest piece; `None` if there is none.
    pub(crate) fn progress(&self) -> Option<Progress> {
        let [oldest, ..] = &self.pieces;
        let oldest = oldest.as_ref()?;
        Some(match oldest.done == oldest.len {
            true => Progress::Done,
            false if self.lost => Progress::Lost,
            false => Progress::Moving,
        })
    }

    /// Takes the oldest piece out, unless it is in flight.
    pub(crate) fn take(&mut self) -> Option<Moved<M>> {
        if self.progress()? == Progress::Moving {
            return None;
        }
        let [oldest, ..] = &mut self.pieces;
        let piece = oldest.take()?;
        self.pieces.rotate_left(1);
        Some(Moved {
            memory: piece.memory,
            size: piece.size,
            len: piece.len,
            done: piece.done,
            lost: self.lost,
        })
    }
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;

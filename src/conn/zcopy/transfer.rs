// SPDX-License-Identifier: GPL-2.0-only

//! Pieces of one call's memory that the call itself moves, by RDMA READ or WRITE.
//!
//! The pieces are consecutive bytes of the stream. While the oldest one is under way, the next one
//! may be pinned and join the [`TransferQueue`], so that the transfers follow one another without a pause.
//! They need not be as large as what the peer has advertised: a piece may go to several blocks, and
//! a block may take several pieces.
//!
//! When the peer has nothing more advertised, the queue is *cut*: the piece at hand ends with what
//! was posted of it, and nothing of those behind it goes. The call has to be told of that at once:
//! it may wait for room to post what is now not to be posted any more.

/// Pieces that a call has queued.
pub(crate) const MOST_PIECES: usize = 2;

/// A piece.
#[derive(Debug)]
struct Transfer<M> {
    memory: M,
    /// Its bytes.
    size: u32,
    /// Bytes to move: fewer, once the queue was cut.
    len: u32,
    /// Bytes for which requests were posted.
    started: u32,
    /// Bytes that have arrived.
    done: u32,
    /// Tells it from all others, before and after.
    number: u64,
}

/// What to post next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Next<'a, M> {
    /// From or to which memory.
    pub(crate) memory: &'a M,
    /// Where in that.
    pub(crate) offset: u32,
    /// How many bytes at most.
    pub(crate) len: u32,
    /// Of which piece.
    pub(crate) number: u64,
}

/// Where the oldest piece stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is under way.
    Moving,
    /// Nothing more of it comes.
    Done,
    /// Nor does it, because the connection is lost.
    Lost,
}

/// A piece that is the caller's again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Moved<M> {
    /// From or to which memory.
    pub(crate) memory: M,
    /// Its bytes.
    pub(crate) size: u32,
    /// Those that were to be moved at last.
    pub(crate) len: u32,
    /// Bytes that were.
    pub(crate) done: u32,
    /// The connection was lost, and the memory is the transport's of that.
    pub(crate) lost: bool,
}

/// The pieces of one call, the oldest first.
#[derive(Debug)]
pub(crate) struct TransferQueue<M> {
    pieces: [Option<Transfer<M>>; MOST_PIECES],
    /// Pieces that there were.
    numbers: u64,
    /// The call has more pieces.
    open: bool,
    /// No more pieces may join.
    cut: bool,
    /// The call has to be told of that.
    tell: bool,
    lost: bool,
}

impl<M> TransferQueue<M> {
    /// No pieces.
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

    /// Whether there is no piece.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.iter().all(Option::is_none)
    }

    /// Whether another piece may join.
    pub(crate) fn has_room(&self) -> bool {
        let full = self.pieces.iter().all(Option::is_some);
        self.is_empty() || (!full && !self.cut && !self.lost)
    }

    /// Adds a piece of `len` bytes behind the others. `open`: there will be another one, if the peer
    /// has room for it.
    ///
    /// # Errors
    ///
    /// The memory, unless there is [room](Self::has_room).
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

    /// No other piece comes. Returns whether everything was posted by then: whoever was told that there
    /// would be more is to be told otherwise.
    pub(crate) fn close(&mut self) -> bool {
        let was = core::mem::replace(&mut self.open, false);
        was && self.unstarted() == 0
    }

    /// Bytes that are to be posted.
    pub(crate) fn unstarted(&self) -> u32 {
        let left = |p: &Transfer<M>| p.len.saturating_sub(p.started);
        self.pieces
            .iter()
            .flatten()
            .fold(0, |sum: u32, p| sum.saturating_add(left(p)))
    }

    /// What to post next.
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

    /// So many bytes of that were posted. Returns whether these were the last of the call.
    pub(crate) fn posted(&mut self, bytes: u32) -> bool {
        let mut pieces = self.pieces.iter_mut().flatten();
        if let Some(piece) = pieces.find(|p| p.started < p.len) {
            piece.started = piece.started.saturating_add(bytes).min(piece.len);
        }
        !self.open && self.unstarted() == 0
    }

    /// The peer has nothing more advertised for what is to be posted.
    pub(crate) fn cut(&mut self) {
        for p in self.pieces.iter_mut().flatten() {
            p.len = p.started;
        }
        (self.cut, self.tell) = (true, true);
    }

    /// Whether the call has to be told that the queue was cut, once.
    pub(crate) fn has_to_tell(&mut self) -> bool {
        core::mem::take(&mut self.tell)
    }

    /// So many bytes of the piece with this number have arrived. Returns whether it is done, so that
    /// the call has to be told.
    pub(crate) fn moved(&mut self, number: u64, bytes: u32) -> bool {
        let mut pieces = self.pieces.iter_mut().flatten();
        let Some(piece) = pieces.find(|p| p.number == number) else {
            return false;
        };
        piece.done = piece.done.saturating_add(bytes).min(piece.len);
        piece.done == piece.len
    }

    /// The connection is lost.
    pub(crate) fn lost(&mut self) {
        self.lost = !self.is_empty();
    }

    /// Where the oldest piece stands; `None` if there is none.
    pub(crate) fn progress(&self) -> Option<Progress> {
        let [oldest, ..] = &self.pieces;
        let oldest = oldest.as_ref()?;
        Some(match oldest.done == oldest.len {
            true => Progress::Done,
            false if self.lost => Progress::Lost,
            false => Progress::Moving,
        })
    }

    /// Takes the oldest piece out, unless it is under way.
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

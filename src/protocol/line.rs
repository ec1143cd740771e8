// SPDX-License-Identifier: GPL-2.0-only

//! Pieces of one call's memory that the call itself moves, by RDMA READ or WRITE.
//!
//! The pieces are consecutive bytes of the stream. While the oldest one is under way, the next one
//! may be pinned and join the [`Line`], so that the transfers follow one another without a pause.
//! They need not be as large as what the peer has advertised: a piece may go to several blocks, and
//! a block may take several pieces.
//!
//! When the peer has nothing more advertised, the line is *cut*: the piece at hand ends with what
//! was posted of it, and nothing of those behind it goes. The call has to be told of that at once:
//! it may wait for room to post what is now not to be posted any more.

/// Pieces that a call has in line.
pub const MOST_PIECES: usize = 2;

/// A piece.
#[derive(Clone, Copy, Debug)]
struct Piece<L> {
    loan: L,
    /// Bytes to move.
    len: u32,
    /// Bytes for which requests were posted.
    started: u32,
    /// Bytes that have arrived.
    done: u32,
    /// Tells it from all others, before and after.
    number: u64,
}

/// What to post next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<L> {
    /// From or to which memory.
    pub loan: L,
    /// Where in that.
    pub offset: u32,
    /// How many bytes at most.
    pub len: u32,
    /// Of which piece.
    pub number: u64,
}

/// Where the oldest piece stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is under way.
    Moving,
    /// Nothing more of it comes.
    Done,
    /// Nor does it, because the connection is lost.
    Lost,
}

/// A piece that is the caller's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved<L> {
    /// From or to which memory.
    pub loan: L,
    /// Bytes that were to be moved at last.
    pub len: u32,
    /// Bytes that were.
    pub done: u32,
}

/// The pieces of one call, the oldest first.
#[derive(Debug)]
pub struct Line<L> {
    pieces: [Option<Piece<L>>; MOST_PIECES],
    /// Pieces that there were.
    numbers: u64,
    /// The call has more pieces.
    open: bool,
    /// No more pieces may join.
    cut: bool,
    /// The call has to be told of that.
    untold: bool,
    lost: bool,
}

impl<L: Copy> Line<L> {
    /// No pieces.
    pub const fn new() -> Self {
        Line {
            pieces: [None; MOST_PIECES],
            numbers: 0,
            open: false,
            cut: false,
            untold: false,
            lost: false,
        }
    }

    /// Whether there is no piece.
    pub fn is_empty(&self) -> bool {
        self.pieces.iter().all(Option::is_none)
    }

    /// Whether another piece may join.
    pub fn has_room(&self) -> bool {
        let full = self.pieces.iter().all(Option::is_some);
        self.is_empty() || (!full && !self.cut && !self.lost)
    }

    /// Adds a piece of `len` bytes behind the others. `open`: there will be another one, if the peer
    /// has room for it. Returns whether there was [room](Self::has_room).
    #[must_use]
    pub fn push(&mut self, loan: L, len: u32, open: bool) -> bool {
        if !self.has_room() {
            return false;
        }
        if self.is_empty() {
            (self.cut, self.untold, self.lost) = (false, false, false);
        }
        self.numbers = self.numbers.wrapping_add(1);
        let number = self.numbers;
        if let Some(place) = self.pieces.iter_mut().find(|p| p.is_none()) {
            *place = Some(Piece {
                loan,
                len,
                started: 0,
                done: 0,
                number,
            });
        }
        self.open = open;
        true
    }

    /// No other piece comes. Returns whether everything was posted by then: whoever was told that there
    /// would be more is to be told otherwise.
    pub fn close(&mut self) -> bool {
        let was = core::mem::replace(&mut self.open, false);
        was && self.unstarted() == 0
    }

    /// Bytes that are to be posted.
    pub fn unstarted(&self) -> u32 {
        let left = |p: &Piece<L>| p.len.saturating_sub(p.started);
        self.pieces
            .iter()
            .flatten()
            .fold(0, |sum: u32, p| sum.saturating_add(left(p)))
    }

    /// What to post next.
    pub fn next(&self) -> Option<Request<L>> {
        let left = |p: &&Piece<L>| p.started < p.len;
        let piece = self.pieces.iter().flatten().find(left)?;
        (!self.lost).then_some(Request {
            loan: piece.loan,
            offset: piece.started,
            len: piece.len - piece.started,
            number: piece.number,
        })
    }

    /// So many bytes of that were posted. Returns whether these were the last of the call.
    pub fn posted(&mut self, bytes: u32) -> bool {
        let mut pieces = self.pieces.iter_mut().flatten();
        if let Some(piece) = pieces.find(|p| p.started < p.len) {
            piece.started = piece.started.saturating_add(bytes).min(piece.len);
        }
        !self.open && self.unstarted() == 0
    }

    /// The peer has nothing more advertised for what is to be posted.
    pub fn cut(&mut self) {
        for p in self.pieces.iter_mut().flatten() {
            p.len = p.started;
        }
        (self.cut, self.untold) = (true, true);
    }

    /// Whether the call has to be told that the line was cut, once.
    pub fn is_untold(&mut self) -> bool {
        core::mem::replace(&mut self.untold, false)
    }

    /// So many bytes of the piece with this number have arrived. Returns whether it is done, so that
    /// the call has to be told.
    pub fn moved(&mut self, number: u64, bytes: u32) -> bool {
        let mut pieces = self.pieces.iter_mut().flatten();
        let Some(piece) = pieces.find(|p| p.number == number) else {
            return false;
        };
        piece.done = piece.done.saturating_add(bytes).min(piece.len);
        piece.done == piece.len
    }

    /// The connection is lost.
    pub fn lost(&mut self) {
        self.lost = !self.is_empty();
    }

    /// Where the oldest piece stands; `None` if there is none.
    pub fn progress(&self) -> Option<Progress> {
        let [oldest, ..] = &self.pieces;
        let oldest = oldest.as_ref()?;
        Some(match oldest.done == oldest.len {
            true => Progress::Done,
            false if self.lost => Progress::Lost,
            false => Progress::Moving,
        })
    }

    /// Takes the oldest piece out, unless it is under way.
    pub fn take(&mut self) -> Option<Moved<L>> {
        if self.progress()? == Progress::Moving {
            return None;
        }
        let [oldest, ..] = &mut self.pieces;
        let piece = oldest.take()?;
        self.pieces.rotate_left(1);
        Some(Moved {
            loan: piece.loan,
            len: piece.len,
            done: piece.done,
        })
    }
}

impl<L: Copy> Default for Line<L> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;

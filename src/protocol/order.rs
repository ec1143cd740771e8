// SPDX-License-Identifier: GPL-2.0-only

//! The order of bytes that the peer has written to several blocks of a call, and sent besides.
//!
//! The call's room is filled from its start. What was written behind a hole, of a block that fell
//! short ([`super::places`]), is moved down. Bytes that came in messages in between are in the
//! receive queue, which gives nothing of what lies behind a [`Gap`] before the call has put the gap's
//! bytes in their place: another reader might be ahead of it. Each of those messages had a block
//! for itself, which it left empty, and was not larger; so what is copied never reaches what is
//! still to be moved.

use super::places::MOST_PLACES;

/// Bytes of the stream that are in a call's memory, while some before them are not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Where in the stream they begin.
    pub at: u64,
    /// How many.
    pub len: u64,
}

/// The gaps in what a receive queue has, in their order. There are never more than a call has blocks:
/// with gaps, nothing is advertised.
#[derive(Debug)]
pub struct Gaps([Option<Gap>; MOST_PLACES]);

impl Gaps {
    /// None.
    pub const fn new() -> Self {
        Gaps([None; MOST_PLACES])
    }

    /// Adds one. Returns whether there was room.
    #[must_use]
    pub fn add(&mut self, gap: Gap) -> bool {
        let free = self.0.iter_mut().find(|g| g.is_none());
        let added = free.is_some();
        if let Some(place) = free {
            *place = Some(gap);
        }
        added
    }

    /// Where the first one begins.
    pub fn first(&self) -> Option<u64> {
        let [first, ..] = &self.0;
        first.map(|g| g.at)
    }

    /// All that is before the first one was read up to `position`, and the call has its bytes.
    /// Returns how many, if it is there.
    pub fn close(&mut self, position: u64) -> Option<u64> {
        let [first, ..] = &mut self.0;
        let gap = first.take_if(|g| g.at == position)?;
        self.0.rotate_left(1);
        Some(gap.len)
    }

    /// There are none any more.
    pub fn clear(&mut self) {
        *self = Self::new();
    }
}

impl Default for Gaps {
    fn default() -> Self {
        Self::new()
    }
}

/// What was written to a block behind a hole, or to the last one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Where in the call's room it lies, counted from what is in order.
    pub place: usize,
    /// How many bytes.
    pub len: u32,
    /// Where in the stream they begin.
    pub at: u64,
}

/// What a call can do about its bytes.
pub trait Room {
    /// Why it cannot.
    type Error;

    /// Position in the stream of the next byte in the queue, or of the gap in front of it.
    fn position(&mut self) -> u64;

    /// Copies some of the bytes in the queue behind those that are in order, and tells how many. (There
    /// may be one that is not given.)
    ///
    /// # Errors
    ///
    /// If that cannot be.
    fn copy(&mut self) -> Result<usize, Self::Error>;

    /// Closes the gap that the position is at, if there is one.
    fn close_gap(&mut self);

    /// The bytes that lie `hole` bytes behind those that are in order, `len` of them, are to follow
    /// these.
    ///
    /// # Errors
    ///
    /// If that cannot be.
    fn follow(&mut self, hole: usize, len: usize) -> Result<(), Self::Error>;

    /// The error if what is known of the bytes cannot be.
    fn inconsistent() -> Self::Error;
}

/// Brings in order what was written to several blocks.
///
/// # Errors
///
/// Some of it cannot be, and is lost.
pub fn settle<R: Room>(rests: impl Iterator<Item = Rest>, room: &mut R) -> Result<(), R::Error> {
    let mut filled = 0_usize;
    for rest in rests.filter(|r| r.len > 0) {
        loop {
            let position = room.position();
            if position >= rest.at {
                break;
            }
            filled = filled.saturating_add(room.copy()?);
            if room.position() == position {
                return Err(R::inconsistent());
            }
        }
        room.close_gap();
        let hole = rest.place.checked_sub(filled);
        let len = rest.len as usize;
        room.follow(hole.ok_or_else(R::inconsistent)?, len)?;
        filled = filled.saturating_add(len);
    }
    Ok(())
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;

// SPDX-License-Identifier: GPL-2.0-only

//! Zero copy: the bytes of a blocking send or receive call go straight between its own pages and
//! those of the program at the other end.
//!
//! [`Direct`] is what one connection has under way of that: a block that a send call has advertised
//! ([`source`]), and what a receive call is reading from an advert of the peer ([`reading`]). There
//! is at most one of each; other calls copy, or wait.
//!
//! **Who is asked.** A send call offers its bytes if it may wait and has at least the threshold of
//! them (`SDP_ZCOPY_THRESH`, `sdp_zcopy_thresh`). The other end reads them within a receive call
//! that waits, or refuses: to whoever polls, peeks or must not wait, bytes have to be there when
//! they are told of, so these get them as Data. If nobody does anything, the sender does not wait
//! much longer than such transfers took lately, takes the advert back and copies.
//!
//! **Who owns the pages** is told in [`crate::transport`]. The call that had them pinned stays until
//! they are let go of; that needs nothing of the peer once the connection is lost.

pub(super) mod reading;
pub(super) mod source;

use super::connection::{Connection, Tell};
use super::{SdpSock, Socket};
use crate::protocol::Block;
use crate::sys::net::sock::Locked;
use crate::sys::time::{milliseconds, Jiffies};
use crate::transport::{Pinned, Transport, Watch};

/// Bytes for which pinning is not worth while on the reading side.
const LEAST_READ: usize = 4096;
/// How long reading a block is believed to take before anything is known.
const FIRST_MEAN: Jiffies = milliseconds(50);
/// How long a send call waits for its block to be taken up, at least and at most.
const LEAST_PATIENCE: Jiffies = milliseconds(20);
const MOST_PATIENCE: Jiffies = milliseconds(1000);
/// Blocks that are copied after adverts that were not taken up, at most.
const MOST_SKIPS: u32 = 64;

/// Zero copy of one connection. Protected by `Socket::connection`.
pub(super) struct Direct {
    /// What a send call has advertised, or is about to.
    source: Option<source::Advertised>,
    /// What a receive call reads.
    reading: Option<reading::Reading>,
    /// How long it lately took until a block was read: a running mean.
    mean: Jiffies,
    /// What comes before this position in what is sent is copied without asking.
    copy_until: u64,
    /// So many blocks more than the one that came back are copied when the next one does.
    skips: u32,
}

impl Direct {
    /// Nothing under way.
    pub(super) const fn new() -> Self {
        Direct {
            source: None,
            reading: None,
            mean: FIRST_MEAN,
            copy_until: 0,
            skips: 0,
        }
    }

    /// Another connection begins: nothing is known of its reader.
    pub(super) fn forget(&mut self) {
        (self.mean, self.copy_until, self.skips) = (FIRST_MEAN, 0, 0);
    }

    /// The block to advertise next, and the position in the stream that it is at.
    pub(super) fn offered(&self) -> Option<(Block, u64)> {
        self.source.as_ref().and_then(source::Advertised::offered)
    }

    /// Whether the end of a transfer is waited for, so that it has to be told.
    pub(super) fn is_busy(&self) -> bool {
        self.source.is_some() || self.reading.is_some()
    }

    /// The connection is lost: whoever waits has to know.
    pub(super) fn lost(&mut self) {
        if let Some(s) = &mut self.source {
            s.lost();
        }
        if let Some(r) = &mut self.reading {
            r.lost();
        }
    }

    /// How long to wait for a block to be taken up.
    fn patience(&self) -> Jiffies {
        (self.mean * 4).clamp(LEAST_PATIENCE, MOST_PATIENCE)
    }

    /// A block was read in `took`.
    fn taken_up(&mut self, took: Jiffies) {
        self.skips = 0;
        self.mean = (self.mean * 3 + took.min(MOST_PATIENCE)) / 4;
    }

    /// A block of `size` was refused, or nobody read it in time, and `left` bytes are to be copied
    /// now, from position `at` on. Each time in a row more of them are, before another one is tried.
    fn not_taken_up(&mut self, at: u64, size: u32, left: u32) {
        let more = u64::from(self.skips) * u64::from(size);
        self.copy_until = at.wrapping_add(u64::from(left)).wrapping_add(more);
        self.skips = (self.skips * 2).clamp(1, MOST_SKIPS);
    }
}

impl Connection {
    /// Room for a piece of pinned memory that was used before, for the same piece if there is any.
    fn spare_room(&mut self, piece: (usize, usize)) -> Option<Pinned> {
        self.channel.as_mut()?.spare_for(piece)
    }

    /// Keeps room for the next time.
    fn keep_room(&mut self, room: Pinned) {
        match self.channel.as_mut() {
            Some(channel) => channel.keep(room),
            None => drop(room),
        }
    }
}

impl SdpSock {
    /// Room for a piece of pinned memory, `None` if it is not memory of a program. Called without the
    /// connection's lock.
    fn pinning_room(&self, piece: Option<(usize, usize)>) -> Option<Pinned> {
        let piece = piece?;
        let pinning = {
            let mut c = self.data().connection.lock();
            if let Some(room) = c.spare_room(piece) {
                return Some(room);
            }
            c.channel.as_ref()?.pinning()?
        };
        pinning.make().ok()
    }

    /// Gives room back that nothing was lent of.
    fn give_back_room(&self, mut room: Pinned) {
        room.release();
        self.data().connection.lock().keep_room(room);
    }

    /// Waits until lent memory is let go of, after the connection was lost. Needs nobody's help.
    fn wait_released(&self, lock: &mut Locked<'_, Socket>, watch: &Watch) {
        lock.unlocked(|| loop {
            let mark = self.wake_mark();
            if !watch.is_held() {
                return;
            }
            self.sleep_through(mark, milliseconds(100));
        })
    }

    /// Loses the connection, for a call that must not wait for the peer any longer.
    fn give_up(&self, error: crate::sys::errno::Errno) {
        let mut tell = Tell::default();
        let below = {
            let mut c = self.data().connection.lock();
            c.lose(self, error, &mut tell);
            // also where both streams had ended and the channel was still there
            c.direct.lost();
            c.channel.take()
        };
        drop(below);
        tell.deliver(self);
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Writing to where the peer's reader waits, by RDMA WRITE from a send call's own pages.
//!
//! While one piece of the call's bytes is written, the next one is pinned and stands behind it. So
//! WRITEs follow one another, and the pieces need not be as large as the blocks of the peer's reader:
//! the block that the last WRITE went to stays open for the next piece, until the call has none.

use super::super::{Connection, SdpSock, Wakeups};
use super::moving::{finish, post, wait, Way};
use super::waiting::{spend, Dying};
use super::{by_read, by_write, LEAST_TRANSFER};
use crate::protocol::{self, Mode, MOST_PIECES};
use crate::sys::errno::EPIPE;
use crate::sys::net::message::Source;
use crate::sys::net::sock::{Locked, SEND_SHUTDOWN};
use crate::sys::pin::Hold;
use crate::sys::time::jiffies;
use crate::transport::{Transport, Watch};
use kernel::prelude::*;

impl Connection {
    /// How many of a call's bytes go straight to where the peer's reader waits; 0: none. All that
    /// is in front of them has to be on its way.
    pub(crate) fn writable_directly(&self, want: usize) -> usize {
        let free = self.tx.unsent() == 0 && self.direct.writing.is_empty();
        if !free || !self.is_worth_writing(want) {
            return 0;
        }
        match self.protocol.as_ref().and_then(|p| p.sink_advert()) {
            Some(_) if self.channel.is_some() => want,
            _ => 0,
        }
    }

    /// Whether so many bytes are to be written at all.
    fn is_worth_writing(&self, bytes: usize) -> bool {
        let least = self.zcopy_threshold().filter(|_| by_write());
        least.is_some_and(|least| bytes >= least.max(LEAST_TRANSFER))
    }

    /// Whether to wait for a reader, since nothing else may be done but copy.
    pub(crate) fn awaits_reader(&self, want: usize) -> bool {
        let waits = !by_read() && self.zcopy_threshold().is_some_and(|least| want >= least);
        let pipelined = |p: &protocol::Connection| p.send_mode() == Mode::Pipelined;
        waits
            && self.connected()
            && self.protocol.as_ref().is_some_and(pipelined)
            && self.direct.readers_advertise
    }

    /// A reader of the peer waits.
    pub(crate) fn sink_came(&mut self, wakeups: &mut Wakeups) {
        self.direct.readers_advertise = true;
        self.withdraw_sources();
        wakeups.direct = true;
    }

    /// Posts WRITEs, as many as there is room for. Returns whether there is less room at the peer than
    /// the call waits for.
    pub(crate) fn write_on(&mut self) -> Result<bool> {
        let line = &mut self.direct.writing;
        let (Some(channel), Some(protocol)) = (self.channel.as_mut(), self.protocol.as_mut())
        else {
            return Ok(false);
        };
        loop {
            // none: full, or taken back meanwhile; the rest goes otherwise
            let (n, last) = post(line, channel, Way::Write, protocol.sink_advert())?;
            if n == 0 {
                return Ok(line.is_untold());
            }
            protocol.written(n, last);
        }
    }

    /// How many bytes of a call with `left` bytes, which may have pieces in line, may stand behind
    /// those.
    fn writable_behind(&self, left: usize) -> usize {
        if !self.direct.writing.has_room() {
            return 0;
        }
        if !self.is_worth_writing(left) {
            return 0;
        }
        let Some(p) = &self.protocol else {
            return 0;
        };
        let there = p
            .sink_bytes()
            .saturating_sub(self.direct.writing.unstarted());
        // where there are several blocks, some of that is left for the piece behind
        let next = p.sink_advert().map_or(0, |next| next.size);
        left.min(next.max(there / 2).min(there) as usize)
    }
}

/// Where READs must not be used (`zcopy_ways`), waits a little for a reader to write to. Returns how
/// many of the call's bytes can be written then.
pub(crate) fn await_reader(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    want: usize,
    timeout: &mut isize,
) -> Result<usize> {
    let start = jiffies();
    loop {
        let mark = sk.wake_mark();
        // what goes before the bytes that wait here must not wait for them
        sk.connection().cork.set_more(false);
        sk.progress();
        let limit = {
            let mut c = sk.connection();
            let writable = c.writable_directly(want);
            let closed = sk.has_error() || sk.shutdown() & SEND_SHUTDOWN != 0;
            if writable > 0 || closed || *timeout == 0 || !c.awaits_reader(want) {
                return Ok(writable);
            }
            let waited = jiffies().wrapping_sub(start);
            let left = c.direct.patience().saturating_sub(waited);
            if left == 0 {
                c.direct.readers_advertise = false;
                return Ok(0);
            }
            (left as isize).min(*timeout)
        };
        let left = sk.wait(lock, mark, limit)?;
        spend(timeout, limit - left);
    }
}

/// A piece of the call that stands in line.
struct Own {
    size: usize,
    watch: Watch,
}

/// What became of an attempt to add a piece.
enum Added {
    Piece(Own),
    /// There is no room at the peer now for more than stands in line.
    Full,
    /// The rest is to go otherwise.
    No,
}

/// Sends bytes of the call by writing them to where the peer's reader waits. `Ok(false)`: they are
/// to go otherwise.
///
/// # Errors
///
/// `EPIPE` if the connection is lost. The message tells how many bytes were sent nevertheless.
pub(crate) fn send(sk: &SdpSock, lock: &mut Locked<'_>, message: &mut Source<'_>) -> Result<bool> {
    let mut own: [Option<Own>; MOST_PIECES] = [const { None }; MOST_PIECES];
    // the oldest piece, and the place behind the youngest one
    let (mut oldest, mut next) = (0, 0);
    let (mut sent, mut ahead) = (0, 0);
    let (mut open, mut lost) = (true, false);
    let mut dying = Dying::new();
    loop {
        let mut full = false;
        while open && !full && next - oldest < MOST_PIECES {
            match add(sk, message, next == oldest) {
                Added::Piece(piece) => {
                    ahead += piece.size;
                    if let Some(place) = own.get_mut(next % MOST_PIECES) {
                        *place = Some(piece);
                    }
                    next += 1;
                }
                Added::Full => full = true,
                Added::No => open = false,
            }
        }
        if full || !open {
            close(sk);
        }
        let left = message.remaining();
        let place = own.get_mut(oldest % MOST_PIECES);
        let Some(piece) = place.filter(|p| p.is_some()) else {
            break;
        };
        // the peer's reader may advertise more meanwhile
        let more = |c: &Connection| open && c.writable_behind(left) > 0;
        if wait(sk, lock, Way::Write, &mut dying, more).is_none() {
            continue;
        }
        let Some(piece) = piece.take() else {
            break;
        };
        oldest += 1;
        let (done, gone) = finish(sk, lock, Way::Write, &piece.watch, &mut dying);
        let done = done as usize;
        sent += done;
        ahead -= done;
        // what is behind one that has not gone as a whole does not go
        lost |= gone;
        open &= !lost && done == piece.size && !dying.has_begun();
    }
    message.give_back(ahead);
    match lost {
        true => Err(EPIPE.into()),
        false => Ok(sent > 0),
    }
}

/// The call that writes has no other piece now: what the peer has of it, it is told.
fn close(sk: &SdpSock) {
    let mut c = sk.connection();
    if !c.direct.writing.close() {
        return;
    }
    if let Some(p) = &mut c.protocol {
        p.written_all();
    }
    c.progress();
}

/// Pins the next bytes of the call and has them written, behind those that are in line; `first`: none
/// are. Counts them as taken.
fn add(sk: &SdpSock, message: &mut Source<'_>, first: bool) -> Added {
    let left = message.remaining();
    let want = sk.connection().writable_behind(left);
    if want == 0 {
        return Added::Full;
    }
    let Some(mut room) = sk.pinning_room(message.piece(want)) else {
        return Added::No;
    };
    let pinned = match sk.account() {
        Some(account) => room
            .pin_source(message, want, Hold::Briefly, account)
            .unwrap_or(0),
        None => 0,
    };
    let usable = pinned >= LEAST_TRANSFER.min(want).max(1);
    let Some(watch) = room.watch().filter(|_| usable) else {
        sk.connection().stats.unpinnable += 1;
        sk.give_back_room(room);
        return Added::No;
    };
    {
        let mut c = sk.connection();
        // the peer may have taken it back, or another call have come first
        let there = match first {
            true => c.writable_directly(usize::MAX) > 0,
            false => c.direct.writing.has_room(),
        };
        let lent = match c.channel.as_mut().filter(|_| there) {
            Some(channel) => channel.lend(room),
            None => Err(room),
        };
        let loan = match lent {
            Ok(loan) => loan,
            Err(room) => {
                drop(c);
                sk.give_back_room(room);
                return Added::No;
            }
        };
        c.stats.direct_queued += u64::from(!first);
        // what was corked has gone before it
        c.cork.set_more(false);
        // there is room, as was asked
        let len = u32::try_from(pinned).unwrap_or(0);
        let more = c.is_worth_writing(left - pinned);
        let _ = c.direct.writing.push(loan, len, more);
        c.progress();
    }
    message.advance(pinned);
    Added::Piece(Own {
        size: pinned,
        watch,
    })
}

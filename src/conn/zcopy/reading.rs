// SPDX-License-Identifier: GPL-2.0-only

//! Reading what the peer has advertised, by RDMA READ into a receive call's own pages.

use super::super::{Connection, SdpSock, Wakeups};
use super::moving::{finish, post, Way};
use super::waiting::Dying;
use super::{by_read, LEAST_TRANSFER};
use crate::sys::errno::ECONNRESET;
use crate::sys::net::message::Destination;
use crate::sys::net::sock::Locked;
use crate::sys::pin::Hold;
use crate::transport::Transport;
use kernel::prelude::*;

/// What became of a look at the peer's adverts.
pub(crate) enum Look {
    /// So many bytes were read.
    Read(usize),
    /// There is none, or it was refused: its bytes come as Data.
    Nothing,
    /// The connection was lost meanwhile. The error stays, for a call that has no bytes to give.
    Lost,
}

impl Connection {
    /// How many bytes of adverts of the peer come next, if no call reads them yet.
    fn next_advert(&self) -> Option<u32> {
        if !self.rx.is_empty() || !self.direct.reading.is_empty() {
            return None;
        }
        match self.protocol.as_ref()?.source_bytes() {
            0 => None,
            n => Some(n),
        }
    }

    /// Whether the next bytes lie at the peer, where only a call that waits can read them.
    pub(crate) fn holds_advert(&self) -> bool {
        self.protocol.as_ref().is_some_and(|p| p.holds_sources())
    }

    /// The peer has advertised a block.
    pub(crate) fn advert_came(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        if self.closing.is_orphaned() {
            // as TCP: bytes that nobody can read any more are answered with a reset
            return self.lose(sk, ECONNRESET, wakeups);
        }
        wakeups.direct = true;
        if sk.is_watched() {
            self.refuse_advert();
        }
    }

    /// Has the peer send its block as Data.
    pub(crate) fn refuse_advert(&mut self) {
        if let Some(p) = self.protocol.as_mut().filter(|p| p.holds_sources()) {
            p.refuse_sources();
            self.stats.direct_refused += 1;
        }
    }

    /// Posts READs, as many as there is room for. Returns whether there is less to read than the call
    /// waits for.
    pub(crate) fn read_on(&mut self) -> Result<bool> {
        let line = &mut self.direct.reading;
        let (Some(channel), Some(protocol)) = (self.channel.as_mut(), self.protocol.as_mut())
        else {
            return Ok(false);
        };
        loop {
            // none: taken back meanwhile; what was started comes, the rest as Data
            let (n, _) = post(line, channel, Way::Read, protocol.source_advert())?;
            if n == 0 {
                return Ok(line.is_untold());
            }
            protocol.read_started(n);
            self.rx.passed(n as usize)?;
        }
    }
}

/// Has the next bytes sent as Data if they are at the peer: the call must not wait, or looks only.
pub(crate) fn refuse(sk: &SdpSock) {
    let mut c = sk.connection();
    if !c.holds_advert() || !c.direct.reading.is_empty() {
        return;
    }
    c.refuse_advert();
    c.progress();
}

/// Reads what the peer has advertised, if that is next, into the room that a call has left.
pub(crate) fn read(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    to: &mut Destination<'_>,
    most: usize,
) -> Look {
    let Some(there) = sk.connection().next_advert() else {
        return Look::Nothing;
    };
    let want = if by_read() {
        most.min(there as usize)
    } else {
        0
    };
    let little = LEAST_TRANSFER.min(there as usize);
    if want < little {
        refuse(sk);
        return Look::Nothing;
    }
    let Some(mut room) = sk.pinning_room(to.piece(want)) else {
        refuse(sk);
        return Look::Nothing;
    };
    let pinned = match sk.account() {
        Some(account) => room
            .pin_destination(to, want, Hold::Briefly, account)
            .unwrap_or(0),
        None => 0,
    };
    let Some(watch) = room.watch().filter(|_| pinned >= little) else {
        sk.connection().stats.unpinnable += 1;
        sk.give_back_room(room);
        refuse(sk);
        return Look::Nothing;
    };
    {
        let mut c = sk.connection();
        // the peer may have taken it back, or another call have come first
        let there = c.next_advert();
        let lent = match (there, c.channel.as_mut()) {
            (Some(there), Some(channel)) => channel.lend(room).map(|loan| (loan, there)),
            _ => Err(room),
        };
        let (loan, there) = match lent {
            Ok(lent) => lent,
            Err(room) => {
                drop(c);
                sk.give_back_room(room);
                return Look::Nothing;
            }
        };
        let len = there.min(u32::try_from(pinned).unwrap_or(0));
        // there is none in line, so there is room
        let _ = c.direct.reading.push(loan, len, false);
        c.progress();
    }
    let (done, lost) = finish(sk, lock, Way::Read, &watch, &mut Dying::new());
    if lost {
        return Look::Lost;
    }
    to.skip(done as usize);
    Look::Read(done as usize)
}

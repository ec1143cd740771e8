// SPDX-License-Identifier: GPL-2.0-only

//! What a receive call reads from an advert of the peer, by RDMA READ into its own pages.

use super::super::connection::{Connection, Tell};
use super::super::{SdpSock, Socket};
use super::LEAST_READ;
use crate::protocol::Remote;
use crate::sys::errno::{ECONNABORTED, ECONNRESET};
use crate::sys::net::message::Destination;
use crate::sys::net::sock::{Locked, FOREVER};
use crate::sys::pin::Hold;
use crate::transport::{Loan, Transfer, Transport};
use kernel::prelude::*;

/// The reading of one receive call.
pub(in crate::socket) struct Reading {
    loan: Loan,
    /// Bytes to read; the peer's advert has as many.
    len: u32,
    /// Bytes that READs were posted for.
    started: u32,
    /// Bytes that have come.
    done: u32,
    /// The connection is lost, and with it what was to come.
    lost: bool,
}

impl Reading {
    pub(super) fn lost(&mut self) {
        self.lost = true;
    }
}

/// What became of a look at the peer's adverts.
pub(in crate::socket) enum Look {
    /// So many bytes were read.
    Read(usize),
    /// There is none, or it was refused: its bytes come as Data.
    Nothing,
}

impl Connection {
    /// The peer's advert whose bytes are the next ones, if there is one.
    fn next_advert(&self) -> Option<Remote> {
        if self.rx.bytes() > 0 {
            return None;
        }
        self.protocol.as_ref()?.source_advert()
    }

    /// Whether the next bytes lie at the peer, where only a call that waits can read them.
    pub(in crate::socket) fn holds_advert(&self) -> bool {
        self.protocol.as_ref().is_some_and(|p| p.holds_sources())
    }

    /// The peer has advertised a block.
    pub(in crate::socket) fn advert_came(&mut self, sk: &SdpSock, tell: &mut Tell) {
        if self.orphaned {
            // as TCP: bytes that nobody can read any more are answered with a reset
            return self.lose(sk, ECONNRESET, tell);
        }
        tell.direct = true;
        if sk.is_watched() {
            self.refuse_advert();
        }
    }

    /// Has the peer send its block as Data.
    pub(in crate::socket) fn refuse_advert(&mut self) {
        if let Some(p) = self.protocol.as_mut().filter(|p| p.holds_sources()) {
            p.refuse_sources();
            self.stats.direct_refused += 1;
        }
    }

    /// Posts READs, as many as there is room for.
    pub(in crate::socket) fn read_on(&mut self) -> Result {
        let (Some(channel), Some(protocol)) = (self.channel.as_mut(), self.protocol.as_mut())
        else {
            return Ok(());
        };
        let Some(r) = self.direct.reading.as_mut().filter(|r| !r.lost) else {
            return Ok(());
        };
        while r.started < r.len {
            let Some(remote) = protocol.source_advert() else {
                // taken back meanwhile: what was started comes, the rest as Data
                r.len = r.started;
                break;
            };
            let n = channel.transfer(
                r.loan,
                &Transfer {
                    read: true,
                    offset: r.started,
                    len: (r.len - r.started).min(remote.size),
                    address: remote.address,
                    rkey: remote.r_key,
                    cookie: 0,
                },
            );
            let n = match n {
                Ok(n) => n,
                Err(e) if e == ENOSPC => break,
                Err(e) => return Err(e),
            };
            protocol.read_started(n);
            self.rx.passed(n as usize);
            r.started = r.started.saturating_add(n);
        }
        Ok(())
    }

    /// A READ of `n` bytes is complete.
    pub(in crate::socket) fn read_done(&mut self, n: u32, tell: &mut Tell) {
        if let Some(p) = self.protocol.as_mut() {
            p.read_done(n);
        }
        if let Some(r) = self.direct.reading.as_mut() {
            r.done = r.done.saturating_add(n);
            self.stats.bytes_received += u64::from(n);
            self.stats.direct_received += u64::from(n);
            tell.direct |= r.done == r.len;
        }
    }
}

/// Has the next bytes sent as Data if they are at the peer: the call must not wait, or looks only.
pub(in crate::socket) fn refuse(sk: &SdpSock) {
    let mut c = sk.data().connection.lock();
    if !c.holds_advert() || c.direct.reading.is_some() {
        return;
    }
    c.refuse_advert();
    let tell = c.progress(sk);
    drop(c);
    tell.deliver(sk);
}

/// Reads what the peer has advertised, if that is next, into the room that a call has left.
///
/// # Errors
///
/// `ECONNRESET`, `ECONNABORTED` if the connection is lost meanwhile.
pub(in crate::socket) fn read(
    sk: &SdpSock,
    lock: &mut Locked<'_, Socket>,
    to: &mut Destination<'_>,
    most: usize,
) -> Result<Look> {
    let remote = {
        let c = sk.data().connection.lock();
        match c.next_advert() {
            Some(remote) if c.direct.reading.is_none() => remote,
            _ => return Ok(Look::Nothing),
        }
    };
    let want = most.min(remote.size as usize);
    let little = LEAST_READ.min(remote.size as usize);
    if want < little {
        refuse(sk);
        return Ok(Look::Nothing);
    }
    let Some(mut room) = sk.pinning_room(to.piece(want)) else {
        refuse(sk);
        return Ok(Look::Nothing);
    };
    let pinned = match sk.netns().account(sk) {
        Some(account) => room
            .pin_destination(to, want, Hold::Briefly, &account)
            .unwrap_or(0),
        None => 0,
    };
    let Some(watch) = room.watch().filter(|_| pinned >= little) else {
        sk.data().connection.lock().stats.unpinnable += 1;
        sk.give_back_room(room);
        refuse(sk);
        return Ok(Look::Nothing);
    };
    let (loan, tell) = {
        let mut c = sk.data().connection.lock();
        // the peer may have taken it back, or another call have come first
        let remote = c.next_advert().filter(|_| c.direct.reading.is_none());
        let lent = match (remote, c.channel.as_mut()) {
            (Some(remote), Some(channel)) => channel.lend(room).map(|loan| (loan, remote)),
            _ => Err(room),
        };
        let (loan, remote) = match lent {
            Ok(lent) => lent,
            Err(room) => {
                drop(c);
                sk.give_back_room(room);
                return Ok(Look::Nothing);
            }
        };
        let len = remote.size.min(u32::try_from(pinned).unwrap_or(0));
        c.direct.reading = Some(Reading {
            loan,
            len,
            started: 0,
            done: 0,
            lost: false,
        });
        (loan, c.progress(sk))
    };
    tell.deliver(sk);
    let lost = wait(sk, lock);
    let (done, room) = {
        let mut c = sk.data().connection.lock();
        let done = c.direct.reading.take().map_or(0, |r| r.done);
        (done, c.channel.as_mut().and_then(|c| c.reclaim(loan).ok()))
    };
    match room {
        Some(room) => sk.give_back_room(room),
        None => sk.wait_released(lock, &watch),
    }
    if lost {
        sk.take_error()?;
        return Err(ECONNRESET.into());
    }
    to.skip(done as usize);
    Ok(Look::Read(done as usize))
}

/// Waits until all READs are complete; whether the connection is lost instead. The peer's device
/// answers without its program, so only death makes this end earlier.
fn wait(sk: &SdpSock, lock: &mut Locked<'_, Socket>) -> bool {
    loop {
        let mark = sk.wake_mark();
        match &sk.data().connection.lock().direct.reading {
            Some(r) if r.done == r.len => return false,
            Some(r) if r.lost => return true,
            Some(_) => {}
            None => return false,
        }
        if sk.wait_killably(lock, mark, FOREVER as usize).is_err() {
            sk.give_up(ECONNABORTED);
        }
    }
}

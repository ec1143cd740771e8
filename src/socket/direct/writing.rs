// SPDX-License-Identifier: GPL-2.0-only

//! Writing to where the peer's reader waits, by RDMA WRITE from a send call's own pages.

use super::super::connection::{Connection, Tell};
use super::super::{SdpSock, Socket};
use super::moving::{finish, Moving, Way};
use super::{by_read, by_write, LEAST_TRANSFER};
use crate::protocol::{self, Mode};
use crate::sys::errno::EPIPE;
use crate::sys::net::message::Source;
use crate::sys::net::sock::{Locked, FOREVER, SEND_SHUTDOWN};
use crate::sys::pin::Hold;
use crate::sys::time::jiffies;
use crate::transport::Transport;
use kernel::prelude::*;

impl Connection {
    /// How many of a call's bytes go straight to where the peer's reader waits; 0: none. All that
    /// is in front of them has to be on its way.
    pub(in crate::socket) fn writable_directly(&self, want: usize) -> usize {
        let free = self.tx.unsent() == 0 && self.direct.writing.is_none();
        let least = self.zcopy_threshold().filter(|_| free && by_write());
        if least.is_none_or(|least| want < least.max(LEAST_TRANSFER)) {
            return 0;
        }
        match self.protocol.as_ref().and_then(|p| p.sink_advert()) {
            Some(_) if self.channel.is_some() => want,
            _ => 0,
        }
    }

    /// Whether to wait for a reader, since nothing else may be done but copy.
    fn awaits_reader(&self, want: usize) -> bool {
        let waits = !by_read() && self.zcopy_threshold().is_some_and(|least| want >= least);
        let pipelined = |p: &protocol::Connection| p.send_mode() == Mode::Pipelined;
        waits
            && self.connected()
            && self.protocol.as_ref().is_some_and(pipelined)
            && self.direct.readers_advertise
    }

    /// A reader of the peer waits.
    pub(in crate::socket) fn sink_came(&mut self, tell: &mut Tell) {
        self.direct.readers_advertise = true;
        self.withdraw_sources();
        tell.direct = true;
    }

    /// Posts WRITEs, as many as there is room for. Returns whether there is less room at the peer than
    /// the call waits for.
    pub(in crate::socket) fn write_on(&mut self) -> Result<bool> {
        let (Some(channel), Some(protocol), Some(m)) = (
            self.channel.as_mut(),
            self.protocol.as_mut(),
            self.direct.writing.as_mut(),
        ) else {
            return Ok(false);
        };
        while m.goes_on() {
            // none: full, or taken back meanwhile; the rest goes otherwise
            let n = m.post(channel, Way::Write, protocol.sink_advert())?;
            if n == 0 {
                break;
            }
            protocol.written(n, m.started == m.len);
        }
        Ok(m.is_short())
    }
}

/// Where READs must not be used (`zcopy_ways`), waits a little for a reader to write to. Returns how
/// many of the call's bytes can be written then.
pub(in crate::socket) fn await_reader(
    sk: &SdpSock,
    lock: &mut Locked<'_, Socket>,
    want: usize,
    timeout: &mut isize,
) -> Result<usize> {
    let start = jiffies();
    loop {
        let mark = sk.wake_mark();
        // what goes before the bytes that wait here must not wait for them
        sk.data().connection.lock().more = false;
        sk.progress();
        let limit = {
            let mut c = sk.data().connection.lock();
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
        if *timeout != FOREVER {
            *timeout -= limit - left;
        }
    }
}

/// Sends bytes of the call by writing them to where the peer's reader waits. `Ok(false)`: they are
/// to go otherwise.
///
/// # Errors
///
/// `EPIPE` if the connection is lost. The message tells how many bytes were sent nevertheless.
pub(in crate::socket) fn send(
    sk: &SdpSock,
    lock: &mut Locked<'_, Socket>,
    message: &mut Source<'_>,
    want: usize,
) -> Result<bool> {
    let sink = match sk.data().connection.lock().protocol.as_ref() {
        Some(p) => p.sink_bytes() as usize,
        None => 0,
    };
    let want = want.min(sink);
    let Some(mut room) = sk.pinning_room(message.piece(want)) else {
        return Ok(false);
    };
    let pinned = match sk.netns().account(sk) {
        Some(account) => room
            .pin_source(message, want, Hold::Briefly, &account)
            .unwrap_or(0),
        None => 0,
    };
    let Some(watch) = room
        .watch()
        .filter(|_| pinned >= LEAST_TRANSFER.min(want) && pinned > 0)
    else {
        sk.data().connection.lock().stats.unpinnable += 1;
        sk.give_back_room(room);
        return Ok(false);
    };
    let (loan, tell) = {
        let mut c = sk.data().connection.lock();
        // the peer may have taken it back, or another call have come first
        let there = c.writable_directly(usize::MAX) > 0;
        let lent = match c.channel.as_mut().filter(|_| there) {
            Some(channel) => channel.lend(room),
            None => Err(room),
        };
        let loan = match lent {
            Ok(loan) => loan,
            Err(room) => {
                drop(c);
                sk.give_back_room(room);
                return Ok(false);
            }
        };
        let len = u32::try_from(pinned).unwrap_or(0);
        c.direct.writing = Some(Moving::new(loan, len));
        // what was corked has gone before it
        c.more = false;
        (loan, c.progress(sk))
    };
    tell.deliver(sk);
    let (done, lost) = finish(sk, lock, Way::Write, loan, &watch);
    message.advance(done as usize);
    if lost {
        return Err(EPIPE.into());
    }
    Ok(done > 0)
}

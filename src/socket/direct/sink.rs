// SPDX-License-Identifier: GPL-2.0-only

//! Memory that a waiting receive call has advertised, for the peer to write its next bytes to:
//! SinkAvail (IBA Annex A4).
//!
//! The call has read all that came, and would sleep. What it is given ends the advert: bytes that
//! were written, or a message with payload, whose bytes are copied as ever, or the end of the
//! stream. If nothing comes for a while, the call takes its memory back and just waits.

use super::super::connection::{Connection, Tell};
use super::super::{SdpSock, Socket};
use super::lent::{Lent, Stage};
use super::{by_read, by_write, Direct, CANCEL_TIME, LEAST_TRANSFER, MOST_PATIENCE, SINK};
use crate::observe::trace::{self, ZeroCopy};
use crate::protocol::{Block, Outgoing};
use crate::sys::errno::ECONNABORTED;
use crate::sys::net::message::Destination;
use crate::sys::net::sock::{Flag, Locked, State, FOREVER, RCV_SHUTDOWN};
use crate::sys::pin::Hold;
use crate::sys::time::jiffies;
use crate::transport::{Access, Sending, Transport};
use kernel::prelude::*;

impl Connection {
    /// How much of a receive call's room to advertise; 0: nothing.
    pub(in crate::socket) fn sink_size(&mut self, want: usize) -> usize {
        let Some(threshold) = self.zcopy_threshold().filter(|_| by_write()) else {
            return 0;
        };
        let Some(p) = self.protocol.as_ref().filter(|_| self.channel.is_some()) else {
            return 0;
        };
        let least = (p.least_sink() as usize).max(LEAST_TRANSFER);
        if want < threshold.max(least) {
            return 0;
        }
        let size = u32::try_from(want).unwrap_or(u32::MAX);
        if self.direct.sink.is_some() || !self.sink_fits(size.min(p.sink_limit())) {
            return 0;
        }
        if self.direct.sinks.skip() {
            return 0;
        }
        size.min(p.sink_limit()) as usize
    }

    /// Whether a block of this size can be advertised now: all that came has been read, and nothing
    /// else is coming.
    fn sink_fits(&self, size: u32) -> bool {
        let fits = self
            .protocol
            .as_ref()
            .is_some_and(|p| p.can_offer_sink(size));
        fits && self.rx.bytes() == 0 && self.direct.reading.is_none()
    }

    /// The block to advertise as a sink.
    pub(in crate::socket) fn offered_sink(&self) -> Option<Block> {
        let s = self.direct.sink.as_ref()?;
        s.offered().filter(|b| self.sink_fits(b.size))
    }

    /// The peer is done with our sink, and has written `bytes` to it.
    pub(in crate::socket) fn sink_over(&mut self, bytes: u32, tell: &mut Tell) {
        if let Some(s) = self.direct.sink.as_mut() {
            if s.stage == Stage::Advertised {
                s.done = bytes.min(s.block.size);
                s.over();
                self.rx.passed(s.done as usize);
                self.stats.bytes_received += u64::from(s.done);
                self.stats.direct_filled += u64::from(s.done);
                tell.direct = true;
            }
        }
    }
}

impl Direct {
    /// Posts the SinkAvail of the memory that was offered. `sent`: position in what is sent.
    pub(in crate::socket) fn advertise_sink(
        &mut self,
        channel: &mut impl Transport,
        message: &Outgoing,
        sent: u64,
    ) -> Result {
        let s = self.sink.as_mut().ok_or(EINVAL)?;
        channel.post_send(&Sending {
            header: message
                .header
                .get(..message.header_len.into())
                .ok_or(EINVAL)?,
            payload: &[],
            signaled: false,
            solicited: message.solicited,
            cookie: sent,
        })?;
        s.stage = Stage::Advertised;
        Ok(())
    }
}

/// Has the peer write to the room that a receive call has left, and waits for that. Returns how many
/// bytes have come so; with none, the call goes on as if it had not been tried.
pub(in crate::socket) fn receive(
    sk: &SdpSock,
    lock: &mut Locked<'_, Socket>,
    to: &mut Destination<'_>,
    size: usize,
    timeout: &mut isize,
) -> usize {
    let Some(mut room) = sk.pinning_room(to.piece(size)) else {
        sk.data().connection.lock().direct.sinks.failed();
        return 0;
    };
    let pinned = match sk.netns().account(sk) {
        Some(account) if room.make_registrable().is_ok() => room
            .pin_destination(to, size, Hold::Long, &account)
            .unwrap_or(0),
        _ => 0,
    };
    let Some(watch) = room.watch().filter(|_| pinned > 0) else {
        let mut c = sk.data().connection.lock();
        c.stats.unpinnable += 1;
        c.direct.sinks.failed();
        drop(c);
        sk.give_back_room(room);
        return 0;
    };
    let loan = {
        let mut c = sk.data().connection.lock();
        let fits = c.direct.sink.is_none() && c.sink_fits(u32::try_from(pinned).unwrap_or(0));
        let lent = match c.channel.as_mut().filter(|_| fits) {
            Some(channel) => Lent::new(channel, room, Access::Write),
            None => Err(Some(room)),
        };
        match lent {
            Ok(lent) => {
                c.direct.sink = Some(lent);
                lent.loan
            }
            Err(room) => {
                // Less was pinned than is worth while: the call must not try again at once. It may
                // if something came meanwhile.
                if c.sink_fits(u32::try_from(size).unwrap_or(0)) {
                    c.direct.sinks.failed();
                }
                drop(c);
                if let Some(room) = room {
                    sk.give_back_room(room);
                }
                return 0;
            }
        }
    };
    let withdrawn = wait(sk, lock, timeout);
    let (done, room) = {
        let mut c = sk.data().connection.lock();
        let (len, done) = c
            .direct
            .sink
            .take()
            .map_or((0, 0), |s| (s.block.size, s.done));
        trace::zero_copy(sk, ZeroCopy::WrittenByPeer, len, done);
        match done {
            // that something came first says nothing
            0 if withdrawn => {}
            // without READs the sender may be waiting for it
            0 if by_read() => c.direct.sinks.failed(),
            _ => c.direct.sinks.worked(),
        }
        (done, c.channel.as_mut().and_then(|c| c.reclaim(loan).ok()))
    };
    match room {
        Some(room) => sk.give_back_room(room),
        None => sk.wait_released(lock, &watch),
    }
    to.skip(done as usize);
    done as usize
}

/// Waits until the memory is the caller's again, or the connection is lost. Returns whether the peer
/// was not told of it, since something came before.
fn wait(sk: &SdpSock, lock: &mut Locked<'_, Socket>, timeout: &mut isize) -> bool {
    let start = jiffies();
    let (mut taken_back, mut early) = (None, false);
    loop {
        let mark = sk.wake_mark();
        {
            let mut c = sk.data().connection.lock();
            let withdrawn = c.direct.sink.as_ref().and_then(Lent::offered).is_some()
                && c.offered_sink().is_none();
            match c.direct.sink.as_mut() {
                Some(s) if matches!(s.stage, Stage::Ended | Stage::Lost) => return early,
                // something came before the peer was told
                Some(s) if withdrawn => {
                    early = true;
                    s.over();
                }
                Some(_) => {}
                None => return early,
            }
        }
        if let Some(since) = taken_back {
            let waited = jiffies().wrapping_sub(since);
            if sk
                .wait_killably(lock, mark, CANCEL_TIME.saturating_sub(waited))
                .is_err()
            {
                sk.give_up(ECONNABORTED);
            }
            continue;
        }
        let waited = jiffies().wrapping_sub(start);
        let limit = (MOST_PATIENCE.saturating_sub(waited) as isize).min(*timeout);
        let closed = sk.has_error()
            || sk.shutdown() & RCV_SHUTDOWN != 0
            || sk.flag(Flag::Done)
            || sk.state() == State::Close;
        let over = limit == 0
            || closed
            || match sk.wait_to_read(lock, mark, limit) {
                Ok(left) => {
                    if *timeout != FOREVER {
                        *timeout -= limit - left;
                    }
                    false
                }
                // a signal, which the call will see again
                Err(_) => true,
            };
        if over {
            taken_back = Some(jiffies());
            let tell = {
                let mut c = sk.data().connection.lock();
                c.take_sink_back();
                c.progress(sk)
            };
            tell.deliver(sk);
        }
    }
}

impl Connection {
    /// Takes the memory of a receive call back from whoever has it.
    fn take_sink_back(&mut self) {
        match self.direct.sink.as_mut() {
            Some(s) if s.stage == Stage::Offered => s.over(),
            Some(s) if s.stage == Stage::Advertised => {
                if let Some(p) = &mut self.protocol {
                    p.cancel_sinks();
                }
            }
            _ => {}
        }
    }

    /// Ends the peer's access to a sink that it is done with, as soon as there is room to.
    pub(in crate::socket) fn end_sink_access(&mut self) -> Result {
        match (self.channel.as_mut(), self.direct.sink.as_mut()) {
            (Some(channel), Some(s)) => s.end_access(channel, SINK),
            _ => Ok(()),
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Selects and posts outgoing messages.

use super::send_queue::LARGE_CHUNK;
use super::stats;
use super::timers::Timer;
use super::wakeups::Wakeups;
use super::{Connection, SdpSock, CORK_TIME, FIN};
use crate::protocol::{Block, Mid, Offer, Outgoing, Stall, Transmit, PAYLOAD_CREDITS};
use crate::sys::debug::debug;
use crate::sys::errno::{Errno, ENOTCONN};
use crate::sys::net::sock::{Ends, State};
use crate::sys::net::trace;
use crate::transport::{BlockSpan, SendWr, Status};
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;

/// Number of messages of which one is signaled; the last of a batch is always signaled.
const SIGNAL_EVERY: u32 = 8;

/// Next part of the stream to send.
pub(crate) struct NextTx {
    /// Number of bytes in this part of the stream.
    pub(crate) unsent: usize,
    /// Maximum number of bytes in one message.
    pub(crate) limit: usize,
    /// Set if more bytes, not counted in `unsent`, follow this part.
    pub(crate) more: bool,
    /// Block to advertise after these bytes.
    pub(crate) source: Option<Block>,
    /// Memory and cookie of the part's bytes, if they are the rest of a block.
    pub(crate) rest: Option<(BlockSpan, u64)>,
}

impl NextTx {
    pub(crate) fn is_of_block(&self) -> bool {
        self.more && self.source.is_none() && (self.rest.is_some() || self.limit == 0)
    }
}

impl Connection {
    /// Sends all messages that may be sent. `zcopy` is true if blocks of program memory are queued.
    pub(super) fn transmit(&mut self, sk: &SdpSock, wakeups: &mut Wakeups, zcopy: bool) {
        let mut failed = None;
        if zcopy {
            failed = self.end_access().and_then(|()| self.read_on(wakeups)).err();
        }
        if !self.connected() {
            return;
        }
        let mut sink = zcopy.then(|| self.offered_sink()).flatten();
        let held = loop {
            if !zcopy && self.has_nothing_to_send(sk) {
                break None;
            }
            match zcopy.then(|| self.blocks_on(wakeups)) {
                Some(Ok(true)) => continue,
                Some(Err(e)) => {
                    failed = Some(e);
                    break None;
                }
                _ => {}
            }
            let (message, ahead) = match self.next_message(sk, sink, zcopy) {
                Ok(next) => next,
                Err(held) => break held,
            };
            let r = match message.kind {
                Mid::SrcAvail => self.post_advert(sk, &message),
                Mid::SinkAvail => {
                    sink = None;
                    self.post_advert(sk, &message)
                }
                _ => self.post(sk, &message, &ahead),
            };
            if let Err(e) = r {
                failed = Some(e);
                break None;
            }
        };
        self.note_held(sk, held, zcopy && self.is_collecting());
        if let Some(endpoint) = self.endpoint.as_mut() {
            if let Err(e) = endpoint.flush() {
                failed = Some(e);
            }
            self.watch_acks(sk);
        }
        if let Some(e) = failed {
            self.cannot_post(sk, e, wakeups);
        }
    }

    /// Handles the loss of the connection after a failure to post a work request.
    pub(super) fn cannot_post(&mut self, sk: &SdpSock, e: Error, wakeups: &mut Wakeups) {
        if Errno::of(e) == ENOTCONN {
            // siw returns this error once the connection has ended
            return self.failed(sk, Status::Flushed, wakeups);
        }
        self.stats.transport_errors += 1;
        // The device's error code would mislead a program, which gets another error.
        debug!("{}: nothing can be posted: {:?}", Ends(sk), e);
        self.done_with_error(sk, Errno::of(Status::Local.error()), wakeups);
    }

    /// Returns true if the last [`Self::transmit`] left nothing to send, and nothing changed.
    #[inline]
    fn has_nothing_to_send(&self, sk: &SdpSock) -> bool {
        let (Some(endpoint), Some(protocol)) = (&self.endpoint, &self.protocol) else {
            return true;
        };
        self.tx.unsent() == 0
            && (protocol.is_idle(endpoint.posted_receives(), self.reader_waits(sk))
                // the peer's first message will show that the reply has arrived
                || sk.state() == State::SynRecv)
    }

    /// Returns true if a reader is waiting and has read everything.
    fn reader_waits(&self, sk: &SdpSock) -> bool {
        self.rx.unread.bytes() == 0 && sk.data().readers.load(Relaxed) > 0
    }

    #[inline]
    fn ahead(&mut self, zcopy: bool) -> NextTx {
        let mut ahead = NextTx {
            unsent: self.tx.unsent(),
            limit: self.tx.contiguous(),
            more: false,
            source: None,
            rest: None,
        };
        if zcopy {
            self.check_blocks(&mut ahead);
        }
        ahead
    }

    /// Returns the message to post and the stream bytes for it, or the reason to hold back.
    #[inline]
    fn next_message(
        &mut self,
        sk: &SdpSock,
        sink: Option<Block>,
        zcopy: bool,
    ) -> Result<(Outgoing, NextTx), Option<Stall>> {
        let ahead = self.ahead(zcopy);
        let reader_waits = self.reader_waits(sk);
        let (Some(endpoint), Some(protocol)) = (self.endpoint.as_ref(), self.protocol.as_mut())
        else {
            return Err(None);
        };
        if endpoint.send_space() == 0 {
            return Err(Some(Stall::Wire));
        }
        let offer = Offer {
            queued: u32::try_from(ahead.unsent).unwrap_or(u32::MAX),
            // the urgent byte follows the unsent rest of a block
            urgent: self.tx.urgent().filter(|_| !ahead.is_of_block()),
            posted: endpoint.posted_receives(),
            // Counts only messages with payload, the last of which is signaled. An unsignaled
            // message without payload must not hold anything back.
            in_flight: u16::from(self.tx.small_in_flight()),
            // Bytes beyond the SGE limit of a message are not held back. Only the last bytes of the
            // stream are held back, and the message before the last bytes is signaled.
            no_delay: self.options.no_delay
                || ahead.unsent > ahead.limit
                || ahead.more
                || self.records.is_some()
                || sk.cast_nodelay(),
            cork: self.tx.is_corked(self.options.cork) && !ahead.more && self.records.is_none(),
            limit: u32::try_from(ahead.limit).unwrap_or(u32::MAX),
            reader_waits,
            source: ahead.source,
            sink,
        };
        match protocol.transmit(&offer) {
            Transmit::Send(message) => Ok((message, ahead)),
            Transmit::Held(hold) => Err(Some(hold)),
            Transmit::Idle => Err(None),
        }
    }

    /// Traces a message and counts it.
    fn note_sent(&mut self, sk: &SdpSock, message: &Outgoing) {
        let credits = self.protocol.as_ref().map_or(0, |p| p.credits());
        trace::send(sk, &message.header, credits);
        stats::count(&mut self.stats.sent, message.kind.index());
        self.stats.bytes_sent += u64::from(message.payload);
    }

    /// Advertises the next block of a send call, or the memory of a receive call.
    fn post_advert(&mut self, sk: &SdpSock, message: &Outgoing) -> Result {
        self.note_sent(sk, message);
        let endpoint = self.endpoint.as_mut().ok_or(EINVAL)?;
        let z = self.zcopy.get_mut().ok_or(EINVAL)?;
        z.advertise(endpoint, message, self.tx.sent())
    }

    /// Posts a message other than an advert, with as many stream bytes as may be sent.
    #[inline]
    fn post(&mut self, sk: &SdpSock, message: &Outgoing, ahead: &NextTx) -> Result {
        let (Some(endpoint), Some(protocol)) = (self.endpoint.as_mut(), self.protocol.as_ref())
        else {
            return Err(EINVAL);
        };
        let (n, unsent) = (message.payload as usize, ahead.unsent);
        let fin = message.kind == Mid::DisConn;
        let after = self.tx.sent().wrapping_add(n as u64);
        self.unsignaled = self.unsignaled.saturating_add(1);
        // the peer's buffers may grow before the remaining bytes are sent
        let full = LARGE_CHUNK.max(protocol.max_payload() as usize);
        // later bytes may have to wait long for the peer's credits
        let stalls = protocol.credits() < PAYLOAD_CREDITS;
        let last = n > 0 && (unsent.saturating_sub(n) < full || stalls);
        let signaled = last || fin || self.unsignaled >= SIGNAL_EVERY;
        if signaled {
            self.unsignaled = 0;
        }
        if let Some(rest) = ahead.rest.filter(|_| n > 0) {
            self.note_sent(sk, message);
            return self.post_rest(message, rest);
        }
        endpoint.post_send(&SendWr {
            header: message.bytes(),
            payload: self.tx.sges(n),
            signaled,
            solicited: message.solicited,
            cookie: after | if fin { FIN } else { 0 },
        })?;
        if n == 0 && message.kind == Mid::Data && self.rx.memory() == 0 {
            // a credit update: most bytes flow to this end, and more buffers need fewer updates
            self.rx_buffers.grow(endpoint);
        }
        let small = n > 0 && n == unsent && n < protocol.max_payload() as usize;
        self.note_sent(sk, message);
        self.tx.advance(n, message.urgent);
        if small {
            self.tx.was_small();
        }
        Ok(())
    }

    /// Records the reason for holding back the next message, and sets the timer that ends the
    /// delay. `collects` is true while pages are being collected into a block.
    fn note_held(&mut self, sk: &SdpSock, held: Option<Stall>, collects: bool) {
        if held == Some(Stall::Credits) && self.held != held {
            self.stats.credit_stalls += 1;
            let credits = self.protocol.as_ref().map_or(0, |p| p.credits());
            trace::credit_stall(sk, credits, self.tx.unsent());
        }
        self.held = held;
        self.tx.settle();
        if held != Some(Stall::Corked) && !collects {
            self.timers.clear(Timer::Cork);
        } else if !self.timers.is_set(Timer::Cork) {
            self.set_timer(sk, Timer::Cork, CORK_TIME);
        }
    }
}

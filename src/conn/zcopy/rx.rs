// SPDX-License-Identifier: GPL-2.0-only

//! State of zero-copy receives in the connection: memory that a waiting call has advertised
//! (SinkAvail), and adverts of the peer that a call reads (SrcAvail; IBA Annex A4).
//!
//! A receive call advertises its memory only when it has read everything and would sleep. The
//! advert ends when the peer has written bytes, when a message with payload arrives, or when the
//! stream ends. If nothing arrives for a while, the call cancels the advert and only waits.
//! [`super::recv`] contains the calls.

use super::super::{Connection, SdpSock, Wakeup, Wakeups};
use super::advert::{Advert, AdvertState};
use super::{by_write, Posted, Zcopy, LEAST_TRANSFER};
use crate::protocol::{Block, MAX_BLOCK, RECORD_HEADER};
use crate::sys::errno::ECONNRESET;
use crate::transport::Transfer;
use kernel::prelude::*;

/// Functions for the sink adverts of this end.
impl Connection {
    /// Returns the number of bytes of a receive call's buffer to advertise, or 0 for no advert.
    pub(crate) fn sink_size(&mut self, want: usize) -> usize {
        let Some(threshold) = self.zcopy_threshold().filter(|_| by_write()) else {
            return 0;
        };
        let Some(p) = self.protocol.as_ref().filter(|_| self.endpoint.is_some()) else {
            return 0;
        };
        let least = (p.least_sink() as usize).max(LEAST_TRANSFER);
        if want < threshold.max(least) {
            return 0;
        }
        let size = u32::try_from(want).unwrap_or(u32::MAX).min(MAX_BLOCK);
        if !self.sink_fits(size) || self.zcopy.sink.is_some() {
            return 0;
        }
        match self.zcopy.with(|z| z.sink_skips.skip()) {
            true => 0,
            false => size as usize,
        }
    }

    /// Returns true if a block of `size` bytes can be advertised now: all bytes are read, and no
    /// others are arriving.
    pub(super) fn sink_fits(&self, size: u32) -> bool {
        let fits = self
            .protocol
            .as_ref()
            .is_some_and(|p| p.can_offer_sink(size));
        fits && self.rx.unread.bytes() == 0 && self.zcopy.reading.is_none()
    }

    /// Returns the block to advertise as a sink, if any.
    pub(crate) fn offered_sink(&self) -> Option<Block> {
        let next = self.zcopy.sink.as_ref().and_then(Advert::queued);
        next.filter(|b| self.sink_fits(b.size))
    }

    /// Handles the end of the sink advert, after the peer has written `bytes`. Fails with the error
    /// of [`ReceiveQueue::passed`](super::super::receive_queue::ReceiveQueue::passed).
    pub(crate) fn sink_over(&mut self, bytes: u32, wakeups: &mut Wakeups) -> Result {
        if let Some(sink) = self.zcopy.get_mut().and_then(Zcopy::advertised_sink) {
            let done = sink.moved(bytes);
            sink.finish();
            self.rx.passed(done as usize)?;
            self.stats.bytes_received += u64::from(done);
            self.stats.direct_filled += u64::from(done);
            wakeups.add(Wakeup::Zcopy);
        }
        Ok(())
    }
}

/// Functions for the adverts of the peer.
impl Connection {
    /// Returns the number of bytes in the peer's next advert, if no call reads it yet. On a
    /// `SOCK_SEQPACKET` socket, the advert is a whole message, whose header is unread.
    pub(crate) fn next_advert(&self) -> Option<u32> {
        let n = self.protocol.as_ref()?.source_bytes();
        let header = match &self.records {
            Some(records) if records.is_read() => return None,
            Some(_) => RECORD_HEADER,
            None => 0,
        };
        let is_next = self.rx.unread.bytes() == header && self.zcopy.reading.is_none();
        (n > 0 && is_next).then_some(n)
    }

    /// Consumes the header of the message in the peer's advert, which a call READs.
    pub(super) fn take_header(&mut self) {
        let Some(records) = &mut self.records else {
            return;
        };
        records.begin_read();
        while let Some((memory, _)) = self.rx.take(self.rx.unread.position()) {
            if let Some(empty) = self.rx.consumed(memory, RECORD_HEADER) {
                self.recycle(empty);
            }
        }
    }

    /// Returns true if the next bytes are in a peer's advert, which only a waiting call can read.
    pub(crate) fn holds_advert(&self) -> bool {
        self.protocol.as_ref().is_some_and(|p| p.holds_sources())
    }

    /// Handles an advert of the peer. On a `SOCK_SEQPACKET` socket, calls READ whole messages only.
    pub(crate) fn advert_came(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        if self.closing.is_orphaned() {
            // as in TCP, bytes that the program can no longer read cause a reset
            return self.done_with_error(sk, ECONNRESET, wakeups);
        }
        let bytes = self.protocol.as_ref().map_or(0, |p| p.source_bytes());
        if self.records.as_ref().is_some_and(|r| !r.awaits(bytes)) {
            return self.refuse_advert();
        }
        self.offer_advert(sk, wakeups);
    }

    /// Offers the peer's advert to a waiting call. If pollers watch the socket, refuses the advert,
    /// since a poller does not wait in a call.
    pub(crate) fn offer_advert(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        wakeups.add(Wakeup::Zcopy);
        if sk.is_watched() {
            self.refuse_advert();
        }
    }

    /// Refuses the peer's advert, so that its bytes arrive as Data.
    pub(crate) fn refuse_advert(&mut self) {
        if let Some(p) = self.protocol.as_mut().filter(|p| p.holds_sources()) {
            p.refuse_sources();
            self.stats.direct_refused += 1;
        }
    }

    /// Posts as many READs as the send queue has space for.
    pub(crate) fn read_on(&mut self, wakeups: &mut Wakeups) -> Result {
        let (Some(reading), Some(endpoint), Some(protocol)) = (
            self.zcopy.get_mut().and_then(|z| z.reading.as_mut()),
            self.endpoint.as_mut(),
            self.protocol.as_mut(),
        ) else {
            return Ok(());
        };
        while let Some((offset, len)) = reading.next() {
            let Some(remote) = protocol.source_advert() else {
                // The advert is used up, or the peer has cancelled it. READs in flight complete.
                // Unread bytes arrive as Data.
                wakeups.add_if(reading.cut(), Wakeup::Zcopy);
                break;
            };
            let posted = endpoint.transfer(
                reading.memory.id,
                &Transfer {
                    read: true,
                    offset,
                    len: len.min(remote.size),
                    address: remote.address,
                    rkey: remote.r_key,
                    cookie: reading.cookie,
                },
            );
            match posted {
                Ok(n) => {
                    reading.posted(n);
                    protocol.read_started(n);
                    self.rx.passed(n as usize)?;
                    if let Some(records) = &mut self.records {
                        records.passed(n);
                    }
                }
                Err(e) if e == ENOSPC => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Handles the completion of a READ of `n` bytes.
    pub(super) fn has_read(&mut self, cookie: u64, n: u32, wakeups: &mut Wakeups) {
        if let Some(p) = self.protocol.as_mut() {
            p.read_done(n);
        }
        self.stats.bytes_received += u64::from(n);
        self.stats.direct_received += u64::from(n);
        let reading = self.zcopy.get_mut().and_then(|z| z.reading.as_mut());
        wakeups.add_if(reading.is_some_and(|r| r.moved(cookie, n)), Wakeup::Zcopy);
    }
}

impl Zcopy {
    /// Returns the sink that the peer may be writing to.
    fn advertised_sink(&mut self) -> Option<&mut Advert<Posted>> {
        let sink = self.sink.as_mut();
        sink.filter(|s| s.state == AdvertState::Posted)
    }
}

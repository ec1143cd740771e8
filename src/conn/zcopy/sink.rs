// SPDX-License-Identifier: GPL-2.0-only

//! Memory that a waiting receive call has advertised, for the peer to write its next bytes to:
//! SinkAvail (IBA Annex A4).
//!
//! The call has read all that came, and would sleep. What it is given ends the advert: bytes that
//! were written, or a message with payload, whose bytes are copied as ever, or the end of the
//! stream. If nothing comes for a while, the call takes its memory back and just waits. What the
//! call does is in [`super::filling`]; here is what the connection knows.

use super::super::{Connection, Wakeups};
use super::lent;
use super::{by_write, is_told, Direct, LEAST_TRANSFER};
use crate::protocol::{Block, Outgoing};
use crate::transport::{Channel, Sending, Transport};
use kernel::prelude::*;

impl Connection {
    /// How much of a receive call's room to advertise; 0: nothing.
    pub(crate) fn sink_size(&mut self, want: usize) -> usize {
        let size = self.another_sink(want);
        if size == 0 || !self.direct.sinks.is_empty() || self.direct.sink_skips.skip() {
            return 0;
        }
        size
    }

    /// How much of it to advertise, besides what is.
    pub(super) fn another_sink(&self, want: usize) -> usize {
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
        let size = u32::try_from(want).unwrap_or(u32::MAX).min(p.sink_limit());
        match self.sink_fits(size) {
            true => size as usize,
            false => 0,
        }
    }

    /// Whether a block of this size can be advertised now: all that came has been read, and nothing
    /// else is coming.
    pub(super) fn sink_fits(&self, size: u32) -> bool {
        let fits = self
            .protocol
            .as_ref()
            .is_some_and(|p| p.can_offer_sink(size));
        fits && self.rx.is_empty() && self.direct.reading.is_empty()
    }

    /// The block to advertise as a sink, if any may be now.
    pub(crate) fn offered_sink(&self) -> Option<Block> {
        let next = self.direct.sinks.offered();
        next.filter(|b| self.sink_fits(b.size))
    }

    /// The peer is done with our oldest sink, and has written `bytes` to it.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` as [`ReceiveQueue::passed`](super::super::receive_queue::ReceiveQueue::passed).
    pub(crate) fn sink_over(&mut self, bytes: u32, wakeups: &mut Wakeups) -> Result {
        let position = self.rx.end();
        if let Some(done) = self.direct.sinks.written(bytes, position) {
            self.rx.passed(done as usize)?;
            self.stats.bytes_received += u64::from(done);
            self.stats.direct_filled += u64::from(done);
            wakeups.direct = true;
        }
        Ok(())
    }

    /// The peer has written to none of our sinks, nor will it.
    pub(crate) fn sinks_void(&mut self, wakeups: &mut Wakeups) {
        wakeups.direct |= self.direct.sinks.void();
    }

    /// Takes the memory of a receive call back from whoever has it.
    pub(super) fn take_sinks_back(&mut self) {
        self.direct.sinks.withdraw();
        if let Some(p) = &mut self.protocol {
            p.cancel_sinks();
        }
    }

    /// Ends the peer's access to sinks that it is done with, as soon as there is room to.
    pub(crate) fn end_sink_access(&mut self) -> Result {
        if let Some(channel) = self.channel.as_mut() {
            for s in self.direct.sinks.iter_mut() {
                lent::end_access(s, channel)?;
            }
        }
        Ok(())
    }
}

impl Direct {
    /// Posts the SinkAvail of the block that was offered. `sent`: position in what is sent. Returns
    /// whether others were out.
    pub(crate) fn advertise_sink(
        &mut self,
        channel: &mut Channel,
        message: &Outgoing,
        sent: u64,
    ) -> Result<bool> {
        let others = self.sinks.advertised() > 0;
        if !self.sinks.advertise() {
            return Err(EINVAL);
        }
        channel.post_send(&Sending {
            header: message
                .header
                .get(..message.header_len.into())
                .ok_or(EINVAL)?,
            payload: &[],
            signaled: false,
            solicited: is_told(channel, message),
            cookie: sent,
        })?;
        Ok(others)
    }

    /// The next block to advertise, behind one that just was.
    pub(crate) fn next_sink(&self) -> Option<Block> {
        self.sinks.offered()
    }
}

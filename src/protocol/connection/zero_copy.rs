// SPDX-License-Identifier: GPL-2.0-only

//! Functions by which the owner handles adverts. [`super`] describes the order of calls.

use super::super::message::{Block, Mode, BSDH_LEN};
use super::Connection;

/// Largest block for an OFED peer, which registers at most this size.
const OFED_SOURCE: u32 = 4096 * 510;

/// Largest block for any peer: the limit of one RDMA READ or WRITE.
pub const MAX_BLOCK: u32 = 1 << 30;

impl Connection {
    /// Returns the largest block for [`Offer::source`](super::Offer::source), or 0 until the peer
    /// has shown support for source adverts. A block has at least two bytes.
    pub fn source_limit(&self) -> u32 {
        match self.own_line() {
            _ if !self.zero_copy => 0,
            true => MAX_BLOCK,
            false if self.peer_knows => OFED_SOURCE,
            false => 0,
        }
    }

    /// Returns true if a block of `size` bytes, offered now, would be advertised once credits
    /// suffice. If false, the owner should copy, since the block would wait for other blocks or for
    /// the peer's advert, or has an unsuitable size.
    pub fn can_advertise(&self, size: u32) -> bool {
        let limit = match self.send_mode {
            Mode::Buffered => 0,
            Mode::Combined => 1,
            Mode::Pipelined => self.adverts_less(self.own_sinks.count()),
        };
        // an OFED peer cancels its own advert when it receives an advert
        let crossing = !self.own_line() && self.peer_sources.held();
        (2..=self.source_limit()).contains(&size)
            && self.own_sources.room(limit)
            && !crossing
            && !self.stale_record.is_possible()
            && !self.peer_sinks.held()
            && !self.send_closed()
    }

    /// Returns the number of adverts that the peer can hold besides `others`.
    fn adverts_less(&self, others: usize) -> usize {
        usize::from(self.remote_max_adverts).saturating_sub(others)
    }

    /// Returns the number of source adverts of this end that the peer may be reading.
    pub fn sources_outstanding(&self) -> usize {
        self.own_sources.count()
    }

    /// Cancels all source adverts of this end. The blocks return to the owner when the peer has
    /// replied ([`Event::SourcesReturned`](super::Event::SourcesReturned)), or has read them to the
    /// end ([`Event::SourceRead`](super::Event::SourceRead)).
    pub fn cancel_sources(&mut self) {
        self.idle = None;
        self.own_sources.cancel();
    }

    /// Returns true if the peer has source adverts that are neither finished nor refused. A peer
    /// with such adverts sends no Data. An OFED peer can only cancel its adverts with enough
    /// credits to send Data, so keep four receive buffers posted, however much is unread.
    pub fn holds_sources(&self) -> bool {
        self.peer_sources.held()
    }

    /// Returns the next part of the peer's source adverts, which the owner READs, maybe in pieces.
    ///
    /// In the stream, this part follows the payload received so far and the bytes of posted READs.
    pub fn source_advert(&self) -> Option<Block> {
        self.peer_sources.next().filter(|_| self.live())
    }

    /// Returns the number of unread bytes of the peer's source adverts.
    pub fn source_bytes(&self) -> u32 {
        if self.live() {
            self.peer_sources.bytes()
        } else {
            0
        }
    }

    /// Records a posted READ of the first `bytes` of [`source_advert`](Self::source_advert), under
    /// the same hold of the connection's lock.
    pub fn read_started(&mut self, bytes: u32) {
        self.idle = None;
        self.peer_sources.started(bytes);
    }

    /// Records the completion of the oldest READs, of `bytes` bytes in all. The reader has these
    /// bytes of the stream, and a report to the peer follows.
    pub fn read_done(&mut self, bytes: u32) {
        self.idle = None;
        self.peer_sources.ended(bytes);
    }

    /// Returns true if [`set_pipelined`](Self::set_pipelined) has an effect on this connection.
    pub fn may_be_pipelined(&self) -> bool {
        self.zero_copy && self.own_line()
    }

    /// Makes the sending half Pipelined: several source adverts may be outstanding, and the peer
    /// may send sink adverts. With false, makes this half Combined again, once the peer has no sink
    /// adverts. The ModeChange waits for source adverts to end. With OFED peers, the call has no
    /// effect.
    pub fn set_pipelined(&mut self, pipelined: bool) {
        self.idle = None;
        self.pipelined = pipelined;
    }

    /// Returns the smallest block for [`Offer::sink`](super::Offer::sink), which holds any message.
    pub fn least_sink(&self) -> u32 {
        self.local.size().saturating_sub(BSDH_LEN as u32).max(1)
    }

    /// Returns true if a block of `size` bytes, offered as a sink now, would be advertised once
    /// credits suffice: the peer sends Pipelined, and has no unfinished source adverts.
    pub fn can_offer_sink(&self, size: u32) -> bool {
        self.zero_copy
            && self.receive_mode == Mode::Pipelined
            && (self.least_sink()..=MAX_BLOCK).contains(&size)
            && self
                .own_sinks
                .room(self.adverts_less(self.own_sources.count()))
            && !self.peer_sources.held()
            && !self.receive_closed
            && self.own_line()
    }

    /// Returns the number of sink adverts of this end that the peer may be writing to.
    pub fn sinks_outstanding(&self) -> usize {
        self.own_sinks.count()
    }

    /// Cancels all sink adverts of this end. Events return the blocks once the peer has replied.
    pub fn cancel_sinks(&mut self) {
        self.idle = None;
        self.own_sinks.cancel();
    }

    /// Returns the memory of the peer's reader for the next bytes of the stream, to be written by
    /// RDMA WRITE. Returns `None` if the peer advertised the memory before it had received all sent
    /// bytes, since the peer then is about to cancel.
    pub fn sink_advert(&self) -> Option<Block> {
        let open = self.live() && !self.send_closed();
        self.peer_sinks.next().filter(|_| open)
    }

    /// Returns the total number of bytes that may be written.
    pub fn sink_bytes(&self) -> u32 {
        match self.sink_advert() {
            Some(_) => self.peer_sinks.bytes(),
            None => 0,
        }
    }

    /// Records a posted WRITE of `bytes` to the start of [`sink_advert`](Self::sink_advert), under
    /// the same hold of the connection's lock. If `last`, no more bytes are written to this block,
    /// and the report to the peer is due. (A full block is always reported.)
    pub fn written(&mut self, bytes: u32, last: bool) {
        self.idle = None;
        self.peer_sinks.written(bytes);
        if last {
            self.peer_sinks.finish();
        }
    }

    /// Refuses those bytes of the peer's source adverts that no READ covers, so that the peer sends
    /// them as Data. Also refuses adverts that cross the refusal.
    pub fn refuse_sources(&mut self) {
        self.idle = None;
        self.peer_sources.refuse();
    }
}

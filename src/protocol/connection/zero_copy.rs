// SPDX-License-Identifier: GPL-2.0-only

//! What the owner of a connection does about adverts; the order of its calls is in [`super`].

use super::super::adverts::{Remote, ZeroCopy};
use super::super::message::{Mode, BSDH_LEN};
use super::Connection;

/// Largest block for a peer of OFED's line: what one of its own registrations holds.
const OFED_SOURCE: u32 = 4096 * 510;

/// Largest block for any peer: one RDMA READ or WRITE can move it.
const LARGEST: u32 = 1 << 30;

impl Connection {
    /// Largest block that may be offered as [`Offer::source`](super::Offer::source); 0: none, as
    /// long as the peer has not shown that it knows source adverts. A block has two bytes at
    /// least.
    pub fn source_limit(&self) -> u32 {
        match self.zero_copy {
            ZeroCopy::Off => 0,
            _ if self.own_line() => LARGEST,
            ZeroCopy::On if !self.peer_knows => 0,
            _ => OFED_SOURCE,
        }
    }

    /// Whether a block of this size that is offered now would be advertised as soon as there are
    /// credits. If not, it waits for others, or for the peer's own advert, or is too small or too
    /// large: better copy.
    pub fn can_advertise(&self, size: u32) -> bool {
        let limit = match self.modes.send {
            Mode::Buffered => 0,
            Mode::Combined => 1,
            Mode::Pipelined => self.adverts_less(self.own_sinks.count()),
        };
        // A peer of OFED's line takes its own advert back when it gets one.
        let crossing = !self.own_line() && self.peer_sources.held();
        (2..=self.source_limit()).contains(&size)
            && self.own_sources.room(limit)
            && !crossing
            && !self.stale_record.is_possible()
            && !self.peer_sinks.held()
            && !self.send_closed
    }

    /// How many adverts the peer can hold besides so many.
    fn adverts_less(&self, others: usize) -> usize {
        usize::from(self.remote_max_adverts).saturating_sub(others)
    }

    /// Bytes of a block that go in its SrcAvail: one for peers of OFED's line, which require it.
    pub(super) fn inline(&self) -> u32 {
        u32::from(!self.own_line())
    }

    /// Source adverts of ours that the peer may be reading.
    pub fn sources_outstanding(&self) -> usize {
        self.own_sources.count()
    }

    /// Takes all our source adverts back. They are the owner's again when the peer has answered
    /// ([`Event::SourcesReturned`](super::Event::SourcesReturned)), or has read them to the end
    /// after all ([`Event::SourceRead`](super::Event::SourceRead)).
    pub fn cancel_sources(&mut self) {
        self.idle = None;
        self.own_sources.cancel();
    }

    /// Whether the peer has source adverts here that are neither finished nor refused. As long as
    /// it has, it sends no Data; and one of OFED's line cannot cancel them unless it could send
    /// Data. So have four receive buffers posted then, whatever lies unread.
    pub fn holds_sources(&self) -> bool {
        self.peer_sources.held()
    }

    /// What to read next of the peer's source adverts, by RDMA READ: part of it or all.
    ///
    /// Its first byte follows, in the stream, the payload bytes received so far and the bytes for
    /// which READs were started.
    pub fn source_advert(&self) -> Option<Remote> {
        self.peer_sources.next().filter(|_| self.live())
    }

    /// How many bytes there are in all to read of the peer's source adverts.
    pub fn source_bytes(&self) -> u32 {
        if self.live() {
            self.peer_sources.bytes()
        } else {
            0
        }
    }

    /// A READ was posted of the first `bytes` of what [`source_advert`](Self::source_advert)
    /// says, under the same hold of the connection's lock.
    pub fn read_started(&mut self, bytes: u32) {
        self.idle = None;
        self.peer_sources.started(bytes);
    }

    /// The oldest READs, of `bytes` in all, have completed: the reader has these bytes of the
    /// stream, and the peer will be told.
    pub fn read_done(&mut self, bytes: u32) {
        self.idle = None;
        self.peer_sources.ended(bytes);
    }

    /// Whether the connection is one on which [`set_pipelined`](Self::set_pipelined) has an effect.
    pub fn may_be_pipelined(&self) -> bool {
        self.zero_copy != ZeroCopy::Off && self.own_line()
    }

    /// Has our half of the connection become Pipelined: several source adverts may be outstanding,
    /// and the peer may send sink adverts. (Or Combined again, as soon as the peer has none.) The
    /// ModeChange goes when no source advert is outstanding. With peers of OFED's line nothing
    /// happens.
    pub fn set_pipelined(&mut self, pipelined: bool) {
        self.idle = None;
        self.pipelined = pipelined;
    }

    /// Smallest block that may be offered as [`Offer::sink`](super::Offer::sink): one with room
    /// for any message of the peer.
    pub fn least_sink(&self) -> u32 {
        self.local.size().saturating_sub(BSDH_LEN as u32).max(1)
    }

    /// Largest block that may be offered as [`Offer::sink`](super::Offer::sink); 0: none.
    pub fn sink_limit(&self) -> u32 {
        if self.may_be_pipelined() {
            LARGEST
        } else {
            0
        }
    }

    /// Whether a block of this size that is offered as a sink now would be advertised as soon as
    /// there are credits: the peer sends Pipelined, and has no source adverts here that are not
    /// finished.
    pub fn can_offer_sink(&self, size: u32) -> bool {
        self.zero_copy != ZeroCopy::Off
            && self.modes.receive == Mode::Pipelined
            && (self.least_sink()..=LARGEST).contains(&size)
            && self
                .own_sinks
                .room(self.adverts_less(self.own_sources.count()))
            && !self.peer_sources.held()
            && !self.receive_closed
            && self.own_line()
    }

    /// Sink adverts of ours that the peer may be writing to.
    pub fn sinks_outstanding(&self) -> usize {
        self.own_sinks.count()
    }

    /// Takes all our sink adverts back. They are the owner's again as the events tell, at the
    /// latest when the peer has answered.
    pub fn cancel_sinks(&mut self) {
        self.idle = None;
        self.own_sinks.cancel();
    }

    /// Where the next bytes of our stream may be written to by RDMA WRITE, right into the memory
    /// of the peer's reader. Nowhere where the peer has advertised memory before it saw all that we
    /// sent: it is about to take that back.
    pub fn sink_advert(&self) -> Option<Remote> {
        let open = self.live() && !self.send_closed;
        self.peer_sinks.next().filter(|_| open)
    }

    /// How many bytes may be written there in all.
    pub fn sink_bytes(&self) -> u32 {
        match self.sink_advert() {
            Some(_) => self.peer_sinks.bytes(),
            None => 0,
        }
    }

    /// A WRITE of `bytes` to the start of what [`sink_advert`](Self::sink_advert) says was posted,
    /// under the same hold of the connection's lock. `last`: nothing more goes to this block; the
    /// peer is told how much it has. (That happens by itself when the block is full.)
    pub fn written(&mut self, bytes: u32, last: bool) {
        self.idle = None;
        self.peer_sinks.written(bytes);
        if last {
            self.peer_sinks.finish();
        }
    }

    /// Nothing more goes to the block that was written to last, if one was and is not full: the peer
    /// is told how much it has.
    pub fn written_all(&mut self) {
        self.idle = None;
        self.peer_sinks.finish();
    }

    /// The peer is to send as Data whatever of its source adverts no READ was started for. Also
    /// for those that it advertises before it knows.
    pub fn refuse_sources(&mut self) {
        self.idle = None;
        self.peer_sources.refuse();
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! What the owner of a connection does about adverts; the order of its calls is in [`super`].

use super::super::adverts::{Remote, ZeroCopy};
use super::super::message::Mode;
use super::Connection;

/// Largest block for a peer of OFED's line: what one of its own registrations holds.
const OFED_SOURCE: u32 = 4096 * 510;

/// Largest block for any peer: one RDMA READ can fetch it.
const LARGEST_SOURCE: u32 = 1 << 30;

impl Connection {
    /// Largest block that may be offered as [`Offer::source`](super::Offer::source); 0: none, as
    /// long as the peer has not shown that it knows source adverts. A block has two bytes at
    /// least.
    pub fn source_limit(&self) -> u32 {
        match self.zero_copy {
            ZeroCopy::Off => 0,
            _ if self.own_line() => LARGEST_SOURCE,
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
            Mode::Pipelined if self.own_line() => usize::from(self.remote_max_adverts),
            _ => 1,
        };
        // A peer of OFED's line takes its own advert back when it gets one.
        let crossing = !self.own_line() && self.peer_sources.held();
        (2..=self.source_limit()).contains(&size)
            && self.own_sources.room(limit)
            && !crossing
            && !self.send_closed
    }

    /// Bytes of a block that go in its SrcAvail.
    pub(super) fn inline(&self) -> u32 {
        u32::from(self.modes.send != Mode::Pipelined)
    }

    /// Source adverts of ours that the peer may be reading.
    pub fn sources_outstanding(&self) -> usize {
        self.own_sources.count()
    }

    /// Takes all our source adverts back. They are the owner's again when the peer has answered
    /// ([`Event::SourcesReturned`](super::Event::SourcesReturned)), or has read them to the end
    /// after all ([`Event::SourceRead`](super::Event::SourceRead)).
    pub fn cancel_sources(&mut self) {
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

    /// A READ was posted of the first `bytes` of what [`source_advert`](Self::source_advert)
    /// says, under the same hold of the connection's lock.
    pub fn read_started(&mut self, bytes: u32) {
        self.peer_sources.started(bytes);
    }

    /// The oldest READs, of `bytes` in all, have completed: the reader has these bytes of the
    /// stream, and the peer will be told.
    pub fn read_done(&mut self, bytes: u32) {
        self.peer_sources.ended(bytes);
    }

    /// The peer is to send as Data whatever of its source adverts no READ was started for. Also
    /// for those that it advertises before it knows.
    pub fn refuse_sources(&mut self) {
        self.peer_sources.refuse();
    }
}

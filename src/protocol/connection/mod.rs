// SPDX-License-Identifier: GPL-2.0-only

//! State of one connection, from Hello and HelloAck to the end of both streams.
//!
//! # Zero copy: actions of the owner
//!
//! The owner makes all calls under the connection's lock. The owner posts a READ or WRITE under the
//! same hold of the lock as the call that records it, and then the messages from
//! [`Connection::transmit`]. The owner calls `transmit` again after every call and every received
//! message. No step needs the caller that began the transfer, since events concern the connection.
//!
//! ```text
//! sender, large block          transmit(source) -> SrcAvail ... SourceRead{finished}
//!   after its timeout          cancel_sources -> SrcAvailCancel ... SourcesReturned{done}
//! its peer's reader            SourceAdvert, source_advert, READ, read_started,
//!                              completion, read_done -> RdmaRdCompl
//!   or refuses                 refuse_sources -> SendSm
//!
//! both ends, once              set_pipelined(true) -> ModeChange
//! reader, nothing to read      transmit(sink) -> SinkAvail ... SinkWritten{bytes}, or for_sink
//!   after its timeout          cancel_sinks -> SinkAvailCancel ... SinksReturned, or one of these
//! its peer's sender            SinkAdvert, sink_advert, WRITE, written(n, last) -> RdmaWrCompl
//! ```
//!
//! ## Sending a block (SrcAvail)
//!
//! 1. Check [`can_advertise`](Connection::can_advertise); if false, copy. Pin the block, of
//!    [`source_limit`](Connection::source_limit) bytes at most, and register the block with a key
//!    of its own for remote reading.
//! 2. Offer the block as [`Offer::source`] when all bytes before the block are in [`Offer::queued`]
//!    or sent, and call [`transmit`](Connection::transmit) until the result is a message of kind
//!    [`Mid::SrcAvail`](super::Mid::SrcAvail). The SrcAvail contains the block's first
//!    [`payload`](Outgoing::payload) bytes (one or none) after the headers. Now the block is
//!    *advertised*, and the bytes after the block may be offered, including another block. Until
//!    `transmit` returns the SrcAvail, the owner may offer a different block instead.
//! 3. [`Event::SourceRead`] reports progress on the oldest advertised block. A `finished` event
//!    means that the whole block has been sent, and returns the block to the owner.
//! 4. [`Event::SourcesReturned`] returns *all* advertised blocks to the owner. `done` bytes of the
//!    oldest block have been sent. The unread rest of the oldest block and the other blocks then
//!    precede all queued bytes: the owner copies them, or offers them again under new keys. (The
//!    peer may lack zero copy, or its reader peeks.)
//! 5. [`cancel_sources`](Connection::cancel_sources) ends the wait. `SourceRead` or
//!    `SourcesReturned` follows once the peer's kernel has replied. No block is advertised before
//!    the reply.
//!
//! While a block is advertised, neither Data nor DisConn is sent ([`Stall::Adverts`]). An owner
//! with urgent data after the block cancels the advert. A peer that does not read never ends the
//! wait, so senders need a time limit.
//!
//! The peer may send a sink advert at the same time. Then [`Event::SinkAdvert`] with `returned`
//! returns all advertised blocks, of which the peer has received nothing.
//!
//! ## Reading a block of the peer (RDMA READ)
//!
//! 1. [`Event::SourceAdvert`] reports a block. The block's bytes follow the payload received so
//!    far, so the reader first consumes all payload.
//! 2. [`source_advert`](Connection::source_advert) returns the address of the next bytes. Post a
//!    READ of some bytes of the advert, call [`read_started`](Connection::read_started), and
//!    repeat. Any number of READs of several adverts may be in flight.
//! 3. When a READ has completed, call [`read_done`](Connection::read_done) and
//!    [`transmit`](Connection::transmit), which reports to the peer. READs complete in the order
//!    of posting. A failed READ loses its bytes, and thereby the connection.
//! 4. A reader that cannot read (no memory, MSG_PEEK) calls
//!    [`refuse_sources`](Connection::refuse_sources). READs in flight complete.
//!
//! After the peer has cancelled its adverts, `source_advert` returns `None`. `transmit` sends the
//! reply, even without a reader. While [`holds_sources`](Connection::holds_sources) is true, keep
//! at least four receive buffers posted, however much is unread: an OFED peer needs three credits
//! to cancel. (The peer sends no Data while it holds source adverts.)
//!
//! ## Receiving into a reader's memory (SinkAvail)
//!
//! 1. A reader waits and has read everything. If [`can_offer_sink`](Connection::can_offer_sink) is
//!    true for the size of its block, which is at least [`least_sink`](Connection::least_sink), pin
//!    the block and register it for remote writing. Offer the block as [`Offer::sink`], while
//!    nothing is unread, until `transmit` returns [`Mid::SinkAvail`](super::Mid::SinkAvail). Now
//!    the block is *advertised*. Further blocks may follow. The peer writes to the blocks in order,
//!    with any number of bytes in each, so the owner of several blocks has to join the bytes.
//! 2. [`Event::SinkWritten`] returns the oldest block, which contains bytes of the stream.
//! 3. [`Received::for_sink`] returns the oldest block, into which the owner copies the payload of
//!    the message. (The peer had few bytes to send, or had not received the advert.)
//! 4. [`Event::SinksReturned`] and [`Event::PeerClosed`] return all blocks, with no bytes written.
//! 5. [`cancel_sinks`](Connection::cancel_sinks) ends the wait, and one of the events above
//!    follows. Until then, a source advert of the peer causes no event, since the peer treats such
//!    an advert as void.
//!
//! The peer must have made its half Pipelined. Make this end's half Pipelined
//! ([`set_pipelined`](Connection::set_pipelined)) when the first large block is sent.
//!
//! ## Sending to a reader's memory (RDMA WRITE)
//!
//! 1. [`Event::SinkAdvert`] reports a block. [`sink_advert`](Connection::sink_advert) returns the
//!    address for the next bytes of the stream, so all earlier bytes must have been sent.
//! 2. Post the WRITE, and call [`written`](Connection::written), which counts the written bytes as
//!    sent. When the block is full, or the sender has no more bytes for now (`last`), the report is
//!    sent and the peer's reader returns. If the peer has another block, that block is next.
//! 3. Bytes offered as [`Offer::queued`] are sent as Data even if the peer has blocks. Each Data
//!    voids one block. Data is better than a WRITE for few bytes, and for urgent bytes. While the
//!    peer has blocks, this end can advertise no block ([`Stall::Adverts`]).
//! 4. The peer may cancel its blocks at any time. Then `sink_advert` returns `None`.
//!
//! ## When memory may be unpinned
//!
//! An advertised block may be unpinned once an event has returned it, even if its caller has ended
//! earlier. If no reply arrives, or no task can wait for a reply, the owner ends the connection.
//! Once the queue pair is in the error state and all its work requests are flushed, the peer can
//! access no memory, and all blocks belong to the owner again. The connection also ends after a
//! [`Violation`](super::Violation), an abort or a suspension, which cause no event. The owner
//! always invalidates the key before it unpins the pages.
//!
//! Memory of a READ, WRITE or SEND of this end may be unpinned when the request has completed or
//! was flushed.

mod receive;
mod transmit;
mod zero_copy;

pub use self::receive::{Event, Received};
pub use self::transmit::{Offer, Outgoing, Stall, Transmit};
pub use self::zero_copy::MAX_BLOCK;

use super::adverts::{OwnSinks, OwnSources, PeerSinks, PeerSources, StaleRecord};
use super::credits::{
    after, ReceiveWindow, SendWindow, CONTROL_CREDITS, PAYLOAD_CREDITS, UPDATE_CREDITS,
};
use super::message::Mode;
use super::resize::{LocalBuffers, RemoteBuffers};

/// Size of receive buffers by which an OFED peer shows that the peer supports zero copy.
const ZERO_COPY_RECEIVE_SIZE: u32 = 32784;

/// Parameters fixed by Hello and HelloAck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Announced size in bytes with BSDH of this end's receive buffers.
    pub local_receive_size: u32,
    /// Size in bytes with BSDH of the peer's receive buffers: Hello's LocalRcvSz or HelloAck's
    /// ActRcvSz.
    pub remote_receive_size: u32,
    /// MaxAdverts that this end announces.
    pub local_max_adverts: u16,
    /// MaxAdverts of the peer; 1 means an OFED peer.
    pub remote_max_adverts: u16,
    /// Number of receive buffers that this end's Hello or HelloAck announces. With fewer than
    /// three, the peer cannot send. Three buffers are slow, and fail if the peer also has three.
    pub posted: u16,
    /// Number of receive buffers in the peer's Hello or HelloAck: the initial credits, perhaps 0.
    pub credits: u16,
    /// Size in bytes with BSDH to request by ChRcvBuf under load, if above `remote_receive_size`.
    pub desired_remote_size: u32,
    /// True if the owner uses adverts. Otherwise, this end refuses adverts on arrival, and sends
    /// none.
    pub zero_copy: bool,
}

/// Protocol state of one end of a connection.
///
/// The owner calls [`receive`](Connection::receive) for every message, in the order of arrival, and
/// [`transmit`](Connection::transmit) after any change (bytes to send, a message received, a SEND
/// completed, receive buffers posted), until nothing is left to send. A message that `transmit`
/// returns has its place in the sequence: the owner must post all messages, in the order of the
/// calls.
#[derive(Clone, Debug)]
pub struct Connection {
    send: SendWindow,
    receive: ReceiveWindow,
    /// Mode of the half on which this end sends.
    send_mode: Mode,
    /// Mode of the half on which this end receives.
    receive_mode: Mode,
    zero_copy: bool,
    own_sources: OwnSources,
    stale_record: StaleRecord,
    peer_sources: PeerSources,
    own_sinks: OwnSinks,
    /// Number of received messages with payload that voided no sink advert.
    non_discards: u32,
    peer_sinks: PeerSinks,
    /// Set if the owner has requested Pipelined mode.
    pipelined: bool,
    /// Set if the peer has shown that it supports SrcAvail.
    peer_knows: bool,
    local: LocalBuffers,
    remote: RemoteBuffers,
    remote_max_adverts: u16,
    /// Set between sending OOB_PEND and sending the urgent byte.
    urgent_announced: bool,
    /// Set between the arrivals of OOB_PEND and of the urgent byte.
    urgent_expected: bool,
    /// Set if no message was sent after the last stream bytes arrived. Until an acknowledgement,
    /// the peer may hold back a small message.
    unanswered: bool,
    /// Set if the outgoing stream ends with the queued bytes.
    send_shutdown: bool,
    /// MSeq of the DisConn, once this end has sent it.
    fin: Option<u32>,
    /// Set once the peer's DisConn has arrived.
    receive_closed: bool,
    /// Number of credits for the next message of this end, if the peer waits for that message.
    owes_message: Option<u16>,
    /// Set until the next message, which is a keepalive probe.
    probe_due: bool,
    /// Set by AbortConn, SuspComm or a violation of the peer; stops sending and receiving.
    ended: bool,
    /// `posted` and `reader_waits` of an offer with which [`transmit`](Connection::transmit) had
    /// nothing to send; `None` after any change.
    idle: Option<(u16, bool)>,
}

impl Connection {
    /// Creates a connection after the exchange of Hello and HelloAck.
    pub fn new(parameters: &Parameters) -> Self {
        Connection {
            send: SendWindow::new(parameters.credits),
            receive: ReceiveWindow::new(parameters.posted),
            send_mode: Mode::Combined,
            receive_mode: Mode::Combined,
            zero_copy: parameters.zero_copy,
            own_sources: OwnSources::new(),
            stale_record: StaleRecord::default(),
            peer_sources: PeerSources::new(parameters.local_max_adverts, parameters.zero_copy),
            own_sinks: OwnSinks::new(),
            non_discards: 0,
            peer_sinks: PeerSinks::new(parameters.local_max_adverts),
            pipelined: false,
            peer_knows: parameters.remote_receive_size == ZERO_COPY_RECEIVE_SIZE,
            local: LocalBuffers::new(parameters.local_receive_size),
            remote: RemoteBuffers::new(
                parameters.remote_receive_size,
                parameters.desired_remote_size,
            ),
            remote_max_adverts: parameters.remote_max_adverts,
            urgent_announced: false,
            urgent_expected: false,
            unanswered: false,
            send_shutdown: false,
            fin: None,
            receive_closed: false,
            owes_message: None,
            probe_due: false,
            ended: false,
            idle: None,
        }
    }

    /// Ends the outgoing stream: a DisConn follows the queued bytes, and these bytes are no longer
    /// held back. Bytes queued after this call are sent before the DisConn, too, while
    /// [`send_closed`](Connection::send_closed) is false, but the owner should queue none.
    pub fn shutdown_send(&mut self) {
        self.idle = None;
        self.send_shutdown = true;
    }

    /// Replies to an [`Event::ReceiveSizeRequested`]. Receive buffers posted from now on hold
    /// `new_size` bytes (with BSDH). `old_posted` smaller buffers are still posted, and are used
    /// first. The ChRcvBufAck is sent once the smaller buffers are used up.
    ///
    /// A `new_size` that is not larger than the current size refuses the request, and the reply is
    /// sent at once. Each request needs a reply; without a request the call has no effect.
    ///
    /// The reply contains `new_size - 16`, the payload size for an OFED peer. A peer that runs this
    /// module uses 16 bytes less than the reply contains. For messages of whole pages between two
    /// ends of this module, `new_size` should be the size of the pages plus 32 bytes.
    pub fn resize_receive(&mut self, new_size: u32, old_posted: u16) {
        self.idle = None;
        self.local.decide(new_size, old_posted);
    }

    /// Makes an empty Data the next message, if nothing else is due. An iWARP peer waits for the
    /// first message, before which it must not send (MPA), and for the MSeqAck of its DisConn.
    pub fn owe_message(&mut self) {
        self.idle = None;
        self.owes_message = Some(UPDATE_CREDITS);
    }

    /// Makes a keepalive probe the next message: a ChRcvBuf of 0 bytes, to which a peer that runs
    /// this module replies at once, with any message. Returns false if this end or the peer lacks
    /// credits for that: then a missing reply would prove nothing.
    pub fn probe(&mut self, posted: u16) -> bool {
        self.idle = None;
        let both = posted >= CONTROL_CREDITS && self.may_control(self.credits());
        self.probe_due = both && self.live();
        self.probe_due
    }

    /// Returns true if [`transmit`](Connection::transmit) has nothing to send when nothing is
    /// offered: an [`Offer`] with the same `posted` and `reader_waits` gave nothing, and nothing
    /// has changed since.
    pub fn is_idle(&self, posted: u16, reader_waits: bool) -> bool {
        self.idle == Some(self.idle_with(posted, reader_waits))
    }

    #[inline]
    fn idle_with(&self, posted: u16, reader_waits: bool) -> (u16, bool) {
        // peers that run this module do not hold messages back until MSeqAck arrives
        (posted, reader_waits && !self.own_line())
    }

    /// Returns the maximum payload of a Data message to the peer.
    pub fn max_payload(&self) -> u32 {
        self.remote.payload()
    }

    /// Returns the number of credits for sending. Payload needs three credits.
    pub fn credits(&self) -> u16 {
        self.send.credits()
    }

    /// Returns the number of credits that the peer has.
    pub fn peer_credits(&self) -> u16 {
        self.receive.credits()
    }

    /// Returns the MSeq of the last message sent, or 0 before the first message.
    pub fn mseq_sent(&self) -> u32 {
        self.send.sent()
    }

    /// Returns the MSeq of the last message received, or 0 before the first message.
    pub fn mseq_received(&self) -> u32 {
        self.receive.received()
    }

    /// Returns the mode of the sending half.
    pub fn send_mode(&self) -> Mode {
        self.send_mode
    }

    /// Returns true once this end has sent DisConn, and can send no more bytes.
    pub fn send_closed(&self) -> bool {
        self.fin.is_some()
    }

    /// Returns true once a message of the peer has acknowledged the DisConn of this end.
    pub fn fin_is_acked(&self) -> bool {
        self.fin.is_some_and(|mseq| !after(mseq, self.send.acked))
    }

    /// Returns true once the peer's DisConn has arrived, after which no stream bytes follow.
    pub fn receive_closed(&self) -> bool {
        self.receive_closed
    }

    /// Returns true if both streams have ended by DisConn, so that the transport may be closed.
    pub fn finished(&self) -> bool {
        self.send_closed() && self.receive_closed
    }

    /// Returns true if [`transmit`](Connection::transmit) would send a credit update without any
    /// other message, with `posted` receive buffers posted.
    pub fn credit_update_due(&self, posted: u16) -> bool {
        self.live() && self.update_due(posted)
    }

    fn update_due(&self, posted: u16) -> bool {
        let own = self.send.credits();
        let others = self.own_sources.count() > 0 || self.peer_sinks.held();
        let two = self.peer_sources.held() || others && own >= PAYLOAD_CREDITS;
        if own == UPDATE_CREDITS && self.keeps_last(posted) {
            return false;
        }
        let needed = self.receive.credits() < PAYLOAD_CREDITS && own > CONTROL_CREDITS;
        if self.must_save() && (!needed || self.peer_sources.is_cancelled()) {
            return false;
        }
        self.receive.update_due(posted, own, two)
    }

    /// Returns true if the last credit is reserved until enough buffers are `posted` for the peer
    /// to send payload, even if the peer's cancel crosses the message. An OFED peer in CLOSE_WAIT
    /// may grant no other credit before it sends a message.
    fn keeps_last(&self, posted: u16) -> bool {
        !self.own_line() && self.send_closed() && posted <= PAYLOAD_CREDITS
    }

    /// Returns true if [`credits`](super::credits) are reserved for the end of the peer's advert.
    fn must_save(&self) -> bool {
        !self.own_line() && self.peer_sources.held() && self.send.credits() <= PAYLOAD_CREDITS
    }

    /// Returns true if the credits suffice only to refuse the peer's advert.
    fn is_starved(&self) -> bool {
        let own = self.send.credits();
        let mute = self.receive.credits() < PAYLOAD_CREDITS;
        self.must_save() && (own < CONTROL_CREDITS || own == CONTROL_CREDITS && mute)
    }

    /// Returns true if the peer may grant no credits before the end of its advert, and no call
    /// reads the advert. `waits` is true if a reader is about to wait for bytes.
    fn is_stopped(&self, waits: bool) -> bool {
        let read = self.peer_sources.reading() || waits && !self.peer_sources.is_begun();
        !self.own_line() && self.peer_sources.held() && !read
    }

    /// Returns the MSeqAck of a message sent now.
    fn mseq_ack(&self) -> u32 {
        self.peer_sources.acknowledgement(self.receive.received())
    }

    /// Returns true if MSeqAck is held back because of a cancel of the peer.
    fn holds_back(&self) -> bool {
        self.mseq_ack() != self.receive.received()
    }

    /// Returns true while messages can be exchanged.
    fn live(&self) -> bool {
        !self.ended && !self.finished()
    }

    /// Returns true if the peer runs this module, by its MaxAdverts.
    pub fn own_line(&self) -> bool {
        self.remote_max_adverts > 1
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

#[cfg(test)]
#[path = "source_tests.rs"]
mod source_tests;

#[cfg(test)]
#[path = "sink_tests.rs"]
mod sink_tests;

#[cfg(test)]
#[path = "silent_tests.rs"]
mod silent_tests;

// SPDX-License-Identifier: GPL-2.0-only

//! One connection, from Hello and HelloAck to the end of both streams.
//!
//! # Zero copy: what the owner does
//!
//! All calls are made under the connection's lock. A READ or WRITE is posted under the same hold in
//! which its call is made; the messages that [`Connection::transmit`] hands out are posted behind
//! it. After every call and every message received, `transmit` is asked again. Nothing below needs
//! a caller who is still there: the events come to the connection.
//!
//! ```text
//! sender, large block          transmit(source) -> SrcAvail ... SourceRead{finished}
//!   who loses patience         cancel_sources -> SrcAvailCancel ... SourcesReturned{done}
//! its peer's reader            SourceAdvert, source_advert, READ, read_started,
//!                              completion, read_done -> RdmaRdCompl
//!   who will not               refuse_sources -> SendSm
//!
//! both ends, once              set_pipelined(true) -> ModeChange
//! reader, nothing to read      transmit(sink) -> SinkAvail ... SinkWritten{bytes}, or for_sink
//!   who loses patience         cancel_sinks -> SinkAvailCancel ... SinksReturned, or one of these
//! its peer's sender            SinkAdvert, sink_advert, WRITE, written(n, last) -> RdmaWrCompl
//! ```
//!
//! ## Sending a block (SrcAvail)
//!
//! 1. [`can_advertise`](Connection::can_advertise) says whether to try: if not, copy. Pin the
//!    block, of [`source_limit`](Connection::source_limit) bytes at most, and register it with a
//!    key of its own for remote reading.
//! 2. Offer it as [`Offer::source`] when all that goes before it in the stream is in
//!    [`Offer::queued`] or sent, and ask [`transmit`](Connection::transmit) until it answers with
//!    a message of kind [`Mid::SrcAvail`](super::Mid::SrcAvail). That one has the block's first
//!    [`payload`](Outgoing::payload) bytes (one or none) behind its headers. Now the block is
//!    *advertised*; what follows it in the stream is offered from now on, another block too.
//!    Until then the owner may offer something else instead.
//! 3. [`Event::SourceRead`] tells of progress on the oldest advertised block. If it is `finished`,
//!    all of that block has been sent, and it is the owner's again.
//! 4. [`Event::SourcesReturned`] tells that *all* advertised blocks are the owner's again. `done`
//!    bytes of the oldest one have been sent. The rest of it, and the others, are again in front
//!    of everything that is queued: copy them, or offer them anew under new keys. (The peer may
//!    have no zero copy, or its reader peeks.)
//! 5. Who does not want to wait any longer calls [`cancel_sources`](Connection::cancel_sources).
//!    One of the two events above follows, as soon as the peer's kernel has answered; until then
//!    nothing is advertised.
//!
//! While a block is advertised no Data goes and no DisConn: [`Stall::Adverts`]. Whoever has urgent
//! data behind it cancels. As nothing ends the wait for a peer whose program does not read, every
//! sender needs an end to its patience.
//!
//! The peer may send a sink advert at the same time. Then [`Event::SinkAdvert`] with `returned`
//! gives back all advertised blocks, of which the peer has nothing.
//!
//! ## Reading a block of the peer's (RDMA READ)
//!
//! 1. [`Event::SourceAdvert`] says that there is one. Its bytes follow the payload that was
//!    received so far, so the reader first takes all of that.
//! 2. [`source_advert`](Connection::source_advert) says where the next bytes are. Post a READ of
//!    some of them, call [`read_started`](Connection::read_started), and so on: any number of
//!    READs may be under way, also of several adverts.
//! 3. When a READ has completed, [`read_done`](Connection::read_done), and
//!    [`transmit`](Connection::transmit): the peer is told. READs complete in the order in which
//!    they were posted. What a READ that failed has fetched is lost, and the connection with it.
//! 4. A reader who cannot or will not read (no memory to be had, MSG_PEEK) calls
//!    [`refuse_sources`](Connection::refuse_sources). READs under way go on to their end.
//!
//! If the peer takes its adverts back, `source_advert` has nothing any more; the answer goes by
//! itself, also if nobody reads. While [`holds_sources`](Connection::holds_sources), four receive
//! buffers at least should be posted, whatever lies unread: a peer of OFED's line needs three
//! credits to cancel. (No Data can come meanwhile.)
//!
//! ## Receiving into a reader's memory (SinkAvail)
//!
//! 1. A reader waits and has read all that came. If [`can_offer_sink`](Connection::can_offer_sink)
//!    for the size of its block, [`least_sink`](Connection::least_sink) at least, pin and register
//!    it for remote writing, and offer it as [`Offer::sink`], as long as still nothing lies unread,
//!    until `transmit` answers with [`Mid::SinkAvail`](super::Mid::SinkAvail). Now it is
//!    *advertised*. Further blocks may follow; they are filled in order, each as far as it pleases
//!    the peer, so who has several out has to bring in order what they get.
//! 2. [`Event::SinkWritten`] gives the oldest block back with bytes of the stream in it.
//! 3. [`Received::for_sink`] gives the oldest block back for the payload of this message, which the
//!    owner copies into it. (The peer had too little to send, or did not know of the block.)
//! 4. [`Event::SinksReturned`] and [`Event::PeerClosed`] give all of them back with nothing in
//!    them.
//! 5. Who does not want to wait any longer calls [`cancel_sinks`](Connection::cancel_sinks), and
//!    waits for one of these. A reader whose peer sends a source advert is not told of it: the peer
//!    knows that it is void.
//!
//! The peer must have made its half Pipelined. It is a good moment to make one's own Pipelined
//! ([`set_pipelined`](Connection::set_pipelined)) when the first large block is sent.
//!
//! ## Sending to a reader's memory (RDMA WRITE)
//!
//! 1. [`Event::SinkAdvert`] says that there is a block. [`sink_advert`](Connection::sink_advert)
//!    says where the next bytes may go, from whatever memory: they are the next ones of the stream,
//!    so all that is in front of them has gone.
//! 2. Post the WRITE, and call [`written`](Connection::written): these bytes are sent. When the
//!    block is full, or the sender has nothing more for the time being (`last`, or
//!    [`written_all`](Connection::written_all) later), the peer is told, and its reader returns;
//!    then comes the next block, if there is one.
//! 3. Bytes that are offered as [`Offer::queued`] go as Data in spite of blocks, each message at
//!    the cost of one: right for few bytes, and for urgent ones. A block is not advertised
//!    meanwhile: [`Stall::Adverts`].
//! 4. The peer may take its blocks back at any time: `sink_advert` has nothing any more.
//!
//! ## When memory may be unpinned
//!
//! A block that was advertised: when an event has given it back, and not earlier, whatever happens
//! to the caller whose block it is. If no answer comes, or must not be waited for, the
//! connection ends: when the queue pair is in the error state and all its work requests have been
//! flushed, the peer can reach nothing any more, and everything is the owner's again. The same
//! holds after a [`Violation`](super::Violation), an abort or a suspension: no event tells then.
//! In any case the key is invalidated before the pages are unpinned.
//!
//! Memory that a READ of ours writes to, or a WRITE or SEND of ours reads from: when that has
//! completed or was flushed.

mod receive;
mod transmit;
mod zero_copy;

pub use self::receive::{Event, Received};
pub use self::transmit::{Offer, Outgoing, Stall, Transmit};

use super::adverts::{OwnSinks, OwnSources, PeerSinks, PeerSources, StaleRecord, ZeroCopy};
use super::credits::{ReceiveWindow, SendWindow, CONTROL_CREDITS, PAYLOAD_CREDITS, UPDATE_CREDITS};
use super::message::Mode;
use super::modes::Modes;
use super::resize::{LocalBuffers, RemoteBuffers};

/// Size of receive buffers that of OFED's line only a version with zero copy announces.
const ZERO_COPY_RECEIVE_SIZE: u32 = 32784;

/// What is fixed once Hello and HelloAck are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Size in bytes with BSDH of our receive buffers, as our Hello or HelloAck announced it.
    pub local_receive_size: u32,
    /// Size in bytes with BSDH of the peer's receive buffers: LocalRcvSz of its Hello or
    /// ActRcvSz of its HelloAck.
    pub remote_receive_size: u32,
    /// MaxAdverts that we announced.
    pub local_max_adverts: u16,
    /// MaxAdverts that the peer announced. 1 means that the peer is of OFED's line.
    pub remote_max_adverts: u16,
    /// Receive buffers that we announced (Bufs of our Hello or HelloAck). With fewer than three
    /// the peer can send nothing until more are posted; with three it works slowly, and not at
    /// all well with a peer that has three, too.
    pub posted: u16,
    /// Receive buffers that the peer announced (Bufs of its Hello or HelloAck): the credits at
    /// the start, which may be 0.
    pub credits: u16,
    /// Size in bytes with BSDH that the peer is asked for by ChRcvBuf under load; 0, or not more
    /// than `remote_receive_size`: never ask.
    pub desired_remote_size: u32,
    /// By ChRcvBufAck the peer means the payload that fits, as we do: it is one of ours for certain.
    pub acks_payload: bool,
    /// What the owner can do with adverts.
    pub zero_copy: ZeroCopy,
}

/// Why nothing more comes or goes, other than by DisConn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The peer sent AbortConn.
    Aborted,
    /// The peer sent SuspComm.
    Suspended,
    /// The peer sent what it must not.
    Violated,
}

/// The protocol's state of one connection at one end.
///
/// Whoever owns it calls [`receive`](Connection::receive) for every message, in the order in
/// which they came, and [`transmit`](Connection::transmit) whenever something may have changed
/// (bytes to send, a message received, a SEND completed, receive buffers posted), until it says
/// that there is nothing to send. A message that it hands out has its place in the sequence and
/// must be posted, in that order.
#[derive(Clone, Debug)]
pub struct Connection {
    send: SendWindow,
    receive: ReceiveWindow,
    modes: Modes,
    zero_copy: ZeroCopy,
    own_sources: OwnSources,
    stale_record: StaleRecord,
    peer_sources: PeerSources,
    own_sinks: OwnSinks,
    peer_sinks: PeerSinks,
    /// The owner wants to send Pipelined.
    pipelined: bool,
    /// The peer has shown that it knows SrcAvail.
    peer_knows: bool,
    local: LocalBuffers,
    remote: RemoteBuffers,
    remote_max_adverts: u16,
    /// OOB_PEND was sent for an urgent byte that was not.
    urgent_announced: bool,
    /// OOB_PEND came, and the urgent byte did not yet.
    urgent_expected: bool,
    /// Stream bytes came, and the peer was sent no message since: if it holds a small message back
    /// until then, it waits.
    unanswered: bool,
    /// Our stream ends with the bytes that are queued.
    send_shutdown: bool,
    /// Our DisConn was handed out.
    send_closed: bool,
    /// The peer's DisConn came.
    receive_closed: bool,
    end: Option<End>,
    /// What [`transmit`](Connection::transmit) had nothing to send with; void when anything changes.
    idle: Option<Idle>,
}

/// What a message depends on besides the connection and what is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Idle {
    posted: u16,
    reader_waits: bool,
}

impl Connection {
    /// A connection whose Hello and HelloAck have been exchanged.
    pub fn new(parameters: &Parameters) -> Self {
        Connection {
            send: SendWindow::new(parameters.credits),
            receive: ReceiveWindow::new(parameters.posted),
            modes: Modes::new(),
            zero_copy: parameters.zero_copy,
            own_sources: OwnSources::new(),
            stale_record: StaleRecord::default(),
            peer_sources: PeerSources::new(
                parameters.local_max_adverts,
                parameters.zero_copy != ZeroCopy::Off,
            ),
            own_sinks: OwnSinks::new(),
            peer_sinks: PeerSinks::new(parameters.local_max_adverts),
            pipelined: false,
            peer_knows: parameters.remote_receive_size == ZERO_COPY_RECEIVE_SIZE,
            local: LocalBuffers::new(parameters.local_receive_size),
            remote: RemoteBuffers::new(
                parameters.remote_receive_size,
                parameters.desired_remote_size,
                parameters.acks_payload,
            ),
            remote_max_adverts: parameters.remote_max_adverts,
            urgent_announced: false,
            urgent_expected: false,
            unanswered: false,
            send_shutdown: false,
            send_closed: false,
            receive_closed: false,
            end: None,
            idle: None,
        }
    }

    /// Ends our stream: a DisConn goes out behind the bytes that are queued, which are no longer
    /// held back for more. Bytes queued later than this call go before it, too, as long as
    /// [`send_closed`](Connection::send_closed) is false; better queue none.
    pub fn shutdown_send(&mut self) {
        self.idle = None;
        self.send_shutdown = true;
    }

    /// Answers an [`Event::ReceiveSizeRequested`]: receive buffers that are posted from now on
    /// hold `new_size` bytes (with BSDH), and `old_posted` smaller ones are still posted and
    /// will be used first. The ChRcvBufAck goes out when those are used up.
    ///
    /// With a `new_size` that is not larger than the present one the wish is refused, and the
    /// answer goes out at once. Each request must be answered, one way or the other; without a
    /// request the call has no effect.
    ///
    /// The answer counts `new_size - 16` payload bytes for a peer of OFED's line, and a peer of
    /// our own line uses 16 bytes less than that: for messages of whole pages between our own
    /// ends, `new_size` should be the pages and 32 bytes.
    pub fn resize_receive(&mut self, new_size: u32, old_posted: u16) {
        self.idle = None;
        self.local.decide(new_size, old_posted);
    }

    /// Whether [`transmit`](Connection::transmit) has nothing to send without being asked, where nothing is
    /// offered: it had nothing for the same `posted` and `reader_waits` of an [`Offer`], and nothing has
    /// changed since.
    pub fn is_idle(&self, posted: u16, reader_waits: bool) -> bool {
        self.idle == Some(self.idle_with(posted, reader_waits))
    }

    #[inline]
    fn idle_with(&self, posted: u16, reader_waits: bool) -> Idle {
        Idle {
            posted,
            // peers of our own line hold nothing back for it
            reader_waits: reader_waits && !self.own_line(),
        }
    }

    /// Most payload bytes that fit in one Data message to the peer.
    pub fn max_payload(&self) -> u32 {
        self.remote.payload()
    }

    /// Size in bytes with BSDH of our receive buffers, as far as the peer was told.
    pub fn receive_size(&self) -> u32 {
        self.local.size()
    }

    /// Messages that may be sent now by the peer's account. Payload needs three.
    pub fn credits(&self) -> u16 {
        self.send.credits()
    }

    /// Messages that the peer may still send by what it was told.
    pub fn peer_credits(&self) -> u16 {
        self.receive.credits()
    }

    /// MSeq of the last message handed out; 0 before the first.
    pub fn mseq_sent(&self) -> u32 {
        self.send.sent()
    }

    /// MSeq of the last message received; 0 before the first.
    pub fn mseq_received(&self) -> u32 {
        self.receive.received()
    }

    /// Mode of what we send.
    pub fn send_mode(&self) -> Mode {
        self.modes.send
    }

    /// Whether our DisConn was handed out: nothing can be sent any more.
    pub fn send_closed(&self) -> bool {
        self.send_closed
    }

    /// Whether the peer's DisConn came: no more stream bytes follow.
    pub fn receive_closed(&self) -> bool {
        self.receive_closed
    }

    /// Whether both streams have ended by DisConn; the transport may be taken down.
    pub fn finished(&self) -> bool {
        self.send_closed && self.receive_closed
    }

    /// Whether the peer suspended the connection.
    pub fn suspended(&self) -> bool {
        self.end == Some(End::Suspended)
    }

    /// Whether the peer aborted the connection.
    pub fn aborted(&self) -> bool {
        self.end == Some(End::Aborted)
    }

    /// Whether [`transmit`](Connection::transmit) would send a credit update if it had nothing
    /// else to send, now that `posted` receive buffers are posted.
    pub fn credit_update_due(&self, posted: u16) -> bool {
        self.live() && self.update_due(posted)
    }

    fn update_due(&self, posted: u16) -> bool {
        let own = self.send.credits();
        let others = self.own_sources.outstanding() || self.peer_sinks.held();
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

    /// Whether the last credit is kept until so many buffers are `posted` that the peer may send
    /// payload, even if a cancel of its crosses the message: in CLOSE_WAIT one of OFED's line may give
    /// us no other before it sends something.
    fn keeps_last(&self, posted: u16) -> bool {
        !self.own_line() && self.send_closed && posted <= PAYLOAD_CREDITS
    }

    /// Whether the credits that we have are to be kept for the end of the peer's advert; see
    /// [`credits`](super::credits).
    fn must_save(&self) -> bool {
        !self.own_line() && self.peer_sources.held() && self.send.credits() <= PAYLOAD_CREDITS
    }

    /// Whether there will be too few of them to do anything with the advert but to refuse it.
    fn is_starved(&self) -> bool {
        let own = self.send.credits();
        let mute = self.receive.credits() < PAYLOAD_CREDITS;
        self.must_save() && (own < CONTROL_CREDITS || own == CONTROL_CREDITS && mute)
    }

    /// Whether the peer may tell of no credits before the end of its advert, which nobody reads; who
    /// `waits` for bytes will begin to.
    fn is_stopped(&self, waits: bool) -> bool {
        let read = self.peer_sources.reading() || waits && !self.peer_sources.is_begun();
        !self.own_line() && self.peer_sources.held() && !read
    }

    /// The MSeqAck of a message that we send now.
    fn mseq_ack(&self) -> u32 {
        self.peer_sources.acknowledgement(self.receive.received())
    }

    /// Whether MSeqAck is held back for a cancel of the peer.
    fn holds_back(&self) -> bool {
        self.mseq_ack() != self.receive.received()
    }

    /// Whether messages still make sense.
    fn live(&self) -> bool {
        self.end.is_none() && !self.finished()
    }

    /// Returns true if the peer is of our own line, by its MaxAdverts.
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

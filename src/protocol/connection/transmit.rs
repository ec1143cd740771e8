// SPDX-License-Identifier: GPL-2.0-only

//! Which message goes out next.
//!
//! In this order: control messages that are due, stream bytes, a block behind them, the DisConn
//! behind that, and, if none of these may go, a credit update if one is due. Control messages
//! overtake stream bytes that are still queued, as every known implementation lets them.

use super::super::adverts::Block;
use super::super::credits::{CONTROL_CREDITS, PAYLOAD_CREDITS, UPDATE_CREDITS};
use super::super::message::{Body, Flags, Message, Mid, Mode, SinkAvail, SrcAvail, MAX_HEADER};
use super::Connection;

/// What the owner of a connection has to send, and what it can take, at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Stream bytes not yet sent, up to `source` if there is one.
    pub queued: u32,
    /// The block of the stream behind the queued bytes, to be advertised and not copied; see
    /// `connection`. Bytes behind it are not to be offered before it is advertised.
    pub source: Option<Block>,
    /// How many of the queued bytes there are up to and with the urgent byte, if one of them is
    /// urgent. Values of 0 or beyond `queued` count as none.
    pub urgent: Option<u32>,
    /// The block of a reader who waits and has read all that came, to be advertised; see
    /// `connection`.
    pub sink: Option<Block>,
    /// Receive buffers posted right now and not used by a message that
    /// [`Connection::receive`] was given.
    pub posted: u16,
    /// Small messages posted, those that had room for more, and not yet completed by the transport.
    /// As by Minshall's rule on TCP, what is full holds nothing back: so the last piece of a large
    /// send goes at once. If bytes are held for them ([`Stall::InFlight`]), their completion must lead to
    /// another call: then the last of them must be signaled.
    pub in_flight: u16,
    /// TCP_NODELAY: messages that could be fuller go nevertheless.
    pub no_delay: bool,
    /// TCP_CORK or MSG_MORE: messages that could be fuller do not go.
    pub cork: bool,
    /// Most payload bytes that the transport can carry in the next message; 0: none at present.
    /// It may change from one call to the next, and be what is queued.
    pub limit: u32,
    /// A reader waits who has read all that came. Only for peers that hold back small messages
    /// until we acknowledge the one before (OFED without TCP_NODELAY, up to 100 ms): then, and
    /// not earlier, it is clear that no answer of the reader will carry the acknowledgement.
    pub reader_waits: bool,
}

/// What keeps bytes or a DisConn from being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stall {
    /// The peer must post receive buffers: wait for a message from it.
    Credits,
    /// The transport takes no message: wait for a completion.
    Wire,
    /// Small messages are in flight: wait until they have ended, or for more bytes.
    InFlight,
    /// The owner wants only full messages: wait for more bytes.
    Corked,
    /// Adverts are outstanding that must be finished before, or a block is offered that must not
    /// be advertised now: wait for a message from the peer, take the adverts back, or copy.
    Adverts,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Post this message, then ask again.
    Send(Outgoing),
    /// Something waits, but must not go now.
    Held(Stall),
    /// Nothing to send.
    Idle,
}

/// A message to post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The headers; `header_len` bytes of it count.
    pub header: [u8; MAX_HEADER],
    /// Bytes of the headers.
    pub header_len: u8,
    /// Stream bytes that follow the headers, from the front of the queue; of a SrcAvail, from the
    /// start of the block.
    pub payload: u32,
    /// The last of them is urgent.
    pub urgent: bool,
    /// Post with a solicited event: it is not just bytes of the stream.
    pub solicited: bool,
    /// It is just an advert, which only matters to the call that can use it.
    pub just_advert: bool,
    /// Which message it is.
    pub kind: Mid,
    /// Its MSeq.
    pub mseq: u32,
}

/// Notes that a message about adverts goes, with this MSeq.
type Note = fn(&mut Connection, u32);

/// What could be done about the stream.
enum Stream {
    /// Send so many bytes, the last of them urgent or not.
    Bytes { payload: u32, urgent: bool },
    /// Advertise a block.
    Advert(Block),
    /// Send the DisConn.
    DisConn,
    /// Wait.
    Held(Stall),
    /// Nothing.
    Idle,
}

impl Connection {
    /// The next message to post, if any may go now.
    ///
    /// Whatever this returns in [`Transmit::Send`] is part of the sequence from then on: it must
    /// be posted, in the order of the calls, under one hold of the connection's lock.
    pub fn transmit(&mut self, offer: &Offer) -> Transmit {
        let next = self.next(offer);
        let nothing = offer.queued == 0 && offer.source.is_none() && offer.sink.is_none();
        self.idle = (nothing && matches!(next, Transmit::Idle))
            .then(|| self.idle_with(offer.posted, offer.reader_waits));
        next
    }

    #[inline]
    fn next(&mut self, offer: &Offer) -> Transmit {
        if !self.live() {
            return Transmit::Idle;
        }
        self.remote.sent(self.send.sent());
        if self.is_starved() {
            self.peer_sources.refuse();
        }
        let credits = self.send.credits();
        let spare = credits > CONTROL_CREDITS || !self.must_save();
        if credits >= CONTROL_CREDITS || self.may_use_last(offer, credits) {
            if let Some(message) = self.about_adverts(offer) {
                return Transmit::Send(message);
            }
        }
        if credits >= CONTROL_CREDITS && spare {
            if let Some(message) = self.about_buffers(offer) {
                return Transmit::Send(message);
            }
            if let Some(message) = self.about_modes(offer) {
                return Transmit::Send(message);
            }
            if let Some(block) = offer.sink.filter(|block| self.can_offer_sink(block.size)) {
                return Transmit::Send(self.advertise_sink(block, offer));
            }
        }
        let stream = self.stream(offer, credits, spare);
        if matches!(stream, Stream::Held(Stall::Credits)) {
            if let Some(message) = self.ask_for_credits(offer, credits) {
                return Transmit::Send(message);
            }
        }
        if matches!(stream, Stream::Bytes { .. } | Stream::DisConn) && self.peer_sinks.finish() {
            // What was written goes before them in the stream.
            if let Some(message) = self.about_adverts(offer) {
                return Transmit::Send(message);
            }
        }
        let held = match stream {
            Stream::Bytes { payload, urgent } => {
                self.remote
                    .sending(payload, offer.queued.saturating_sub(payload));
                let message = self.message(Body::Data, payload, urgent, offer);
                self.peer_sinks.payload(message.mseq);
                return Transmit::Send(message);
            }
            Stream::Advert(block) => return Transmit::Send(self.advertise(block, offer)),
            Stream::DisConn => {
                self.send_closed = true;
                self.peer_sinks.void();
                return Transmit::Send(self.message(Body::DisConn, 0, false, offer));
            }
            // with credits it would have gone above
            Stream::Idle | Stream::Held(_) if self.due_about_adverts().is_some() => {
                Transmit::Held(Stall::Credits)
            }
            Stream::Held(hold) => Transmit::Held(hold),
            Stream::Idle => Transmit::Idle,
        };
        let waits = matches!(held, Transmit::Held(Stall::Credits | Stall::Adverts));
        if self.update_wanted(offer, credits, waits && offer.queued > 0) {
            return Transmit::Send(self.message(Body::Data, 0, false, offer));
        }
        held
    }

    /// Whether the last of our credits may go into a message about adverts.
    fn may_use_last(&self, offer: &Offer, credits: u16) -> bool {
        let ends = !self.own_line() && self.peer_sources.end_due();
        let raises = self.receive.may_use_last(offer.posted, credits);
        credits >= UPDATE_CREDITS && (raises || ends) && !self.keeps_last(offer.posted)
    }

    /// Ends the peer's advert if that is what keeps us without credits.
    fn ask_for_credits(&mut self, offer: &Offer, credits: u16) -> Option<Outgoing> {
        if !self.is_stopped(offer.reader_waits) {
            return None;
        }
        self.peer_sources.refuse();
        if credits < CONTROL_CREDITS && !self.may_use_last(offer, credits) {
            return None;
        }
        self.about_adverts(offer)
    }

    /// Which message about adverts is due next.
    fn due_about_adverts(&self) -> Option<(Body, Note)> {
        let size = self.peer_sources.report_due();
        if size > 0 && !(self.must_save() && self.peer_sources.report_can_wait()) {
            return Some((Body::RdmaRdCompl { size }, |c, mseq| {
                c.peer_sources.report(mseq)
            }));
        }
        if self.peer_sources.refusal_due() {
            return Some((Body::SendSm, |c, mseq| c.peer_sources.refused(mseq)));
        }
        if let Some(size) = self.peer_sinks.report_due() {
            return Some((Body::RdmaWrCompl { size }, |c, _| c.peer_sinks.report()));
        }
        if self.peer_sinks.confirmation_due() {
            return Some((Body::SinkCancelAck, |c, _| c.peer_sinks.confirmed()));
        }
        if self.own_sources.cancel_due() {
            return Some((Body::SrcAvailCancel, |c, _| c.own_sources.cancelled()));
        }
        if self.own_sinks.cancel_due() {
            return Some((Body::SinkAvailCancel, |c, _| c.own_sinks.cancelled()));
        }
        None
    }

    /// That message.
    fn about_adverts(&mut self, offer: &Offer) -> Option<Outgoing> {
        let (body, note) = self.due_about_adverts()?;
        let message = self.message(body, 0, false, offer);
        note(self, message.mseq);
        Some(message)
    }

    /// Returns the change of mode that is due. Peers of our own line get each SrcAvail Pipelined.
    fn about_modes(&mut self, offer: &Offer) -> Option<Outgoing> {
        let mode = match (self.modes.send, self.pipelined || offer.source.is_some()) {
            (Mode::Combined, true) if self.may_be_pipelined() => Mode::Pipelined,
            (Mode::Pipelined, false) if self.peer_sinks.may_leave() => Mode::Combined,
            _ => return None,
        };
        if self.own_sources.outstanding() || self.send_closed || self.holds_back() {
            return None;
        }
        self.modes.send = mode;
        let change = Body::ModeChange {
            receiver_sends: false,
            mode,
        };
        let message = self.message(change, 0, false, offer);
        if mode == Mode::Combined {
            self.peer_sinks.left(message.mseq);
        }
        Some(message)
    }

    /// Makes the SinkAvail of a block.
    fn advertise_sink(&mut self, block: Block, offer: &Offer) -> Outgoing {
        let body = Body::SinkAvail(SinkAvail {
            size: block.size,
            r_key: block.r_key,
            address: block.address,
            non_discards: self.own_sinks.non_discards(),
        });
        self.own_sinks.advertised(block.size);
        self.message(body, 0, false, offer)
    }

    /// A message about receive buffers that is due.
    fn about_buffers(&mut self, offer: &Offer) -> Option<Outgoing> {
        // Sink adverts that are outstanding have room for a message of the size that it was.
        let sinks = self.own_sinks.count() > 0;
        if self.local.answer_due() && !self.receive_closed && !sinks {
            let size = self.local.answered();
            return Some(self.message(Body::ChRcvBufAck { size }, 0, false, offer));
        }
        if self.remote.request_due() && !self.send_closed {
            let size = self.remote.requested();
            return Some(self.message(Body::ChRcvBuf { size }, 0, false, offer));
        }
        None
    }

    /// What could be done about our stream with this many credits, some to spare or not.
    fn stream(&self, offer: &Offer, credits: u16, spare: bool) -> Stream {
        if self.send_closed {
            return Stream::Idle;
        }
        if offer.queued == 0 && offer.source.is_none() && !self.send_shutdown {
            return Stream::Idle;
        }
        if self.holds_back() {
            return Stream::Held(Stall::Wire);
        }
        if offer.queued == 0 {
            if let Some(block) = offer.source {
                return self.source(block, credits);
            }
            return if self.own_sources.outstanding() {
                Stream::Held(Stall::Adverts)
            } else if credits < CONTROL_CREDITS || !spare {
                Stream::Held(Stall::Credits)
            } else {
                Stream::DisConn
            };
        }
        if self.own_sources.outstanding() {
            return Stream::Held(Stall::Adverts);
        }
        let room = self.max_payload().min(offer.limit);
        if room == 0 {
            return Stream::Held(Stall::Wire);
        }
        let urgent_at = urgent_at(offer);
        let (payload, urgent) = match urgent_at {
            Some(up_to) if up_to <= room => (up_to, true),
            _ => (offer.queued.min(room), false),
        };
        // All that is queued, and the peer could take more. (The transport's limit is no measure:
        // it may be what is queued. A block behind cannot be added.)
        let last = payload == offer.queued && offer.source.is_none();
        let partial = last && payload < self.max_payload();
        if partial && !urgent && !self.send_shutdown {
            if offer.cork {
                return Stream::Held(Stall::Corked);
            }
            if !offer.no_delay && offer.in_flight > 0 {
                return Stream::Held(Stall::InFlight);
            }
        }
        if credits < PAYLOAD_CREDITS {
            return Stream::Held(Stall::Credits);
        }
        Stream::Bytes { payload, urgent }
    }

    /// What could be done about a block.
    fn source(&self, block: Block, credits: u16) -> Stream {
        if !self.can_advertise(block.size) {
            Stream::Held(Stall::Adverts)
        } else if credits < PAYLOAD_CREDITS {
            Stream::Held(Stall::Credits)
        } else {
            Stream::Advert(block)
        }
    }

    /// Makes the SrcAvail of a block.
    fn advertise(&mut self, block: Block, offer: &Offer) -> Outgoing {
        let body = Body::SrcAvail(SrcAvail {
            size: block.size,
            r_key: block.r_key,
            address: block.address,
        });
        let inline = self.inline();
        let message = self.message(body, inline, false, offer);
        self.own_sources
            .advertised(message.mseq, block.size, inline);
        if inline > 0 {
            self.peer_sinks.payload(message.mseq);
        }
        message
    }

    /// Whether an empty Data is to go. `waits`: stream bytes wait for the peer.
    fn update_wanted(&self, offer: &Offer, credits: u16, waits: bool) -> bool {
        if self.update_due(offer.posted) {
            return true;
        }
        // The peer may hold a small message back until it sees our MSeqAck: not for ever, so this
        // is no use for a reserve.
        let awaited = self.unanswered && offer.reader_waits && !self.own_line();
        if awaited && !self.receive_closed && credits >= PAYLOAD_CREDITS && !self.must_save() {
            return true;
        }
        // The urgent byte must wait, but its announcement need not.
        let announce = waits && urgent_at(offer).is_some() && !self.urgent_announced;
        announce && credits >= CONTROL_CREDITS && (credits > CONTROL_CREDITS || !self.must_save())
    }

    /// Makes a message and gives it its place in the sequence.
    fn message(&mut self, body: Body, payload: u32, urgent: bool, offer: &Offer) -> Outgoing {
        // The peer takes the messages that it has sent and MSeqAck does not cover off Bufs. So what
        // was received of them counts as if it were posted.
        let mseq_ack = self.mseq_ack();
        let behind = self.receive.received().wrapping_sub(mseq_ack);
        let behind = u16::try_from(behind).unwrap_or(u16::MAX);
        let mut message = Message {
            flags: Flags::NONE,
            bufs: offer.posted.saturating_add(behind),
            mseq: self.send.take(),
            mseq_ack,
            body,
            payload,
        };
        if urgent_at(offer).is_some() && !self.urgent_announced {
            message.flags = Flags::OOB_PEND;
            self.urgent_announced = true;
        }
        if urgent {
            message.flags = message.flags.with(Flags::OOB_PRES);
            self.urgent_announced = false;
        }
        self.receive.advertise(offer.posted);
        self.unanswered = false;
        Outgoing {
            header: message.encode(),
            header_len: message.header_len() as u8,
            payload,
            urgent,
            solicited: message.flags != Flags::NONE || message.body.mid() != Mid::Data,
            just_advert: message.flags == Flags::NONE
                && matches!(message.body.mid(), Mid::SrcAvail | Mid::SinkAvail),
            kind: message.body.mid(),
            mseq: message.mseq,
        }
    }
}

/// How many queued bytes there are up to and with the urgent one.
fn urgent_at(offer: &Offer) -> Option<u32> {
    offer.urgent.filter(|at| (1..=offer.queued).contains(at))
}

// SPDX-License-Identifier: GPL-2.0-only

//! Selects the next message.
//!
//! Messages are sent in this order: due control messages, stream bytes, the block after these
//! bytes, the DisConn at the end, and, if none of these may be sent, a due credit update. Control
//! messages overtake queued stream bytes, as in every known implementation.

use super::super::credits::{CONTROL_CREDITS, PAYLOAD_CREDITS, UPDATE_CREDITS};
use super::super::message::{Block, Body, Flags, Message, Mid, Mode, SinkAvail, MAX_HEADER};
use super::Connection;

/// Bytes and conditions that the owner of a connection offers at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Number of unsent stream bytes, up to the block `source` if set.
    pub queued: u32,
    /// Block after the queued bytes of the stream, to be advertised (module `connection`). The
    /// owner must not offer bytes after the block before the block is advertised.
    pub source: Option<Block>,
    /// Number of queued bytes up to and including the urgent byte. 0, or a number above `queued`,
    /// means no urgent byte.
    pub urgent: Option<u32>,
    /// Block of a waiting reader that has read everything, to be advertised (module `connection`).
    pub sink: Option<Block>,
    /// Number of receive buffers posted now, without the buffers of messages passed to
    /// [`Connection::receive`].
    pub posted: u16,
    /// Number of posted messages that had space for more bytes and are not complete. As by
    /// Minshall's rule in TCP, full messages hold back no bytes, so the last part of a large send
    /// is sent at once. If partial messages hold back bytes ([`Stall::InFlight`]), their completion
    /// must lead to another call, so the last partial message must be signaled.
    pub in_flight: u16,
    /// TCP_NODELAY, by which partial messages are sent.
    pub no_delay: bool,
    /// TCP_CORK or MSG_MORE, by which partial messages are held back.
    pub cork: bool,
    /// Maximum payload that the transport can carry in the next message, or 0 for no message now.
    /// The limit may change from one call to the next, and may equal `queued`.
    pub limit: u32,
    /// Set if a waiting reader has read everything. An OFED peer without TCP_NODELAY holds small
    /// messages back until the previous one is acknowledged, up to 100 ms. If no reader waits, a
    /// reply of the program may carry the acknowledgement.
    pub reader_waits: bool,
}

/// Reason for which bytes or a DisConn are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stall {
    /// The peer must post receive buffers, so the owner waits for a message of the peer.
    Credits,
    /// The transport accepts no message, so the owner waits for a completion.
    Wire,
    /// Partial messages are in flight, so the owner waits for their completion, or for more bytes.
    InFlight,
    /// The owner wants only full messages, so it waits for more bytes.
    Corked,
    /// Adverts have to complete first, or the offered block cannot be advertised now. The owner
    /// waits for a message of the peer, cancels the adverts, or copies.
    Adverts,
}

/// Result of [`Connection::transmit`]: next step of the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// The owner posts this message, then calls again.
    Send(Outgoing),
    /// The next message is held back for this reason.
    Held(Stall),
    /// There is nothing to send.
    Idle,
}

/// A message to post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Headers; `header_len` bytes are valid.
    pub header: [u8; MAX_HEADER],
    /// Size of the headers in bytes.
    pub header_len: u8,
    /// Number of stream bytes after the headers: from the queue, or for a SrcAvail from the block.
    pub payload: u32,
    /// Set if the last payload byte is urgent.
    pub urgent: bool,
    /// Set if the message needs a solicited event, since it contains more than stream bytes.
    pub solicited: bool,
    /// Type of the message.
    pub kind: Mid,
    /// MSeq of the message.
    pub mseq: u32,
}

impl Outgoing {
    /// Returns the headers.
    pub fn bytes(&self) -> &[u8] {
        let len = usize::from(self.header_len);
        self.header.get(..len).unwrap_or_default()
    }
}

/// Function that records that a message about adverts was sent with this MSeq.
type Note = fn(&mut Connection, u32);

/// Possible step for the stream.
enum Stream {
    /// Send this number of bytes, of which the last may be urgent.
    Bytes { payload: u32, urgent: bool },
    /// Advertise a block.
    Advert(Block),
    /// Send the DisConn.
    DisConn,
    /// Wait.
    Held(Stall),
    /// There is nothing to send.
    Idle,
}

impl Connection {
    /// Returns the next message to post, if a message may be sent now.
    ///
    /// A message in [`Transmit::Send`] is part of the sequence: the caller must post it, in the
    /// order of the calls, under one hold of the connection's lock.
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
        if self.probe_due && self.may_control(self.send.credits()) {
            self.probe_due = false;
            return Transmit::Send(self.message(Body::ChRcvBuf { size: 0 }, 0, false, offer));
        }
        self.remote.sent(self.send.sent());
        if self.is_starved() {
            self.peer_sources.refuse();
        }
        let credits = self.send.credits();
        if credits >= CONTROL_CREDITS || self.may_use_last(offer, credits) {
            if let Some(message) = self.about_adverts(offer) {
                return Transmit::Send(message);
            }
        }
        if self.may_control(credits) {
            let message = self.about_buffers(offer);
            let message = message.or_else(|| self.about_modes(offer));
            if let Some(message) = message.or_else(|| self.advertise_sink(offer)) {
                return Transmit::Send(message);
            }
        }
        let stream = self.stream(offer, credits);
        if matches!(stream, Stream::Held(Stall::Credits)) {
            if let Some(message) = self.request_credits(offer, credits) {
                return Transmit::Send(message);
            }
        }
        if matches!(stream, Stream::Bytes { .. } | Stream::DisConn) && self.peer_sinks.finish() {
            // Written bytes precede queued bytes in the stream.
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
                self.peer_sinks.void();
                let message = self.message(Body::DisConn, 0, false, offer);
                self.fin = Some(message.mseq);
                return Transmit::Send(message);
            }
            // with enough credits, the due message would have been sent above
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

    /// Returns true if the unreserved credits suffice for a message without payload.
    pub(super) fn may_control(&self, credits: u16) -> bool {
        credits > CONTROL_CREDITS || credits == CONTROL_CREDITS && !self.must_save()
    }

    /// Returns true if a message about adverts may use the last credit.
    fn may_use_last(&self, offer: &Offer, credits: u16) -> bool {
        let ends = !self.own_line() && self.peer_sources.end_due();
        let raises = self.receive.may_use_last(offer.posted, credits);
        credits >= UPDATE_CREDITS && (raises || ends) && !self.keeps_last(offer.posted)
    }

    /// Refuses the peer's advert if the advert causes the lack of credits.
    fn request_credits(&mut self, offer: &Offer, credits: u16) -> Option<Outgoing> {
        if !self.is_stopped(offer.reader_waits) {
            return None;
        }
        self.peer_sources.refuse();
        if credits < CONTROL_CREDITS && !self.may_use_last(offer, credits) {
            return None;
        }
        self.about_adverts(offer)
    }

    /// Returns the type of the next due message about adverts.
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

    /// Creates the next due message about adverts.
    fn about_adverts(&mut self, offer: &Offer) -> Option<Outgoing> {
        let (body, note) = self.due_about_adverts()?;
        let message = self.message(body, 0, false, offer);
        note(self, message.mseq);
        Some(message)
    }

    /// Returns a due change of mode. Peers that run this module get SrcAvails in Pipelined mode.
    fn about_modes(&mut self, offer: &Offer) -> Option<Outgoing> {
        let mode = match (self.send_mode, self.pipelined || offer.source.is_some()) {
            (Mode::Combined, true) if self.may_be_pipelined() => Mode::Pipelined,
            (Mode::Pipelined, false) if self.peer_sinks.may_leave() => Mode::Combined,
            _ => return None,
        };
        if self.own_sources.count() > 0 || self.send_closed() || self.holds_back() {
            return None;
        }
        self.send_mode = mode;
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

    /// Returns the SinkAvail of the offered block, if it may be sent.
    fn advertise_sink(&mut self, offer: &Offer) -> Option<Outgoing> {
        let block = offer.sink.filter(|b| self.can_offer_sink(b.size))?;
        let body = Body::SinkAvail(SinkAvail {
            block,
            non_discards: self.non_discards,
        });
        self.own_sinks.push(block.size);
        Some(self.message(body, 0, false, offer))
    }

    /// Returns a due message about receive buffers.
    fn about_buffers(&mut self, offer: &Offer) -> Option<Outgoing> {
        // Outstanding sink adverts have space only for a message of the old size.
        let sinks = self.own_sinks.count() > 0;
        if self.local.answer_due() && !self.receive_closed && !sinks {
            let size = self.local.answered();
            return Some(self.message(Body::ChRcvBufAck { size }, 0, false, offer));
        }
        if self.remote.request_due() && !self.send_closed() {
            let size = self.remote.requested();
            return Some(self.message(Body::ChRcvBuf { size }, 0, false, offer));
        }
        None
    }

    /// Returns the next step for the outgoing stream, with this number of credits.
    fn stream(&self, offer: &Offer, credits: u16) -> Stream {
        let empty = offer.queued == 0 && offer.source.is_none() && !self.send_shutdown;
        if self.send_closed() || empty {
            return Stream::Idle;
        }
        if self.holds_back() {
            return Stream::Held(Stall::Wire);
        }
        if offer.queued == 0 {
            if let Some(block) = offer.source {
                return self.source(block, credits);
            }
            return if self.own_sources.count() > 0 {
                Stream::Held(Stall::Adverts)
            } else if !self.may_control(credits) {
                Stream::Held(Stall::Credits)
            } else {
                Stream::DisConn
            };
        }
        if self.own_sources.count() > 0 {
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
        // True if all queued bytes fit and the peer could receive more. (The transport's limit does
        // not matter: it may equal the queued bytes. A block after these bytes cannot be added.)
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

    /// Returns the step for an offered block.
    fn source(&self, block: Block, credits: u16) -> Stream {
        if !self.can_advertise(block.size) {
            Stream::Held(Stall::Adverts)
        } else if credits < PAYLOAD_CREDITS {
            Stream::Held(Stall::Credits)
        } else {
            Stream::Advert(block)
        }
    }

    /// Creates the SrcAvail of a block.
    fn advertise(&mut self, block: Block, offer: &Offer) -> Outgoing {
        // OFED peers require a byte of the block inside the SrcAvail
        let inline = u32::from(!self.own_line());
        let message = self.message(Body::SrcAvail(block), inline, false, offer);
        self.own_sources
            .advertised(message.mseq, block.size, inline);
        if inline > 0 {
            self.peer_sinks.payload(message.mseq);
        }
        message
    }

    /// Returns true if an empty Data is due. `waits` is true if stream bytes wait for the peer.
    fn update_wanted(&self, offer: &Offer, credits: u16, waits: bool) -> bool {
        if self.update_due(offer.posted) || self.owes_message.is_some_and(|least| credits >= least)
        {
            return true;
        }
        // The peer may hold back a small message until it gets the MSeqAck, but only for a limited
        // time. So the update uses no reserved credit.
        let awaited = self.unanswered && offer.reader_waits && !self.own_line();
        if awaited && !self.receive_closed && credits >= PAYLOAD_CREDITS && !self.must_save() {
            return true;
        }
        // The urgent byte has to wait, but its announcement does not.
        let announce = waits && urgent_at(offer).is_some() && !self.urgent_announced;
        announce && self.may_control(credits)
    }

    /// Creates a message and assigns its place in the sequence.
    fn message(&mut self, body: Body, payload: u32, urgent: bool, offer: &Offer) -> Outgoing {
        // The peer subtracts from Bufs its messages that MSeqAck does not cover. So messages that
        // were received but are not covered count as if their buffers were posted.
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
        self.owes_message = None;
        Outgoing {
            header: message.encode(),
            header_len: message.header_len() as u8,
            payload,
            urgent,
            solicited: message.flags != Flags::NONE || message.body.mid() != Mid::Data,
            kind: message.body.mid(),
            mseq: message.mseq,
        }
    }
}

/// Returns the number of queued bytes up to and including the urgent byte.
fn urgent_at(offer: &Offer) -> Option<u32> {
    offer.urgent.filter(|at| (1..=offer.queued).contains(at))
}

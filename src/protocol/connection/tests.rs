// SPDX-License-Identifier: GPL-2.0-only

//! Tests of a connection with a test peer that sends single messages.

use super::super::message::{Block, Body, Flags, Message, Mid, Mode};
use super::super::Violation;
use super::*;

const SIZE: u32 = 2064;

/// A connection, and the state of its test peer.
pub(super) struct Pair {
    pub(super) end: Connection,
    pub(super) mseq: u32,
    pub(super) ack: u32,
    pub(super) bufs: u16,
    pub(super) offer: Offer,
}

impl Pair {
    pub(super) fn with(change: impl FnOnce(&mut Parameters)) -> Pair {
        let mut parameters = Parameters {
            local_receive_size: SIZE,
            remote_receive_size: SIZE,
            local_max_adverts: 4,
            remote_max_adverts: 16,
            posted: 64,
            credits: 64,
            desired_remote_size: 0,
            zero_copy: false,
        };
        change(&mut parameters);
        Pair {
            end: Connection::new(&parameters),
            mseq: 0,
            ack: 0,
            bufs: parameters.credits,
            offer: Offer {
                posted: parameters.posted,
                limit: u32::MAX,
                ..Offer::default()
            },
        }
    }

    pub(super) fn new() -> Pair {
        Pair::with(|_| {})
    }

    /// Delivers a message of the peer with these flags.
    pub(super) fn flagged(
        &mut self,
        body: Body,
        payload: u32,
        flags: Flags,
    ) -> Result<Received, Violation> {
        self.mseq += 1;
        let message = Message {
            flags,
            bufs: self.bufs,
            mseq: self.mseq,
            mseq_ack: self.ack,
            body,
            payload,
        };
        self.end.receive(&message.encode(), message.length())
    }

    pub(super) fn gets(&mut self, body: Body, payload: u32) -> Result<Received, Violation> {
        self.flagged(body, payload, Flags::NONE)
    }

    pub(super) fn event(&mut self, body: Body) -> Event {
        self.gets(body, 0).unwrap().event
    }

    /// Removes the contents of a sent message from the offer.
    fn took(&mut self, out: &Outgoing) {
        match out.kind {
            Mid::SrcAvail => self.offer.source = None,
            Mid::SinkAvail => self.offer.sink = None,
            _ => self.offer.queued -= out.payload,
        }
    }

    /// Returns the next message, which must exist.
    pub(super) fn sends(&mut self) -> (Message, Outgoing) {
        match self.end.transmit(&self.offer) {
            Transmit::Send(out) => {
                let length = u32::from(out.header_len) + out.payload;
                let message = Message::parse(&out.header, length).unwrap();
                assert_eq!(message.body.mid(), out.kind);
                assert_eq!(message.payload, out.payload);
                assert_eq!(message.mseq, out.mseq);
                assert_eq!(message.bufs, self.offer.posted);
                self.took(&out);
                (message, out)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn held(&mut self) -> Transmit {
        self.end.transmit(&self.offer)
    }

    pub(super) fn is_idle(&mut self) -> bool {
        self.held() == Transmit::Idle
    }

    /// Sends messages until nothing is left, and returns their types.
    pub(super) fn sends_all(&mut self) -> std::vec::Vec<Mid> {
        let mut all = std::vec::Vec::new();
        while let Transmit::Send(out) = self.end.transmit(&self.offer) {
            self.took(&out);
            all.push(out.kind);
        }
        all
    }
}

pub(super) fn src_avail(size: u32) -> Body {
    Body::SrcAvail(Block {
        size,
        r_key: 1,
        address: 2,
    })
}

pub(super) fn mode(mode: Mode) -> Body {
    Body::ModeChange {
        receiver_sends: false,
        mode,
    }
}

#[test]
fn a_connection_is_small() {
    assert!(size_of::<Connection>() <= 1024);
}

#[test]
fn small_messages_wait_for_the_wire_or_the_cork() {
    let mut pair = Pair::new();
    pair.offer.queued = 10;
    pair.offer.in_flight = 1;
    assert_eq!(pair.held(), Transmit::Held(Stall::InFlight));
    pair.offer.in_flight = 0;
    pair.offer.cork = true;
    assert_eq!(pair.held(), Transmit::Held(Stall::Corked));
    pair.offer.no_delay = true;
    assert_eq!(pair.held(), Transmit::Held(Stall::Corked));
    pair.offer.queued = 2058;
    assert_eq!(pair.sends().0.payload, 2048);
    assert_eq!(pair.held(), Transmit::Held(Stall::Corked));
    pair.offer.cork = false;
    pair.offer.in_flight = 9;
    assert_eq!(pair.sends().0.payload, 10);
    // A full message fills the peer's buffer. A message at the transport's limit is sent, too.
    pair.offer.no_delay = false;
    pair.offer.queued = 10;
    pair.offer.limit = 10;
    assert_eq!(pair.held(), Transmit::Held(Stall::InFlight));
    pair.offer.queued = 11;
    assert_eq!(pair.sends().0.payload, 10);
    assert_eq!(pair.held(), Transmit::Held(Stall::InFlight));
    pair.offer.limit = u32::MAX;
    // The end of the stream is not held back.
    pair.offer = Offer {
        queued: 10,
        cork: true,
        no_delay: false,
        ..pair.offer
    };
    pair.end.shutdown_send();
    assert_eq!(pair.sends_all(), [Mid::Data, Mid::DisConn]);
    assert!(pair.end.send_closed());
    pair.offer.queued = 10;
    assert!(pair.is_idle());
}

#[test]
fn credits_are_reserved() {
    let mut pair = Pair::with(|p| p.credits = 3);
    pair.offer.queued = 1;
    assert_eq!(pair.sends().0.payload, 1);
    pair.offer.queued = 1;
    // With two credits left, a control message may be sent, but no payload.
    assert_eq!(pair.held(), Transmit::Held(Stall::Credits));
    pair.gets(src_avail(100), 1).unwrap();
    assert_eq!(pair.sends().0.body, Body::SendSm);
    pair.offer.queued = 0;
    pair.end.shutdown_send();
    assert_eq!(pair.held(), Transmit::Held(Stall::Credits));
    // The last credit is for a credit update that the peer needs.
    pair.ack = 2;
    pair.bufs = 1;
    for _ in 0..61 {
        pair.gets(Body::Data, 1).unwrap();
        assert_eq!(pair.held(), Transmit::Held(Stall::Credits));
    }
    pair.gets(Body::Data, 1).unwrap();
    let (message, _) = pair.sends();
    assert_eq!((message.body, message.payload), (Body::Data, 0));
    assert_eq!(pair.end.credits(), 0);
    pair.ack = 3;
    pair.bufs = 2;
    pair.gets(Body::Data, 0).unwrap();
    assert_eq!(pair.sends_all(), [Mid::DisConn]);
}

#[test]
fn a_peer_that_waits_for_an_acknowledgement_gets_it_when_the_reader_waits() {
    for (adverts, answered) in [(1, true), (2, false)] {
        let mut pair = Pair::with(|p| p.remote_max_adverts = adverts);
        pair.offer.reader_waits = true;
        assert!(pair.is_idle());
        pair.gets(Body::Data, 0).unwrap();
        assert!(pair.is_idle());
        pair.offer.reader_waits = false;
        pair.gets(Body::Data, 7).unwrap();
        assert!(pair.is_idle());
        pair.offer.reader_waits = true;
        assert_eq!(pair.sends_all().len(), usize::from(answered));
        // No update is sent if another message has carried the credits.
        pair.offer.reader_waits = false;
        pair.gets(Body::Data, 7).unwrap();
        pair.offer.queued = 3;
        assert_eq!(pair.sends_all().len(), 1);
        pair.offer.reader_waits = true;
        assert!(pair.is_idle());
    }
}

#[test]
fn urgent_bytes_are_announced_once() {
    let (pend, pres) = (Flags::OOB_PEND, Flags::OOB_PRES);
    let mut pair = Pair::new();
    let mut gets = |payload, flags| {
        let received = pair.flagged(Body::Data, payload, flags).unwrap();
        (received.urgent_pending, received.urgent)
    };
    assert_eq!(gets(5, pend.with(pres)), (true, true));
    assert_eq!(gets(0, pend), (true, false));
    assert_eq!(gets(5, pend), (false, false));
    assert_eq!(gets(5, pres), (false, true));
    assert_eq!(gets(5, Flags::NONE), (false, false));
    assert_eq!(gets(5, pres), (true, true));
    assert_eq!(gets(5, Flags::REQ_PIPE), (false, false));
    let received = pair.flagged(Body::SendSm, 0, pend).unwrap();
    assert!(received.urgent_pending);
}

#[test]
fn abort_and_suspension_end_everything() {
    let mut pair = Pair::new();
    assert_eq!(pair.event(Body::AbortConn), Event::PeerAborted);
    pair.offer.queued = 10;
    pair.end.shutdown_send();
    assert!(pair.is_idle());
    assert_eq!(pair.gets(Body::Data, 5).unwrap().payload, 0..0);

    let mut pair = Pair::new();
    let suspend = Body::SuspComm { service_id: 77 };
    assert_eq!(pair.event(suspend), Event::Suspended);
    assert!(pair.is_idle());
}

#[test]
fn the_stream_must_not_pass_an_advert() {
    let then = |refused: bool, body, payload| {
        let mut pair = Pair::new();
        pair.gets(src_avail(1000), 1).unwrap();
        if refused {
            pair.sends();
        }
        pair.gets(body, payload).err()
    };
    for refused in [false, true] {
        assert_eq!(
            then(refused, Body::Data, 1),
            Some(Violation::DataDuringAdvert)
        );
        assert_eq!(
            then(refused, Body::DisConn, 0),
            Some(Violation::DisConnDuringAdvert)
        );
        assert_eq!(
            then(refused, src_avail(10), 1),
            Some(Violation::SrcAvailLimit)
        );
        assert_eq!(
            then(refused, mode(Mode::Buffered), 0),
            Some(Violation::ModeChange)
        );
        assert_eq!(then(refused, Body::Data, 0), None);
    }
}

#[test]
fn buffered_means_data_only() {
    let mut pair = Pair::new();
    pair.gets(mode(Mode::Buffered), 0).unwrap();
    pair.gets(Body::Data, 10).unwrap();
    let result = pair.gets(src_avail(10), 1);
    assert_eq!(result.unwrap_err(), Violation::SrcAvailMode);
    // Only this end, as the sink, may leave Buffered mode.
    let mut pair = Pair::new();
    pair.gets(mode(Mode::Buffered), 0).unwrap();
    let result = pair.gets(mode(Mode::Combined), 0);
    assert_eq!(result.unwrap_err(), Violation::ModeChange);
    let result = Pair::new().gets(mode(Mode::Combined), 0);
    assert_eq!(result.unwrap_err(), Violation::ModeChange);
    for mode in [Mode::Buffered, Mode::Combined, Mode::Pipelined] {
        let change = Body::ModeChange {
            receiver_sends: true,
            mode,
        };
        let result = Pair::new().gets(change, 0);
        assert_eq!(result.unwrap_err(), Violation::ModeChange);
    }
}

#[test]
fn receive_buffers_grow_when_asked() {
    let mut pair = Pair::new();
    pair.end.resize_receive(8208, 0); // has no effect without a request
    let requested = Event::ReceiveSizeRequested(32768);
    assert_eq!(pair.event(Body::ChRcvBuf { size: 32768 }), requested);
    assert_eq!(pair.event(Body::ChRcvBuf { size: 32768 }), Event::None);
    assert!(pair.is_idle());
    pair.end.resize_receive(8208, 2);
    assert!(pair.is_idle());
    pair.gets(Body::Data, 2048).unwrap();
    assert!(pair.is_idle());
    pair.gets(Body::Data, 0).unwrap();
    let (answer, _) = pair.sends();
    assert_eq!(answer.body, Body::ChRcvBufAck { size: 8192 });
    assert_eq!(pair.end.local.size(), 8208);
    pair.ack = 1;
    pair.gets(Body::Data, 8192).unwrap();
    // Refuses the request.
    assert_eq!(pair.event(Body::ChRcvBuf { size: 32768 }), requested);
    pair.end.resize_receive(pair.end.local.size(), 64);
    let (answer, _) = pair.sends();
    assert_eq!(answer.body, Body::ChRcvBufAck { size: 8192 });
    assert_eq!(pair.end.local.size(), 8208);
}

#[test]
fn larger_buffers_are_asked_for_under_load() {
    let mut pair = Pair::with(|p| p.desired_remote_size = 32784);
    pair.offer.queued = 1 << 20;
    for _ in 0..8 {
        assert_eq!(pair.sends().0.payload, 2048);
    }
    assert_eq!(pair.sends().0.body, Body::ChRcvBuf { size: 32784 });
    assert_eq!(pair.sends().0.payload, 2048);
    pair.ack = 9;
    pair.gets(Body::ChRcvBufAck { size: 32784 }, 0).unwrap();
    assert_eq!(pair.end.max_payload(), 32768);
    assert_eq!(pair.sends().0.payload, 32768);
}

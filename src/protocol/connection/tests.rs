// SPDX-License-Identifier: GPL-2.0-only

//! A connection and a peer that is played by hand.

use super::super::message::{Body, Flags, Malformed, Message, Mid, Mode, SinkAvail, SrcAvail};
use super::super::Violation;
use super::*;

pub(super) const SIZE: u32 = 2064;

/// A connection, and what is needed to write its peer's messages.
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
            acks_payload: false,
            zero_copy: ZeroCopy::Off,
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

    /// The peer sends a message.
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

    /// What went with a message is no longer offered.
    fn took(&mut self, out: &Outgoing) {
        match out.kind {
            Mid::SrcAvail => self.offer.source = None,
            Mid::SinkAvail => self.offer.sink = None,
            _ => self.offer.queued -= out.payload,
        }
    }

    /// The next message, which must be there.
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

    /// Messages until there is nothing to send.
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
    Body::SrcAvail(SrcAvail {
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
fn first_messages_are_those_of_the_worked_example() {
    let mut pair = Pair::new();
    pair.offer.queued = 5;
    let (_, out) = pair.sends();
    assert_eq!(
        out.header[..16],
        [0xff, 0, 0, 0x40, 0, 0, 0, 0x15, 0, 0, 0, 1, 0, 0, 0, 0]
    );
    assert_eq!(pair.end.credits(), 63);
    assert!(pair.is_idle());
    // The same message from the other side.
    let mut bytes = out.header[..16].to_vec();
    bytes.extend(b"hello");
    let received = pair.end.receive(&bytes, 21).unwrap();
    assert_eq!(received.payload, 16..21);
    assert_eq!(&bytes[16..21], b"hello");
    assert_eq!(pair.end.peer_credits(), 63);
    pair.end.shutdown_send();
    let (_, out) = pair.sends();
    assert_eq!(
        out.header[..16],
        [2, 0, 0, 0x40, 0, 0, 0, 0x10, 0, 0, 0, 2, 0, 0, 0, 1]
    );
}

#[test]
fn large_sends_fill_the_peers_buffers() {
    let mut pair = Pair::new();
    pair.offer.queued = 2048 * 3 + 1;
    pair.offer.no_delay = true;
    let sizes: std::vec::Vec<_> = (0..4).map(|_| pair.sends().0.payload).collect();
    assert_eq!(sizes, [2048, 2048, 2048, 1]);
    pair.offer.queued = 2048;
    pair.offer.limit = 1000;
    let sizes: std::vec::Vec<_> = (0..3).map(|_| pair.sends().0.payload).collect();
    assert_eq!(sizes, [1000, 1000, 48]);
    pair.offer.queued = 1;
    pair.offer.limit = 0;
    assert_eq!(pair.held(), Transmit::Held(Hold::Wire));
}

#[test]
fn small_messages_wait_for_the_wire_or_the_cork() {
    let mut pair = Pair::new();
    pair.offer.queued = 10;
    pair.offer.in_flight = 1;
    assert_eq!(pair.held(), Transmit::Held(Hold::Wire));
    pair.offer.in_flight = 0;
    pair.offer.cork = true;
    assert_eq!(pair.held(), Transmit::Held(Hold::Corked));
    pair.offer.no_delay = true;
    assert_eq!(pair.held(), Transmit::Held(Hold::Corked));
    pair.offer.queued = 2058;
    assert_eq!(pair.sends().0.payload, 2048);
    assert_eq!(pair.held(), Transmit::Held(Hold::Corked));
    pair.offer.cork = false;
    pair.offer.in_flight = 9;
    assert_eq!(pair.sends().0.payload, 10);
    // A message is full by what the peer can take. What the transport cannot go beyond, goes.
    pair.offer.no_delay = false;
    pair.offer.queued = 10;
    pair.offer.limit = 10;
    assert_eq!(pair.held(), Transmit::Held(Hold::Wire));
    pair.offer.queued = 11;
    assert_eq!(pair.sends().0.payload, 10);
    assert_eq!(pair.held(), Transmit::Held(Hold::Wire));
    pair.offer.limit = u32::MAX;
    // The end of the stream waits for nothing.
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
    // Two are left: a control message may go, bytes may not.
    assert_eq!(pair.held(), Transmit::Held(Hold::Credits));
    pair.gets(src_avail(100), 1).unwrap();
    assert_eq!(pair.sends().0.body, Body::SendSm);
    pair.offer.queued = 0;
    pair.end.shutdown_send();
    assert_eq!(pair.held(), Transmit::Held(Hold::Credits));
    // The last is for a credit update, when the peer needs it.
    pair.ack = 2;
    pair.bufs = 1;
    for _ in 0..61 {
        pair.gets(Body::Data, 1).unwrap();
        assert_eq!(pair.held(), Transmit::Held(Hold::Credits));
    }
    pair.gets(Body::Data, 1).unwrap();
    let (message, _) = pair.sends();
    assert_eq!((message.body, message.payload), (Body::Data, 0));
    assert_eq!(pair.end.credits(), 0);
    pair.ack = 3;
    pair.bufs = 2;
    assert!(pair.gets(Body::Data, 0).unwrap().credits_gained);
    assert_eq!(pair.sends_all(), [Mid::DisConn]);
}

#[test]
fn a_peer_without_buffers_is_waited_for() {
    let mut pair = Pair::with(|p| p.credits = 0);
    pair.offer.queued = 1;
    assert_eq!(pair.held(), Transmit::Held(Hold::Credits));
    pair.bufs = 16;
    assert!(pair.gets(Body::Data, 0).unwrap().credits_gained);
    assert_eq!(pair.sends_all(), [Mid::Data]);
}

#[test]
fn updates_go_when_half_is_used_and_not_for_updates() {
    let mut pair = Pair::new();
    for _ in 0..31 {
        pair.gets(Body::Data, 1).unwrap();
        assert!(!pair.end.credit_update_due(64));
        assert!(pair.is_idle());
    }
    pair.gets(Body::Data, 1).unwrap();
    assert!(pair.end.credit_update_due(64));
    assert!(!pair.end.credit_update_due(33));
    let (update, _) = pair.sends();
    assert_eq!((update.body, update.mseq_ack), (Body::Data, 32));
    assert!(pair.is_idle());
    // Bytes of our own carry the number as well.
    for _ in 0..32 {
        pair.gets(Body::Data, 1).unwrap();
    }
    pair.offer.queued = 1;
    assert_eq!(pair.sends().0.payload, 1);
    assert!(pair.is_idle());
    // The peer's updates count as messages only.
    for _ in 0..31 {
        pair.gets(Body::Data, 0).unwrap();
        assert!(pair.is_idle());
    }
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
        // Not when an answer has carried it.
        pair.offer.reader_waits = false;
        pair.gets(Body::Data, 7).unwrap();
        pair.offer.queued = 3;
        assert_eq!(pair.sends_all().len(), 1);
        pair.offer.reader_waits = true;
        assert!(pair.is_idle());
    }
}

#[test]
fn the_urgent_byte_ends_its_message() {
    let both = Flags::OOB_PRES.with(Flags::OOB_PEND);
    let mut pair = Pair::new();
    pair.offer.queued = 30;
    pair.offer.urgent = Some(20);
    pair.offer.in_flight = 1;
    let (message, out) = pair.sends();
    assert_eq!(
        (message.payload, message.flags, out.urgent),
        (20, both, true)
    );
    pair.offer.urgent = None;
    assert_eq!(pair.held(), Transmit::Held(Hold::Wire));
    // Far away it is announced by what goes before.
    pair.offer.queued = 5000;
    pair.offer.urgent = Some(5000);
    pair.offer.cork = true;
    let first = pair.sends().0;
    assert_eq!((first.payload, first.flags), (2048, Flags::OOB_PEND));
    pair.offer.urgent = Some(2952);
    let second = pair.sends().0;
    assert_eq!((second.payload, second.flags), (2048, Flags::NONE));
    pair.offer.urgent = Some(904);
    let third = pair.sends().0;
    assert_eq!((third.payload, third.flags), (904, Flags::OOB_PRES));
    // Positions that are not in the queue mean nothing.
    for nonsense in [0, 11] {
        pair.offer.queued = 10;
        pair.offer.cork = false;
        pair.offer.in_flight = 0;
        pair.offer.urgent = Some(nonsense);
        let message = pair.sends().0;
        assert_eq!((message.payload, message.flags), (10, Flags::NONE));
    }
}

#[test]
fn an_urgent_byte_without_credits_is_announced() {
    let mut pair = Pair::with(|p| p.credits = 2);
    pair.offer.queued = 10;
    assert_eq!(pair.held(), Transmit::Held(Hold::Credits));
    pair.offer.urgent = Some(10);
    let message = pair.sends().0;
    assert_eq!((message.payload, message.flags), (0, Flags::OOB_PEND));
    assert_eq!(pair.held(), Transmit::Held(Hold::Credits));
    pair.bufs = 8;
    pair.gets(Body::Data, 0).unwrap();
    let message = pair.sends().0;
    assert_eq!((message.payload, message.flags), (10, Flags::OOB_PRES));
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
fn both_streams_end() {
    let mut pair = Pair::new();
    assert_eq!(pair.event(Body::DisConn), Event::PeerClosed);
    assert!(pair.end.receive_closed() && !pair.end.finished());
    // The other direction goes on, with credit updates for it.
    pair.offer.queued = 10;
    assert_eq!(pair.sends_all(), [Mid::Data]);
    assert_eq!(pair.event(Body::Data), Event::None);
    pair.end.shutdown_send();
    assert_eq!(pair.sends_all(), [Mid::DisConn]);
    assert!(pair.end.finished());
    assert!(pair.is_idle());
    // An update may have crossed.
    assert_eq!(pair.event(Body::Data), Event::None);

    let after = |body, payload| {
        let mut pair = Pair::new();
        pair.gets(Body::DisConn, 0).unwrap();
        pair.gets(body, payload).unwrap_err()
    };
    assert_eq!(after(Body::Data, 1), Violation::AfterDisConn);
    assert_eq!(after(src_avail(10), 1), Violation::AfterDisConn);
    assert_eq!(after(src_avail(10), 0), Violation::AfterDisConn);
    assert_eq!(after(Body::DisConn, 0), Violation::SecondDisConn);
}

#[test]
fn credit_updates_go_on_behind_our_disconn() {
    // Our stream has ended; the peer's goes on, and needs credits.
    let mut pair = Pair::new();
    pair.end.shutdown_send();
    assert_eq!(pair.sends_all(), [Mid::DisConn]);
    for _ in 0..61 {
        pair.gets(Body::Data, 1).unwrap();
    }
    assert_eq!(pair.sends_all(), [Mid::Data]);
}

#[test]
fn abort_and_suspension_end_everything() {
    let mut pair = Pair::new();
    assert_eq!(pair.event(Body::AbortConn), Event::PeerAborted);
    assert!(pair.end.aborted() && !pair.end.suspended());
    pair.offer.queued = 10;
    pair.end.shutdown_send();
    assert!(pair.is_idle());
    assert_eq!(pair.gets(Body::Data, 5).unwrap().payload, 0..0);

    let mut pair = Pair::new();
    let suspend = Body::SuspComm { service_id: 77 };
    assert_eq!(pair.event(suspend), Event::Suspended { service_id: 77 });
    assert!(pair.end.suspended());
    assert!(pair.is_idle());
}

#[test]
fn a_violation_ends_everything() {
    let mut pair = Pair::new();
    assert_eq!(
        pair.end.receive(&[0xff; 16], 16),
        Err(Violation::Malformed(Malformed::Length))
    );
    pair.offer.queued = 10;
    assert!(pair.is_idle());
    assert!(!pair.end.credit_update_due(64));
    // Only the first is told.
    assert_eq!(pair.end.receive(&[], 0).unwrap().event, Event::None);
}

#[test]
fn sequence_credits_and_acknowledgements_are_checked() {
    let wrong = |change: fn(&mut Pair)| {
        let mut pair = Pair::with(|p| p.posted = 4);
        pair.offer.queued = 1;
        pair.sends();
        pair.ack = 1;
        pair.gets(Body::Data, 1).unwrap();
        pair.ack = 1;
        change(&mut pair);
        pair.gets(Body::Data, 1).err()
    };
    assert_eq!(wrong(|_| {}), None);
    assert_eq!(wrong(|p| p.mseq += 1), Some(Violation::Sequence));
    assert_eq!(wrong(|p| p.mseq -= 1), Some(Violation::Sequence));
    assert_eq!(wrong(|p| p.ack = 2), Some(Violation::AckBeyondSent));
    assert_eq!(wrong(|p| p.ack = 0), Some(Violation::AckBackwards));
    let overrun = |p: &mut Pair| {
        for _ in 0..3 {
            p.gets(Body::Data, 1).unwrap();
        }
    };
    assert_eq!(wrong(overrun), Some(Violation::CreditsOverrun));
}

#[test]
fn a_message_longer_than_the_buffers_is_a_violation() {
    assert!(Pair::new().gets(Body::Data, SIZE - 16).is_ok());
    let result = Pair::new().gets(Body::Data, SIZE - 15);
    assert_eq!(result.unwrap_err(), Violation::TooLong);
    let result = Pair::new().gets(src_avail(1 << 20), SIZE - 31);
    assert_eq!(result.unwrap_err(), Violation::TooLong);
}

#[test]
fn a_source_advert_is_refused_and_its_bytes_kept() {
    let mut pair = Pair::new();
    let received = pair.gets(src_avail(1000), 5).unwrap();
    assert_eq!(received.payload, 32..37);
    let (refusal, _) = pair.sends();
    assert_eq!(
        (refusal.body, refusal.mseq, refusal.mseq_ack),
        (Body::SendSm, 1, 1)
    );
    assert!(pair.is_idle());
    // The refusal crosses a cancel, which finds nothing to answer.
    pair.gets(Body::SrcAvailCancel, 0).unwrap();
    assert!(pair.is_idle());
    // Now the peer has it, and sends the rest.
    pair.ack = 1;
    pair.gets(Body::Data, 995).unwrap();
    pair.gets(src_avail(1000), 0).unwrap();
    assert_eq!(pair.sends_all(), [Mid::SendSm]);
}

#[test]
fn a_cancel_before_the_refusal_is_answered_by_it() {
    let mut pair = Pair::with(|p| p.credits = 0);
    pair.gets(src_avail(1000), 1).unwrap();
    assert_eq!(pair.held(), Transmit::Held(Hold::Credits));
    pair.gets(Body::SrcAvailCancel, 0).unwrap();
    pair.bufs = 8;
    pair.gets(Body::Data, 0).unwrap();
    let (refusal, _) = pair.sends();
    assert_eq!((refusal.body, refusal.mseq_ack), (Body::SendSm, 3));
    assert!(pair.is_idle());
    assert!(pair.end.peer_sources.outstanding());
}

#[test]
fn a_cancel_of_nothing_needs_no_answer() {
    let mut pair = Pair::new();
    assert_eq!(pair.event(Body::SrcAvailCancel), Event::None);
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
fn an_advert_leaves_something_to_read() {
    for (size, inline, good) in [
        (0, 0, false),
        (5, 5, false),
        (4, 5, false),
        (6, 5, true),
        (1, 0, true),
    ] {
        let result = Pair::new().gets(src_avail(size), inline);
        assert_eq!(result.is_ok(), good, "{size} {inline}");
    }
}

#[test]
fn pipelined_adverts_are_refused_together() {
    let mut pair = Pair::new();
    pair.gets(mode(Mode::Pipelined), 0).unwrap();
    assert_eq!(pair.end.receive_mode(), Mode::Pipelined);
    pair.gets(src_avail(10), 0).unwrap();
    pair.gets(src_avail(10), 0).unwrap();
    assert_eq!(pair.sends_all(), [Mid::SendSm]);
    // These cross it.
    pair.gets(src_avail(10), 0).unwrap();
    pair.gets(src_avail(10), 0).unwrap();
    assert!(pair.is_idle());
    let fifth = pair.end.clone().receive(
        &Message {
            flags: Flags::NONE,
            bufs: 64,
            mseq: pair.mseq + 1,
            mseq_ack: 0,
            body: src_avail(10),
            payload: 0,
        }
        .encode(),
        32,
    );
    assert_eq!(fifth, Err(Violation::SrcAvailLimit));
    // All four come as Data.
    pair.ack = 1;
    pair.gets(Body::Data, 40).unwrap();
    pair.gets(src_avail(10), 0).unwrap();
    // Back to Combined, what was advertised is void without an answer.
    pair.gets(mode(Mode::Combined), 0).unwrap();
    assert!(pair.is_idle());
    pair.gets(Body::Data, 10).unwrap();

    let mut pair = Pair::new();
    pair.gets(mode(Mode::Pipelined), 0).unwrap();
    let inline = pair.gets(src_avail(10), 1);
    assert_eq!(inline.unwrap_err(), Violation::SrcAvailMode);
}

#[test]
fn buffered_means_data_only() {
    let mut pair = Pair::new();
    pair.gets(mode(Mode::Buffered), 0).unwrap();
    pair.gets(Body::Data, 10).unwrap();
    let result = pair.gets(src_avail(10), 1);
    assert_eq!(result.unwrap_err(), Violation::SrcAvailMode);
    // Only the sink, which is this end, may leave it.
    let mut pair = Pair::new();
    pair.gets(mode(Mode::Buffered), 0).unwrap();
    let result = pair.gets(mode(Mode::Combined), 0);
    assert_eq!(result.unwrap_err(), Violation::ModeChange);
}

#[test]
fn answers_to_what_was_never_said() {
    let sink = Body::SinkAvail(SinkAvail {
        size: 1 << 20,
        r_key: 1,
        address: 2,
        non_discards: 0,
    });
    for (body, violation) in [
        (Body::SendSm, None),
        (Body::RdmaRdCompl { size: 5 }, None),
        (Body::SinkAvailCancel, None),
        (Body::ChRcvBufAck { size: 1 << 20 }, None),
        (sink, Some(Violation::SinkAvailMode)),
        (
            Body::RdmaWrCompl { size: 5 },
            Some(Violation::UnexpectedRdmaWrCompl),
        ),
        (
            Body::SinkCancelAck,
            Some(Violation::UnexpectedSinkCancelAck),
        ),
        (Body::SuspCommAck, Some(Violation::UnexpectedSuspCommAck)),
    ] {
        let mut pair = Pair::new();
        assert_eq!(pair.gets(body, 0).err(), violation, "{body:?}");
        assert!(pair.is_idle());
        assert_eq!(pair.end.max_payload(), 2048);
    }
}

#[test]
fn receive_buffers_grow_when_asked() {
    let mut pair = Pair::new();
    let asked = Event::ReceiveSizeRequested(32768);
    assert_eq!(pair.event(Body::ChRcvBuf { size: 32768 }), asked);
    assert_eq!(pair.event(Body::ChRcvBuf { size: 32768 }), Event::None);
    assert!(pair.is_idle());
    pair.end.resize_receive(8208, 2);
    assert!(pair.is_idle());
    pair.gets(Body::Data, 2048).unwrap();
    assert!(pair.is_idle());
    pair.gets(Body::Data, 0).unwrap();
    let (answer, _) = pair.sends();
    assert_eq!(answer.body, Body::ChRcvBufAck { size: 8192 });
    assert_eq!(pair.end.receive_size(), 8208);
    pair.ack = 1;
    pair.gets(Body::Data, 8192).unwrap();
    // Refused.
    assert_eq!(pair.event(Body::ChRcvBuf { size: 32768 }), asked);
    pair.end.resize_receive(pair.end.receive_size(), 64);
    let (answer, _) = pair.sends();
    assert_eq!(answer.body, Body::ChRcvBufAck { size: 8192 });
    assert_eq!(pair.end.receive_size(), 8208);
}

#[test]
fn no_answer_about_buffers_after_the_peers_stream() {
    let mut pair = Pair::new();
    pair.event(Body::ChRcvBuf { size: 32768 });
    pair.event(Body::DisConn);
    pair.end.resize_receive(8208, 0);
    assert!(pair.is_idle());
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
    let received = pair.gets(Body::ChRcvBufAck { size: 32784 }, 0).unwrap();
    assert!(received.credits_gained);
    assert_eq!(pair.end.max_payload(), 32768);
    assert_eq!(pair.sends().0.payload, 32768);
}

#[test]
fn control_messages_overtake_bytes() {
    let mut pair = Pair::new();
    pair.offer.queued = 5000;
    pair.offer.no_delay = true;
    pair.gets(src_avail(100), 1).unwrap();
    assert_eq!(
        pair.sends_all(),
        [Mid::SendSm, Mid::Data, Mid::Data, Mid::Data]
    );
}

// SPDX-License-Identifier: GPL-2.0-only

//! Tests with an OFED peer that sends no credit update until a zero-copy transfer has ended, and
//! with an iWARP peer that must not send before this end's first message.

use super::super::message::{Body, Mid};
use super::super::Violation;
use super::tests::{src_avail, Pair};
use super::*;

/// Returns a pair whose OFED peer has posted `buffers` buffers and advertised a MiB by its first
/// message. The peer posts no more buffers while its program waits for the end of the advert.
fn silent(buffers: u16) -> Pair {
    let mut pair = Pair::with(|p| {
        p.zero_copy = true;
        (p.credits, p.remote_max_adverts) = (buffers, 1);
    });
    let expected = match buffers {
        0 | 1 => Event::None,
        _ => Event::SourceAdvert,
    };
    assert_eq!(pair.event(src_avail(1 << 20)), expected);
    pair
}

/// Reads the peer's advert in `count` pieces. Returns the number of RdmaRdCompl sent.
fn reads_pieces(pair: &mut Pair, count: u32) -> usize {
    let piece = 1 << 16;
    (0..count)
        .map(|_| {
            pair.end.read_started(piece);
            pair.end.read_done(piece);
            let sent = pair.sends_all();
            assert!(sent.iter().all(|mid| *mid == Mid::RdmaRdCompl));
            sent.len()
        })
        .sum()
}

/// Without a credit for its cancel, neither a signal nor a timeout ends the peer's call.
#[test]
fn who_can_cancel_no_more_is_refused() {
    let mut pair = Pair::with(|p| {
        p.zero_copy = true;
        (p.credits, p.posted, p.remote_max_adverts) = (3, 4, 1);
    });
    assert_eq!(pair.event(src_avail(1 << 20)), Event::SourceAdvert);
    assert_eq!(pair.sends_all(), []);
    pair.gets(Body::Data, 0).unwrap();
    // this update is the last one that leaves two credits
    assert_eq!(pair.sends_all(), [Mid::Data]);
    pair.gets(Body::Data, 0).unwrap();
    assert_eq!(pair.sends_all(), []);
    pair.gets(Body::Data, 0).unwrap();
    assert_eq!(pair.sends_all(), [Mid::SendSm]);
    assert!(!pair.end.holds_sources());
}

#[test]
fn no_updates_at_the_cost_of_the_answer() {
    let mut pair = silent(3);
    // the peer uses up more than half of the posted buffers, which are posted again
    for _ in 0..40 {
        pair.gets(Body::Data, 0).unwrap();
    }
    assert!(pair.is_idle());
    reads_pieces(&mut pair, 16);
    assert!(!pair.end.holds_sources());
}

#[test]
fn bytes_after_a_cancel_are_its_end() {
    let mut pair = silent(0);
    pair.gets(Body::SrcAvailCancel, 0).unwrap();
    assert_eq!(pair.held(), Transmit::Held(Stall::Credits));
    pair.bufs = 9;
    assert_eq!(pair.gets(Body::Data, 100).unwrap().payload, 16..116);
    assert!(pair.is_idle());
    // Bytes read but not reported would arrive twice.
    let mut pair = silent(2);
    pair.end.read_started(1 << 16);
    pair.gets(Body::SrcAvailCancel, 0).unwrap();
    assert_eq!(
        pair.gets(Body::Data, 100).err(),
        Some(Violation::DataDuringAdvert)
    );
}

/// Spends all credits except the reserved ones on payload.
fn spend(pair: &mut Pair) -> Vec<Mid> {
    pair.offer.queued = u32::MAX;
    let mut sent = pair.sends_all();
    sent.retain(|mid| *mid != Mid::Data);
    sent
}

#[test]
fn a_reader_who_waits_reads_before_the_sender_is_helped() {
    let mut pair = silent(9);
    pair.offer.reader_waits = true;
    assert_eq!(spend(&mut pair), []);
    let half = 1 << 19;
    pair.end.read_started(half);
    assert_eq!(spend(&mut pair), []);
    // the peer then sends the unread bytes as Data
    pair.end.read_done(half);
    assert_eq!(spend(&mut pair), [Mid::RdmaRdCompl, Mid::SendSm]);
}

#[test]
fn in_close_wait_the_last_credit_lets_the_peer_send() {
    let mut pair = silent(4);
    // the reader has stopped, and the sender has used all credits but the reserve
    pair.offer.posted = 3;
    pair.end.shutdown_send();
    assert_eq!(pair.sends_all(), [Mid::DisConn]);
    pair.end.refuse_sources();
    assert_eq!(pair.sends().1.kind, Mid::SendSm);
    let mut pair = silent(3);
    pair.offer.posted = 3;
    pair.end.fin = Some(1);
    while pair.end.credits() > 1 {
        pair.end.send.take();
    }
    pair.end.refuse_sources();
    assert_eq!(pair.held(), Transmit::Held(Stall::Credits));
    // four buffers suffice for a cancel that crosses the refusal, and for payload
    pair.offer.posted = 4;
    assert_eq!(pair.sends().1.kind, Mid::SendSm);
}

#[test]
fn the_first_message_brings_credits_to_a_peer_that_must_not_send_before() {
    let mut pair = Pair::new();
    assert!(pair.is_idle());
    pair.end.owe_message();
    let (first, _) = pair.sends();
    assert_eq!((first.body, first.payload), (Body::Data, 0));
    assert!(pair.is_idle());
    // Any message of this end announces the buffers.
    let mut pair = Pair::new();
    pair.end.owe_message();
    pair.offer.queued = 1;
    assert_eq!(pair.sends().0.payload, 1);
    assert!(pair.is_idle());
    // This end announces buffers only with a credit.
    let mut pair = Pair::with(|p| p.credits = 0);
    pair.end.owe_message();
    assert!(pair.is_idle());
    // At the other end, the first message of the peer brings the credits.
    let mut pair = Pair::with(|p| p.credits = 0);
    pair.offer.queued = 1;
    assert_eq!(pair.held(), Transmit::Held(Stall::Credits));
    pair.bufs = 64;
    pair.gets(Body::Data, 0).unwrap();
    assert_eq!(pair.sends().0.payload, 1);
}

#[test]
fn a_message_acknowledges_the_end_of_a_stream() {
    let mut pair = Pair::new();
    pair.end.shutdown_send();
    assert_eq!(pair.sends_all(), [Mid::DisConn]);
    for (ack, is_acked) in [(0, false), (1, true)] {
        pair.ack = ack;
        pair.gets(Body::Data, 0).unwrap();
        assert_eq!(pair.end.fin_is_acked(), is_acked);
    }
}

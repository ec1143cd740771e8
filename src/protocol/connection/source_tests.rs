// SPDX-License-Identifier: GPL-2.0-only

//! Tests of source adverts of both ends, with messages of a test peer.

use super::super::adverts::MAX_ADVERTS;
use super::super::message::{Block, Body, Mid, Mode};
use super::super::Violation;
use super::tests::{mode, src_avail, Pair};
use super::*;

const BLOCK: Block = Block {
    size: 1 << 20,
    r_key: 0x1234_5678,
    address: 0x7f00_0000_1000,
};

fn pair(change: impl FnOnce(&mut Parameters)) -> Pair {
    Pair::with(|p| {
        p.zero_copy = true;
        p.local_max_adverts = MAX_ADVERTS as u16;
        change(p);
    })
}

/// Returns a pair with an OFED peer, which gets SrcAvails in Combined mode, with an inline byte.
fn ofed() -> Pair {
    pair(|p| {
        p.remote_receive_size = ZERO_COPY_RECEIVE_SIZE;
        p.remote_max_adverts = 1;
    })
}

/// Returns a pair that has advertised [`BLOCK`] by its second message.
fn advertised() -> Pair {
    let mut pair = ofed();
    pair.offer.queued = 5;
    pair.sends();
    pair.offer.source = Some(BLOCK);
    let (_, out) = pair.sends();
    assert_eq!((out.kind, out.payload), (Mid::SrcAvail, 1));
    pair.offer.source = None;
    pair.offer.queued = 0;
    pair
}

fn read(pair: &mut Pair, size: u32, ack: u32) -> Result<Event, Violation> {
    pair.ack = ack;
    let received = pair.gets(Body::RdmaRdCompl { size }, 0)?;
    Ok(received.event)
}

#[test]
fn a_block_goes_as_in_the_worked_example() {
    let mut pair = ofed();
    pair.offer.queued = 5;
    pair.offer.source = Some(BLOCK);
    assert_eq!(pair.sends().1.payload, 5);
    let (_, out) = pair.sends();
    assert_eq!(out.header_len, 32);
    assert_eq!(out.payload, 1);
    assert_eq!(
        out.header[..32],
        [
            0xfe, 0, 0, 0x40, 0, 0, 0, 0x21, 0, 0, 0, 2, 0, 0, 0, 0, // BSDH
            0, 0x10, 0, 0, 0x12, 0x34, 0x56, 0x78, 0, 0, 0x7f, 0, 0, 0, 0x10, 0,
        ]
    );
    let event = read(&mut pair, 1_048_575, 2).unwrap();
    let (bytes, finished) = (1_048_575, true);
    assert_eq!(event, Event::SourceRead { bytes, finished });
    assert_eq!(pair.end.sources_outstanding(), 0);
}

#[test]
fn a_block_is_read_as_in_the_worked_example() {
    let mut pair = pair(|_| {});
    let header: [u8; 32] = [
        0xfe, 0, 0, 0x40, 0, 0, 0, 0x21, 0, 0, 0, 1, 0, 0, 0, 0, // BSDH
        0, 0x10, 0, 0, 0x12, 0x34, 0x56, 0x78, 0, 0, 0x7f, 0, 0, 0, 0x10, 0,
    ];
    let received = pair.end.receive(&header, 33).unwrap();
    assert_eq!(received.event, Event::SourceAdvert);
    assert_eq!(received.payload, 32..33);
    let remote = pair.end.source_advert().unwrap();
    let expected = Block {
        address: 0x7f00_0000_1001,
        r_key: 0x1234_5678,
        size: 0xf_ffff,
    };
    assert_eq!(remote, expected);
    pair.end.read_started(remote.size);
    assert_eq!(pair.end.source_advert(), None);
    assert!(pair.is_idle());
    pair.end.read_done(remote.size);
    let (_, out) = pair.sends();
    assert_eq!(
        out.header[..20],
        [6, 0, 0, 0x40, 0, 0, 0, 0x14, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0x0f, 0xff, 0xff]
    );
    assert!(pair.is_idle());
    assert!(!pair.end.holds_sources());
}

#[test]
fn reports_are_added_up_and_not_beyond_the_block() {
    let mut pair = advertised();
    for (size, bytes, finished) in [(1, 1, false), (0xf_fffd, 0xf_fffd, false)] {
        let event = read(&mut pair, size, 2).unwrap();
        assert_eq!(event, Event::SourceRead { bytes, finished });
    }
    assert_eq!(read(&mut pair, 0, 2), Ok(Event::None));
    let over = read(&mut pair, 2, 2);
    assert_eq!(over, Err(Violation::RdmaRdComplSize));
    for size in [1 << 20, u32::MAX] {
        let over = read(&mut advertised(), size, 2);
        assert_eq!(over, Err(Violation::RdmaRdComplSize));
    }
}

#[test]
fn a_cancel_ends_with_what_was_read() {
    let mut pair = advertised();
    pair.end.cancel_sources();
    pair.end.cancel_sources();
    assert_eq!(pair.sends_all(), [Mid::SrcAvailCancel]);
    pair.end.cancel_sources();
    assert!(pair.is_idle());
    // No advert is sent until the peer has replied.
    assert!(!pair.end.can_advertise(BLOCK.size));
    read(&mut pair, 99, 3).unwrap();
    let returned = Event::SourcesReturned { done: 100 };
    assert_eq!(pair.event(Body::SendSm), returned);
    assert!(pair.end.can_advertise(BLOCK.size));
    // Later reports about the old advert are ignored, even while a new advert is outstanding.
    assert_eq!(read(&mut pair, 5, 3), Ok(Event::None));
    pair.offer.source = Some(BLOCK);
    assert_eq!(pair.sends().0.mseq, 4);
    assert_eq!(pair.event(Body::SendSm), Event::None);
    assert_eq!(read(&mut pair, 5, 3), Ok(Event::None));
    assert_eq!(pair.end.sources_outstanding(), 1);
}

#[test]
fn a_cancel_that_is_not_needed_does_not_go() {
    let mut pair = advertised();
    pair.bufs = 0;
    pair.gets(Body::Data, 0).unwrap();
    pair.end.cancel_sources();
    assert_eq!(pair.held(), Transmit::Held(Stall::Credits));
    read(&mut pair, (1 << 20) - 1, 2).unwrap();
    pair.bufs = 9;
    pair.gets(Body::Data, 0).unwrap();
    assert!(pair.is_idle());
    pair.end.cancel_sources();
    assert!(pair.is_idle());
    assert!(pair.end.can_advertise(BLOCK.size));
}

#[test]
fn peers_of_ofeds_line_are_spared_what_they_do_not_know() {
    for (receive_size, body, knows) in [
        (2064, Body::Data, false),
        (32768, Body::Data, false),
        (32784, Body::Data, true),
        (2064, Body::SendSm, true),
        (2064, Body::RdmaRdCompl { size: 1 }, true),
        (2064, src_avail(100), true),
    ] {
        let mut pair = pair(|p| {
            p.remote_max_adverts = 1;
            p.remote_receive_size = receive_size;
        });
        pair.gets(body, 0).unwrap();
        assert_eq!(
            pair.end.source_limit() > 0,
            knows,
            "{receive_size} {body:?}"
        );
        // No advert of this end crosses an advert of the peer.
        let crossing = matches!(body, Body::SrcAvail(_));
        assert_eq!(pair.end.can_advertise(1 << 20), knows && !crossing);
        assert!(!pair.end.can_advertise(1 << 21));
        pair.offer.source = Some(BLOCK);
        let sent = pair.sends_all().contains(&Mid::SrcAvail);
        assert_eq!(sent, knows && !crossing);
    }
    let off = Pair::new();
    assert_eq!(off.end.source_limit(), 0);
    assert!(!off.end.can_advertise(100));
    let ours = pair(|_| {});
    for (size, may) in [
        (0, false),
        (1, false),
        (2, true),
        (1 << 30, true),
        (u32::MAX, false),
    ] {
        assert_eq!(ours.end.can_advertise(size), may);
    }
}

/// Returns a pair with an advert of the peer of 1000 bytes, one of them inline.
fn holding() -> Pair {
    let mut pair = pair(|_| {});
    assert_eq!(pair.gets(src_avail(1000), 1).unwrap().payload, 32..33);
    assert!(pair.is_idle());
    pair
}

#[test]
fn a_refusal_waits_for_the_reads_and_their_report() {
    let mut pair = holding();
    pair.end.read_started(10);
    pair.end.refuse_sources();
    assert_eq!(pair.end.source_advert(), None);
    assert!(pair.is_idle());
    pair.end.read_done(10);
    assert_eq!(pair.sends_all(), [Mid::RdmaRdCompl, Mid::SendSm]);
    // After the READ of all bytes, nothing is left to refuse.
    let mut pair = holding();
    pair.end.read_started(999);
    pair.end.refuse_sources();
    pair.end.read_done(999);
    assert_eq!(pair.sends_all(), [Mid::RdmaRdCompl]);
    pair.end.refuse_sources();
    assert!(pair.is_idle());
    // Repeats the steps without a READ.
    let mut pair = holding();
    pair.end.refuse_sources();
    assert_eq!(pair.sends_all(), [Mid::SendSm]);
}

#[test]
fn a_block_beyond_the_last_address() {
    for (address, size, good) in [
        (u64::MAX, 1, true),
        (u64::MAX, 2, false),
        (u64::MAX - 9, 10, true),
        (u64::MAX - 9, 11, false),
    ] {
        let mut pair = pair(|_| {});
        let advert = Block {
            size,
            r_key: 1,
            address,
        };
        let result = pair.gets(Body::SrcAvail(advert), 0);
        let expected = if good {
            Ok(())
        } else {
            Err(Violation::SrcAvailRange)
        };
        assert_eq!(result.map(|_| ()), expected, "{address} {size}");
    }
}

#[test]
fn adverts_that_are_being_read_outlive_no_change_of_mode() {
    let changed = |read: bool, reported: bool, ack: u32| {
        let mut pair = pair(|_| {});
        pair.gets(mode(Mode::Pipelined), 0).unwrap();
        pair.gets(src_avail(50), 0).unwrap();
        if read {
            pair.end.read_started(10);
        }
        if reported {
            pair.end.read_done(10);
            pair.sends();
        }
        pair.ack = ack;
        let result = pair.gets(mode(Mode::Combined), 0).map(|_| ());
        assert!(result.is_err() || pair.end.source_advert().is_none());
        result
    };
    assert_eq!(changed(false, false, 0), Ok(()));
    assert_eq!(changed(true, false, 0), Err(Violation::ModeChange));
    assert_eq!(changed(true, true, 0), Err(Violation::ModeChange));
    assert_eq!(changed(true, true, 1), Ok(()));
}

#[test]
fn a_block_goes_pipelined_to_our_own_line_whatever_the_owner_has_chosen_since() {
    let mut pair = pair(|p| p.credits = 4);
    pair.end.set_pipelined(true);
    assert_eq!(pair.sends_all(), [Mid::ModeChange]);
    pair.offer.queued = 1;
    assert_eq!(pair.sends_all(), [Mid::Data]);
    // the block waits for credits, and another call begins, which copies
    pair.offer.source = Some(BLOCK);
    pair.end.set_pipelined(false);
    assert_eq!(pair.sends_all(), []);
    pair.bufs = 10;
    pair.ack = 2;
    pair.gets(Body::Data, 0).unwrap();
    let (_, out) = pair.sends();
    assert_eq!((out.kind, out.payload), (Mid::SrcAvail, 0));
    pair.end.cancel_sources();
    assert_eq!(pair.sends_all(), [Mid::SrcAvailCancel]);
    pair.ack = 4;
    pair.event(Body::SendSm);
    assert_eq!(pair.sends_all(), [Mid::ModeChange]);
    assert_eq!(pair.end.send_mode(), Mode::Combined);
    pair.offer.source = Some(BLOCK);
    assert_eq!(pair.sends_all(), [Mid::ModeChange, Mid::SrcAvail]);
    assert_eq!(pair.end.send_mode(), Mode::Pipelined);
}

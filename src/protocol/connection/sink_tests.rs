// SPDX-License-Identifier: GPL-2.0-only

//! Tests of sink adverts of both ends and of mode changes, with messages of a test peer.

use super::super::adverts::MAX_ADVERTS;
use super::super::message::{Block, Body, Mid, Mode, SinkAvail};
use super::super::Violation;
use super::tests::{mode, src_avail, Pair};
use super::*;

const BLOCK: Block = Block {
    size: 1 << 20,
    r_key: 0x9abc_def0,
    address: 0x7f10_0000_0000,
};

fn zero_copy(change: impl FnOnce(&mut Parameters)) -> Pair {
    Pair::with(|p| {
        p.zero_copy = true;
        p.local_max_adverts = MAX_ADVERTS as u16;
        change(p);
    })
}

/// Returns a pair whose peer sends Pipelined and has `blocks` sink adverts of this end.
fn sink(blocks: u32) -> Pair {
    let mut pair = zero_copy(|_| {});
    pair.gets(mode(Mode::Pipelined), 0).unwrap();
    for _ in 0..blocks {
        pair.offer.sink = Some(BLOCK);
        assert_eq!(pair.sends().1.kind, Mid::SinkAvail);
    }
    assert!(pair.is_idle());
    pair
}

/// Returns a pair whose sending half is Pipelined.
fn source() -> Pair {
    let mut pair = zero_copy(|_| {});
    pair.end.set_pipelined(true);
    assert_eq!(pair.sends().0.body, mode(Mode::Pipelined));
    assert!(pair.is_idle());
    pair
}

fn sink_avail(size: u32, non_discards: u32) -> Body {
    Body::SinkAvail(SinkAvail {
        block: Block {
            size,
            r_key: 7,
            address: 1000,
        },
        non_discards,
    })
}

fn data(pair: &mut Pair, bytes: u32) {
    pair.offer.queued = bytes;
    pair.offer.no_delay = true;
    assert_eq!(pair.sends_all(), [Mid::Data]);
}

const GOOD: Event = Event::SinkAdvert { returned: false };

#[test]
fn counts_that_cannot_be() {
    // A sink that has received both messages counts two. After one message, the sink counts one.
    for (count, ack, good) in [(2, 3, true), (1, 3, false), (3, 3, false), (1, 2, true)] {
        let mut pair = source();
        data(&mut pair, 10);
        data(&mut pair, 10);
        pair.ack = ack;
        let result = pair.gets(sink_avail(5000, count), 0);
        assert_eq!(result.is_ok(), good, "{count} {ack}");
        if let Err(violation) = result {
            assert_eq!(violation, Violation::NonDiscards);
        }
    }
}

#[test]
fn a_block_is_written_and_reported() {
    let mut pair = source();
    pair.event(sink_avail(5000, 0));
    pair.event(sink_avail(6000, 0));
    pair.end.written(100, false);
    let next = pair.end.sink_advert().unwrap();
    assert_eq!((next.address, next.size), (1100, 4900));
    assert!(pair.is_idle());
    pair.end.written(50, true);
    // The next block may be written before the report is sent.
    assert_eq!(pair.end.sink_advert().unwrap().size, 6000);
    pair.end.written(6000, true);
    assert_eq!(pair.end.sink_advert(), None);
    assert_eq!(pair.sends().0.body, Body::RdmaWrCompl { size: 150 });
    assert_eq!(pair.sends().0.body, Body::RdmaWrCompl { size: 6000 });
    assert!(pair.is_idle());
    // Without written bytes, no report is sent.
    pair.event(sink_avail(5000, 0));
    pair.end.written(0, true);
    assert!(pair.is_idle());
    assert!(pair.end.sink_advert().is_some());
}

#[test]
fn nothing_is_written_behind_data_that_the_reader_had_not_seen() {
    // The sink advertises three blocks before the arrival of the first of two messages, and a
    // fourth block after the first message.
    let mut pair = source();
    data(&mut pair, 10);
    data(&mut pair, 10);
    pair.ack = 1;
    for _ in 0..2 {
        assert_eq!(pair.event(sink_avail(5000, 0)), Event::None);
    }
    // by its count, the third advert is valid
    assert_eq!(pair.event(sink_avail(5000, 0)), GOOD);
    assert_eq!(pair.end.sink_advert(), None);
    pair.ack = pair.end.mseq_sent() - 1;
    assert_eq!(pair.event(sink_avail(5000, 0)), GOOD);
    assert_eq!((pair.end.sink_advert(), pair.end.sink_bytes()), (None, 0));
    // The peer cancels its adverts. This end writes to later adverts.
    pair.event(Body::SinkAvailCancel);
    assert_eq!(pair.sends_all(), [Mid::SinkCancelAck]);
    pair.ack = pair.end.mseq_sent();
    assert_eq!(pair.event(sink_avail(5000, 0)), GOOD);
    assert_eq!(pair.event(sink_avail(6000, 0)), GOOD);
    assert_eq!(pair.end.sink_bytes(), 11000);
    // Full blocks that are not yet reported do not count.
    pair.end.written(5000, false);
    assert_eq!(pair.end.sink_bytes(), 6000);
    pair.end.written(10, false);
    pair.offer.queued = 10;
    let all = [Mid::RdmaWrCompl, Mid::RdmaWrCompl, Mid::Data];
    assert_eq!(pair.sends_all(), all);
    assert!(!pair.end.peer_sinks.held());
}

#[test]
fn sinks_are_void_at_the_end_of_the_stream() {
    let mut pair = source();
    for _ in 0..2 {
        pair.event(sink_avail(5000, 0));
    }
    pair.end.shutdown_send();
    assert_eq!(pair.sends_all(), [Mid::DisConn]);
    assert_eq!(pair.event(Body::SinkAvailCancel), Event::None);
    assert!(pair.is_idle());
}

#[test]
fn a_sink_advert_wins_over_source_adverts_that_cross_it() {
    // A sink drops source adverts.
    let mut pair = sink(1);
    assert_eq!(pair.event(src_avail(5000)), Event::None);
    assert_eq!(pair.end.source_advert(), None);
    assert_eq!(pair.event(Body::SrcAvailCancel), Event::None);
    assert!(pair.is_idle());
    let inline = sink(1).gets(src_avail(5000), 1);
    assert_eq!(inline.unwrap_err(), Violation::SrcAvailMode);
    // The adverts return to the source, even during a cancel.
    for cancel in [false, true] {
        let mut pair = source();
        for _ in 0..2 {
            pair.offer.source = Some(BLOCK);
            assert_eq!(pair.sends().1.payload, 0);
        }
        if cancel {
            pair.end.cancel_sources();
            pair.sends();
        }
        pair.ack = 1;
        let returned = Event::SinkAdvert { returned: true };
        assert_eq!(pair.event(sink_avail(5000, 0)), returned);
        assert_eq!(pair.end.sources_outstanding(), 0);
        assert_eq!(pair.event(Body::SendSm), Event::None);
        assert!(pair.is_idle());
    }
    // A void sink advert, or a sink advert sent after the sink had received the source adverts,
    // returns no source advert.
    let mut pair = source();
    data(&mut pair, 10);
    pair.offer.source = Some(BLOCK);
    pair.sends();
    pair.ack = 1;
    assert_eq!(pair.event(sink_avail(5000, 0)), Event::None);
    assert_eq!(pair.end.sources_outstanding(), 1);
    pair.ack = 3;
    let had = pair.gets(sink_avail(5000, 0), 0);
    assert_eq!(had.unwrap_err(), Violation::SinkAvailDuringAdvert);
}

#[test]
fn bad_sink_adverts() {
    let at = |address, size| {
        Body::SinkAvail(SinkAvail {
            block: Block {
                size,
                r_key: 1,
                address,
            },
            non_discards: 0,
        })
    };
    let max = u64::MAX;
    for (body, violation) in [
        (at(5, 0), Some(Violation::SinkAvailSize)),
        (at(max, 1), None),
        (at(max, 2), Some(Violation::SinkAvailRange)),
        (at(max - 9, 11), Some(Violation::SinkAvailRange)),
    ] {
        assert_eq!(source().gets(body, 0).err(), violation, "{body:?}");
    }
    let mut pair = source();
    for _ in 0..MAX_ADVERTS {
        assert_eq!(pair.event(sink_avail(10, 0)), GOOD);
    }
    let result = pair.gets(sink_avail(10, 0), 0);
    assert_eq!(result.unwrap_err(), Violation::SinkAvailLimit);
    let mut pair = source();
    pair.event(sink_avail(10, 0));
    pair.event(Body::SinkAvailCancel);
    let result = pair.gets(sink_avail(10, 0), 0);
    assert_eq!(result.unwrap_err(), Violation::SinkAvailDuringCancel);
    let combined = zero_copy(|_| {}).gets(sink_avail(10, 0), 0);
    assert_eq!(combined.unwrap_err(), Violation::SinkAvailMode);
    let unasked = sink(1).gets(Body::SinkCancelAck, 0);
    assert_eq!(unasked.unwrap_err(), Violation::UnexpectedSinkCancelAck);
}

#[test]
fn receive_buffers_do_not_outgrow_sink_adverts() {
    let mut pair = sink(1);
    pair.event(Body::ChRcvBuf { size: 32768 });
    pair.end.resize_receive(8208, 0);
    assert!(pair.is_idle());
    pair.gets(Body::RdmaWrCompl { size: 1 }, 0).unwrap();
    assert_eq!(pair.sends_all(), [Mid::ChRcvBufAck]);
    assert_eq!(pair.end.least_sink(), 8192);
}

#[test]
fn what_was_said_of_sinks_outlives_the_connection() {
    let mut pair = source();
    pair.event(sink_avail(5000, 0));
    pair.end.written(10, false);
    pair.event(Body::AbortConn);
    assert_eq!(pair.end.sink_advert(), None);
    pair.end.written(u32::MAX, true);
    pair.end.cancel_sinks();
    pair.end.set_pipelined(false);
    assert!(pair.is_idle());
}

// SPDX-License-Identifier: GPL-2.0-only

//! A connection: whatever comes, in whatever order, it stays within its rules.

use proptest::prelude::*;
use sdp_props::{body, flags};
use sdp_protocol::message::{Body, Flags, Message};
use sdp_protocol::{
    Block, Connection, Event, Mid, Offer, Parameters, Transmit, ZeroCopy, MAX_HEADER,
};

/// What happens to a connection.
#[derive(Clone, Debug)]
enum Action {
    /// A message comes that is the next in sequence and stays within what was sent.
    Message {
        body: Body,
        flags: Flags,
        payload: u32,
        bufs: u16,
        /// So many of the messages that were sent are acknowledged.
        acks: u32,
    },
    /// Any bytes come.
    Bytes(Vec<u8>, u32),
    /// Bytes are written.
    Write(u32),
    /// What may go, goes.
    Transmit(u16),
    /// Something is set or called.
    Set(u8),
    /// The wish for larger buffers is answered.
    Resize(u32, u16),
    /// A block is offered.
    Source(u32),
    /// A block of a reader is offered.
    Sink(u32),
    /// A WRITE is posted, the last to its block or not.
    Written(u32, bool),
    /// A READ of the peer's advert is started, or up to so many bytes of READs have ended.
    Read(u32, bool),
}

fn action() -> impl Strategy<Value = Action> {
    let next =
        (body(), 0..2000u32, 0..100u16, 0..4u32).prop_flat_map(|(body, length, bufs, acks)| {
            let payload = if body.mid().carries_payload() {
                length
            } else {
                0
            };
            flags(body, payload).prop_map(move |flags| Action::Message {
                body,
                flags,
                payload,
                bufs,
                acks,
            })
        });
    prop_oneof![
        8 => next,
        1 => (proptest::collection::vec(any::<u8>(), 0..60), any::<u32>()).prop_map(|(b, l)| Action::Bytes(b, l)),
        4 => (0..5000u32).prop_map(Action::Write),
        6 => (0..70u16).prop_map(Action::Transmit),
        2 => any::<u8>().prop_map(Action::Set),
        1 => (any::<u32>(), any::<u16>()).prop_map(|(size, posted)| Action::Resize(size, posted)),
        2 => prop_oneof![0..3000u32, any::<u32>()].prop_map(Action::Source),
        2 => (prop_oneof![0..3000u32, any::<u32>()], any::<bool>()).prop_map(|(n, done)| Action::Read(n, done)),
        1 => prop_oneof![0..9000u32, any::<u32>()].prop_map(Action::Sink),
        2 => (prop_oneof![0..3000u32, any::<u32>()], any::<bool>()).prop_map(|(n, last)| Action::Written(n, last)),
    ]
}

fn parameters() -> impl Strategy<Value = Parameters> {
    (
        (64..5000u32, 64..5000u32),
        any::<(u16, u16)>(),
        (any::<u16>(), 0..70u16),
        any::<u32>(),
        prop_oneof![
            Just(ZeroCopy::Off),
            Just(ZeroCopy::On),
            Just(ZeroCopy::Forced)
        ],
    )
        .prop_map(|(sizes, adverts, buffers, desired, zero_copy)| Parameters {
            local_receive_size: sizes.0,
            remote_receive_size: sizes.1,
            local_max_adverts: adverts.0,
            remote_max_adverts: adverts.1,
            posted: buffers.0,
            credits: buffers.1,
            desired_remote_size: desired,
            acks_payload: false,
            zero_copy,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_the_rules_hold(parameters in parameters(), actions in proptest::collection::vec(action(), 1..150)) {
        let mut end = Connection::new(&parameters);
        let mut offer = Offer { posted: parameters.posted, limit: 4096, ..Offer::default() };
        let (mut sent, mut acked, mut bufs) = (0u32, 0u32, parameters.credits);
        let mut received = 0u32;
        let mut over = false;
        let mut closed = false;
        let mut reading = 0u32;
        for action in actions {
            match action {
                Action::Message { body, flags, payload, bufs: now, acks } => {
                    let message = Message {
                        flags, bufs: now, body, payload,
                        mseq: received + 1,
                        mseq_ack: (acked + acks).min(sent),
                    };
                    let header = message.encode();
                    match end.receive(&header, message.length()) {
                        Ok(_) if over => {}
                        Ok(got) => {
                            received += 1;
                            acked = message.mseq_ack;
                            bufs = now;
                            prop_assert_eq!(got.mid, body.mid());
                            prop_assert_eq!(got.payload.len(), payload as usize);
                            prop_assert!(got.payload.end <= message.length());
                            prop_assert!(payload == 0 || got.payload.start as usize == message.header_len());
                            over = matches!(got.event, Event::PeerAborted | Event::Suspended { .. });
                        }
                        Err(_) => {
                            prop_assert!(!over);
                            over = true;
                        }
                    }
                }
                Action::Bytes(bytes, length) => {
                    let start = &bytes[..bytes.len().min(MAX_HEADER)];
                    if end.receive(start, length).is_err() {
                        over = true;
                    }
                    // (Chance does not make a message that is accepted.)
                    prop_assert!(over);
                }
                Action::Write(bytes) => {
                    offer.queued += bytes;
                    if bytes % 5 == 0 {
                        offer.urgent = Some(bytes);
                    }
                }
                Action::Transmit(posted) => {
                    offer.posted = posted;
                    for _ in 0..100 {
                        let credits = i64::from(bufs) - i64::from(sent - acked);
                        if !over {
                            prop_assert_eq!(i64::from(end.credits()), credits.max(0));
                        }
                        match end.transmit(&offer) {
                            Transmit::Send(out) => {
                                prop_assert!(!over);
                                let advert = out.kind == Mid::SrcAvail;
                                let needed = if advert || out.payload > 0 { 3 } else { 1 };
                                prop_assert!(credits >= needed);
                                prop_assert!(!closed || out.payload == 0 && !advert);
                                if out.kind == Mid::SinkAvail {
                                    let block = offer.sink.take().unwrap();
                                    prop_assert!(block.size >= end.least_sink());
                                    prop_assert!((1..=8).contains(&end.sinks_outstanding()));
                                    prop_assert!(!end.holds_sources() && out.payload == 0);
                                }
                                if advert {
                                    let block = offer.source.take().unwrap();
                                    prop_assert!(offer.queued == 0 && block.size > out.payload);
                                    prop_assert!(parameters.zero_copy != ZeroCopy::Off);
                                    prop_assert!((1..=8).contains(&end.sources_outstanding()));
                                } else if out.payload > 0 || out.kind == Mid::DisConn {
                                    prop_assert!(out.payload <= offer.queued.min(offer.limit));
                                    prop_assert_eq!(end.sources_outstanding(), 0);
                                    offer.queued -= out.payload;
                                }
                                sent += 1;
                                prop_assert_eq!(out.mseq, sent);
                                closed |= end.send_closed();
                                offer.urgent = offer.urgent.and_then(|at| at.checked_sub(out.payload));
                                let length = u32::from(out.header_len) + out.payload;
                                let message = Message::parse(&out.header, length).unwrap();
                                let stream = advert || out.payload > 0 || out.kind == Mid::DisConn;
                                let behind = message.mseq_ack < received && reading > 0 && !stream;
                                prop_assert!(message.mseq_ack == received || behind);
                                prop_assert_eq!(u32::from(message.bufs), u32::from(posted) + (received - message.mseq_ack));
                            }
                            Transmit::Held(_) | Transmit::Idle => break,
                        }
                    }
                }
                Action::Set(what) => match what % 14 {
                    11 => end.cancel_sinks(),
                    12 => end.set_pipelined(true),
                    13 => end.set_pipelined(what % 2 == 0),
                    8 => end.cancel_sources(),
                    9 => end.refuse_sources(),
                    10 => offer.source = None,
                    0 => end.shutdown_send(),
                    1 => offer.cork = !offer.cork,
                    2 => offer.no_delay = !offer.no_delay,
                    3 => offer.in_flight = u16::from(what),
                    4 => offer.limit = u32::from(what) * 100,
                    5 => offer.limit = u32::MAX,
                    6 => offer.reader_waits = !offer.reader_waits,
                    _ => offer.urgent = None,
                },
                Action::Resize(size, posted) => end.resize_receive(size, posted),
                Action::Source(size) => {
                    offer.source = Some(Block { size, r_key: size, address: u64::from(size) });
                }
                Action::Sink(size) => {
                    offer.sink = Some(Block { size, r_key: size, address: u64::from(size) });
                }
                Action::Written(bytes, last) => {
                    if let Some(room) = end.sink_advert() {
                        prop_assert!(!over && !closed && room.size > 0);
                        prop_assert!(room.address.checked_add(u64::from(room.size) - 1).is_some());
                        end.written(bytes.min(room.size), last);
                        if let Some(next) = end.sink_advert() {
                            prop_assert!(next.size > 0);
                        }
                    }
                }
                Action::Read(bytes, true) => {
                    end.read_done(bytes.min(reading));
                    reading -= bytes.min(reading);
                }
                Action::Read(bytes, false) => {
                    if let Some(remote) = end.source_advert() {
                        prop_assert!(!over && remote.size > 0);
                        prop_assert!(remote.address.checked_add(u64::from(remote.size) - 1).is_some());
                        end.read_started(bytes.min(remote.size));
                        reading = reading.saturating_add(bytes.min(remote.size));
                    }
                }
            }
        }
    }
}

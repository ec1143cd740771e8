// SPDX-License-Identifier: GPL-2.0-only

//! A connection keeps its rules for all messages, in any order.

use proptest::prelude::*;
use sdp_props::{body, flags};
use sdp_protocol::message::{Body, Flags, Message};
use sdp_protocol::{
    Block, Connection, Event, Mid, Offer, Outgoing, Parameters, Transmit, MAX_HEADER,
};

/// Event of a connection.
#[derive(Clone, Debug)]
enum Action {
    /// A message arrives that is next in sequence and acknowledges only sent messages.
    Message {
        body: Body,
        flags: Flags,
        payload: u32,
        bufs: u16,
        /// Number of sent messages that this message acknowledges.
        acks: u32,
    },
    /// Arbitrary bytes arrive.
    Bytes(Vec<u8>, u32),
    /// Bytes are written.
    Write(u32),
    /// Sends all messages that may be sent.
    Transmit(u16),
    /// A setting is changed, or a call made.
    Set(u8),
    /// The request for larger buffers is answered.
    Resize(u32, u16),
    /// A block is offered.
    Source(u32),
    /// A block of a reader is offered.
    Sink(u32),
    /// A WRITE is posted, the last to its block or not.
    Written(u32, bool),
    /// A READ of the peer's advert starts, or READs of up to this number of bytes complete.
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
        (64..5000u32, prop_oneof![64..5000u32, Just(32784)]),
        any::<(u16, u16)>(),
        (any::<u16>(), 0..70u16),
        any::<u32>(),
        any::<bool>(),
    )
        .prop_map(|(sizes, adverts, buffers, desired, zero_copy)| Parameters {
            local_receive_size: sizes.0,
            remote_receive_size: sizes.1,
            local_max_adverts: adverts.0,
            remote_max_adverts: adverts.1,
            posted: buffers.0,
            credits: buffers.1,
            desired_remote_size: desired,
            zero_copy,
        })
}

/// A connection, and the limits that it must keep.
struct Model {
    end: Connection,
    zero_copy: bool,
    offer: Offer,
    sent: u32,
    acked: u32,
    bufs: u16,
    received: u32,
    over: bool,
    closed: bool,
    reading: u32,
}

/// Returns a block of this size, at any address.
fn block(size: u32) -> Block {
    Block {
        size,
        r_key: size,
        address: u64::from(size),
    }
}

type Kept = Result<(), TestCaseError>;

impl Model {
    fn new(parameters: &Parameters) -> Self {
        Model {
            end: Connection::new(parameters),
            zero_copy: parameters.zero_copy,
            offer: Offer {
                posted: parameters.posted,
                limit: 4096,
                ..Offer::default()
            },
            sent: 0,
            acked: 0,
            bufs: parameters.credits,
            received: 0,
            over: false,
            closed: false,
            reading: 0,
        }
    }

    fn play(&mut self, action: Action) -> Kept {
        match action {
            Action::Message {
                body,
                flags,
                payload,
                bufs,
                acks,
            } => self.comes(&Message {
                flags,
                bufs,
                body,
                payload,
                mseq: self.received + 1,
                mseq_ack: (self.acked + acks).min(self.sent),
            })?,
            Action::Bytes(bytes, length) => {
                let start = &bytes[..bytes.len().min(MAX_HEADER)];
                if self.end.receive(start, length).is_err() {
                    self.over = true;
                }
                // (Random bytes do not make an acceptable message.)
                prop_assert!(self.over);
            }
            Action::Write(bytes) => {
                self.offer.queued += bytes;
                if bytes % 5 == 0 {
                    self.offer.urgent = Some(bytes);
                }
            }
            Action::Transmit(posted) => self.transmit(posted)?,
            Action::Set(what) => self.set(what),
            Action::Resize(size, posted) => self.end.resize_receive(size, posted),
            Action::Source(size) => {
                self.offer.source = Some(block(size));
            }
            Action::Sink(size) => {
                self.offer.sink = Some(block(size));
            }
            Action::Written(bytes, last) => {
                if let Some(room) = self.end.sink_advert() {
                    prop_assert!(!self.over && !self.closed && room.size > 0);
                    prop_assert!(room.address.checked_add(u64::from(room.size) - 1).is_some());
                    self.end.written(bytes.min(room.size), last);
                    if let Some(next) = self.end.sink_advert() {
                        prop_assert!(next.size > 0);
                    }
                }
            }
            Action::Read(bytes, true) => {
                self.end.read_done(bytes.min(self.reading));
                self.reading -= bytes.min(self.reading);
            }
            Action::Read(bytes, false) => {
                if let Some(remote) = self.end.source_advert() {
                    prop_assert!(!self.over && remote.size > 0);
                    prop_assert!(remote
                        .address
                        .checked_add(u64::from(remote.size) - 1)
                        .is_some());
                    self.end.read_started(bytes.min(remote.size));
                    self.reading = self.reading.saturating_add(bytes.min(remote.size));
                }
            }
        }
        Ok(())
    }

    /// Delivers a message that is next in sequence.
    fn comes(&mut self, message: &Message) -> Kept {
        let header = message.encode();
        match self.end.receive(&header, message.length()) {
            Ok(_) if self.over => {}
            Ok(got) => {
                self.received += 1;
                self.acked = message.mseq_ack;
                self.bufs = message.bufs;
                prop_assert_eq!(got.mid, message.body.mid());
                prop_assert_eq!(got.payload.len(), message.payload as usize);
                prop_assert!(got.payload.end <= message.length());
                prop_assert!(
                    message.payload == 0 || got.payload.start as usize == message.header_len()
                );
                self.over = matches!(got.event, Event::PeerAborted | Event::Suspended { .. });
            }
            Err(_) => {
                prop_assert!(!self.over);
                self.over = true;
            }
        }
        Ok(())
    }

    /// Sends all messages that may be sent.
    fn transmit(&mut self, posted: u16) -> Kept {
        self.offer.posted = posted;
        for _ in 0..100 {
            let credits = i64::from(self.bufs) - i64::from(self.sent - self.acked);
            if !self.over {
                prop_assert_eq!(i64::from(self.end.credits()), credits.max(0));
            }
            let offer = &self.offer;
            let nothing = offer.queued == 0 && offer.source.is_none() && offer.sink.is_none();
            let idle = nothing && self.end.is_idle(posted, offer.reader_waits);
            let next = self.end.transmit(offer);
            prop_assert!(!idle || next == Transmit::Idle, "due, and not asked for");
            prop_assert!(
                !nothing || next != Transmit::Idle || self.end.is_idle(posted, offer.reader_waits)
            );
            match next {
                Transmit::Send(out) => self.went(&out, credits)?,
                Transmit::Held(_) | Transmit::Idle => break,
            }
        }
        Ok(())
    }

    /// Checks a sent message.
    fn went(&mut self, out: &Outgoing, credits: i64) -> Kept {
        prop_assert!(!self.over);
        let advert = out.kind == Mid::SrcAvail;
        let needed = if advert || out.payload > 0 { 3 } else { 1 };
        prop_assert!(credits >= needed);
        prop_assert!(!self.closed || out.payload == 0 && !advert);
        if out.kind == Mid::SinkAvail {
            let block = self.offer.sink.take().unwrap();
            prop_assert!(block.size >= self.end.least_sink());
            prop_assert!((1..=8).contains(&self.end.sinks_outstanding()));
            prop_assert!(!self.end.holds_sources() && out.payload == 0);
        }
        if advert {
            let block = self.offer.source.take().unwrap();
            prop_assert!(self.offer.queued == 0 && block.size > out.payload);
            prop_assert!(self.zero_copy);
            prop_assert!((1..=8).contains(&self.end.sources_outstanding()));
        } else if out.payload > 0 || out.kind == Mid::DisConn {
            prop_assert!(out.payload <= self.offer.queued.min(self.offer.limit));
            prop_assert_eq!(self.end.sources_outstanding(), 0);
            self.offer.queued -= out.payload;
        }
        self.sent += 1;
        prop_assert_eq!(out.mseq, self.sent);
        self.closed |= self.end.send_closed();
        self.offer.urgent = self.offer.urgent.and_then(|at| at.checked_sub(out.payload));
        let length = u32::from(out.header_len) + out.payload;
        let message = Message::parse(&out.header, length).unwrap();
        let stream = advert || out.payload > 0 || out.kind == Mid::DisConn;
        let behind = message.mseq_ack < self.received && self.reading > 0 && !stream;
        prop_assert!(message.mseq_ack == self.received || behind);
        prop_assert_eq!(
            u32::from(message.bufs),
            u32::from(self.offer.posted) + (self.received - message.mseq_ack)
        );
        Ok(())
    }

    /// Changes a setting, or makes a call.
    fn set(&mut self, what: u8) {
        match what % 14 {
            11 => self.end.cancel_sinks(),
            12 => self.end.set_pipelined(true),
            13 => self.end.set_pipelined(what % 2 == 0),
            8 => self.end.cancel_sources(),
            9 => self.end.refuse_sources(),
            10 => self.offer.source = None,
            0 => self.end.shutdown_send(),
            1 => self.offer.cork = !self.offer.cork,
            2 => self.offer.no_delay = !self.offer.no_delay,
            3 => self.offer.in_flight = u16::from(what),
            4 => self.offer.limit = u32::from(what) * 100,
            5 => self.offer.limit = u32::MAX,
            6 => self.offer.reader_waits = !self.offer.reader_waits,
            _ => self.offer.urgent = None,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_the_rules_hold(parameters in parameters(), actions in proptest::collection::vec(action(), 1..150)) {
        let mut model = Model::new(&parameters);
        for action in actions {
            model.play(action)?;
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Random events on a connection: the code never panics, sends no message without a credit, and no
//! message after the connection's end.
//!
//! The input is a list of actions of a few bytes each. Most messages get the correct MSeq and Len,
//! so that the fuzzer need not guess these fields.

use sdp_protocol::message::Message;
use sdp_protocol::{
    Block, Connection, Event, Mid, Offer, Parameters, Stall, Transmit, Violation, MAX_HEADER,
};

/// The input, consumed from its front; zeros when it is used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }
}

/// Event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Saw {
    /// A message of this kind was accepted.
    Received(Mid),
    /// A message of this kind was sent.
    Sent(Mid),
    /// The connection has to be aborted for this violation.
    Violated(Violation),
    /// Sending was held back for this reason.
    Held(Stall),
}

/// Runs the input, and calls `saw` for each event.
pub fn play(data: &[u8], mut saw: impl FnMut(Saw)) {
    let mut input = Input(data);
    let mut play = Play::new(&mut input);
    while !input.0.is_empty() {
        let action = input.byte();
        match action % 8 {
            0..=2 => play.message(action, &mut input, &mut saw),
            3 if action > 240 => {
                if play.bytes(&mut input, &mut saw) {
                    return;
                }
            }
            3 => play.offer.posted = input.short(),
            4 if action >= 128 => play.zero_copy(&mut input),
            4 => {
                let more = u32::from(input.short());
                play.offer.queued = play.offer.queued.saturating_add(more);
            }
            5 => play.set(&mut input),
            _ => play.transmit(&mut saw),
        }
    }
}

/// A connection, and the limits that it must keep.
struct Play {
    end: Connection,
    offer: Offer,
    received: u32,
    sent: u32,
    acked: u32,
    bufs: u16,
    over: bool,
    reading: u32,
}

impl Play {
    fn new(input: &mut Input<'_>) -> Self {
        let credits = u16::from(input.byte());
        let end = Connection::new(&Parameters {
            local_receive_size: 64 + u32::from(input.short()),
            remote_receive_size: 64 + u32::from(input.short()),
            local_max_adverts: u16::from(input.byte()),
            remote_max_adverts: u16::from(input.byte()),
            posted: input.short(),
            credits,
            desired_remote_size: u32::from(input.short()),
            zero_copy: input.byte() % 4 != 0,
        });
        Play {
            end,
            offer: Offer {
                posted: 64,
                limit: u32::MAX,
                ..Offer::default()
            },
            received: 0,
            sent: 0,
            acked: 0,
            bufs: credits,
            over: false,
            reading: 0,
        }
    }

    /// Delivers a message that is correct except for one field.
    fn message(&mut self, action: u8, input: &mut Input<'_>, saw: &mut impl FnMut(Saw)) {
        let mut header = [0; MAX_HEADER];
        let payload = u32::from(input.short());
        header[0] = input.byte();
        header[1] = input.byte();
        header[2..4].copy_from_slice(&u16::from(input.byte()).to_be_bytes());
        for byte in &mut header[16..] {
            *byte = if action < 128 { 0 } else { input.byte() };
        }
        header[19] = input.byte();
        let mid = sdp_protocol::Mid::from_code(header[0]);
        let length = mid.map_or(16, |mid| mid.header_len() as u32)
            + if mid.is_some_and(|mid| mid.carries_payload()) {
                payload
            } else {
                0
            };
        header[4..8].copy_from_slice(&length.to_be_bytes());
        header[8..12].copy_from_slice(&(self.received + 1).to_be_bytes());
        let acks = (self.acked + u32::from(input.byte() % 8)).min(self.sent);
        header[12..16].copy_from_slice(&acks.to_be_bytes());
        match self.end.receive(&header, length) {
            Ok(got) if !self.over => {
                assert!(got.payload.end <= length);
                saw(Saw::Received(got.mid));
                self.received += 1;
                self.acked = acks;
                self.bufs = u16::from(header[3]);
                self.over = matches!(got.event, Event::PeerAborted | Event::Suspended { .. });
            }
            Ok(got) => assert!(got.payload.is_empty() && got.event == Event::None),
            Err(violation) => {
                assert!(!self.over);
                self.over = true;
                saw(Saw::Violated(violation));
            }
        }
    }

    /// Delivers arbitrary bytes. Returns true if the bytes were accepted as a message.
    fn bytes(&mut self, input: &mut Input<'_>, saw: &mut impl FnMut(Saw)) -> bool {
        let length = usize::from(input.byte() % 48);
        let (bytes, rest) = input.0.split_at(length.min(input.0.len()));
        input.0 = rest;
        let outcome = self.end.receive(bytes, length as u32);
        assert!(self.over || outcome.is_err() || length >= 16);
        self.over |= outcome.is_err();
        match outcome {
            Err(violation) => saw(Saw::Violated(violation)),
            Ok(_) if !self.over => return true,
            Ok(_) => {}
        }
        false
    }

    /// Makes one of the owner's calls about adverts.
    fn zero_copy(&mut self, input: &mut Input<'_>) {
        let size = u32::from(input.short());
        match input.byte() % 11 {
            6 => self.end.cancel_sinks(),
            7 => self.end.set_pipelined(size % 3 > 0),
            8 => {
                self.offer.sink = Some(Block {
                    size,
                    r_key: 3,
                    address: 4,
                });
            }
            9 | 10 => {
                if let Some(room) = self.end.sink_advert() {
                    assert!(!self.over && !self.end.send_closed() && room.size > 0);
                    self.end.written(size.min(room.size), size % 2 == 0);
                }
            }
            0 => self.end.cancel_sources(),
            1 => self.end.refuse_sources(),
            2 => {
                self.end.read_done(size.min(self.reading));
                self.reading -= size.min(self.reading);
            }
            3 => {
                self.offer.source = Some(Block {
                    size,
                    r_key: 1,
                    address: 2,
                });
            }
            _ => {
                if let Some(remote) = self.end.source_advert() {
                    assert!(!self.over && remote.size > 0);
                    let last = u64::from(remote.size) - 1;
                    assert!(remote.address.checked_add(last).is_some());
                    self.end.read_started(size.min(remote.size));
                    self.reading += size.min(remote.size);
                }
            }
        }
    }

    /// Changes one of the owner's settings.
    fn set(&mut self, input: &mut Input<'_>) {
        let what = input.byte();
        self.offer.cork = what & 1 != 0;
        self.offer.no_delay = what & 2 != 0;
        self.offer.in_flight = u16::from(what & 4);
        self.offer.reader_waits = what & 8 != 0;
        self.offer.limit = if what & 16 != 0 {
            u32::from(what)
        } else {
            u32::MAX
        };
        self.offer.urgent = (what & 32 != 0).then(|| u32::from(input.short()));
        if what & 64 != 0 {
            self.end.shutdown_send();
        }
        if what & 128 != 0 {
            self.end
                .resize_receive(u32::from(input.short()), u16::from(input.byte()));
        }
    }

    /// Sends all messages that may be sent.
    fn transmit(&mut self, saw: &mut impl FnMut(Saw)) {
        for _ in 0..64 {
            let closed = self.end.send_closed();
            let credits = i64::from(self.bufs) - i64::from(self.sent - self.acked);
            let out = match self.end.transmit(&self.offer) {
                Transmit::Send(out) => out,
                Transmit::Held(hold) => {
                    saw(Saw::Held(hold));
                    break;
                }
                Transmit::Idle => break,
            };
            assert!(!self.over);
            saw(Saw::Sent(out.kind));
            let advert = out.kind == Mid::SrcAvail;
            let stream = advert || out.payload > 0 || out.kind == Mid::DisConn;
            assert!(credits >= if advert || out.payload > 0 { 3 } else { 1 });
            assert!(!closed || !stream);
            self.sent += 1;
            if out.kind == Mid::SinkAvail {
                let block = self.offer.sink.take().unwrap();
                assert!(block.size >= self.end.least_sink());
                assert!((1..=8).contains(&self.end.sinks_outstanding()));
            }
            if advert {
                let block = self.offer.source.take().unwrap();
                assert!(self.offer.queued == 0 && block.size > out.payload);
                assert!((1..=8).contains(&self.end.sources_outstanding()));
            } else {
                assert!(out.payload <= self.offer.queued && out.payload <= self.offer.limit);
                assert!(!stream || self.end.sources_outstanding() == 0);
                self.offer.queued -= out.payload;
            }
            let length = u32::from(out.header_len) + out.payload;
            let message = Message::parse(&out.header, length).unwrap();
            assert_eq!(message.mseq, self.sent);
            let behind = message.mseq_ack < self.received && self.reading > 0 && !stream;
            assert!(message.mseq_ack == self.received || behind);
        }
    }
}

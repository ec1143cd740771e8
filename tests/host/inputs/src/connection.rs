// SPDX-License-Identifier: GPL-2.0-only

//! A connection to which anything happens: it never panics, sends nothing that it has no credit
//! for, and nothing at all after it is over.
//!
//! The input is a list of actions of a few bytes each. Most messages get the MSeq and Len that
//! they must have, so that the fuzzer need not guess those.

use sdp_protocol::message::Message;
use sdp_protocol::{
    Block, Connection, Event, Mid, Offer, Parameters, Stall, Transmit, Violation, ZeroCopy,
    MAX_HEADER,
};

/// The input, taken from its front; zeros when it is used up.
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

/// What has happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Saw {
    /// A message of this kind was accepted.
    Received(Mid),
    /// One of this kind was sent.
    Sent(Mid),
    /// The connection was to be aborted for this.
    Violated(Violation),
    /// Something had to wait for this.
    Held(Stall),
}

/// Plays what the input says, and tells what has happened.
pub fn play(data: &[u8], mut saw: impl FnMut(Saw)) {
    let mut input = Input(data);
    let credits = u16::from(input.byte());
    let mut end = Connection::new(&Parameters {
        local_receive_size: 64 + u32::from(input.short()),
        remote_receive_size: 64 + u32::from(input.short()),
        local_max_adverts: u16::from(input.byte()),
        remote_max_adverts: u16::from(input.byte()),
        posted: input.short(),
        credits,
        desired_remote_size: u32::from(input.short()),
        acks_payload: false,
        zero_copy: match input.byte() % 4 {
            0 => ZeroCopy::Off,
            1 => ZeroCopy::Forced,
            _ => ZeroCopy::On,
        },
    });
    let mut offer = Offer {
        posted: 64,
        limit: u32::MAX,
        ..Offer::default()
    };
    let (mut received, mut sent, mut acked, mut bufs) = (0u32, 0u32, 0u32, credits);
    let mut over = false;
    let mut reading = 0u32;
    while !input.0.is_empty() {
        let action = input.byte();
        match action % 8 {
            0..=2 => {
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
                header[8..12].copy_from_slice(&(received + 1).to_be_bytes());
                let acks = (acked + u32::from(input.byte() % 8)).min(sent);
                header[12..16].copy_from_slice(&acks.to_be_bytes());
                match end.receive(&header, length) {
                    Ok(got) if !over => {
                        assert!(got.payload.end <= length);
                        saw(Saw::Received(got.mid));
                        received += 1;
                        acked = acks;
                        bufs = u16::from(header[3]);
                        over = matches!(got.event, Event::PeerAborted | Event::Suspended { .. });
                    }
                    Ok(got) => assert!(got.payload.is_empty() && got.event == Event::None),
                    Err(violation) => {
                        assert!(!over);
                        over = true;
                        saw(Saw::Violated(violation));
                    }
                }
            }
            3 if action > 240 => {
                let length = usize::from(input.byte() % 48);
                let (bytes, rest) = input.0.split_at(length.min(input.0.len()));
                input.0 = rest;
                let outcome = end.receive(bytes, length as u32);
                assert!(over || outcome.is_err() || length >= 16);
                over |= outcome.is_err();
                match outcome {
                    Err(violation) => saw(Saw::Violated(violation)),
                    Ok(_) if !over => return,
                    Ok(_) => {}
                }
            }
            3 => offer.posted = input.short(),
            4 if action >= 128 => {
                let size = u32::from(input.short());
                match input.byte() % 11 {
                    6 => end.cancel_sinks(),
                    7 => end.set_pipelined(size % 3 > 0),
                    8 => {
                        offer.sink = Some(Block {
                            size,
                            r_key: 3,
                            address: 4,
                        });
                    }
                    9 | 10 => {
                        if let Some(room) = end.sink_advert() {
                            assert!(!over && !end.send_closed() && room.size > 0);
                            end.written(size.min(room.size), size % 2 == 0);
                        }
                    }
                    0 => end.cancel_sources(),
                    1 => end.refuse_sources(),
                    2 => {
                        end.read_done(size.min(reading));
                        reading -= size.min(reading);
                    }
                    3 => {
                        offer.source = Some(Block {
                            size,
                            r_key: 1,
                            address: 2,
                        });
                    }
                    _ => {
                        if let Some(remote) = end.source_advert() {
                            assert!(!over && remote.size > 0);
                            let last = u64::from(remote.size) - 1;
                            assert!(remote.address.checked_add(last).is_some());
                            end.read_started(size.min(remote.size));
                            reading += size.min(remote.size);
                        }
                    }
                }
            }
            4 => offer.queued = offer.queued.saturating_add(u32::from(input.short())),
            5 => {
                let what = input.byte();
                offer.cork = what & 1 != 0;
                offer.no_delay = what & 2 != 0;
                offer.in_flight = u16::from(what & 4);
                offer.reader_waits = what & 8 != 0;
                offer.limit = if what & 16 != 0 {
                    u32::from(what)
                } else {
                    u32::MAX
                };
                offer.urgent = (what & 32 != 0).then(|| u32::from(input.short()));
                if what & 64 != 0 {
                    end.shutdown_send();
                }
                if what & 128 != 0 {
                    end.resize_receive(u32::from(input.short()), u16::from(input.byte()));
                }
            }
            _ => {
                for _ in 0..64 {
                    let closed = end.send_closed();
                    let credits = i64::from(bufs) - i64::from(sent - acked);
                    let out = match end.transmit(&offer) {
                        Transmit::Send(out) => out,
                        Transmit::Held(hold) => {
                            saw(Saw::Held(hold));
                            break;
                        }
                        Transmit::Idle => break,
                    };
                    assert!(!over);
                    saw(Saw::Sent(out.kind));
                    let advert = out.kind == Mid::SrcAvail;
                    let stream = advert || out.payload > 0 || out.kind == Mid::DisConn;
                    assert!(credits >= if advert || out.payload > 0 { 3 } else { 1 });
                    assert!(!closed || !stream);
                    sent += 1;
                    if out.kind == Mid::SinkAvail {
                        let block = offer.sink.take().unwrap();
                        assert!(block.size >= end.least_sink());
                        assert!((1..=8).contains(&end.sinks_outstanding()));
                    }
                    if advert {
                        let block = offer.source.take().unwrap();
                        assert!(offer.queued == 0 && block.size > out.payload);
                        assert!((1..=8).contains(&end.sources_outstanding()));
                    } else {
                        assert!(out.payload <= offer.queued && out.payload <= offer.limit);
                        assert!(!stream || end.sources_outstanding() == 0);
                        offer.queued -= out.payload;
                    }
                    let length = u32::from(out.header_len) + out.payload;
                    let message = Message::parse(&out.header, length).unwrap();
                    assert_eq!(message.mseq, sent);
                    let behind = message.mseq_ack < received && reading > 0 && !stream;
                    assert!(message.mseq_ack == received || behind);
                }
            }
        }
    }
}

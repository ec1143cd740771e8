// SPDX-License-Identifier: GPL-2.0-only

//! An end that runs the code under test.

use std::collections::VecDeque;

use sdp_protocol::{Connection, Event, Offer, Parameters, Transmit, MAX_HEADER};

use crate::audit::Audit;
use crate::node::{Common, Node, Over};
use crate::packet::Packet;
use crate::rng::Rng;

/// The protocol core with a transport and an application around it.
pub struct Ours {
    common: Common,
    connection: Connection,
    audit: Audit,
    no_delay: bool,
    cork: bool,
    limit: u32,
    /// The reader sleeps once it has read everything.
    waits: bool,
    /// Largest buffers this end is ready to post.
    largest: u32,
    wish: Option<u32>,
    over: Option<Over>,
    trusting: bool,
    last: Transmit,
}

impl Ours {
    /// An end whose Hello and HelloAck say `parameters`; its buffers may grow up to `largest`.
    pub fn new(common: Common, parameters: &Parameters, largest: u32, rng: &mut Rng) -> Self {
        Ours {
            connection: Connection::new(parameters),
            audit: Audit::new(
                parameters.credits,
                parameters.remote_receive_size,
                parameters.posted,
            ),
            no_delay: rng.one_in(2),
            cork: false,
            limit: u32::MAX,
            waits: rng.one_in(2),
            largest,
            wish: None,
            over: None,
            trusting: true,
            last: Transmit::Idle,
            common,
        }
    }

    fn offer(&self) -> Offer {
        let Common {
            port,
            inbox,
            outbox,
            ..
        } = &self.common;
        Offer {
            queued: outbox.queued(),
            urgent: outbox.urgent_at(),
            posted: port.posted(),
            in_flight: port.in_flight,
            no_delay: self.no_delay,
            cork: self.cork,
            limit: self.limit,
            reader_waits: self.waits && inbox.read == inbox.received,
        }
    }

    /// Answers the peer's wish for larger buffers.
    fn decide(&mut self) {
        if let Some(wish) = self.wish.take() {
            let size = wish.saturating_add(32).min(self.largest);
            let port = &mut self.common.port;
            port.size = port.size.max(size);
            self.connection.resize_receive(size, port.posted());
        }
    }
}

impl Node for Ours {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn pump(
        &mut self,
        _rng: &mut Rng,
        most: u32,
        wire: &mut VecDeque<Packet>,
    ) -> Result<u32, String> {
        let mut count = 0;
        if self.common.outbox.closed {
            self.connection.shutdown_send();
        }
        while count < most && self.common.port.in_flight < self.common.port.depth {
            let offer = self.offer();
            let finished = self.connection.finished();
            let due = self.connection.credit_update_due(offer.posted);
            self.last = self.connection.transmit(&offer);
            let Transmit::Send(out) = &self.last else {
                if due {
                    return Err("a credit update was due and did not go".into());
                }
                break;
            };
            if self.over.is_some() || finished {
                return Err("a message was sent after the end".into());
            }
            let outbox = &mut self.common.outbox;
            if out.payload > offer.queued || out.payload > offer.limit {
                return Err(format!("more sent than there was: {out:?}"));
            }
            let header = &out.header[..usize::from(out.header_len)];
            let packet = Packet::new(header, self.common.side, outbox.sent, out.payload);
            outbox.advance(out.payload, out.urgent)?;
            if self.trusting {
                self.audit.sending(&packet, offer.posted)?;
            }
            if packet.message().map(|m| (m.body.mid(), m.mseq)) != Some((out.kind, out.mseq)) {
                return Err(format!("{out:?} is described wrongly"));
            }
            self.common.port.in_flight += 1;
            wire.push_back(packet);
            count += 1;
        }
        Ok(count)
    }

    fn process(&mut self) -> Result<bool, String> {
        let Some(packet) = self.common.port.next_arrived() else {
            return Ok(false);
        };
        let start = &packet.bytes[..packet.bytes.len().min(MAX_HEADER)];
        let was_over = self.over.is_some();
        let received = match self.connection.receive(start, packet.length()) {
            Ok(received) => received,
            Err(violation) => {
                if was_over {
                    return Err("a violation after the end".into());
                }
                self.over = Some(Over::Violation(violation.name().into()));
                return Ok(true);
            }
        };
        if was_over {
            if received.event != Event::None || !received.payload.is_empty() {
                return Err("something came of a message after the end".into());
            }
            return Ok(true);
        }
        let message = packet
            .message()
            .ok_or("a malformed message was taken for a good one")?;
        self.audit.received(&message);
        let payload = received.payload.start as usize..received.payload.end as usize;
        if payload.len() != message.payload as usize {
            return Err("the payload was cut".into());
        }
        if !payload.is_empty() {
            let bytes = packet.bytes.get(payload).ok_or("payload out of bounds")?;
            self.common.inbox.take(bytes, self.trusting)?;
            self.common.port.hold();
        }
        self.common
            .inbox
            .urgent(received.urgent_pending, received.urgent)?;
        match received.event {
            Event::PeerClosed => self.common.inbox.closed = true,
            Event::PeerAborted | Event::Suspended { .. } => self.over = Some(Over::Ended),
            Event::ReceiveSizeRequested(size) => self.wish = Some(size),
            _ => {}
        }
        Ok(true)
    }

    fn tick(&mut self, rng: &mut Rng) {
        match rng.below(6) {
            0 => self.no_delay = !self.no_delay,
            1 => self.cork = !self.cork,
            2 => self.limit = rng.pick(&[u32::MAX, u32::MAX, 4096, 100, 1, 0]),
            3 => self.waits = !self.waits,
            _ => self.decide(),
        }
    }

    fn settle(&mut self, reading: bool) {
        // What is queued when the stream ends goes in spite of a cork.
        self.cork &= self.common.outbox.closed;
        self.limit = u32::MAX;
        self.waits = reading;
        self.decide();
    }

    fn distrust(&mut self) {
        self.trusting = false;
    }

    fn over(&self) -> Option<Over> {
        self.over.clone()
    }

    fn finished(&self) -> bool {
        self.connection.finished()
    }

    fn short_of_credits(&self) -> bool {
        self.connection.credits() < 3
    }

    fn must_have_announced(&self) -> bool {
        self.common.outbox.urgent.is_some() && self.connection.credits() >= 2
    }

    fn state(&self) -> String {
        let end = &self.connection;
        format!(
            "ours: {:?}, credits {}, peer's {}, {:?}",
            self.last,
            end.credits(),
            end.peer_credits(),
            self.common
        )
    }

    fn counts(&self) -> [u64; 3] {
        self.audit.counts
    }
}

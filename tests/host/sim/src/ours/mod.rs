// SPDX-License-Identifier: GPL-2.0-only

//! An end that runs the code under test.

mod adverts;
mod blocks;
mod posting;

use std::collections::VecDeque;

use sdp_protocol::message::Mid;
use sdp_protocol::{Block, Connection, Event, Offer, Parameters, Transmit, MAX_HEADER};

use self::adverts::Large;
use self::blocks::{Ahead, Blocks};
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
    /// Set if the reader sleeps once it has read everything.
    waits: bool,
    /// Maximum size of buffers that this end may post.
    largest: u32,
    wish: Option<u32>,
    /// Set if the peer is of this kind too, as on iWARP, and keepalive is by messages.
    keepalive: bool,
    /// Set if the next message should be a keepalive probe.
    probe: bool,
    /// Set if no message has arrived since the last probe.
    unanswered: bool,
    over: Option<Over>,
    trusting: bool,
    last: Transmit,
    zero_copy: bool,
    /// Set if the peer may cancel only while it could send payload.
    ofed: bool,
    /// Set if no bytes are held back on purpose.
    settled: bool,
    /// Set if bytes were written since a call last timed out.
    patient: bool,
    /// Blocks to advertise, in the order of the stream.
    planned: VecDeque<Large>,
    /// Advertised blocks, before all planned ones.
    advertised: VecDeque<Large>,
    /// Number of bytes of the oldest advertised block that the peer has reported as read.
    done: u32,
    /// Stream position up to which the peer has reported reads.
    told_read: u64,
    /// Sizes of READs in flight.
    reading: VecDeque<u32>,
    /// Block of a reader, to be advertised.
    sink: Option<Block>,
    /// Advertised blocks of readers.
    sinks: VecDeque<Block>,
    /// The module's block queue, if it is used instead of `planned`.
    blocks: Option<Blocks>,
}

impl Ours {
    /// Creates an end whose Hello and HelloAck have `parameters`; its buffers may grow up to
    /// `largest`.
    pub fn new(common: Common, parameters: &Parameters, largest: u32, rng: &mut Rng) -> Self {
        Ours {
            connection: Connection::new(parameters),
            audit: Audit::new(
                parameters.credits,
                parameters.remote_receive_size,
                parameters.posted,
                parameters.remote_max_adverts == 1,
            ),
            no_delay: rng.one_in(2),
            cork: false,
            limit: u32::MAX,
            waits: rng.one_in(2),
            largest,
            wish: None,
            keepalive: false,
            probe: false,
            unanswered: false,
            over: None,
            trusting: true,
            last: Transmit::Idle,
            ofed: parameters.remote_max_adverts == 1,
            zero_copy: parameters.zero_copy,
            settled: false,
            patient: true,
            planned: VecDeque::new(),
            advertised: VecDeque::new(),
            done: 0,
            told_read: 0,
            reading: VecDeque::new(),
            sink: None,
            sinks: VecDeque::new(),
            blocks: None,
            common,
        }
    }

    /// Makes an end that sends by the module's block queue.
    pub fn by_blocks(self) -> Self {
        Ours {
            blocks: Some(Blocks::new()),
            ..self
        }
    }

    /// Makes an end that sends keepalive probes.
    pub fn probing(self) -> Self {
        Ours {
            keepalive: true,
            ..self
        }
    }

    fn offer(&mut self, ahead: Option<&Ahead>, rng: &mut Rng) -> Offer {
        let source = self.source(rng);
        let Common {
            port,
            inbox,
            outbox,
            ..
        } = &self.common;
        let queued = match self.planned.front() {
            Some(large) => (large.start - outbox.sent) as u32,
            None => outbox.queued(),
        };
        let mut offer = Offer {
            queued,
            source,
            sink: self.sink.filter(|_| inbox.read == inbox.received),
            urgent: outbox.urgent_at(),
            posted: port.posted(),
            in_flight: port.in_flight,
            no_delay: self.no_delay,
            cork: self.cork,
            limit: self.limit,
            reader_waits: self.waits && inbox.read == inbox.received,
        };
        if let Some(ahead) = ahead {
            ahead.put(outbox, &mut offer);
        }
        offer
    }

    /// Replies to the peer's request for larger buffers.
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
        rng: &mut Rng,
        most: u32,
        wire: &mut VecDeque<Packet>,
    ) -> Result<u32, String> {
        let mut count = 0;
        while count < most && self.common.port.in_flight < self.common.port.depth {
            if self.blocks_on(rng, wire)? || self.write_to_sink(rng, wire) {
                continue;
            }
            let ahead = self.blocks.as_ref().map(|b| b.ahead(self.limit));
            let offer = self.offer(ahead.as_ref(), rng);
            let waits = self.blocks.as_ref().is_some_and(Blocks::has_call);
            if self.common.outbox.closed && self.planned.is_empty() && !waits {
                self.connection.shutdown_send();
            }
            let finished = self.connection.finished();
            let probes = std::mem::take(&mut self.probe) && self.connection.probe(offer.posted);
            let due = self.connection.credit_update_due(offer.posted);
            let nothing = offer.queued == 0 && offer.source.is_none() && offer.sink.is_none();
            let idle = nothing && self.connection.is_idle(offer.posted, offer.reader_waits);
            self.last = self.connection.transmit(&offer);
            if idle && self.last != Transmit::Idle {
                return Err("what was due was not asked for".into());
            }
            let Transmit::Send(out) = &self.last else {
                if due || probes {
                    return Err("a credit update or a probe was due and did not go".into());
                }
                break;
            };
            if self.over.is_some() || finished {
                return Err("a message was sent after the end".into());
            }
            let out = out.clone();
            if probes && out.kind != Mid::ChRcvBuf {
                return Err("another message went before a probe".into());
            }
            self.unanswered |= probes;
            let data = out.kind == Mid::Data;
            if data && (out.payload > offer.queued || out.payload > offer.limit) {
                return Err(format!("more sent than there was: {out:?}"));
            }
            let header = &out.header[..usize::from(out.header_len)];
            let packet = match &ahead {
                Some(ahead) => Packet::with(header, &self.block_posted(ahead, &out)?),
                None => {
                    let Common { side, outbox, .. } = &self.common;
                    Packet::new(header, *side, outbox.sent, out.payload)
                }
            };
            if out.kind == Mid::SinkAvail {
                self.sinks.extend(self.sink.take());
            }
            self.sent(&out)?;
            if self.trusting {
                let reading = !self.reading.is_empty();
                self.audit.sending(&packet, offer.posted, reading)?;
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
        self.unanswered = false;
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
        self.audit.received(&message, !self.reading.is_empty());
        let payload = received.payload.start as usize..received.payload.end as usize;
        if payload.len() != message.payload as usize {
            return Err("the payload was cut".into());
        }
        if !payload.is_empty() {
            let bytes = packet.bytes.get(payload).ok_or("payload out of bounds")?;
            if received.for_sink {
                if self.sink_returned()?.len() < bytes.len() {
                    return Err("a message is too long for the reader's block".into());
                }
                self.common.inbox.direct(bytes, self.trusting)?;
            } else {
                self.common.inbox.take(bytes, self.trusting)?;
                self.common.port.hold();
            }
        }
        self.common
            .inbox
            .urgent(received.urgent_pending, received.urgent)?;
        match received.event {
            Event::PeerClosed => self.common.inbox.closed = true,
            Event::PeerAborted | Event::Suspended { .. } => self.over = Some(Over::Ended),
            Event::ReceiveSizeRequested(size) => self.wish = Some(size),
            event => {
                let news = match self.blocks {
                    Some(_) => self.about_blocks(event),
                    None => self.about_sources(event),
                };
                if self.trusting {
                    news?;
                }
            }
        }
        let news = self.about_sinks(received.event);
        if self.trusting {
            news?;
        }
        Ok(true)
    }

    fn write(&mut self, bytes: u32, urgent: bool, rng: &mut Rng) {
        if self.blocks.as_ref().is_some_and(Blocks::has_call) {
            return;
        }
        let start = self.common.outbox.written;
        self.common.outbox.write(bytes, urgent);
        (self.patient, self.settled) = (true, false);
        if let Some(blocks) = &mut self.blocks {
            let block = !urgent && bytes > 1 && rng.one_in(2);
            blocks.write(&mut self.common, bytes, block, rng);
            if urgent {
                blocks.expedite(&mut self.connection);
            }
            return;
        }
        if self.zero_copy && !urgent && bytes > 1 && rng.one_in(2) {
            self.planned.push_back(Large {
                start,
                end: start + u64::from(bytes),
                block: None,
            });
        }
    }

    fn rdma(&mut self, rng: &mut Rng, reads: bool, all: bool) -> bool {
        let holds = self.ofed && self.connection.holds_sources();
        let port = &mut self.common.port;
        if holds {
            port.least = port.budget.min(4);
        } else if port.least > 0 {
            // More bytes may have arrived than there was space for. Two SENDs are for control
            // messages.
            port.least = 2;
        }
        let mut something = false;
        let size = self.connection.least_sink() + rng.pick(&[0, 1, 100, 5000]);
        let waits = self.common.inbox.read == self.common.inbox.received;
        let wanted = reads && waits && self.patient && self.sink.is_none();
        if wanted && self.connection.can_offer_sink(size) && (all || rng.one_in(2)) {
            let memory = vec![0; size as usize];
            let side = self.common.side;
            self.sink = Some(self.common.fabric.borrow_mut().register(side, memory, rng));
            something = true;
        }
        while reads && self.common.inbox.read == self.common.inbox.received && self.over.is_none() {
            let Some(remote) = self.connection.source_advert() else {
                break;
            };
            if !all && rng.one_in(10) {
                self.connection.refuse_sources();
                return true;
            }
            let bytes = if all {
                remote.size
            } else {
                rng.range(1, remote.size)
            };
            let part = Block {
                size: bytes,
                ..remote
            };
            let side = self.common.side;
            self.common.fabric.borrow_mut().post_read(side, part);
            self.connection.read_started(bytes);
            self.reading.push_back(bytes);
            something = true;
            if !all && rng.one_in(2) {
                break;
            }
        }
        something
    }

    fn read_completed(&mut self, bytes: &[u8]) -> Result<(), String> {
        let expected = self.reading.pop_front();
        if expected != Some(bytes.len() as u32) {
            return Err("a READ completed that was not posted".into());
        }
        self.common.inbox.direct(bytes, self.trusting)?;
        self.connection.read_done(bytes.len() as u32);
        Ok(())
    }

    fn give_up(&mut self) -> bool {
        let waits = !self.advertised.is_empty()
            || !self.planned.is_empty()
            || !self.sinks.is_empty()
            || self.sink.is_some()
            || self.has_left();
        self.patient = false;
        self.copy_all();
        match &mut self.blocks {
            Some(blocks) => blocks.touched(&mut self.connection),
            None => self.connection.cancel_sources(),
        }
        self.connection.cancel_sinks();
        if let Some(block) = self.sink.take() {
            self.common.fabric.borrow_mut().take_back(block.r_key);
        }
        waits
    }

    fn tick(&mut self, rng: &mut Rng) {
        self.settled = false;
        let choice = rng.below(12);
        if let (Some(blocks), 6..=7) = (&mut self.blocks, choice) {
            match choice {
                6 => blocks.take_back(&mut self.connection),
                _ => blocks.touched(&mut self.connection),
            }
            return;
        }
        match choice {
            9 => self.connection.set_pipelined(true),
            10 => self.connection.set_pipelined(rng.one_in(2)),
            11 => self.connection.cancel_sinks(),
            6 => self.connection.cancel_sources(),
            7 if rng.one_in(2) => self.copy_all(),
            0 => self.no_delay = !self.no_delay,
            1 => self.cork = !self.cork,
            2 => self.limit = rng.pick(&[u32::MAX, u32::MAX, 4096, 100, 1, 0]),
            3 => self.waits = !self.waits,
            8 => self.probe = self.keepalive,
            _ => self.decide(),
        }
    }

    fn settle(&mut self, reading: bool) {
        // Queued bytes are sent at the end of the stream despite a cork.
        self.cork &= self.common.outbox.closed && self.planned.is_empty();
        self.limit = u32::MAX;
        self.settled = true;
        self.connection.written(0, true);
        self.waits = reading;
        self.decide();
    }

    fn distrust(&mut self) {
        self.trusting = false;
    }

    fn over(&self) -> Option<Over> {
        self.over.clone()
    }

    fn lost(&mut self) -> Result<(), String> {
        self.copy_all();
        let sinks = self.sinks.drain(..).chain(self.sink.take());
        let sources = self.advertised.drain(..).filter_map(|large| large.block);
        for block in sinks.chain(sources) {
            self.common.fabric.borrow_mut().take_back(block.r_key);
        }
        self.blocks_lost()
    }

    fn has_left(&self) -> bool {
        self.blocks_left()
    }

    fn write_arrived(&mut self) {
        if let Some(blocks) = &mut self.blocks {
            blocks.wrote();
        }
    }

    fn told_read(&self) -> u64 {
        self.told_read
    }

    fn finished(&self) -> bool {
        self.connection.finished()
    }

    fn short_of_credits(&self) -> bool {
        self.connection.credits() < 3
    }

    fn unanswered(&self) -> bool {
        self.unanswered && !self.connection.finished()
    }

    fn must_have_announced(&self) -> bool {
        let outbox = &self.common.outbox;
        // An urgent byte after a block is not offered yet.
        let hidden = self
            .planned
            .front()
            .is_some_and(|large| outbox.urgent > Some(large.start));
        // Two credits are reserved for the end of an advert.
        let kept = self.ofed && self.connection.holds_sources();
        let least = if kept { 3 } else { 2 };
        let hidden = hidden || self.hidden_by_block();
        outbox.urgent.is_some() && !hidden && self.connection.credits() >= least
    }

    fn state(&self) -> String {
        let end = &self.connection;
        format!(
            "ours: sink {:?}, sinks {:?}, {:?}, credits {}, peer's {}, planned {:?}, advertised {:?}, done {}, {:?}, reading {:?}, {end:?}, {:?}",
            self.sink,
            self.sinks,
            self.last,
            end.credits(),
            end.peer_credits(),
            self.planned,
            self.advertised,
            self.done,
            self.blocks,
            self.reading,
            self.common
        )
    }

    fn ways(&self) -> [u64; 5] {
        self.blocks.as_ref().map_or([0; 5], Blocks::ways)
    }

    fn counts(&self) -> [u64; 3] {
        self.audit.counts
    }
}

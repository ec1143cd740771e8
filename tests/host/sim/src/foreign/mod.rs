// SPDX-License-Identifier: GPL-2.0-only

//! An end as other implementations of SDP would be: written apart from the code under test,
//! after what is known of them: source adverts and what OFED does about those of its peer, their
//! cancellation, mode changes, and Nagle's algorithm by MSeqAck.

mod sinks;
mod sources;

use std::collections::VecDeque;

use sdp_protocol::message::{Body, Flags, Message, Mode};
use sdp_protocol::Remote;

use self::sinks::{Made, Taken};
use self::sources::{Advert, Held};
use crate::node::{Common, Node, Over};
use crate::packet::Packet;
use crate::rng::Rng;

/// What kind of implementation it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavour {
    /// MaxAdverts it announces.
    pub max_adverts: u16,
    /// Its first message says how many buffers it has; its Hello says 0 (RHEL 5).
    pub silent_hello: bool,
    /// A credit update needs two credits, and is due when twice the peer's credits are less than
    /// what is posted; else one credit, and one and a half (RHEL 5; later OFED).
    pub early: bool,
    /// A message that could be fuller waits until the one before is acknowledged.
    pub nagle: bool,
    /// Knows adverts.
    pub zero_copy: bool,
    /// Advertises what is at least so long; 0: never.
    pub advert: u32,
    /// Sends stay Combined, or may be Pipelined with so many adverts.
    pub pipelined: u16,
    /// Buffer size it asks for under load; 0: never.
    pub wish: u32,
    /// Payload its buffers may grow to when asked.
    pub grows: u32,
    /// Says that they have grown while smaller ones are still posted (later OFED).
    pub hasty: bool,
    /// Tells of no buffers while it waits for its advert, nor when the peer has closed (later OFED).
    pub silent: bool,
    /// Keeps two buffers from when the peer has closed (later OFED, with a small `SO_RCVBUF`).
    pub stingy: bool,
}

impl Flavour {
    /// Knows no sink adverts.
    fn ofed(&self) -> bool {
        self.max_adverts == 1
    }
}

/// An end that follows its flavour.
pub struct Foreign {
    common: Common,
    flavour: Flavour,
    sent: u32,
    acked: u32,
    bufs: u16,
    received: u32,
    /// Bufs of the last message sent, less the messages received since.
    told: i64,
    payload: u32,
    mode: Mode,
    adverts: VecDeque<Advert>,
    cancel: bool,
    cancelled: bool,
    /// Never advertises: nobody would take it up.
    gave_up: bool,
    held: VecDeque<Held>,
    /// Mode of what the peer sends.
    peer_mode: Mode,
    /// MSeq of our last SendSm.
    refusal: u32,
    /// A cancel of what was refused before is to be answered, too.
    again: bool,
    /// Somebody waits for bytes.
    reader: bool,
    made: Made,
    taken: Taken,
    /// The peer takes no adverts: what was advertised may be forgotten at any time.
    refuses: bool,
    change: Option<Mode>,
    push: bool,
    no_delay: bool,
    last_data: u32,
    since_wish: u32,
    wish_pending: bool,
    wish_done: bool,
    /// Payload to say in a ChRcvBufAck, once so many more messages have come.
    answer: Option<(u32, u16)>,
    own_payload: u32,
    hello_due: bool,
    closed: bool,
    over: Option<Over>,
    trusting: bool,
    counts: [u64; 3],
    waiting: &'static str,
}

impl Foreign {
    /// An end that was told of `bufs` buffers of `size` bytes. `refuses`: the peer has no zero
    /// copy.
    pub fn new(common: Common, flavour: Flavour, bufs: u16, size: u32, refuses: bool) -> Self {
        let told = if flavour.silent_hello {
            0
        } else {
            i64::from(common.port.budget)
        };
        Foreign {
            flavour,
            sent: 0,
            acked: 0,
            bufs,
            received: 0,
            told,
            payload: size - 16,
            mode: Mode::Combined,
            adverts: VecDeque::new(),
            cancel: false,
            cancelled: false,
            gave_up: false,
            held: VecDeque::new(),
            peer_mode: Mode::Combined,
            refusal: 0,
            again: false,
            reader: false,
            made: Made::default(),
            taken: Taken::default(),
            refuses,
            change: None,
            push: false,
            no_delay: !flavour.nagle,
            last_data: 0,
            since_wish: 0,
            wish_pending: false,
            wish_done: flavour.wish == 0,
            answer: None,
            own_payload: common.port.size - 16,
            hello_due: flavour.silent_hello,
            closed: false,
            over: None,
            trusting: true,
            counts: [0; 3],
            waiting: "nothing",
            common,
        }
    }

    fn credits(&self) -> i64 {
        i64::from(self.acked.wrapping_sub(self.sent) as i32) + i64::from(self.bufs)
    }

    /// The next message, if there is one to send.
    fn next(&mut self, rng: &mut Rng) -> Option<(Body, u32, Flags)> {
        let credits = self.credits();
        if self.hello_due && credits > 1 {
            self.hello_due = false;
            return Some((Body::Data, 0, Flags::NONE));
        }
        if credits >= 2 {
            if std::mem::take(&mut self.again) {
                return Some((Body::SendSm, 0, Flags::NONE));
            }
            if let Some(about) = self.about_held().or_else(|| self.about_sinks(rng)) {
                return Some((about, 0, Flags::NONE));
            }
            // OFED's goes through the queue of the stream, and by its rules.
            if self.flavour.pipelined > 0 && self.cancel_due() {
                return Some((Body::SrcAvailCancel, 0, Flags::NONE));
            }
            if let (Some((size, 0)), true) = (self.answer, self.made.blocks.is_empty()) {
                self.answer = None;
                return Some((Body::ChRcvBufAck { size }, 0, Flags::NONE));
            }
        }
        if !self.closed && credits > 2 {
            if let Some(found) = self.source(rng) {
                return Some(found);
            }
        } else {
            self.waiting = "credits";
        }
        let outbox = &self.common.outbox;
        let done = outbox.closed && outbox.queued() == 0 && self.adverts.is_empty();
        if done && !self.closed && credits >= 2 {
            self.taken.finish();
            if let Some(size) = self.taken.complete.pop_front() {
                return Some((Body::RdmaWrCompl { size }, 0, Flags::NONE));
            }
            self.taken.room.clear();
            self.closed = true;
            return Some((Body::DisConn, 0, Flags::NONE));
        }
        // The real one asks even if it has, or will have, buffers to tell of that the other end
        // waits for. It then lacks the credit to do so, and locks itself up. Not tested here.
        let told = self.told >= 3;
        let may_wish = !self.wish_done && !self.wish_pending && credits == 2;
        if may_wish && told && self.since_wish > 16 {
            self.wish_pending = true;
            self.since_wish = 0;
            let size = self.flavour.wish;
            return Some((Body::ChRcvBuf { size }, 0, Flags::NONE));
        }
        let (scaled, least) = match (self.told > 2, self.flavour.early) {
            (true, true) => (self.told * 2, 2),
            (true, false) => (self.told + self.told / 2, 1),
            (false, early) => (self.told, if early { 2 } else { 1 }),
        };
        let silent = self.flavour.silent && (!self.adverts.is_empty() || self.common.inbox.closed);
        if !silent && scaled < i64::from(self.common.port.posted()) && credits >= least {
            return Some((Body::Data, 0, Flags::NONE));
        }
        None
    }

    /// The next message of the stream. There are three credits at least.
    fn source(&mut self, rng: &mut Rng) -> Option<(Body, u32, Flags)> {
        if self.cancel_due() {
            return Some((Body::SrcAvailCancel, 0, Flags::NONE));
        }
        if let Some(mode) = self.change.take() {
            if let Some(change) = self.change_mode(mode) {
                return Some(change);
            }
        }
        let outbox = &mut self.common.outbox;
        let queued = outbox.queued();
        let free = match self.mode {
            Mode::Pipelined => {
                !self.cancelled && self.adverts.len() < usize::from(self.flavour.pipelined)
            }
            _ => self.adverts.is_empty(),
        };
        if queued == 0 || !free {
            self.waiting = if queued == 0 { "nothing" } else { "an advert" };
            return None;
        }
        // OFED does not start one while it has one of the peer's.
        let crossing = self.flavour.pipelined == 0 && !self.held.is_empty();
        let may = self.flavour.advert > 0 && self.mode != Mode::Buffered;
        let may = may && !self.gave_up && !crossing && self.taken.room.is_empty();
        if may && queued >= self.flavour.advert && outbox.urgent.is_none() && rng.one_in(3) {
            return Some(self.advertise(rng, queued));
        }
        if !self.adverts.is_empty() {
            return None;
        }
        let urgent = outbox.urgent_at().filter(|at| *at <= self.payload);
        let payload = urgent.unwrap_or(queued.min(self.payload));
        let unacknowledged = (self.last_data.wrapping_sub(self.acked) as i32) > 0;
        let now = self.no_delay
            || self.push
            || urgent.is_some()
            || !unacknowledged
            || payload < queued
            || payload == self.payload
            || outbox.closed;
        if !now {
            self.waiting = "an acknowledgement";
            return None;
        }
        self.taken.finish();
        if let Some(size) = self.taken.complete.pop_front() {
            return Some((Body::RdmaWrCompl { size }, 0, Flags::NONE));
        }
        self.push = false;
        self.since_wish += 1;
        let flags = if urgent.is_some() {
            Flags::OOB_PRES.with(Flags::OOB_PEND)
        } else {
            Flags::NONE
        };
        Some((Body::Data, payload, flags))
    }

    fn change_mode(&mut self, mode: Mode) -> Option<(Body, u32, Flags)> {
        match (self.mode, mode) {
            (Mode::Combined, Mode::Pipelined) => {}
            (Mode::Combined, Mode::Buffered) if self.adverts.is_empty() => {}
            // What was advertised is advertised anew, or sent.
            (Mode::Pipelined, Mode::Combined) if self.refuses => {
                self.drop_adverts();
            }
            _ => return None,
        }
        self.mode = mode;
        let body = Body::ModeChange {
            receiver_sends: false,
            mode,
        };
        Some((body, 0, Flags::NONE))
    }

    fn take(&mut self, packet: &Packet, message: &Message) -> Result<(), String> {
        self.received = message.mseq;
        self.acked = message.mseq_ack;
        self.bufs = message.bufs;
        self.told -= 1;
        if let Some((_, left)) = &mut self.answer {
            *left = left.saturating_sub(1);
        }
        let flags = message.flags;
        let handled = match self.sinks(message) {
            Err(what) if self.trusting => return Err(what),
            handled => handled.unwrap_or(true),
        };
        match message.body {
            _ if handled => {}
            Body::Data | Body::DisConn
                if !self.held.is_empty()
                    && self.trusting
                    && (message.payload > 0 || message.body == Body::DisConn) =>
            {
                return Err("the stream passes an advert".into());
            }
            Body::SrcAvail(advert) => {
                if message.payload > 0 {
                    self.payload(&packet.bytes[message.header_len()..])?;
                }
                let held = self.hold(advert, message);
                if self.trusting {
                    held?;
                }
            }
            Body::RdmaRdCompl { size } => {
                let read = self.was_read(size, message.mseq_ack);
                if self.trusting {
                    read?;
                }
            }
            Body::SrcAvailCancel => {
                self.again = self.held.is_empty() && self.flavour.pipelined == 0;
                for held in &mut self.held {
                    held.refused |= (message.mseq.wrapping_sub(held.mseq) as i32) > 0;
                }
            }
            Body::Data if message.payload > 0 => {
                self.payload(&packet.bytes[message.header_len()..])?;
            }
            Body::Data => {}
            Body::DisConn => {
                self.void();
                self.common.inbox.closed = true;
                if self.flavour.stingy {
                    self.common.port.budget = 2;
                }
            }
            Body::SendSm => {
                let ours = self
                    .adverts
                    .front()
                    .is_some_and(|oldest| (message.mseq_ack.wrapping_sub(oldest.mseq) as i32) >= 0);
                if ours {
                    self.drop_adverts();
                }
            }
            Body::ModeChange {
                receiver_sends: false,
                mode,
            } if self.flavour.max_adverts > 1 => {
                let wrong = mode == self.peer_mode || mode == Mode::Buffered;
                if (wrong || !self.held.is_empty()) && self.trusting {
                    return Err(format!("a change to {mode:?}"));
                }
                if mode == Mode::Combined {
                    self.void();
                }
                self.peer_mode = mode;
            }
            Body::ChRcvBuf { size } => {
                let payload = size.min(self.flavour.grows);
                let posted = self.common.port.posted();
                if payload > self.own_payload {
                    self.own_payload = payload;
                    self.common.port.size = payload + 16;
                    let smaller = if self.flavour.hasty { 0 } else { posted };
                    self.answer = Some((payload, smaller));
                } else {
                    self.answer = Some((self.own_payload, 0));
                }
            }
            Body::ChRcvBufAck { size } => {
                if !std::mem::take(&mut self.wish_pending) && self.trusting {
                    return Err("a ChRcvBufAck came that was not asked for".into());
                }
                if size > self.payload {
                    self.payload = size;
                    self.wish_done = true;
                }
            }
            other if self.trusting => {
                return Err(format!("{} came", other.mid().name()));
            }
            _ => {}
        }
        let pend = flags.contains(Flags::OOB_PEND);
        let inbox = &mut self.common.inbox;
        let urgent = inbox.urgent(pend, flags.contains(Flags::OOB_PRES));
        if self.trusting {
            urgent?;
        }
        Ok(())
    }
}

impl Node for Foreign {
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
        while self.over.is_none()
            && count < most
            && self.common.port.in_flight < self.common.port.depth
        {
            if self.write_to_sink(rng, wire) {
                continue;
            }
            if self.flavour.silent {
                // The real one posts buffers before it sends, two at least.
                self.common.port.least = 2;
                self.common.port.repost(u16::MAX);
            }
            let Some((body, payload, flags)) = self.next(rng) else {
                break;
            };
            self.sent = self.sent.wrapping_add(1);
            let posted = self.common.port.posted();
            let message = Message {
                flags,
                bufs: posted,
                mseq: self.sent,
                mseq_ack: self.received,
                body,
                payload,
            };
            self.told = i64::from(posted);
            if payload > 0 {
                self.taken.payload();
            }
            if body == Body::SendSm && self.flavour.pipelined > 0 {
                self.refusal = self.sent;
            }
            let header = &message.encode()[..message.header_len()];
            let outbox = &mut self.common.outbox;
            wire.push_back(Packet::new(header, self.common.side, outbox.sent, payload));
            if let Body::SrcAvail(advert) = body {
                // The rest of the buffer is left to the peer to read.
                outbox.sent += u64::from(advert.size);
            } else {
                outbox.advance(payload, flags.contains(Flags::OOB_PRES))?;
            }
            if body == Body::Data && payload > 0 {
                self.last_data = self.sent;
            }
            self.counts[match (body, payload) {
                (Body::Data, 0) => 1,
                (Body::Data, _) => 0,
                _ => 2,
            }] += 1;
            self.common.port.in_flight += 1;
            count += 1;
        }
        Ok(count)
    }

    fn process(&mut self) -> Result<bool, String> {
        let Some(packet) = self.common.port.next_arrived() else {
            return Ok(false);
        };
        if self.over.is_some() {
            return Ok(true);
        }
        match packet.message() {
            Some(message) => self.take(&packet, &message)?,
            None if self.trusting => return Err("a malformed message came".into()),
            None => self.over = Some(Over::Violation("malformed".into())),
        }
        Ok(true)
    }

    fn write(&mut self, bytes: u32, urgent: bool, _rng: &mut Rng) {
        self.gave_up = false;
        self.common.outbox.write(bytes, urgent);
    }

    fn rdma(&mut self, rng: &mut Rng, reads: bool, all: bool) -> bool {
        self.reader = reads && (all || rng.one_in(2));
        let inbox = &self.common.inbox;
        let Some(oldest) = self.held.front_mut() else {
            return false;
        };
        let ready = reads && inbox.read == inbox.received && self.over.is_none();
        if !ready || oldest.reading || oldest.refused || oldest.rest.size == 0 {
            return false;
        }
        if !all && rng.one_in(10) {
            // Somebody peeks.
            oldest.refused = true;
            return true;
        }
        let size = match all {
            true => oldest.rest.size,
            false => rng.range(1, oldest.rest.size),
        };
        let part = Remote {
            size,
            ..oldest.rest
        };
        oldest.reading = true;
        let side = self.common.side;
        self.common.fabric.borrow_mut().post_read(side, part);
        true
    }

    fn read_completed(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.common.inbox.direct(bytes, self.trusting)?;
        let oldest = self.held.front_mut().ok_or("no advert was read")?;
        let size = bytes.len() as u32;
        oldest.reading = false;
        oldest.done += size;
        oldest.rest.size -= size;
        oldest.rest.address = oldest.rest.address.wrapping_add(size.into());
        Ok(())
    }

    fn give_up(&mut self) -> bool {
        let sinks = !self.made.blocks.is_empty() && !self.made.cancel.1;
        self.made.cancel.0 |= sinks;
        let waits = !self.adverts.is_empty() && !self.cancel;
        self.cancel |= waits;
        self.gave_up = true;
        waits || sinks
    }

    fn tick(&mut self, rng: &mut Rng) {
        match rng.below(7) {
            6 => self.made.cancel.0 = !self.made.blocks.is_empty() && !self.made.cancel.1,
            0 => self.push = true,
            1 => self.no_delay = !self.flavour.nagle || rng.one_in(2),
            2 => self.cancel = !self.adverts.is_empty(),
            3 if self.flavour.pipelined > 0 => {
                self.change = Some(match self.mode {
                    Mode::Combined if rng.one_in(8) => Mode::Buffered,
                    Mode::Combined => Mode::Pipelined,
                    _ => Mode::Combined,
                });
            }
            _ => {}
        }
    }

    fn settle(&mut self, _reading: bool) {
        if self.common.outbox.queued() == 0 {
            self.taken.finish();
        }
    }

    fn distrust(&mut self) {
        self.trusting = false;
    }

    fn over(&self) -> Option<Over> {
        self.over.clone()
    }

    fn hold_back_no_longer(&mut self) -> bool {
        let waits = self.waiting == "an acknowledgement" && !self.push;
        self.push |= waits;
        waits
    }

    fn lame(&self) -> bool {
        self.flavour.early && self.credits() == 1
    }

    fn lost(&mut self) -> Result<(), String> {
        let side = self.common.side;
        self.common.fabric.borrow_mut().take_back_all(side);
        Ok(())
    }

    fn finished(&self) -> bool {
        self.closed && self.common.inbox.closed
    }

    fn state(&self) -> String {
        format!(
            "foreign: waits for {}, credits {}, told {}, adverts {:?}, held {:?}, {:?}, {:?}, mode {:?}, {:?}, {:?}",
            self.waiting,
            self.credits(),
            self.told,
            self.adverts,
            self.held,
            self.made,
            self.taken,
            self.mode,
            self.flavour,
            self.common
        )
    }

    fn counts(&self) -> [u64; 3] {
        self.counts
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! An end that behaves like other implementations of SDP, written independently of the code under
//! test: source adverts and OFED's reactions to the peer's, their cancellation, mode changes, and
//! Nagle's algorithm by MSeqAck.

mod flavour;
mod incoming;
mod node;
mod sinks;
mod sources;

use std::collections::VecDeque;

use sdp_protocol::message::{Body, Flags, Mode};

pub use self::flavour::Flavour;
use self::sinks::{Made, Taken};
use self::sources::{Advert, Held};
use crate::node::{Common, Over};
use crate::rng::Rng;

/// An end that behaves according to its flavour.
pub struct Foreign {
    common: Common,
    flavour: Flavour,
    sent: u32,
    acked: u32,
    bufs: u16,
    received: u32,
    /// Bufs of the last message sent, minus the messages received since.
    told: i64,
    payload: u32,
    mode: Mode,
    adverts: VecDeque<Advert>,
    cancel: bool,
    cancelled: bool,
    /// Set if the end never advertises because the peer would not accept the advert.
    gave_up: bool,
    held: VecDeque<Held>,
    /// Mode of the peer's messages.
    peer_mode: Mode,
    /// MSeq of the last SendSm sent.
    refusal: u32,
    /// The cancel of an advert refused earlier needs a reply, too.
    again: bool,
    /// Set while a reader waits for bytes.
    reader: bool,
    /// Set during the call that reports the end of an advert: sum of Bufs and MSeqAck in the
    /// report.
    reporting: Option<u32>,
    /// Credits after the last message sent.
    left: i64,
    made: Made,
    taken: Taken,
    /// Set if the peer accepts no adverts: an advert may be dropped at any time.
    refuses: bool,
    change: Option<Mode>,
    push: bool,
    no_delay: bool,
    last_data: u32,
    since_wish: u32,
    wish_pending: bool,
    wish_done: bool,
    /// Payload for a ChRcvBufAck, and the number of messages to receive before it is sent.
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
    /// Creates an end whose peer has announced `bufs` buffers of `size` bytes. `refuses`: the peer
    /// has no zero copy.
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
            reporting: None,
            left: i64::MAX,
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

    /// Returns the next message, if one may be sent.
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
            // OFED's cancel passes through the queue of the stream, and follows its rules.
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
        // OFED requests a resize even while it has, or will have, buffers to announce that the
        // other end waits for. OFED then lacks the credit to announce the buffers, and deadlocks.
        // The simulator does not test this case.
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

    /// Returns the next message of the stream. The caller has at least three credits.
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
        // OFED starts no advert while it has one of the peer's.
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
            // An advert in flight is repeated, or sent as Data.
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
}

// SPDX-License-Identifier: GPL-2.0-only

//! Implements the simulator's interface for a foreign end.

use std::collections::VecDeque;

use sdp_protocol::message::{Body, Flags, Message, Mode};
use sdp_protocol::Block;

use super::Foreign;
use crate::node::{Common, Node, Over};
use crate::packet::Packet;
use crate::rng::Rng;

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
            if self.flavour.silent && !self.is_reporting() {
                // The real implementation posts at least two buffers before it sends.
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
            if matches!(body, Body::RdmaRdCompl { .. }) && self.held.is_empty() {
                self.reported();
            }
            self.left = self.credits();
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
                // The peer reads the unread part of the buffer later.
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
        // With more credits the call does not poll, and returns.
        if !self.is_reporting() || self.credits() > 2 {
            self.reporting = None;
        }
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
        self.reporting = None;
        self.common.outbox.write(bytes, urgent);
    }

    fn rdma(&mut self, rng: &mut Rng, reads: bool, all: bool) -> bool {
        self.reader = reads && (all || rng.one_in(2));
        self.reporting = None;
        let inbox = &self.common.inbox;
        let Some(oldest) = self.held.front_mut() else {
            return false;
        };
        let ready = reads && inbox.read == inbox.received && self.over.is_none();
        if !ready || oldest.reading || oldest.refused || oldest.rest.size == 0 {
            return false;
        }
        if !all && rng.one_in(10) {
            // A reader peeks (MSG_PEEK), so the advert is refused.
            oldest.refused = true;
            return true;
        }
        let size = match all {
            true => oldest.rest.size,
            false => rng.range(1, oldest.rest.size),
        };
        let part = Block {
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

// SPDX-License-Identifier: GPL-2.0-only

//! GEN2's sink adverts, at both ends of a stream, written independently of the code under test.

use std::collections::VecDeque;

use sdp_protocol::message::{Body, Message, Mode, SinkAvail};
use sdp_protocol::Block;

use super::Foreign;
use crate::packet::Packet;
use crate::rng::Rng;

/// Sink adverts of this end, for the stream that it receives.
#[derive(Debug, Default)]
pub struct Made {
    /// Adverts of this end that have not ended.
    pub blocks: VecDeque<Block>,
    /// NonDiscards.
    pub count: u32,
    /// Flags: the cancel is due; the cancel was sent.
    pub cancel: (bool, bool),
}

impl Made {
    /// Handles a message with payload: returns the block that it belongs to, if any.
    pub fn payload(&mut self) -> Option<Block> {
        let block = self.take_oldest();
        if block.is_none() {
            self.count = self.count.wrapping_add(1);
        }
        block
    }

    /// Takes the oldest block.
    pub fn take_oldest(&mut self) -> Option<Block> {
        let block = self.blocks.pop_front();
        if self.blocks.is_empty() {
            self.cancel = (false, false);
        }
        block
    }
}

/// Sink adverts of the peer, for the stream that this end sends.
#[derive(Debug, Default)]
pub struct Taken {
    /// Memory that the peer has advertised.
    pub room: VecDeque<Block>,
    /// Number of bytes written to the first block.
    pub written: u32,
    /// Sizes to report by RdmaWrCompl.
    pub complete: VecDeque<u32>,
    /// Set if a SinkCancelAck is due.
    pub confirm: bool,
    /// NonDiscards.
    pub count: u32,
}

impl Taken {
    /// Handles a SinkAvail; returns true if it is valid.
    pub fn advertised(&mut self, advert: &SinkAvail) -> bool {
        if advert.non_discards != self.count {
            self.count = self.count.wrapping_sub(1);
            return false;
        }
        self.room.push_back(Block {
            address: advert.block.address,
            r_key: advert.block.r_key,
            size: advert.block.size,
        });
        true
    }

    /// Records bytes written to the first block.
    pub fn write(&mut self, bytes: u32) {
        self.written += bytes;
        let first = &mut self.room[0];
        first.address = first.address.wrapping_add(bytes.into());
        first.size -= bytes;
        if first.size == 0 {
            self.finish();
        }
    }

    /// Closes the first block if bytes were written to it.
    pub fn finish(&mut self) {
        if self.written > 0 {
            self.room.pop_front();
            self.complete.push_back(std::mem::take(&mut self.written));
        }
    }

    /// Handles the sending of a message with payload.
    pub fn payload(&mut self) {
        if self.room.pop_front().is_none() {
            self.count = self.count.wrapping_add(1);
        }
    }

    /// Handles a SinkAvailCancel.
    pub fn cancelled(&mut self) {
        self.finish();
        self.confirm |= !self.room.is_empty();
        self.room.clear();
    }
}

impl Foreign {
    /// Writes queued bytes by RDMA to a reader of the peer; returns true if any were written.
    pub(super) fn write_to_sink(&mut self, rng: &mut Rng, wire: &mut VecDeque<Packet>) -> bool {
        let outbox = &self.common.outbox;
        let end = outbox.urgent.map_or(outbox.written, |at| at - 1);
        let most = end.saturating_sub(outbox.sent) as u32;
        let Some(room) = self.taken.room.front().copied() else {
            return false;
        };
        if most == 0 || rng.one_in(3) {
            return false;
        }
        let size = rng.range(1, most.min(room.size));
        let to = Block { size, ..room };
        wire.push_back(Packet::write(to, self.common.side, outbox.sent));
        self.taken.write(size);
        // GEN2 writes to the memory until less space is left than one message can carry.
        let room = self.taken.room.front().map_or(0, |room| room.size);
        if room < self.payload {
            self.taken.finish();
        }
        self.common.outbox.sent += u64::from(size);
        true
    }

    /// Returns a due message about sink adverts of either end.
    pub(super) fn about_sinks(&mut self, rng: &mut Rng) -> Option<Body> {
        if let Some(size) = self.taken.complete.pop_front() {
            return Some(Body::RdmaWrCompl { size });
        }
        if std::mem::take(&mut self.taken.confirm) {
            return Some(Body::SinkCancelAck);
        }
        let (cancel, cancelled) = &mut self.made.cancel;
        if std::mem::take(cancel) && !*cancelled {
            *cancelled = true;
            return Some(Body::SinkAvailCancel);
        }
        let inbox = &self.common.inbox;
        let possible = self.peer_mode == Mode::Pipelined && self.held.is_empty() && !inbox.closed;
        let wanted = self.reader && !self.gave_up && inbox.read == inbox.received;
        let most = usize::from(self.flavour.pipelined).min(3);
        let more = self.made.blocks.len() < most && !*cancelled && !self.flavour.ofed();
        if !(possible && wanted && more) {
            return None;
        }
        self.reader = false;
        let size = self.own_payload + rng.pick(&[0, 0, 10, 2000]);
        let memory = vec![0; size as usize];
        let side = self.common.side;
        let block = self.common.fabric.borrow_mut().register(side, memory, rng);
        self.made.blocks.push_back(block);
        Some(Body::SinkAvail(SinkAvail {
            block,
            non_discards: self.made.count,
        }))
    }

    /// Handles received stream bytes.
    pub(super) fn payload(&mut self, bytes: &[u8]) -> Result<(), String> {
        if let Some(block) = self.made.payload() {
            self.common.fabric.borrow_mut().take_back(block.r_key);
            return self.common.inbox.direct(bytes, self.trusting);
        }
        self.common.inbox.take(bytes, self.trusting)?;
        self.common.port.hold();
        Ok(())
    }

    /// Cancels all sink adverts of this end.
    pub(super) fn void(&mut self) {
        while let Some(block) = self.made.take_oldest() {
            self.common.fabric.borrow_mut().take_back(block.r_key);
        }
    }

    /// Handles a message about sink adverts. Returns false for other messages.
    pub(super) fn sinks(&mut self, message: &Message) -> Result<bool, String> {
        match message.body {
            Body::SinkAvail(_) if self.flavour.ofed() || message.payload > 0 => {
                return Err("a SinkAvail came".into());
            }
            Body::SinkAvail(_) if self.closed => {}
            Body::SinkAvail(_) if self.mode != Mode::Pipelined => {
                return Err("a SinkAvail came without Pipelined mode".into());
            }
            Body::SinkAvail(advert) => {
                if self.taken.advertised(&advert) {
                    self.drop_adverts();
                }
            }
            Body::SinkAvailCancel => self.taken.cancelled(),
            Body::RdmaWrCompl { size } => {
                let block = self.made.take_oldest().ok_or("a RdmaWrCompl came")?;
                let memory = self.common.fabric.borrow_mut().take_back(block.r_key);
                let bytes = memory.get(..size as usize).ok_or("more than the block")?;
                self.common.inbox.direct(bytes, self.trusting)?;
            }
            Body::SinkCancelAck => {
                if !self.made.cancel.1 {
                    return Err("a SinkCancelAck came".into());
                }
                self.void();
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

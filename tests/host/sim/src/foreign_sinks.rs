// SPDX-License-Identifier: GPL-2.0-only

//! Sink adverts as GEN2 has them, at both ends of a stream: written apart from the code under test.

use std::collections::VecDeque;

use sdp_protocol::message::SinkAvail;
use sdp_protocol::{Block, Remote};

/// Sink adverts that this end has made, for the stream that it receives.
#[derive(Debug, Default)]
pub struct Made {
    /// Those outstanding.
    pub blocks: VecDeque<Block>,
    /// NonDiscards.
    pub count: u32,
    /// Takes them back: to be said, was said.
    pub cancel: (bool, bool),
}

impl Made {
    /// A message with payload came: the block that it is for, if it is for one.
    pub fn payload(&mut self) -> Option<Block> {
        let block = self.take_oldest();
        if block.is_none() {
            self.count = self.count.wrapping_add(1);
        }
        block
    }

    /// The oldest block.
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
    /// Where there is room.
    pub room: VecDeque<Remote>,
    /// Bytes written to the first.
    pub written: u32,
    /// Sizes to say in a RdmaWrCompl.
    pub complete: VecDeque<u32>,
    /// A SinkCancelAck is to be sent.
    pub confirm: bool,
    /// NonDiscards.
    pub count: u32,
}

impl Taken {
    /// A SinkAvail came; returns whether it is good.
    pub fn advertised(&mut self, advert: &SinkAvail) -> bool {
        if advert.non_discards != self.count {
            self.count = self.count.wrapping_sub(1);
            return false;
        }
        self.room.push_back(Remote {
            address: advert.address,
            r_key: advert.r_key,
            size: advert.size,
        });
        true
    }

    /// So many bytes were written to the first.
    pub fn write(&mut self, bytes: u32) {
        self.written += bytes;
        let first = &mut self.room[0];
        first.address = first.address.wrapping_add(bytes.into());
        first.size -= bytes;
        if first.size == 0 {
            self.finish();
        }
    }

    /// Nothing more is written to the first, if something was.
    pub fn finish(&mut self) {
        if self.written > 0 {
            self.room.pop_front();
            self.complete.push_back(std::mem::take(&mut self.written));
        }
    }

    /// A message with payload goes.
    pub fn payload(&mut self) {
        if self.room.pop_front().is_none() {
            self.count = self.count.wrapping_add(1);
        }
    }

    /// A SinkAvailCancel came.
    pub fn cancelled(&mut self) {
        self.finish();
        self.confirm |= !self.room.is_empty();
        self.room.clear();
    }
}

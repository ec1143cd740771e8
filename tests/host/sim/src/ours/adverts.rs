// SPDX-License-Identifier: GPL-2.0-only

//! Handling of adverts by the owner of a connection.

use std::collections::VecDeque;

use sdp_protocol::{Block, Event, Mid, Outgoing};

use super::Ours;
use crate::node::Common;
use crate::packet::{stream_byte, Packet};
use crate::rng::Rng;

/// A part of the stream that is advertised and not copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Large {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Block, once it is registered.
    pub(super) block: Option<Block>,
}

impl Ours {
    /// Records the bytes of the stream that were sent by a message.
    pub(super) fn sent(&mut self, out: &Outgoing) -> Result<(), String> {
        let outbox = &mut self.common.outbox;
        if out.kind != Mid::SrcAvail || self.blocks.is_some() {
            return outbox.advance(out.payload, out.urgent);
        }
        let large = self.planned.pop_front().ok_or("nothing was offered")?;
        outbox.advance((large.end - large.start) as u32, false)?;
        if self.advertised.is_empty() {
            self.done = 0;
        }
        self.advertised.push_back(large);
        if self.advertised.len() == 1 {
            self.done = out.payload;
        } else if out.payload > 0 {
            return Err("bytes in a SrcAvail behind another".into());
        }
        Ok(())
    }

    /// Returns the next block, registered, if the stream has reached it.
    pub(super) fn source(&mut self, rng: &mut Rng) -> Option<Block> {
        let Common {
            side,
            outbox,
            fabric,
            ..
        } = &self.common;
        let next = self.planned.front_mut()?;
        let size = (next.end - next.start) as u32;
        let possible = self.connection.can_advertise(size);
        let now = self.settled || rng.one_in(4);
        // A planned advert is cancelled if only the peer's own advert prevents it.
        let alone = self.connection.sources_outstanding() == 0;
        let blocked = next.block.is_none() || alone && self.connection.sink_advert().is_none();
        if !possible && now && blocked {
            // The block is sent as copied bytes instead.
            if let Some(block) = next.block {
                fabric.borrow_mut().take_back(block.r_key);
            }
            self.planned.pop_front();
            return None;
        }
        if next.block.is_none() && possible {
            let bytes = (next.start..next.end).map(|at| stream_byte(*side, at));
            let block = fabric.borrow_mut().register(*side, bytes.collect(), rng);
            next.block = Some(block);
        }
        next.block.filter(|_| next.start >= outbox.sent)
    }

    /// Copies the planned blocks after all, and takes back their registered memory.
    pub(super) fn copy_all(&mut self) {
        for large in self.planned.drain(..) {
            if let Some(block) = large.block {
                self.common.fabric.borrow_mut().take_back(block.r_key);
            }
        }
    }

    /// Takes back the oldest advertised block.
    pub(super) fn returned(&mut self) -> Result<Large, String> {
        let large = self.advertised.pop_front();
        let large = large.ok_or("a block came back that was not advertised")?;
        let key = large.block.map_or(0, |block| block.r_key);
        self.common.fabric.borrow_mut().take_back(key);
        self.done = 0;
        Ok(large)
    }

    /// Handles an event of advertised blocks.
    pub(super) fn about_sources(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::SourceRead { bytes, finished } => {
                let oldest = self.advertised.front();
                let oldest = oldest.ok_or("news of a block that was not advertised")?;
                let size = (oldest.end - oldest.start) as u32;
                self.done += bytes;
                self.told_read = oldest.start + u64::from(self.done);
                if self.done > size || finished != (self.done == size) {
                    return Err(format!("{event:?} with {} of {size} done", self.done));
                }
                if finished {
                    self.returned()?;
                }
            }
            Event::SourcesReturned { done } => {
                if done != self.done {
                    return Err(format!("{event:?}, but {} are done", self.done));
                }
                let oldest = self.returned()?;
                while !self.advertised.is_empty() {
                    self.returned()?;
                }
                let sent = oldest.start + u64::from(done);
                self.common.outbox.sent = sent;
                let again = self.patient && !self.common.outbox.closed;
                if again && done > 1 && sent % 2 == 0 && oldest.end - sent > 1 {
                    // The unread part of the block is advertised again.
                    self.planned.push_front(Large {
                        start: sent,
                        end: oldest.end,
                        block: None,
                    });
                }
            }
            Event::SinkAdvert { returned: true } => {
                let oldest = self.returned()?;
                while !self.advertised.is_empty() {
                    self.returned()?;
                }
                self.common.outbox.sent = oldest.start;
            }
            _ => {}
        }
        if self.connection.sources_outstanding() != self.advertised.len() {
            return Err("a block was forgotten".into());
        }
        Ok(())
    }

    /// Takes back the oldest block of a reader; returns its content.
    pub(super) fn sink_returned(&mut self) -> Result<Vec<u8>, String> {
        let block = self.sinks.pop_front();
        let block = block.ok_or("a reader's block came back that was not advertised")?;
        Ok(self.common.fabric.borrow_mut().take_back(block.r_key))
    }

    /// Handles an event of readers' advertised blocks.
    pub(super) fn about_sinks(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::SinkWritten { bytes } => {
                let memory = self.sink_returned()?;
                let bytes = memory.get(..bytes as usize).ok_or("more than the block")?;
                self.common.inbox.direct(bytes, self.trusting)?;
            }
            Event::SinksReturned | Event::PeerClosed => {
                while !self.sinks.is_empty() {
                    self.sink_returned()?;
                }
            }
            _ => {}
        }
        if self.connection.sinks_outstanding() != self.sinks.len() {
            return Err("a reader's block was forgotten".into());
        }
        Ok(())
    }

    /// Writes queued bytes by RDMA to a reader of the peer; returns true if there were bytes and a
    /// reader.
    pub(super) fn write_to_sink(&mut self, rng: &mut Rng, wire: &mut VecDeque<Packet>) -> bool {
        let outbox = &self.common.outbox;
        let end = outbox.urgent.map_or(outbox.written, |at| at - 1);
        let most = end.saturating_sub(outbox.sent) as u32;
        let Some(room) = self.connection.sink_advert() else {
            return false;
        };
        if self.blocks.is_some()
            || most == 0
            || self.over.is_some()
            || !self.settled && rng.one_in(3)
        {
            return false;
        }
        let all = most.min(room.size);
        let size = rng.pick(&[all, rng.clone().range(1, all)]);
        let to = Block { size, ..room };
        wire.push_back(Packet::write(to, self.common.side, outbox.sent));
        self.connection.written(size, rng.one_in(2));
        self.common.outbox.sent += u64::from(size);
        while let Some(large) = self.planned.front() {
            if large.start >= self.common.outbox.sent {
                break;
            }
            if let Some(block) = large.block {
                self.common.fabric.borrow_mut().take_back(block.r_key);
            }
            self.planned.pop_front();
        }
        true
    }
}

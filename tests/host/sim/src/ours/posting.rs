// SPDX-License-Identifier: GPL-2.0-only

//! Handles an end's blocks as the module's connection does (`src/conn/zcopy/detached.rs`, `tx.rs`).

use std::collections::VecDeque;

use sdp_protocol::{Block, Event, Mid, Outgoing};

use super::blocks::{Ahead, Blocks, Posted};
use super::Ours;
use crate::packet::{stream_byte, Packet};
use crate::rng::Rng;
use crate::zcopy::advert::AdvertState;

impl Ours {
    /// Handles an event of advertised blocks.
    pub(super) fn about_blocks(&mut self, event: Event) -> Result<(), String> {
        let Some(blocks) = &mut self.blocks else {
            return Ok(());
        };
        let queue = &mut blocks.queue;
        let oldest = queue.adverts().find(|a| a.state == AdvertState::Posted);
        let oldest = oldest.map(|a| (a.cookie, a.done, a.segment.size));
        match event {
            Event::SourceRead { bytes, finished } => {
                let (cookie, done, size) = oldest.ok_or("news of no block")?;
                if done + bytes > size || finished != (done + bytes == size) {
                    return Err(format!("{event:?} with {done} of {size} done"));
                }
                queue.read(bytes, finished);
                blocks.ways[0] += u64::from(finished);
                let start = blocks.start(cookie);
                self.told_read = start + u64::from(done + bytes);
            }
            Event::SourcesReturned { done: told } => {
                let (_, done, _) = oldest.ok_or("news of no block")?;
                if done != told {
                    return Err(format!("{event:?}, but {done} are done"));
                }
                queue.returned(told);
            }
            Event::SinkAdvert { returned } => {
                if returned {
                    queue.returned(0);
                }
            }
            _ => {}
        }
        let out = blocks
            .queue
            .adverts()
            .filter(|a| a.state == AdvertState::Posted);
        match out.count() == self.connection.sources_outstanding() {
            true => Ok(()),
            false => Err("a block was forgotten".into()),
        }
    }

    /// Handles the next block except by messages; returns true if the caller has to check again.
    pub(super) fn blocks_on(
        &mut self,
        rng: &mut Rng,
        wire: &mut VecDeque<Packet>,
    ) -> Result<bool, String> {
        let Some(blocks) = &mut self.blocks else {
            return Ok(false);
        };
        blocks.reap(&mut self.common, self.settled, rng)?;
        if blocks.settle_next(&self.common, &self.connection, rng) {
            return Ok(true);
        }
        let ahead = blocks.ahead(self.limit);
        let (Some((memory, cookie, offset)), Some(to)) =
            (ahead.rest, self.connection.sink_advert())
        else {
            return Ok(false);
        };
        if self.over.is_some() {
            return Ok(false);
        }
        let size = ahead.unsent.min(to.size);
        let (start, end) = (offset as usize, (offset + size) as usize);
        wire.push_back(Packet {
            bytes: blocks.memories[memory].bytes[start..end].to_vec(),
            write: Some(Block { size, ..to }),
        });
        let last = blocks.queue.rest_posted(size, false);
        self.connection.written(size, last);
        blocks.ways[2] += 1;
        blocks.posted.push_back(Posted {
            send: false,
            rest: Some((cookie, size)),
        });
        self.common.outbox.sent = ahead.position + u64::from(size);
        Ok(true)
    }

    /// Records that a block's message is posted; returns its payload.
    pub(super) fn block_posted(
        &mut self,
        ahead: &Ahead,
        out: &Outgoing,
    ) -> Result<Vec<u8>, String> {
        let Some(blocks) = &mut self.blocks else {
            return Err("there are no blocks".into());
        };
        let (source, payload) = (out.kind == Mid::SrcAvail, out.payload);
        // a message without payload does not carry the position of the stream
        if source || payload > 0 {
            self.common.outbox.sent = ahead.position;
        }
        let mut posted = Posted {
            send: true,
            rest: None,
        };
        let from = ahead.position..ahead.position + u64::from(payload);
        let mut bytes: Vec<u8> = from.map(|at| stream_byte(self.common.side, at)).collect();
        if source {
            blocks.queue.posted(payload).ok_or("no block was offered")?;
            // the rest of the block is sent with its first byte, if that byte is sent
            let size = ahead.source.map_or(0, |block| block.size);
            self.common.outbox.sent += u64::from(size - payload);
        } else if let (Some((memory, cookie, offset)), true) = (ahead.rest, payload > 0) {
            let (start, end) = (offset as usize, (offset + payload) as usize);
            bytes = blocks.memories[memory].bytes[start..end].to_vec();
            blocks.queue.rest_posted(payload, true);
            posted.rest = Some((cookie, payload));
        } else {
            blocks.copied_sent += u64::from(payload);
        }
        blocks.posted.push_back(posted);
        Ok(bytes)
    }

    /// Handles the loss of the connection: the owners of all memory are notified.
    pub(super) fn blocks_lost(&mut self) -> Result<(), String> {
        let Some(blocks) = &mut self.blocks else {
            return Ok(());
        };
        blocks.queue.lost();
        for memory in &mut blocks.memories {
            if let Some(key) = memory.key.take() {
                self.common.fabric.borrow_mut().take_back(key);
            }
        }
        // the copy completes too late for the block
        for (cookie, memory) in std::mem::take(&mut blocks.away) {
            if blocks.queue.moved(cookie, memory, true).is_ok() {
                return Err("a block was moved that is gone".into());
            }
        }
        while blocks.queue.take(true).is_some() {}
        match blocks.queue.is_empty() {
            true => Ok(()),
            false => Err("a block is left of a connection that is lost".into()),
        }
    }

    /// Returns true if blocks are left. At the end of a connection no block may be left.
    pub(super) fn blocks_left(&self) -> bool {
        let left =
            |b: &Blocks| !b.queue.is_empty() || b.call.is_some() || b.copied != b.copied_sent;
        self.blocks.as_ref().is_some_and(left)
    }

    /// Returns true if an urgent byte follows the next block.
    pub(super) fn hidden_by_block(&self) -> bool {
        let (Some(b), Some(urgent)) = (&self.blocks, self.common.outbox.urgent) else {
            return false;
        };
        let next = b.queue.next().map(|(_, at)| at);
        next.is_some_and(|at| {
            let copied = at.saturating_sub(b.copied_sent);
            copied == 0 || urgent > b.position(b.copied_sent) + copied
        })
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! A sender whose blocks are sent from their own pages, using the module's queue
//! (`src/conn/zcopy/tx_blocks.rs`): detached blocks of many calls, and blocks of a waiting call.
//!
//! Each block has its own contents. The program overwrites the memory as soon as the block has
//! ended. If an end still sends from overwritten memory, the peer gets unexpected bytes, and a READ
//! of the block fails.

use std::collections::VecDeque;

use sdp_protocol::{Connection, Offer};

use crate::node::Common;
use crate::packet::stream_byte;
use crate::port::Outbox;
use crate::rng::Rng;
use crate::zcopy::advert::{Advert, AdvertState};
use crate::zcopy::tx_blocks::call::Awaits;
use crate::zcopy::tx_blocks::{BlockUser, Next, Rest, TxBlocks};

/// Position of a block among the copied bytes, and its size.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    size: u64,
}

/// Pages of a block.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) bytes: Vec<u8>,
    /// Key, if the peer may read the block.
    pub(super) key: Option<u32>,
}

/// A work request that has not completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub(super) send: bool,
    /// Part of the rest of this block.
    pub(super) rest: Option<(u64, u32)>,
}

/// Next bytes of the stream to post.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    pub(super) unsent: u32,
    pub(super) limit: u32,
    pub(super) more: bool,
    pub(super) source: Option<sdp_protocol::Block>,
    /// Bytes of a block: memory, cookie, offset.
    pub(super) rest: Option<(usize, u64, u32)>,
    /// Stream position of the request's bytes.
    pub(super) position: u64,
}

/// Blocks of one end.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) queue: TxBlocks<usize>,
    pub(super) memories: Vec<Memory>,
    /// Places of all blocks, indexed by the cookie of the block.
    places: Vec<Place>,
    pub(super) copied: u64,
    pub(super) copied_sent: u64,
    pub(super) posted: VecDeque<Posted>,
    /// Number of WRITEs that have arrived and not completed.
    pub(super) wrote: u32,
    /// Blocks whose bytes are being copied to other memory.
    pub(super) away: Vec<(u64, usize)>,
    /// Results of completed blocks: see [`Node::ways`](crate::node::Node::ways).
    pub(super) ways: [u64; 5],
    /// Set while a call waits for its blocks. The value is the number of the call's bytes that no
    /// block transferred and that have to be copied.
    pub(super) call: Option<u64>,
}

impl Blocks {
    pub(super) fn new() -> Self {
        Blocks {
            queue: TxBlocks::new(),
            memories: Vec::new(),
            places: Vec::new(),
            copied: 0,
            copied_sent: 0,
            posted: VecDeque::new(),
            wrote: 0,
            away: Vec::new(),
            ways: [0; 5],
            call: None,
        }
    }

    pub(super) fn ways(&self) -> [u64; 5] {
        self.ways
    }

    /// Returns true if a call waits, so that the program does not write.
    pub(super) fn has_call(&self) -> bool {
        self.call.is_some()
    }

    /// Returns the stream position of a copied byte, by its number among the copied bytes.
    pub(super) fn position(&self, copied: u64) -> u64 {
        let before = self.places.iter().filter(|p| p.at <= copied);
        copied + before.map(|p| p.size).sum::<u64>()
    }

    /// Returns the stream position of a block.
    pub(super) fn start(&self, cookie: u64) -> u64 {
        let places = self.places.iter().take(cookie as usize + 1);
        let sizes: u64 = places.clone().map(|p| p.size).sum();
        places
            .last()
            .map_or(0, |block| block.at + sizes - block.size)
    }

    /// Lets the program write: as a block, or as bytes to be copied. `call`: the call waits until
    /// the block is read.
    pub(super) fn write(&mut self, common: &mut Common, bytes: u32, block: bool, rng: &mut Rng) {
        if !block || !self.queue.has_space() {
            self.copied += u64::from(bytes);
            return;
        }
        let call = rng.one_in(4) && self.queue.is_open();
        let start = common.outbox.written - u64::from(bytes);
        let bytes = u64::from(bytes);
        let mut at = start;
        // a call has several blocks, one after another
        for n in 0..rng.range(1, 3) {
            let end = start + bytes;
            let last = n == 2 || !rng.one_in(2) || end - at < 4;
            let until = if last { end } else { at + (end - at) / 2 };
            let room = if call {
                self.queue.is_open()
            } else {
                self.queue.has_space()
            };
            if !room {
                break;
            }
            let contents = (at..until).map(|p| stream_byte(common.side, p)).collect();
            self.push(contents, call, rng);
            at = until;
            if last {
                break;
            }
        }
        // bytes without space are copied; a waiting call copies when it has its blocks back
        let left = start + bytes - at;
        match call {
            true => self.call = Some(left),
            false => self.copied += left,
        }
    }

    fn push(&mut self, bytes: Vec<u8>, call: bool, rng: &mut Rng) {
        let (memory, cookie) = (self.memories.len(), self.places.len() as u64);
        let size = bytes.len() as u32;
        self.memories.push(Memory { bytes, key: None });
        self.places.push(Place {
            at: self.copied,
            size: size.into(),
        });
        let mut advert = Advert::unregistered(memory, size, cookie);
        if !call && rng.one_in(6) {
            // the peer has refused other blocks
            advert.finish();
        }
        let user = match call {
            true => BlockUser::Call,
            false if rng.one_in(2) => BlockUser::Writers,
            false => BlockUser::None,
        };
        let pushed = self.queue.push(advert, 0, self.copied, user);
        pushed.expect("room");
    }

    /// Handles some or all pending completions, ends of access, and completed blocks.
    pub(super) fn reap(
        &mut self,
        common: &mut Common,
        all: bool,
        rng: &mut Rng,
    ) -> Result<(), String> {
        self.completions(common.port.in_flight);
        let mut ended = Vec::new();
        for advert in self.queue.adverts_mut() {
            if advert.state == AdvertState::Done && (all || rng.one_in(2)) {
                advert.invalidating();
            }
            if advert.state == AdvertState::Invalidating && (all || rng.one_in(3)) {
                ended.push((advert.cookie, advert.memory));
            }
        }
        if rng.one_in(2) {
            // the completed blocks end in any order
            ended.reverse();
        }
        for (cookie, memory) in ended {
            if !self.queue.adverts_mut().any(|a| a.invalidated(cookie)) {
                return Err("access to no block has ended".into());
            }
            if let Some(key) = self.memories[memory].key.take() {
                common.fabric.borrow_mut().take_back(key);
            }
        }
        if all || rng.one_in(2) {
            self.move_away();
        }
        if all || rng.one_in(3) {
            self.copies_away()?;
        }
        while let Some(gone) = self.queue.retire() {
            self.ways[1] += u64::from(gone.in_messages > 0);
            self.written_to(gone.memory)?;
        }
        self.returns()
    }

    fn completions(&mut self, in_flight: u16) {
        let mut sends = self.posted.iter().filter(|p| p.send).count();
        while let Some(oldest) = self.posted.front().copied() {
            match oldest.send {
                true if sends > in_flight.into() => sends -= 1,
                false if self.wrote > 0 => self.wrote -= 1,
                _ => return,
            }
            self.posted.pop_front();
            if let Some((cookie, bytes)) = oldest.rest {
                self.queue.rest_gone(cookie, bytes);
            }
        }
    }

    /// Handles an arrived WRITE.
    pub(super) fn wrote(&mut self) {
        self.wrote += 1;
    }

    /// Completes the copy to other memory.
    fn copies_away(&mut self) -> Result<(), String> {
        for (cookie, from) in std::mem::take(&mut self.away) {
            let bytes = self.memories[from].bytes.clone();
            let to = self.memories.len();
            self.memories.push(Memory { bytes, key: None });
            self.written_to(from)?;
            if self.queue.moved(cookie, to, true).is_err() {
                return Err("bytes were moved of a block that is gone".into());
            }
            self.ways[3] += 1;
        }
        Ok(())
    }

    /// The program can write to its memory again, and does so.
    fn written_to(&mut self, memory: usize) -> Result<(), String> {
        let memory = &mut self.memories[memory];
        if memory.key.is_some() {
            return Err("the program has memory that the peer may read".into());
        }
        memory.bytes.iter_mut().for_each(|b| *b = !*b);
        Ok(())
    }

    /// Returns blocks to their call, which copies the unsent bytes.
    fn returns(&mut self) -> Result<(), String> {
        while let Some((Awaits::Nothing { .. }, _)) = self.queue.oldest() {
            let cookies: Vec<_> = self.queue.adverts().map(|a| (a.memory, a.cookie)).collect();
            let block = self.queue.take(true).ok_or("a block is back and is not")?;
            let cookie = cookies.iter().find(|(memory, _)| *memory == block.memory);
            let cookie = cookie.ok_or("a block has come back that was not there")?.1;
            let place = &mut self.places[cookie as usize];
            let left = place.size - u64::from(block.done);
            self.ways[4] += u64::from(left > 0);
            place.size = block.done.into();
            self.call = self.call.map(|before| before + left);
            self.written_to(block.memory)?;
        }
        if !self.queue.has_call() {
            self.copied += self.call.take().unwrap_or(0);
        }
        Ok(())
    }

    /// Expedites the blocks in protected memory, because a thread waits to write to that memory.
    pub(super) fn touched(&mut self, connection: &mut Connection) {
        self.queue.want(0);
        self.expedite(connection);
    }

    /// Expedites all blocks, because urgent bytes follow them in the stream.
    pub(super) fn expedite(&mut self, connection: &mut Connection) {
        self.queue.expedite();
        self.take_back(connection);
    }

    /// Takes back the blocks of a call that no longer waits.
    pub(super) fn take_back(&mut self, connection: &mut Connection) {
        self.queue.recall();
        if self.queue.any_posted() {
            connection.cancel_sources();
        }
    }

    /// Starts to copy an unused block elsewhere, which takes a while.
    fn move_away(&mut self) {
        while let Some((cookie, memory)) = self.queue.take_to_move() {
            self.away.push((cookie, memory));
        }
    }

    /// Returns the next bytes to post.
    pub(super) fn ahead(&self, limit: u32) -> Ahead {
        let mut ahead = Ahead {
            unsent: (self.copied - self.copied_sent) as u32,
            limit,
            position: self.position(self.copied_sent),
            ..Ahead::default()
        };
        let Some((next, at)) = self.queue.next() else {
            return ahead;
        };
        ahead.unsent = at.saturating_sub(self.copied_sent) as u32;
        ahead.more = true;
        if let Next::Advert(block) = next {
            ahead.source = Some(block);
        }
        if ahead.unsent > 0 {
            return ahead;
        }
        let oldest = self.queue.adverts().find(|a| match next {
            Next::Advert(block) => a.segment == block,
            Next::New { memory, .. } | Next::Rest(Rest { memory, .. }) => a.memory == *memory,
            Next::Ending(_) => false,
        });
        ahead.position = oldest.map_or(0, |a| self.start(a.cookie));
        match next {
            Next::Advert(_) => {}
            Next::New { size: n, .. } | Next::Ending(n) => (ahead.unsent, ahead.limit) = (n, 0),
            Next::Rest(Rest {
                memory,
                cookie,
                offset,
                len,
                written,
            }) => {
                ahead.unsent = len;
                // the rest of a call's block after WRITEs
                ahead.limit = if written { 0 } else { limit };
                ahead.position += u64::from(offset);
                ahead.rest = Some((*memory, cookie, offset));
            }
        }
        ahead
    }

    /// Registers the next block or skips its advert; returns true if the next step has changed.
    pub(super) fn settle_next(
        &mut self,
        common: &Common,
        connection: &Connection,
        rng: &mut Rng,
    ) -> bool {
        let stuck = connection.sources_outstanding() == 0;
        let writes = connection.sink_advert().is_some();
        match self.queue.next() {
            Some((Next::New { memory, size }, at)) => {
                let memory = *memory;
                let waits = writes && at != self.copied_sent && self.queue.is_next_of_call();
                if connection.can_advertise(size) {
                    let bytes = self.memories[memory].bytes.clone();
                    let block = common.fabric.borrow_mut().register(common.side, bytes, rng);
                    self.memories[memory].key = Some(block.r_key);
                    self.queue.registered(block);
                } else if stuck && !waits {
                    self.queue.pass_over();
                    return true;
                }
                false
            }
            Some((Next::Advert(block), _)) if !connection.can_advertise(block.size) && stuck => {
                // the access ends, and then the block's bytes are sent by another method
                self.queue.pass_over();
                true
            }
            Some((Next::Rest(Rest { written: true, .. }), at))
                if at == self.copied_sent && !writes =>
            {
                // the unsent part of the block returns to the call
                self.queue.recall();
                true
            }
            _ => false,
        }
    }
}

impl Ahead {
    fn is_of_block(&self) -> bool {
        self.more && self.source.is_none() && (self.rest.is_some() || self.limit == 0)
    }

    /// Applies the block queue to an offer.
    pub(super) fn put(&self, outbox: &Outbox, offer: &mut Offer) {
        offer.queued = self.unsent;
        offer.source = self.source;
        let urgent = outbox.urgent.filter(|_| !self.is_of_block());
        offer.urgent = urgent.map(|at| at.saturating_sub(self.position) as u32);
        offer.no_delay |= self.unsent > self.limit || self.more;
        offer.cork &= !self.more;
        offer.limit = self.limit;
    }
}

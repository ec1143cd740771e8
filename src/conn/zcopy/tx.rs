// SPDX-License-Identifier: GPL-2.0-only

//! The connection's part of sends without a copy: blocks that the peer reads (SrcAvail), and bytes
//! written to a waiting reader of the peer (SinkAvail). [`super::send`] has the calls.

use super::super::{Connection, SdpSock, Wakeups};
use super::advert::AdvertState;
use super::posted::{end_access, Way};
use super::transfer::Moved;
use super::tx_blocks::Returned;
use super::{by_read, by_write, is_told, Direct, LEAST_TRANSFER};
use crate::protocol::{self, Mode, Outgoing, MAX_HEADER};
use crate::sys::net::trace::{self, ZeroCopy};
use crate::sys::time::jiffies;
use crate::transport::{Endpoint, Pinned, SendWr, Transport, Watch};
use kernel::prelude::*;

impl Direct {
    /// Posts the SrcAvail of the offered block. `sent`: position in the outgoing stream.
    pub(crate) fn advertise(
        &mut self,
        endpoint: &mut Endpoint,
        message: &Outgoing,
        sent: u64,
    ) -> Result {
        let first = self.blocks.posted(message.payload).ok_or(EINVAL)?;
        let head = message
            .header
            .get(..message.header_len.into())
            .ok_or(EINVAL)?;
        let mut bytes = [0; MAX_HEADER + 1];
        let inline = usize::from(message.payload > 0);
        bytes
            .get_mut(..head.len())
            .ok_or(EINVAL)?
            .copy_from_slice(head);
        if let Some(b) = bytes.get_mut(head.len()) {
            *b = first;
        }
        endpoint.post_send(&SendWr {
            header: bytes.get(..head.len() + inline).ok_or(EINVAL)?,
            payload: &[],
            signaled: false,
            solicited: is_told(endpoint, message),
            cookie: sent,
        })
    }
}

/// Blocks that the peer reads.
impl Connection {
    /// Handles a report of `bytes` more read of the oldest block; `finished`: to its end.
    pub(crate) fn source_read(&mut self, bytes: u32, finished: bool, wakeups: &mut Wakeups) {
        if self.direct.blocks.read(bytes, finished) {
            self.stats.bytes_sent += u64::from(bytes);
            self.stats.direct_sent += u64::from(bytes);
            self.heard.progress(jiffies());
            wakeups.direct = true;
            if finished {
                self.direct.detached_skips.worked();
            }
        }
    }

    /// Handles a refusal of the blocks; the peer has `done` bytes of the oldest one.
    pub(crate) fn sources_refused(&mut self, done: u32, wakeups: &mut Wakeups) {
        if self.direct.blocks.detached_bytes() > 0 {
            self.direct.detached_skips.failed();
        }
        self.sources_returned(done, wakeups);
    }

    /// Handles the return of the blocks; the peer has `done` bytes of the oldest one.
    fn sources_returned(&mut self, done: u32, wakeups: &mut Wakeups) {
        if let Some(more) = self.direct.blocks.returned(done) {
            self.stats.bytes_sent += u64::from(more);
            self.stats.direct_sent += u64::from(more);
            wakeups.direct = true;
        }
    }

    /// Handles a sink advert that voids the blocks: the peer has nothing of them.
    pub(crate) fn sources_void(&mut self, wakeups: &mut Wakeups) {
        self.stats.direct_void += 1;
        self.direct.blocks.void();
        self.sink_came(wakeups);
        self.sources_returned(0, wakeups);
    }

    /// Handles a sink advert: unsent blocks are to be written there.
    pub(crate) fn sink_came(&mut self, wakeups: &mut Wakeups) {
        self.direct.readers_advertise = true;
        if self.direct.blocks.withdraw() {
            self.direct.blocks.void();
        }
        wakeups.direct = true;
    }

    /// Posts invalidations of blocks that the peer is done with, as there is space.
    pub(super) fn end_source_access(&mut self) -> Result {
        if let Some(endpoint) = self.endpoint.as_mut() {
            for advert in self.direct.blocks.adverts_mut() {
                end_access(advert, endpoint)?;
            }
        }
        Ok(())
    }

    /// Takes the blocks of a send call back.
    pub(crate) fn take_blocks_back(&mut self) {
        self.direct.blocks.withdraw();
        if self.direct.blocks.any_posted() {
            if let Some(p) = &mut self.protocol {
                p.cancel_sources();
            }
        }
    }

    /// Makes bytes behind the blocks not wait until these are read.
    pub(crate) fn hurry_blocks(&mut self) {
        self.direct.blocks.hurry();
        self.take_blocks_back();
    }

    /// Returns the size of a block for a call with `want` bytes; 0: copy.
    pub(crate) fn block_size(&self, sk: &SdpSock, want: usize) -> usize {
        let Some(p) = self.protocol.as_ref().filter(|_| self.endpoint.is_some()) else {
            return 0;
        };
        if !by_read() || self.zcopy_threshold().is_none_or(|least| want < least) {
            return 0;
        }
        if self.tx.queued() >= sk.sndbuf() || !self.direct.blocks.is_open() {
            // a call waits for space, or for another call, before more of it is accepted
            return 0;
        }
        if self.direct.blocks.has_call() {
            return 0;
        }
        let size = u32::try_from(want)
            .unwrap_or(u32::MAX)
            .min(p.source_limit());
        if !p.can_advertise(size) || self.tx.end() < self.direct.copy_until {
            return 0;
        }
        size as usize
    }

    /// Returns true if another block of a call with `left` bytes may follow the outstanding ones.
    pub(super) fn another_block(&self, left: usize) -> bool {
        let worth = self.zcopy_threshold().is_some_and(|least| left >= least);
        let size = u32::try_from(left).unwrap_or(u32::MAX);
        worth
            && self.direct.blocks.is_open()
            && self.protocol.as_ref().is_some_and(|p| {
                let size = size.min(p.source_limit());
                p.send_mode() == Mode::Pipelined && p.can_advertise(size)
            })
    }

    /// Returns true if a block of this size may be added now: the one before may have come back
    /// during pinning.
    pub(super) fn takes_block(&self, size: u32) -> bool {
        let possible = |p: &protocol::Connection| p.can_advertise(size);
        self.direct.blocks.is_open() && self.protocol.as_ref().is_some_and(possible)
    }

    /// Takes out the oldest block, which has returned to the caller.
    pub(super) fn take_block(&mut self, sk: &SdpSock) -> Option<TakenOut> {
        let oldest = self.direct.blocks.oldest();
        let lost = oldest.is_some_and(|(a, _)| a.state == AdvertState::Lost);
        let Returned {
            memory,
            size,
            done,
            refused,
        } = self.direct.blocks.take()?;
        if refused {
            let at = self.tx.end();
            self.direct.not_taken_up(at, size, size - done);
            self.stats.direct_returned += 1;
        }
        trace::zero_copy(sk, ZeroCopy::ReadByPeer, size, done);
        Some(TakenOut {
            memory: self.take_back(memory, lost),
            size,
            done,
        })
    }
}

/// A piece of a call taken out of the queue.
pub(super) struct TakenOut {
    /// Memory, as [`Connection::take_back`] returns it.
    pub(super) memory: Result<Pinned, Watch>,
    /// Its bytes.
    pub(super) size: u32,
    /// Sent bytes.
    pub(super) done: u32,
}

/// WRITEs to a waiting reader of the peer.
impl Connection {
    /// Returns the number of a call's bytes to write to a waiting reader of the peer; 0: none. All
    /// earlier bytes have to be in flight.
    pub(crate) fn writable_directly(&self, want: usize) -> usize {
        let blocks_go = self.direct.blocks.is_empty() || self.direct.blocks.next().is_none();
        let free = self.tx.unsent() == 0 && self.direct.writing.is_empty() && blocks_go;
        if !free || !self.is_worth_writing(want) {
            return 0;
        }
        match self.protocol.as_ref().and_then(|p| p.sink_advert()) {
            Some(_) if self.endpoint.is_some() => want,
            _ => 0,
        }
    }

    /// Returns true if this many bytes may be written at all.
    pub(super) fn is_worth_writing(&self, bytes: usize) -> bool {
        let least = self.zcopy_threshold().filter(|_| by_write());
        least.is_some_and(|least| bytes >= least.max(LEAST_TRANSFER))
    }

    /// Returns true if the call has to wait for a reader, since a copy is the only alternative.
    pub(crate) fn awaits_reader(&self, want: usize) -> bool {
        let waits = !by_read() && self.zcopy_threshold().is_some_and(|least| want >= least);
        let pipelined = |p: &protocol::Connection| p.send_mode() == Mode::Pipelined;
        waits
            && self.connected()
            && self.protocol.as_ref().is_some_and(pipelined)
            && self.direct.readers_advertise
    }

    /// Posts WRITEs, as many as there is space for. Returns true if the peer has less space than
    /// the call waits for.
    pub(super) fn write_on(&mut self) -> Result<bool> {
        let queue = &mut self.direct.writing;
        let (Some(endpoint), Some(protocol)) = (self.endpoint.as_mut(), self.protocol.as_mut())
        else {
            return Ok(false);
        };
        loop {
            // none: full, or cancelled meanwhile; the rest goes another way
            let (n, last) = Way::Write.post(queue, endpoint, protocol.sink_advert())?;
            if n == 0 {
                return Ok(queue.has_to_tell());
            }
            protocol.written(n, last);
        }
    }

    /// Returns how many of the call's `left` bytes may be queued behind its transfers in flight.
    pub(super) fn writable_behind(&self, left: usize) -> usize {
        if !self.direct.writing.has_room() || !self.is_worth_writing(left) {
            return 0;
        }
        let Some(p) = &self.protocol else {
            return 0;
        };
        let there = p
            .sink_bytes()
            .saturating_sub(self.direct.writing.unstarted());
        // with several blocks, leave some space for the next piece
        let next = p.sink_advert().map_or(0, |next| next.size);
        left.min(next.max(there / 2).min(there) as usize)
    }

    /// Takes out the oldest piece that a call has moved.
    pub(super) fn take_piece(&mut self, sk: &SdpSock, way: Way) -> Option<TakenOut> {
        let Moved {
            memory,
            size,
            len,
            done,
            lost,
        } = self.transfers(way).take()?;
        trace::zero_copy(sk, way.into(), len, done);
        Some(TakenOut {
            memory: self.take_back(memory, lost),
            size,
            done,
        })
    }
}

impl From<Way> for ZeroCopy {
    fn from(way: Way) -> Self {
        match way {
            Way::Read => ZeroCopy::Read,
            Way::Write => ZeroCopy::Written,
        }
    }
}

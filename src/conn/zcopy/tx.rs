// SPDX-License-Identifier: GPL-2.0-only

//! State of zero-copy sends in the connection: selects the next block and handles the peer's
//! replies. [`super::send`] contains the calls.

use super::super::{Connection, SdpSock, Wakeup, Wakeups};
use super::tx_blocks::call::Awaits;
use super::{by_read, by_write, Zcopy, LEAST_TRANSFER};
use crate::protocol::{self, Mid, Mode, Outgoing, MAX_HEADER};
use crate::sys::net::trace::{self, ZeroCopy};
use crate::sys::time::jiffies;
use crate::transport::{Endpoint, Pinned, SendWr, Watch};
use kernel::prelude::*;

impl Zcopy {
    /// Posts the SrcAvail of the next block, or the SinkAvail. `sent` is the stream position.
    pub(crate) fn advertise(
        &mut self,
        endpoint: &mut Endpoint,
        message: &Outgoing,
        sent: u64,
    ) -> Result {
        let first = match (message.kind, &mut self.sink) {
            (Mid::SrcAvail, _) => self.blocks.posted(message.payload),
            (_, Some(sink)) => {
                sink.posted();
                Some(0)
            }
            _ => None,
        };
        let first = first.ok_or(EINVAL)?;
        let head = message.bytes();
        let mut bytes = [0; MAX_HEADER + 1];
        for (to, from) in bytes.iter_mut().zip(Iterator::chain(head.iter(), [&first])) {
            *to = *from;
        }
        let len = head.len().saturating_add((message.payload > 0).into());
        endpoint.post_send(&SendWr {
            header: bytes.get(..len).ok_or(EINVAL)?,
            payload: [None; 2],
            signaled: false,
            solicited: message.solicited,
            cookie: sent,
        })
    }
}

/// Functions for blocks that the peer reads.
impl Connection {
    /// Handles a report that `bytes` more of the oldest block are read, to its end if `finished`.
    pub(crate) fn source_read(&mut self, bytes: u32, finished: bool, wakeups: &mut Wakeups) {
        let Some(z) = self.zcopy.get_mut() else {
            return;
        };
        if z.blocks.read(bytes, finished) {
            if finished {
                z.detached_skips.worked();
            }
            self.stats.bytes_sent += u64::from(bytes);
            self.stats.direct_sent += u64::from(bytes);
            self.alive.progress(jiffies());
            wakeups.add(Wakeup::Zcopy);
        }
    }

    /// Handles the peer's refusal of the blocks. The peer has `done` bytes of the oldest block.
    pub(crate) fn sources_refused(&mut self, done: u32, wakeups: &mut Wakeups) {
        if let Some(z) = self.zcopy.get_mut().filter(|z| z.has_detached()) {
            z.detached_skips.failed();
        }
        self.sources_returned(done, wakeups);
    }

    /// Handles the return of the blocks. The peer has `done` bytes of the oldest block.
    fn sources_returned(&mut self, done: u32, wakeups: &mut Wakeups) {
        let z = self.zcopy.get_mut();
        if let Some(more) = z.and_then(|z| z.blocks.returned(done)) {
            self.stats.bytes_sent += u64::from(more);
            self.stats.direct_sent += u64::from(more);
            wakeups.add(Wakeup::Zcopy);
        }
    }

    /// Handles a sink advert, to which this end then writes unsent blocks in order. `void` is true
    /// if the peer has read nothing of the advertised blocks.
    pub(crate) fn sink_came(&mut self, void: bool, wakeups: &mut Wakeups) {
        self.zcopy.with(|z| z.readers_advertise = true);
        wakeups.add(Wakeup::Zcopy);
        if void {
            self.stats.direct_void += 1;
            self.sources_returned(0, wakeups);
        }
    }

    /// Takes the blocks of a send call back.
    pub(crate) fn take_blocks_back(&mut self) {
        let (Some(z), Some(p)) = (self.zcopy.get_mut(), &mut self.protocol) else {
            return;
        };
        z.blocks.recall();
        if self.records.is_some() {
            z.blocks.want(jiffies());
        }
        if z.blocks.any_posted() {
            p.cancel_sources();
        }
    }

    /// Cancels adverts, so that bytes after the blocks are sent soon.
    pub(crate) fn expedite_blocks(&mut self) {
        self.zcopy.with(|z| z.blocks.expedite());
        self.take_blocks_back();
    }

    /// Returns the size of the first block of a call with `left` bytes, or 0 to request a copy.
    pub(crate) fn block_size(&self, sk: &SdpSock, left: usize) -> usize {
        // a call waits for space, or for another call, before it can add blocks
        let waits = self.tx.queued() >= sk.sndbuf() || self.zcopy.blocks.has_call();
        match waits {
            true => 0,
            false => self.next_size(left),
        }
    }

    /// Returns the size of the next block of a call with `left` bytes, or 0 for no block now.
    pub(super) fn next_size(&self, left: usize) -> usize {
        let worth = self.zcopy_threshold().is_some_and(|least| left >= least);
        let Some(p) = self.protocol.as_ref().filter(|_| worth && self.connected()) else {
            return 0;
        };
        let blocks = &self.zcopy.blocks;
        if !blocks.is_open() {
            return 0;
        }
        let size = u32::try_from(left).unwrap_or(u32::MAX);
        let first = !blocks.has_call();
        // copied bytes before the block would use up the advertised space
        let next = !first || self.tx.unsent() == 0;
        if next && self.may_write() && left >= LEAST_TRANSFER {
            return size.min(p.sink_bytes().saturating_sub(blocks.unposted())) as usize;
        }
        let size = size.min(p.source_limit());
        let turn = first || p.send_mode() == Mode::Pipelined;
        let read = by_read() && p.can_advertise(size) && self.tx.end() >= self.zcopy.copy_until;
        match turn && read || first && self.awaits_reader() {
            true => size as usize,
            false => 0,
        }
    }

    /// Returns true if bytes may be written to a waiting reader of the peer.
    pub(super) fn may_write(&self) -> bool {
        let space = |p: &protocol::Connection| p.sink_advert().is_some();
        by_write() && self.protocol.as_ref().is_some_and(space)
    }

    /// Returns true if a block waits for a reader of the peer, with a copy as the only alternative.
    pub(super) fn awaits_reader(&self) -> bool {
        let pipelined = |p: &protocol::Connection| p.send_mode() == Mode::Pipelined;
        !by_read()
            && self.connected()
            && self.protocol.as_ref().is_some_and(pipelined)
            && self.zcopy.readers_advertise
    }

    /// Takes out the call's oldest block, which has returned. `whole` is true if all bytes before
    /// the block were sent. Returns the memory as [`Connection::take_back`] does, and the number of
    /// unsent bytes.
    pub(super) fn take_block(
        &mut self,
        sk: &SdpSock,
        whole: bool,
    ) -> Option<(Result<Pinned, Watch>, usize)> {
        let oldest = self.zcopy.blocks.oldest();
        let lost = matches!(oldest, Some((Awaits::Nothing { lost: true }, _)));
        let at = self.tx.end();
        let z = self.zcopy.get_mut()?;
        let block = z.blocks.take(whole)?;
        let left = block.size.saturating_sub(block.done);
        if block.refused && by_read() {
            z.not_taken_up(at, block.size, left);
            self.stats.direct_returned += 1;
        } else if block.refused {
            z.readers_advertise = false;
        }
        let way = match block.written {
            true => ZeroCopy::Written,
            false => ZeroCopy::ReadByPeer,
        };
        let done = block.done.saturating_sub(block.in_messages);
        trace::zero_copy(sk, way, block.size, done);
        Some((self.take_back(block.memory, lost), left as usize))
    }
}

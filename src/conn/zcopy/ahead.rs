// SPDX-License-Identifier: GPL-2.0-only

//! Order of stream bytes and blocks: bytes queued before a block, the advert, and the unread rest.

use super::super::tx::NextTx;
use super::super::{Connection, Wakeup, Wakeups};
use super::tx_blocks::{Next, Rest};
use super::{by_read, by_write, Posted, REST};
use crate::protocol::Outgoing;
use crate::sys::time::jiffies;
use crate::transport::{BlockSpan, SendWr, Transfer};
use kernel::prelude::*;

impl Rest<'_, Posted> {
    fn span(&self) -> BlockSpan {
        BlockSpan {
            block: self.memory.id,
            offset: self.offset,
            len: self.len,
        }
    }
}

impl Connection {
    /// Returns the number of unacknowledged bytes, without the bytes that a call waits for.
    pub(crate) fn outstanding(&self) -> usize {
        if let Some(local) = &self.local {
            return local.link.outstanding();
        }
        let detached = self.zcopy.blocks.detached_bytes();
        self.tx.queued().saturating_add(detached)
    }

    /// Limits the next part of the stream to the bytes before the next block, or to that block.
    pub(crate) fn check_blocks(&mut self, ahead: &mut NextTx) {
        let Some((next, at)) = self.zcopy.blocks.next() else {
            return;
        };
        // bytes queued behind a block are sent after the block
        ahead.unsent = at.saturating_sub(self.tx.sent()) as usize;
        ahead.more = true;
        if let Next::Advert(block) = next {
            ahead.source = Some(block);
        }
        if ahead.unsent > 0 {
            return;
        }
        match next {
            Next::Advert(_) => {}
            // neither the next block nor later bytes may be sent now
            Next::New { size: n, .. }
            | Next::Ending(n)
            | Next::Rest(Rest {
                written: true,
                len: n,
                ..
            }) => (ahead.unsent, ahead.limit) = (n as usize, 0),
            Next::Rest(rest) => {
                let span = rest.span();
                let limit = self.endpoint.as_mut().map_or(0, |c| c.block_payload(&span));
                (ahead.unsent, ahead.limit) = (span.len as usize, limit as usize);
                ahead.rest = Some((span, rest.cookie));
            }
        }
    }

    /// Posts a message with unsent bytes of a block. The message is signaled: after a recall, there
    /// may be no later message whose completion ends the wait of the block's call.
    pub(crate) fn post_rest(&mut self, message: &Outgoing, rest: (BlockSpan, u64)) -> Result {
        let (span, cookie) = rest;
        let wr = SendWr {
            header: message.bytes(),
            payload: [None; 2],
            signaled: true,
            solicited: message.solicited,
            cookie: REST | cookie,
        };
        let payload = BlockSpan {
            len: message.payload,
            ..span
        };
        let endpoint = self.endpoint.as_mut().ok_or(EINVAL)?;
        endpoint.post_block_span(&wr, &payload)?;
        self.stats.direct_in_messages += u64::from(message.payload);
        self.zcopy
            .with(|z| z.blocks.rest_posted(message.payload, true));
        Ok(())
    }

    /// Advertises the next block, writes the rest of a block to a waiting reader of the peer, or
    /// selects another method. Returns true if the caller has to call again.
    pub(crate) fn blocks_on(&mut self, wakeups: &mut Wakeups) -> Result<bool> {
        match self.zcopy.blocks.next() {
            Some((Next::New { memory, size, .. }, at)) => {
                let block = memory.id;
                if self.can_be_read(size) {
                    let endpoint = self.endpoint.as_mut().ok_or(EIO)?;
                    match endpoint.register(block) {
                        Ok(key) => self.zcopy.with(|z| z.blocks.registered(key.into())),
                        Err(e) if e == ENOSPC => {}
                        Err(e) if e == EIO => return Err(e),
                        Err(_) => {
                            self.zcopy.with(|z| z.blocks.pass_over());
                            return Ok(true);
                        }
                    }
                } else if self.is_stuck() && !self.waits_its_turn(at) {
                    self.zcopy.with(|z| z.blocks.pass_over());
                    return Ok(true);
                }
                Ok(false)
            }
            Some((Next::Advert(block), _)) if !self.can_be_read(block.size) && self.is_stuck() => {
                self.zcopy.with(|z| z.blocks.pass_over());
                self.end_access()?;
                Ok(false)
            }
            Some((Next::Rest(rest), at)) if at == self.tx.sent() => {
                let (span, cookie) = (rest.span(), rest.cookie);
                if rest.written && !self.may_write() {
                    self.zcopy.with(|z| z.blocks.recall());
                    wakeups.add(Wakeup::Zcopy);
                    return Ok(true);
                }
                self.write_rest(&span, cookie)
            }
            _ => Ok(false),
        }
    }

    /// Returns true if a block of `size` bytes may be advertised.
    fn can_be_read(&self, size: u32) -> bool {
        let can = |p: &crate::protocol::Connection| p.can_advertise(size);
        by_read() && self.protocol.as_ref().is_some_and(can)
    }

    /// Returns true if no earlier block is with the peer, whose reply could allow the next advert.
    fn is_stuck(&self) -> bool {
        self.protocol
            .as_ref()
            .is_some_and(|p| p.sources_outstanding() == 0)
    }

    /// Returns true if the next block belongs to a call and may be written to a reader of the peer
    /// once all earlier bytes are sent.
    fn waits_its_turn(&self, at: u64) -> bool {
        let waits = match self.may_write() {
            true => at != self.tx.sent(),
            false => self.awaits_reader(),
        };
        waits && self.zcopy.blocks.is_next_of_call()
    }

    /// Writes bytes of the rest of a block to a waiting reader of the peer. Returns false if there
    /// is no reader, or no space in the send queue.
    fn write_rest(&mut self, sge: &BlockSpan, cookie: u64) -> Result<bool> {
        let (Some(endpoint), Some(protocol), Some(z)) = (
            self.endpoint.as_mut(),
            self.protocol.as_mut(),
            self.zcopy.get_mut(),
        ) else {
            return Ok(false);
        };
        let Some(to) = protocol.sink_advert().filter(|_| by_write()) else {
            return Ok(false);
        };
        let posted = endpoint.transfer(
            sge.block,
            &Transfer {
                read: false,
                offset: sge.offset,
                len: sge.len.min(to.size),
                address: to.address,
                rkey: to.r_key,
                cookie: REST | cookie,
            },
        );
        match posted {
            Ok(n) => {
                let last = z.blocks.rest_posted(n, false);
                protocol.written(n, last);
                self.stats.bytes_sent += u64::from(n);
                self.stats.direct_written += u64::from(n);
                Ok(true)
            }
            Err(e) if e == ENOSPC => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Records completed bytes of the rest of a block.
    pub(super) fn rest_gone(&mut self, cookie: u64, bytes: u32, wakeups: &mut Wakeups) {
        self.zcopy.with(|z| z.blocks.rest_gone(cookie, bytes));
        self.alive.progress(jiffies());
        wakeups.add(Wakeup::Zcopy);
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Blocks that no call waits for: sends with `MSG_ZEROCOPY`, of programs and of io_uring.
//!
//! A call pins the next bytes, adds them to the connection's blocks ([`super::tx_blocks`]), and goes on. As
//! a rule the peer reads them; what it does not read goes from the same pages, as WRITE to where a reader
//! of the peer waits, else in messages. Whoever moves the connection on takes out what has gone, and lets go
//! of the memory when it has let go of the lock: that tells the program ([`Notify`]).
//!
//! A peer that reads nothing keeps the memory pinned, which counts for the sender's budget. At most
//! [`MOST_BLOCKS`](super::tx_blocks::MOST_BLOCKS) are under way; with more a call waits, or gets EAGAIN.

use super::super::{keepalive, Connection, SdpSock, Wakeups};
use super::advert::Advert;
use super::memory::CallMemory;
use super::posted::REST;
use super::tx_blocks::{Next, Retired};
use super::{by_read, by_write};
use crate::memory::notify::{Counted, Notify};
use crate::protocol::{Block, Outgoing};
use crate::sys::net::message::SendMsg;
use crate::sys::net::notice::Notice;
use crate::sys::pin::PinTerm;
use crate::sys::time::jiffies;
use crate::sys::trace::{self, ZeroCopy};
use crate::transport::{Access, LentSpan, SendWr, Transfer, Transport};
use kernel::prelude::*;

/// Bytes of a program's memory for which a block is worth while.
pub(crate) const LEAST: usize = 16384;

/// What became of an attempt to add a block.
#[derive(PartialEq, Eq)]
pub(crate) enum Added {
    /// Bytes of the call are taken.
    Block,
    /// As many as may be are under way.
    Full,
    /// So many bytes are better copied.
    Copy(usize),
}

/// Adds the next bytes of a call as a block, which is told by `notice`. Process context, socket lock held.
pub(crate) fn add(sk: &SdpSock, message: &mut SendMsg<'_>, notice: &Notice) -> Added {
    let want = {
        let c = sk.connection();
        if !c.direct.blocks.has_room() {
            return Added::Full;
        }
        c.protocol.as_ref().map_or(0, |p| p.source_limit() as usize)
    };
    let want = match want {
        // it goes in messages
        0 => message.remaining(),
        most => most.min(message.remaining()),
    };
    let Some((_, len)) = message.run(want) else {
        return Added::Copy(want);
    };
    if len < LEAST {
        return Added::Copy(len);
    }
    let Some(first) = first_byte(message) else {
        return Added::Copy(want);
    };
    let how = (PinTerm::Long, Counted::ByNotice);
    let pin = CallMemory::pin(sk, message.run(want), 1, |block, account| {
        block.pin_counted(message, want, how, account)
    });
    let Some(mut memory) = pin else {
        // what cannot be pinned, and no more
        return Added::Copy(message.piece(len).map_or(len, |(_, n)| n));
    };
    let size = memory.len();
    memory.notify(Notify::Call(notice.piece()));
    let added = push(sk, memory, first, false);
    if added == Added::Block {
        message.advance(size);
    }
    added
}

/// The next byte of a call, which goes in a SrcAvail. What is pinned holds the device, so that nothing may fault behind that.
pub(super) fn first_byte(message: &mut SendMsg<'_>) -> Option<u8> {
    let mut first = [0];
    if message.take(&mut first) != 1 {
        return None;
    }
    message.give_back(1);
    let [first] = first;
    Some(first)
}

/// Adds memory as a block behind all that there is. It is let go of if that cannot be. `protected`: the
/// program cannot write to it.
pub(super) fn push(sk: &SdpSock, mut memory: CallMemory<'_>, first: u8, protected: bool) -> Added {
    let len = memory.len();
    let mut c = sk.connection();
    if !c.direct.blocks.has_room() {
        return Added::Full;
    }
    let (at, cookie) = (c.tx.end(), c.direct.next_cookie());
    let idle = c.outstanding() == 0;
    let Some(posted) = c.endpoint.as_mut().and_then(|c| memory.post(c)) else {
        return Added::Copy(len);
    };
    let size = u32::try_from(len).unwrap_or(0);
    let mut advert = Advert::unregistered(posted, size, cookie);
    if c.direct.detached_skips.skip() {
        advert.finish();
    }
    if let Some(p) = &mut c.protocol {
        // so that several go at once
        p.set_pipelined(true);
    }
    // there is room, as was asked
    let _ = c.direct.blocks.push_detached(advert, first, at);
    if protected {
        c.direct.blocks.mark_protected();
        c.stats.async_blocks += 1;
        c.direct.touches.began();
    }
    // what was corked goes before it
    c.set_more(false);
    if idle {
        c.heard.progress(jiffies());
    }
    c.progress();
    let timed = idle && c.options.user_timeout != 0;
    drop(c);
    if timed {
        // nothing that comes would do it
        keepalive::update(sk);
    }
    Added::Block
}

/// What goes next of the stream, as far as its order is concerned.
pub(crate) struct Ahead {
    /// So many bytes.
    pub(crate) unsent: usize,
    /// So many of them in one message.
    pub(crate) limit: usize,
    /// There is more behind them that is not among them.
    pub(crate) more: bool,
    /// The block that is to be advertised behind them.
    pub(crate) source: Option<Block>,
    /// They are these, of the block with this cookie.
    pub(crate) rest: Option<(LentSpan, u64)>,
}

impl Ahead {
    /// Whether the bytes are a block's.
    pub(crate) fn is_of_block(&self) -> bool {
        self.more && self.source.is_none() && (self.rest.is_some() || self.limit == 0)
    }
}

impl Connection {
    /// Bytes of the stream that the program has given and that are not known to have arrived, without
    /// those that a call waits for.
    pub(crate) fn outstanding(&self) -> usize {
        self.tx.queued() + self.direct.blocks.detached_bytes()
    }

    /// What goes next.
    #[inline]
    pub(crate) fn ahead(&mut self) -> Ahead {
        let mut ahead = Ahead {
            unsent: self.tx.unsent(),
            limit: self.tx.contiguous(),
            more: false,
            source: None,
            rest: None,
        };
        if !self.direct.blocks.is_empty() {
            self.look_at_blocks(&mut ahead);
        }
        ahead
    }

    fn look_at_blocks(&mut self, ahead: &mut Ahead) {
        let Some((next, at)) = self.direct.blocks.next() else {
            return;
        };
        // what is queued behind the block goes after it
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
            // not now, nor anything behind it
            Next::New { size: n, .. } | Next::Ending(n) => {
                (ahead.unsent, ahead.limit) = (n as usize, 0)
            }
            Next::Rest {
                memory,
                cookie,
                offset,
                len,
            } => {
                let span = LentSpan {
                    loan: memory.id,
                    offset,
                    len,
                };
                let limit = self.endpoint.as_mut().map_or(0, |c| c.lent_payload(&span));
                (ahead.unsent, ahead.limit) = (len as usize, limit as usize);
                ahead.rest = Some((span, cookie));
            }
        }
    }

    /// Posts a message with bytes of the rest of a block.
    pub(crate) fn post_rest(
        &mut self,
        message: &Outgoing,
        rest: (LentSpan, u64),
        signaled: bool,
    ) -> Result {
        let (span, cookie) = rest;
        let header = message.header.get(..message.header_len.into());
        let wr = SendWr {
            header: header.ok_or(EINVAL)?,
            payload: &[],
            signaled,
            solicited: message.solicited,
            cookie: REST | cookie,
        };
        let payload = LentSpan {
            len: message.payload,
            ..span
        };
        let endpoint = self.endpoint.as_mut().ok_or(EINVAL)?;
        endpoint.post_lent(&wr, &payload)?;
        self.direct.blocks.rest_posted(message.payload, true);
        Ok(())
    }

    /// Does with the block that is next whatever is no message: registers it if it can be advertised,
    /// has it go otherwise if it cannot, writes its rest to where a reader of the peer waits. Whether to
    /// look again, since bytes were posted or it goes otherwise.
    #[inline]
    pub(crate) fn blocks_on(&mut self, wakeups: &mut Wakeups) -> Result<bool> {
        if self.direct.blocks.is_empty() {
            return Ok(false);
        }
        match self.direct.blocks.next() {
            Some((Next::New { memory, size, .. }, _)) => {
                let loan = memory.id;
                if self.can_be_read(size) {
                    let endpoint = self.endpoint.as_mut().ok_or(EIO)?;
                    match endpoint.register(loan, Access::Read) {
                        Ok(key) => self.direct.blocks.registered(Block {
                            size: key.len,
                            r_key: key.rkey,
                            address: key.address,
                        }),
                        Err(e) if e == ENOSPC => {}
                        Err(e) if e == EIO => return Err(e),
                        Err(_) => {
                            self.pass_over(wakeups);
                            return Ok(true);
                        }
                    }
                } else if self.is_stuck() {
                    self.pass_over(wakeups);
                    return Ok(true);
                }
                Ok(false)
            }
            Some((Next::Advert(block), _)) if !self.can_be_read(block.size) && self.is_stuck() => {
                self.pass_over(wakeups);
                self.end_source_access()?;
                Ok(false)
            }
            Some((
                Next::Rest {
                    memory,
                    cookie,
                    offset,
                    len,
                },
                at,
            )) if at == self.tx.sent() => {
                let span = LentSpan {
                    loan: memory.id,
                    offset,
                    len,
                };
                self.write_rest(&span, cookie)
            }
            _ => Ok(false),
        }
    }

    /// Whether a block of this size may be advertised.
    fn can_be_read(&self, size: u32) -> bool {
        let can = |p: &crate::protocol::Connection| p.can_advertise(size);
        by_read() && self.protocol.as_ref().is_some_and(can)
    }

    /// Whether that will not be changed by what the peer says of others.
    fn is_stuck(&self) -> bool {
        self.protocol
            .as_ref()
            .is_some_and(|p| p.sources_outstanding() == 0)
    }

    /// The next block is not to be advertised, which nobody has refused.
    fn pass_over(&mut self, wakeups: &mut Wakeups) {
        self.direct.blocks.pass_over();
        wakeups.direct = true;
    }

    /// Writes bytes of the rest of a block to where a reader of the peer waits, if one does and there is
    /// room to. Whether that was so.
    fn write_rest(&mut self, sge: &LentSpan, cookie: u64) -> Result<bool> {
        let (Some(endpoint), Some(protocol)) = (self.endpoint.as_mut(), self.protocol.as_mut())
        else {
            return Ok(false);
        };
        let Some(to) = protocol.sink_advert().filter(|_| by_write()) else {
            return Ok(false);
        };
        let posted = endpoint.transfer(
            sge.loan,
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
                protocol.written(n, n == sge.len);
                self.direct.blocks.rest_posted(n, false);
                self.stats.bytes_sent += u64::from(n);
                self.stats.direct_written += u64::from(n);
                Ok(true)
            }
            Err(e) if e == ENOSPC => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// So many bytes of the rest of a block have gone.
    pub(super) fn rest_gone(&mut self, cookie: u64, bytes: u32, wakeups: &mut Wakeups) {
        self.direct.blocks.rest_gone(cookie, bytes);
        self.heard.progress(jiffies());
        wakeups.direct = true;
    }

    /// Takes out detached blocks that have gone.
    pub(crate) fn retire_blocks(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        if self.direct.blocks.is_empty() {
            return;
        }
        while let Some(Retired {
            memory,
            size,
            in_messages,
        }) = self.direct.blocks.retire()
        {
            trace::zero_copy(sk, ZeroCopy::ReadByPeer, size, size);
            self.has_room_again(sk, wakeups);
            wakeups.direct = true;
            let Some(endpoint) = self.endpoint.as_mut() else {
                continue;
            };
            let copies = endpoint.knows_solicited();
            let Ok(mut memory) = endpoint.reclaim(memory.id) else {
                // the transport lets go of it in the end
                continue;
            };
            if in_messages && copies {
                memory.was_copied();
            }
            wakeups.released = true;
            if let Some(slot) = self.direct.released.iter_mut().find(|p| p.is_none()) {
                *slot = Some(memory);
            }
        }
    }
}

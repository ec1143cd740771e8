// SPDX-License-Identifier: GPL-2.0-only

//! A connection's receive buffers, as far as they are made where one may sleep: larger ones, which the
//! peer may ask for (ChRcvBuf), and some at least where there was no memory.

use super::send_queue::{LARGE_CHUNK, MIDDLE_CHUNK};
use super::wakeups::Wakeups;
use super::{Connection, SdpSock};
use crate::sys::net::params;
use crate::sys::rdma::buffer::Buffer;
use crate::sys::rdma::mapper::Mapper;
use crate::transport::Transport;
use kernel::alloc::{flags::GFP_KERNEL, Flags};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full};
use kernel::sync::Arc;

/// Large receive buffers that are made at once, before a connection gets any.
const FIRST_LARGE: u16 = 8;
/// Buffers that are made in one go.
const BATCH: usize = 8;
/// How many there may be while the program leaves `SO_RCVBUF` alone: all of them are posted, since
/// a full connection would have room again by itself, as soon as its reader's end looks, if there
/// could be more. With fewer the sender has to stop, and to be woken, more often.
const LARGE_WINDOW: u16 = 16;

/// Receive buffers that fit into an `SO_RCVBUF` of the program's.
const LEAST_UNREAD: usize = 8;

/// Connections with large receive buffers, in the whole module.
static LARGE: Atomic<i32> = Atomic::new(0);

/// The right to have receive buffers of more than [`MIDDLE_CHUNK`]; counted in [`LARGE`].
pub(crate) struct Large;

impl Large {
    fn new() -> Option<Self> {
        if LARGE.fetch_add(1, Full) >= params::max_large_sockets() {
            LARGE.fetch_sub(1, Full);
            return None;
        }
        Some(Large)
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        LARGE.fetch_sub(1, Full);
    }
}

/// How large a connection's receive buffers are at first, and the right to have such. A peer of the
/// OFED line (`for_ever`) never asks for larger ones, so it has them from the beginning.
pub(crate) fn first_size(sk: &SdpSock, for_ever: bool) -> (usize, Option<Large>) {
    let first = params::rcvbuf_initial_size().clamp(512, LARGE_CHUNK as i32);
    let first = (first as usize).next_power_of_two().min(LARGE_CHUNK);
    if !for_ever {
        return (first, None);
    }
    let size = largest(sk).max(first);
    match (size > MIDDLE_CHUNK).then(Large::new) {
        Some(Some(large)) => (size, Some(large)),
        _ => (size.min(MIDDLE_CHUNK).max(first), None),
    }
}

/// The largest receive buffers that a connection should have. What lies unread counts by its buffers, so
/// where the program has fixed `SO_RCVBUF`, large ones would have the peer stop after two messages,
/// however little is in them.
fn largest(sk: &SdpSock) -> usize {
    if !sk.rcvbuf_is_fixed() {
        return LARGE_CHUNK;
    }
    let most = (sk.rcvbuf() / LEAST_UNREAD).clamp(512, LARGE_CHUNK);
    1 << most.ilog2()
}

impl Connection {
    /// Has the first receive buffers, and the right to them if they are large.
    pub(crate) fn begin_with(&mut self, sk: &SdpSock, large: Option<Large>) {
        self.large = large;
        if self.buffer_size as usize > MIDDLE_CHUNK {
            self.widen(sk);
        }
    }

    /// Has as many receive buffers as the program's end of a large flow takes.
    fn widen(&mut self, sk: &SdpSock) {
        let Some(channel) = &self.channel else { return };
        self.window = LARGE_WINDOW.min(channel.limits().receive_slots);
        sk.grow_rcvbuf(self.buffer_size as usize * usize::from(LARGE_WINDOW));
    }
}

/// A receive buffer.
fn make(size: usize, mapper: Option<&Arc<Mapper>>, gfp: Flags) -> Result<KBox<Buffer>> {
    let mut buffer = Buffer::new(size, gfp)?;
    buffer.map_receive(mapper, gfp)?;
    Ok(buffer)
}

/// Larger receive buffers to begin with.
fn first_buffers(size: usize, mapper: Option<&Arc<Mapper>>) -> Result<KVec<KBox<Buffer>>> {
    let mut buffers = KVec::with_capacity(FIRST_LARGE.into(), GFP_KERNEL)?;
    for _ in 0..FIRST_LARGE {
        buffers.push(make(size, mapper, GFP_KERNEL)?, GFP_KERNEL)?;
    }
    Ok(buffers)
}

/// Answers the peer's wish for larger receive buffers; in a worker.
pub(crate) fn resize(sk: &SdpSock) {
    let wanted = {
        let mut c = sk.connection();
        match (c.wanted_size.take(), c.connected()) {
            (Some(wanted), true) => wanted,
            _ => return,
        }
    };
    let beside = sk.connection().announced(0);
    let wanted = wanted.saturating_sub(beside);
    let size = (wanted.clamp(512, LARGE_CHUNK as u32) as usize).next_power_of_two();
    let size = size.min(largest(sk));
    let (now, had, mapper) = {
        let mut c = sk.connection();
        let Some(mapper) = c.channel.as_ref().map(|c| c.mapper().cloned()) else {
            return;
        };
        (c.buffer_size as usize, c.large.take(), mapper)
    };
    let kept = had.is_some();
    let large = had.or_else(|| (size > MIDDLE_CHUNK).then(Large::new).flatten());
    // there may be smaller blocks, or the right to have them, when there are no large ones
    let grown = [size, size / 2, size / 4, size / 8]
        .into_iter()
        .filter(|s| *s > now && (large.is_some() || *s <= MIDDLE_CHUNK))
        // the connection lives on these alone once those are used up that it has
        .find_map(|size| Some((size, first_buffers(size, mapper.as_ref()).ok()?)));
    {
        let mut c = sk.connection();
        let Connection {
            channel,
            protocol,
            spare,
            buffer_size,
            ..
        } = &mut *c;
        let (Some(channel), Some(protocol)) = (channel.as_mut(), protocol.as_mut()) else {
            return;
        };
        let posted = channel.posted_receives();
        let holds = kept || grown.as_ref().is_some_and(|(size, _)| *size > MIDDLE_CHUNK);
        if let Some((size, buffers)) = grown {
            protocol.resize_receive(size as u32 + beside, posted);
            *buffer_size = size as u32;
            spare.clear();
            for b in buffers {
                let _ = spare.push_within_capacity(b);
            }
            c.stats.resizes += 1;
            c.widen(sk);
        } else {
            // the size stays what it is, which the peer is told
            protocol.resize_receive(*buffer_size + beside, posted);
        }
        if holds {
            c.large = large;
        }
        c.progress();
    }
}

/// Makes receive buffers that are lacking, as far as there is memory, and has them posted.
pub(crate) fn stock(sk: &SdpSock, gfp: Flags) -> Wakeups {
    loop {
        let (size, lacking, mapper) = {
            let c = sk.connection();
            let mapper = c.channel.as_ref().and_then(|c| c.mapper().cloned());
            (c.buffer_size as usize, c.lacking(sk), mapper)
        };
        let mut made = [const { None }; BATCH];
        for buffer in made.iter_mut().take(lacking) {
            *buffer = make(size, mapper.as_ref(), gfp).ok();
        }
        let some = made.iter().any(Option::is_some);
        let mut c = sk.connection();
        for buffer in made.into_iter().flatten() {
            c.recycle(buffer);
        }
        if some && lacking > BATCH {
            continue;
        }
        if lacking > 0 && !some {
            c.stays_short(sk);
        } else {
            c.progress();
        }
        return c.unlock().take();
    }
}

/// Makes the receive buffers without which the peer may not send, for which there was no memory
/// before; in a worker, which may wait for some.
pub(crate) fn restock(sk: &SdpSock) {
    sk.connection().shortage.tried();
    sk.deliver(stock(sk, GFP_KERNEL));
}

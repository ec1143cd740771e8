// SPDX-License-Identifier: GPL-2.0-only

//! A connection's receive buffers: how many are posted, and how large; and how they are made, where one
//! may sleep: larger ones, which the peer may ask for (ChRcvBuf), and some at least where there was no memory.

use super::send_queue::{LARGE_CHUNK, MIDDLE_CHUNK};
use super::timers::Timer;
use super::wakeups::Wakeups;
use super::{Connection, SdpSock, FIRST_WINDOW};
use crate::memory::pressure;
use crate::protocol::PAYLOAD_CREDITS;
use crate::sys::net::params;
use crate::sys::rdma::buffer::Buffer;
use crate::sys::rdma::mapper::Mapper;
use crate::sys::time::{milliseconds, Jiffies};
use crate::transport::{Endpoint, Transport};
use kernel::alloc::flags::{GFP_KERNEL, GFP_NOWAIT};
use kernel::alloc::Flags;
use kernel::page::PAGE_SIZE;
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

/// Receive buffers that are posted whatever the program leaves unread: the peer's last credits,
/// which only its control messages may use.
const LAST_BUFFERS: u16 = 2;
/// Receive buffers that are posted while nothing lies unread, however small `SO_RCVBUF` is.
const LEAST_BUFFERS: u16 = 4;
/// How long to wait before memory that could not be had is asked for again; at first, and at most.
const FIRST_PAUSE: Jiffies = milliseconds(4);
const LONGEST_PAUSE: Jiffies = milliseconds(1000);

/// Connections with large receive buffers, in the whole module.
static LARGE: Atomic<i32> = Atomic::new(0);

/// The right to have receive buffers of more than [`MIDDLE_CHUNK`]; counted in [`LARGE`].
pub(crate) struct LargeRight;

impl LargeRight {
    fn new() -> Option<Self> {
        if pressure::is_tight() {
            return None;
        }
        if LARGE.fetch_add(1, Full) >= params::max_large_sockets() {
            LARGE.fetch_sub(1, Full);
            return None;
        }
        Some(LargeRight)
    }
}

impl Drop for LargeRight {
    fn drop(&mut self) {
        LARGE.fetch_sub(1, Full);
    }
}

/// How large a connection's receive buffers are at first, and the right to have such. A peer of the
/// OFED line (`for_ever`) never asks for larger ones, so it has them from the beginning.
pub(crate) fn first_size(sk: &SdpSock, for_ever: bool) -> (usize, Option<LargeRight>) {
    let first = params::rcvbuf_initial_size().clamp(512, LARGE_CHUNK as i32);
    let first = (first as usize).next_power_of_two().min(LARGE_CHUNK);
    if !for_ever {
        return (first, None);
    }
    let size = largest(sk).max(first);
    match (size > MIDDLE_CHUNK).then(LargeRight::new) {
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

/// The receive buffers of a connection, besides those that are posted.
pub(crate) struct RxBuffers {
    /// Unused ones, of the current size.
    spare: KVec<Buffer>,
    /// Their size in bytes.
    size: u32,
    /// How many to have posted while the reader keeps up.
    window: u16,
    /// Buffers are so few that the peer may not send, because there was no memory for more. It would be for
    /// ever, since nothing happens to a connection whose peer may not send: so the socket's timer tries
    /// again ([`Timer::Memory`]), after longer and longer pauses. This is the last of them, 0 for none. The same for a
    /// message within one machine that waits for the memory of the peer's buffer.
    pause: Jiffies,
    /// The right to have large ones.
    large: Option<LargeRight>,
    /// The size that was asked for by ChRcvBuf, until [`resize`] has answered.
    wanted: Option<u32>,
}

impl RxBuffers {
    /// Of a connection that has none.
    pub(super) const fn new() -> Self {
        RxBuffers {
            spare: KVec::new(),
            size: 0,
            window: FIRST_WINDOW,
            pause: 0,
            large: None,
            wanted: None,
        }
    }

    /// Those of a connection that begins: room for spare ones of this size.
    pub(super) fn begin(&mut self, spare: KVec<Buffer>, size: u32) {
        (self.spare, self.size) = (spare, size);
    }

    /// The connection is over, and another may follow.
    pub(crate) fn reset(&mut self) {
        self.spare.clear();
        (self.window, self.pause) = (FIRST_WINDOW, 0);
        (self.large, self.wanted) = (None, None);
    }

    /// Gives up the spare ones.
    pub(super) fn clear(&mut self) {
        self.spare.clear();
    }

    /// The size of one in bytes.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// The peer wants larger ones.
    pub(super) fn want(&mut self, size: u32) {
        self.wanted = Some(size);
    }

    /// Has twice as many posted, as far as the receive queue allows.
    pub(super) fn grow(&mut self, endpoint: &Endpoint) {
        let most = endpoint.limits().receive_slots;
        self.window = self.window.saturating_mul(2).min(most);
    }

    /// How many to have posted for an `SO_RCVBUF` of `rcvbuf` bytes, of which `unread` are in use. `advert`:
    /// the peer has advertised, so it sends no Data, and may need credits to take that back.
    fn target(&self, rcvbuf: usize, unread: usize, advert: bool) -> u16 {
        let window = usize::from(self.window.max(LEAST_BUFFERS));
        if unread > rcvbuf.saturating_add(window * self.size as usize) {
            // So much comes only of a peer that has spent its last credits on payload, and is told of no more.
            return 0;
        }
        let room = rcvbuf.saturating_sub(unread) / (self.size as usize).max(1);
        let least = match unread == 0 || advert {
            true => LEAST_BUFFERS,
            false => LAST_BUFFERS,
        };
        let window = match pressure::is_exhausted() {
            true => self.window.min(LEAST_BUFFERS),
            false => self.window,
        };
        window
            .min(u16::try_from(room).unwrap_or(u16::MAX))
            .max(least)
    }
}

impl Connection {
    /// Has the first receive buffers, and the right to them if they are large.
    pub(crate) fn begin_with(&mut self, sk: &SdpSock, large: Option<LargeRight>) {
        self.rx_buffers.large = large;
        if self.rx_buffers.size as usize > MIDDLE_CHUNK {
            self.widen(sk);
        }
    }

    /// Has as many receive buffers as the program's end of a large flow takes.
    fn widen(&mut self, sk: &SdpSock) {
        let Some(endpoint) = &self.endpoint else {
            return;
        };
        self.rx_buffers.window = LARGE_WINDOW.min(endpoint.limits().receive_slots);
        sk.grow_rcvbuf(self.rx_buffers.size as usize * usize::from(LARGE_WINDOW));
    }

    /// Takes back a receive buffer that is empty.
    pub(crate) fn recycle(&mut self, buffer: Buffer) {
        let _ = self.keep(buffer);
    }

    /// Keeps a receive buffer to be posted, if it is wanted and there is memory for its place. Whether it is kept.
    #[must_use]
    fn keep(&mut self, buffer: Buffer) -> bool {
        let Some(endpoint) = &self.endpoint else {
            return false;
        };
        let there = usize::from(endpoint.posted_receives()) + self.rx_buffers.spare.len();
        let wanted = there < LEAST_BUFFERS.into() || !pressure::is_exhausted();
        // there are places for the least from the beginning
        wanted
            && buffer.capacity() == self.rx_buffers.size as usize
            && self.rx_buffers.spare.push(buffer, GFP_NOWAIT).is_ok()
    }

    /// How many receive buffers are to be made.
    pub(crate) fn lacking(&self, sk: &SdpSock) -> usize {
        let Some(endpoint) = self.endpoint.as_ref().filter(|_| self.wants_refill(sk)) else {
            return 0;
        };
        let there = usize::from(endpoint.posted_receives()) + self.rx_buffers.spare.len();
        let target = usize::from(self.target(sk).min(self.rx.most_more()));
        target.saturating_sub(there)
    }

    /// There was no memory for some that are lacking.
    pub(crate) fn stays_short(&mut self, sk: &SdpSock) {
        let least = usize::from(self.target(sk).min(LEAST_BUFFERS));
        let posted = |c: &Endpoint| usize::from(c.posted_receives());
        if self.endpoint.as_ref().is_some_and(|c| posted(c) < least) {
            self.is_short(sk);
        }
    }

    /// The peer may not send, or a message that was sent has not gone, for want of memory.
    pub(super) fn is_short(&mut self, sk: &SdpSock) {
        if !self.timers.is_set(Timer::Memory) {
            let pause = (self.rx_buffers.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            self.rx_buffers.pause = pause;
            self.set_timer(sk, Timer::Memory, pause);
        }
    }

    /// Whether no bytes can come before some are read that lie here: the peer has not the credits for
    /// payload, and the buffers that it could be told of besides are too few for an update.
    pub(crate) fn is_full(&self, sk: &SdpSock) -> bool {
        let Some(left) = self.protocol.as_ref().map(|p| p.peer_credits()) else {
            return false;
        };
        let most = left.saturating_add(1);
        let posted = |c: &Endpoint| c.posted_receives() <= most;
        left < PAYLOAD_CREDITS
            && self.rx.memory() > 0
            // others may be on their way to be posted
            && self.target(sk) <= most
            && self.endpoint.as_ref().is_some_and(posted)
    }

    /// Receive buffers to have posted, by the window and the program's buffer size.
    fn target(&self, sk: &SdpSock) -> u16 {
        let advert = self.holds_advert();
        self.rx_buffers
            .target(sk.rcvbuf(), self.rx.memory(), advert)
    }

    /// Whether so many receive buffers are missing that it is time to post them: a quarter, since
    /// it costs the same for one as for all of them.
    pub(crate) fn wants_refill(&self, sk: &SdpSock) -> bool {
        let Some(endpoint) = self.endpoint.as_ref() else {
            return false;
        };
        let posted = endpoint.posted_receives();
        let few = |target: u16| posted <= target - target / 4;
        // most who ask need not know what the target is, as it is at most this
        few(self.rx_buffers.window.max(LEAST_BUFFERS)) && few(self.target(sk))
    }

    /// Posts the receive buffers that are missing, if it is time to. They are made without the lock, so
    /// `wakeups` says if there are not enough.
    pub(crate) fn refill(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        if !self.wants_refill(sk) {
            return;
        }
        let Some(endpoint) = self.endpoint.as_mut() else {
            return;
        };
        let posted = endpoint.posted_receives();
        let keeps_up = self.rx.memory() == 0;
        if posted < self.rx_buffers.window / 2
            && keeps_up
            && self.rx_buffers.spare.len() < usize::from(posted)
            && !pressure::is_tight()
        {
            // the peer has sent half of what it may in one go, and the reader keeps up
            self.rx_buffers.grow(endpoint);
        }
        let target = self.target(sk).min(self.rx.most_more());
        let Some(endpoint) = self.endpoint.as_mut() else {
            return;
        };
        for _ in posted..target {
            if !self
                .rx
                .make_room(usize::from(endpoint.posted_receives()) + 1)
            {
                break;
            }
            let Some(buffer) = self.rx_buffers.spare.pop() else {
                break;
            };
            if let Err(buffer) = endpoint.post_receive(buffer) {
                // the timer tries again
                let _ = self.rx_buffers.spare.push_within_capacity(buffer);
                break;
            }
        }
        if endpoint.posted_receives() >= target.min(LEAST_BUFFERS)
            && endpoint.lacks_memory().is_none()
        {
            self.rx_buffers.pause = 0;
            self.timers.clear(Timer::Memory);
        } else if !self.rx_buffers.spare.is_empty() {
            self.is_short(sk);
        }
        wakeups.buffers |= self.lacking(sk) > 0;
    }
}

/// Whether buffers that were `mapped` without the connection's lock are for this endpoint: the socket may have been
/// connected anew meanwhile.
fn is_of(endpoint: &Endpoint, mapped: &Option<Arc<Mapper>>) -> bool {
    match (endpoint.mapper(), mapped) {
        (Some(now), Some(then)) => Arc::ptr_eq(now, then),
        (now, then) => now.is_none() && then.is_none(),
    }
}

/// A receive buffer.
fn make(size: usize, mapper: Option<&Arc<Mapper>>, gfp: Flags) -> Result<Buffer> {
    let mut buffer = Buffer::new(size, gfp)?;
    buffer.map_receive(mapper, gfp)?;
    Ok(buffer)
}

/// Posts the `n` that a connection begins with. Within one machine they get their memory from who puts a message there,
/// unless that takes more than a page, for which it might wait for long.
pub(super) fn post_first(endpoint: &mut Endpoint, size: usize, n: u16) -> Result {
    let posted = match size <= PAGE_SIZE {
        true => endpoint.post_without_memory(size, n),
        false => 0,
    };
    for _ in posted..n {
        let buffer = make(size, endpoint.mapper(), GFP_KERNEL)?;
        endpoint.post_receive(buffer).map_err(|_| ENOMEM)?;
    }
    endpoint.flush()
}

/// Larger receive buffers to begin with.
fn first_buffers(size: usize, mapper: Option<&Arc<Mapper>>) -> Result<KVec<Buffer>> {
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
        match (c.rx_buffers.wanted.take(), c.connected()) {
            (Some(wanted), true) => wanted,
            _ => return,
        }
    };
    let header_aside = sk.connection().announced(0);
    let wanted = wanted.saturating_sub(header_aside);
    let size = (wanted.clamp(512, LARGE_CHUNK as u32) as usize).next_power_of_two();
    let size = size.min(largest(sk));
    let (now, had, mapper) = {
        let mut c = sk.connection();
        let Some(mapper) = c.endpoint.as_ref().map(|c| c.mapper().cloned()) else {
            return;
        };
        (
            c.rx_buffers.size as usize,
            c.rx_buffers.large.take(),
            mapper,
        )
    };
    let kept = had.is_some();
    let large = had.or_else(|| (size > MIDDLE_CHUNK).then(LargeRight::new).flatten());
    // there may be smaller blocks, or the right to have them, when there are no large ones
    let grown = [size, size / 2, size / 4, size / 8]
        .into_iter()
        .filter(|s| *s > now && (large.is_some() || *s <= MIDDLE_CHUNK) && !pressure::is_tight())
        // the connection lives on these alone once those are used up that it has
        .find_map(|size| Some((size, first_buffers(size, mapper.as_ref()).ok()?)));
    {
        let mut c = sk.connection();
        let Connection {
            endpoint,
            protocol,
            rx_buffers,
            ..
        } = &mut *c;
        let (Some(endpoint), Some(protocol)) = (endpoint.as_mut(), protocol.as_mut()) else {
            return;
        };
        if !is_of(endpoint, &mapper) {
            return;
        }
        let posted = endpoint.posted_receives();
        let holds = kept || grown.as_ref().is_some_and(|(size, _)| *size > MIDDLE_CHUNK);
        if let Some((size, buffers)) = grown {
            protocol.resize_receive(size as u32 + header_aside, posted);
            rx_buffers.size = size as u32;
            rx_buffers.spare.clear();
            for b in buffers {
                let _ = rx_buffers.spare.push_within_capacity(b);
            }
            c.stats.resizes += 1;
            c.widen(sk);
        } else {
            // the size stays what it is, which the peer is told
            protocol.resize_receive(rx_buffers.size + header_aside, posted);
        }
        if holds {
            c.rx_buffers.large = large;
        }
        c.progress();
    }
}

/// Makes receive buffers that are lacking, as far as there is memory, and has them posted.
pub(crate) fn stock(sk: &SdpSock, gfp: Flags) -> Wakeups {
    loop {
        let (size, lacking, mapper) = {
            let c = sk.connection();
            let mapper = c.endpoint.as_ref().and_then(|c| c.mapper().cloned());
            (c.rx_buffers.size as usize, c.lacking(sk), mapper)
        };
        let mut made = [const { None }; BATCH];
        for buffer in made.iter_mut().take(lacking) {
            *buffer = make(size, mapper.as_ref(), gfp).ok();
        }
        let mut some = false;
        let mut c = sk.connection();
        let is_same = c.endpoint.as_ref().is_some_and(|e| is_of(e, &mapper));
        for buffer in made.into_iter().flatten().filter(|_| is_same) {
            some |= c.keep(buffer);
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

/// Makes the memory for the peer's buffers that messages within one machine wait for, as far as there is some.
fn supply(sk: &SdpSock) {
    let lacking = || sk.connection().endpoint.as_ref()?.lacks_memory();
    while let Some(size) = lacking() {
        let Ok(buffer) = Buffer::new(size, GFP_KERNEL) else {
            return;
        };
        if let Some(endpoint) = &mut sk.connection().endpoint {
            endpoint.supply(buffer);
        }
    }
}

/// Makes the receive buffers without which the peer may not send, for which there was no memory
/// before; in a worker, which may wait for some.
pub(crate) fn restock(sk: &SdpSock) {
    sk.connection().timers.clear(Timer::Memory);
    supply(sk);
    sk.deliver(stock(sk, GFP_KERNEL));
}

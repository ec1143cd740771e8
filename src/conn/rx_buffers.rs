// SPDX-License-Identifier: GPL-2.0-only

//! Receive buffers of a connection: number, size and allocation. A worker, which may sleep,
//! allocates larger buffers (ChRcvBuf) and retries failed allocations.

use super::local::Local;
use super::send_queue::{LARGE_CHUNK, MIDDLE_CHUNK};
use super::timers::Timer;
use super::wakeups::{Wakeup, Wakeups};
use super::{Connection, SdpSock, FIRST_WINDOW};
use crate::memory::pressure;
use crate::protocol::PAYLOAD_CREDITS;
use crate::sys::net::params;
use crate::sys::rdma::buffer::Buffer;
use crate::sys::rdma::mapper::Mapper;
use crate::sys::time::{milliseconds, Jiffies};
use crate::sys::vec;
use crate::transport::Endpoint;
use kernel::alloc::flags::{GFP_KERNEL, GFP_NOWAIT};
use kernel::alloc::Flags;
use kernel::dma::DataDirection as Direction;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full};
use kernel::sync::Arc;

/// Number of buffers allocated together when a connection switches to large ones.
const FIRST_LARGE: u16 = 8;
/// Maximum number of spare buffers. After the read of a long queue, excess buffers are freed.
const MOST_SPARE: usize = 128;
/// Maximum number of given buffers: those in a pipe, and as many on their way to another socket.
const MOST_GIVEN: usize = 32;
/// Number of buffers allocated together.
const BATCH: usize = 8;
/// Number of large buffers, posted and unread, unless the program sets `SO_RCVBUF`. Fewer buffers
/// would make the sender stop and wake up more often.
const LARGE_WINDOW: u16 = 16;

/// Minimum number of receive buffers that must fit into the program's `SO_RCVBUF`.
const LEAST_UNREAD: usize = 8;

/// Minimum number of posted receive buffers, for the peer's control messages.
const LAST_BUFFERS: u16 = 2;
/// Minimum number of receive buffers posted while nothing is unread, even if `SO_RCVBUF` is small.
const LEAST_BUFFERS: u16 = 4;
/// First and longest pause before the retry of a failed allocation.
const FIRST_PAUSE: Jiffies = milliseconds(4);
const LONGEST_PAUSE: Jiffies = milliseconds(1000);

/// Number of connections with large receive buffers, in all namespaces.
static LARGE: Atomic<i32> = Atomic::new(0);

/// Permission for receive buffers of more than [`MIDDLE_CHUNK`] bytes; counted in [`LARGE`].
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

/// Returns the initial size of a connection's receive buffers, and the permission for large ones.
/// OFED peers (`for_ever`) never request larger buffers, so they get large buffers at once.
pub(crate) fn first_size(sk: &SdpSock, for_ever: bool) -> (usize, Option<LargeRight>) {
    let most = params::rcvbuf_initial_size().max(MIDDLE_CHUNK as i32);
    let first = (sk.params().rcvbuf_initial_size().min(most) as usize).next_power_of_two();
    if !for_ever {
        return (first, None);
    }
    let size = largest(sk).max(first);
    match (size > MIDDLE_CHUNK).then(LargeRight::new) {
        Some(Some(large)) => (size, Some(large)),
        _ => (size.min(MIDDLE_CHUNK).max(first), None),
    }
}

/// Returns the largest useful size of receive buffers. Unread data is counted in whole buffers:
/// with a fixed `SO_RCVBUF`, two short messages in large buffers would stop the peer.
fn largest(sk: &SdpSock) -> usize {
    if !sk.rcvbuf_is_fixed() {
        return LARGE_CHUNK;
    }
    let most = (sk.rcvbuf() / LEAST_UNREAD).clamp(512, LARGE_CHUNK);
    1 << most.ilog2()
}

/// Receive buffers of a connection that are not posted, and parameters of all its receive buffers.
pub(crate) struct RxBuffers {
    /// Unused buffers of the current size.
    spare: KVec<Buffer>,
    /// Empty buffers with pages that a pipe got (splice(2)), mapped and charged
    /// (`max_buffer_memory`). A buffer is posted again once nothing else uses its pages. When the
    /// connection ends, the pages belong to the pipe alone.
    given: KVec<Buffer>,
    /// Size of each buffer in bytes.
    size: u32,
    /// Number of buffers to keep posted while the reader keeps up.
    window: u16,
    /// Last pause between retries of the timer ([`Timer::Memory`]), 0 for none. Nonzero while lack
    /// of memory leaves the peer too few buffers; then only the timer retries.
    pause: Jiffies,
    /// Permission for large buffers.
    large: Option<LargeRight>,
    /// Size requested by ChRcvBuf, until [`resize`] has replied.
    pub(super) wanted: Option<u32>,
}

impl RxBuffers {
    pub(super) const fn new() -> Self {
        RxBuffers {
            spare: KVec::new(),
            given: KVec::new(),
            size: 0,
            window: FIRST_WINDOW,
            pause: 0,
            large: None,
            wanted: None,
        }
    }

    /// Sets the state of a new connection, with capacity for spare buffers of this size.
    pub(super) fn begin(&mut self, spare: KVec<Buffer>, size: u32) {
        (self.spare, self.size) = (spare, size);
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::new();
    }

    /// Drops the spare buffers.
    pub(super) fn clear(&mut self) {
        self.spare.clear();
    }

    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Doubles the number of buffers to keep posted, up to the slots of the receive queue.
    pub(super) fn grow(&mut self, endpoint: &Endpoint) {
        let most = endpoint.receive_slots();
        self.window = self.window.saturating_mul(2).min(most);
    }
}

impl Connection {
    /// Takes over the permission for the first receive buffers, if they are large.
    pub(crate) fn begin_with(&mut self, sk: &SdpSock, large: Option<LargeRight>) {
        self.rx_buffers.large = large;
        if self.rx_buffers.size as usize > MIDDLE_CHUNK {
            self.grow(sk);
        }
    }

    /// Increases the number of receive buffers to [`LARGE_WINDOW`].
    fn grow(&mut self, sk: &SdpSock) {
        let Some(endpoint) = &self.endpoint else {
            return;
        };
        self.rx_buffers.window = LARGE_WINDOW.min(endpoint.receive_slots());
        sk.grow_rcvbuf((self.rx_buffers.size as usize).saturating_mul(LARGE_WINDOW.into()));
    }

    /// Keeps a receive buffer for posting, if the buffer is needed and its slot can be allocated.
    /// Returns true if the buffer is kept.
    #[must_use]
    pub(super) fn keep(&mut self, buffer: Buffer) -> bool {
        let Some(endpoint) = &self.endpoint else {
            return false;
        };
        let wanted = self.there(endpoint) < LEAST_BUFFERS.into() || !pressure::is_exhausted();
        // the vector of spare buffers has had slots for the minimum from the beginning
        wanted
            && buffer.capacity() == self.rx_buffers.size as usize
            && vec::push(&mut self.rx_buffers.spare, MOST_SPARE, buffer, GFP_NOWAIT).is_ok()
    }

    /// Takes back an empty receive buffer.
    pub(crate) fn recycle(&mut self, buffer: Buffer) {
        let _ = match buffer.given {
            // `may_give` has reserved space for the buffer
            true => vec::push(&mut self.rx_buffers.given, MOST_GIVEN, buffer, GFP_NOWAIT).is_ok(),
            false => self.keep(buffer),
        };
    }

    /// Returns true if a pipe may get the pages of the first unread buffer.
    pub(crate) fn may_give(&mut self) -> bool {
        self.reclaim_given();
        let given = &mut self.rx_buffers.given;
        !pressure::is_tight() && vec::reserve(given, MOST_GIVEN, GFP_NOWAIT).is_ok()
    }

    /// Recycles given buffers whose pages no pipe uses any more.
    fn reclaim_given(&mut self) {
        let mut i = 0;
        while let Some(buffer) = self.rx_buffers.given.get(i) {
            if buffer.block().is_some_and(|b| b.is_shared()) {
                i = i.saturating_add(1);
            } else if let Ok(mut buffer) = self.rx_buffers.given.remove(i) {
                buffer.given = false;
                self.recycle(buffer);
            }
        }
    }

    /// Returns the mapper of the endpoint, for new buffers.
    pub(crate) fn mapper(&self) -> Option<Arc<Mapper>> {
        Some(self.endpoint.as_ref()?.mapper().clone())
    }

    /// Returns the number of receive buffers to allocate.
    pub(crate) fn lacking(&self, sk: &SdpSock) -> usize {
        let Some(endpoint) = self.endpoint.as_ref().filter(|_| self.wants_refill(sk)) else {
            return 0;
        };
        let target = usize::from(self.target(sk).min(self.rx.most_more()));
        target.saturating_sub(self.there(endpoint))
    }

    /// Returns the number of posted and spare receive buffers.
    fn there(&self, endpoint: &Endpoint) -> usize {
        let posted = usize::from(endpoint.posted_receives());
        posted.saturating_add(self.rx_buffers.spare.len())
    }

    /// Handles a failed allocation of missing receive buffers.
    pub(crate) fn stays_short(&mut self, sk: &SdpSock) {
        let least = self.target(sk).min(LEAST_BUFFERS);
        let endpoint = self.endpoint.as_ref();
        if endpoint.is_some_and(|e| e.posted_receives() < least) {
            self.is_short(sk);
        }
    }

    /// Sets the retry timer if lack of memory keeps messages from being sent or received.
    pub(super) fn is_short(&mut self, sk: &SdpSock) {
        if !self.timers.is_set(Timer::Memory) {
            let longer = self.rx_buffers.pause.saturating_mul(2);
            let pause = longer.clamp(FIRST_PAUSE, LONGEST_PAUSE);
            self.rx_buffers.pause = pause;
            self.set_timer(sk, Timer::Memory, pause);
        }
    }

    /// Returns true if no bytes can arrive before queued bytes are read: the peer has no credits
    /// for payload, and too few buffers are available for a credit update.
    pub(crate) fn is_full(&self, sk: &SdpSock) -> bool {
        if let Some(Local { link, .. }) = &self.local {
            return link.is_full(sk);
        }
        let Some(left) = self.protocol.as_ref().map(|p| p.peer_credits()) else {
            return false;
        };
        let most = left.saturating_add(1);
        let posted = |c: &Endpoint| c.posted_receives() <= most;
        left < PAYLOAD_CREDITS
            && self.rx.memory() > 0
            // other buffers may be posted soon
            && self.target(sk) <= most
            && self.endpoint.as_ref().is_some_and(posted)
    }

    /// Returns the number of receive buffers to keep posted, according to window and `SO_RCVBUF`.
    fn target(&self, sk: &SdpSock) -> u16 {
        let RxBuffers { window, size, .. } = self.rx_buffers;
        let (rcvbuf, unread, size) = (sk.rcvbuf(), self.readable(), size as usize);
        let most = usize::from(window.max(LEAST_BUFFERS)).saturating_mul(size);
        if unread > rcvbuf.saturating_add(most) {
            // The peer has spent its last credits on payload, so no buffers are added.
            return 0;
        }
        let left = rcvbuf.saturating_sub(unread);
        let space = left.checked_div(size).unwrap_or(left);
        // a peer that has advertised memory may need credits to cancel the advert
        let least = match unread == 0 || self.holds_advert() {
            true => LEAST_BUFFERS,
            false => LAST_BUFFERS,
        };
        let window = match pressure::is_exhausted() {
            true => window.min(LEAST_BUFFERS),
            false => window,
        };
        window
            .min(u16::try_from(space).unwrap_or(u16::MAX))
            .max(least)
    }

    /// Returns the memory of unread data, or 0 before a `SOCK_SEQPACKET` message is complete.
    fn readable(&self) -> usize {
        match &self.records {
            Some(records) if !records.has_arrived() => 0,
            _ => self.rx.memory(),
        }
    }

    /// Returns true if a quarter of the buffers is missing: posting one buffer costs as much as
    /// posting many.
    pub(crate) fn wants_refill(&self, sk: &SdpSock) -> bool {
        let Some(endpoint) = self.endpoint.as_ref() else {
            return false;
        };
        let posted = endpoint.posted_receives();
        let few = |target: u16| posted <= target.saturating_sub(target / 4);
        // a cheap check first: the target is at most the window or the minimum
        few(self.rx_buffers.window.max(LEAST_BUFFERS))
            && few(self.target(sk))
            // siw refuses receive requests once the connection has ended, or flushes each at once
            && !(self.both_ended() || self.closing.has_begun())
    }

    /// Posts the missing receive buffers, if enough are missing. If the spare buffers do not
    /// suffice, sets a wakeup to allocate others without the lock.
    pub(crate) fn refill(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        if !self.wants_refill(sk) {
            return;
        }
        self.reclaim_given();
        let keeps_up = self.readable() == 0;
        let Some(endpoint) = self.endpoint.as_ref() else {
            return;
        };
        let posted = endpoint.posted_receives();
        if posted < self.rx_buffers.window / 2
            && keeps_up
            && self.rx_buffers.spare.len() < usize::from(posted)
            && !pressure::is_tight()
        {
            // the peer has used half of its credits in a row, and the reader keeps up
            self.rx_buffers.grow(endpoint);
        }
        let target = self.target(sk).min(self.rx.most_more());
        let Some(endpoint) = self.endpoint.as_mut() else {
            return;
        };
        for _ in posted..target {
            let posted = usize::from(endpoint.posted_receives());
            if !self.rx.make_space(posted.saturating_add(1)) {
                break;
            }
            let Some(buffer) = self.rx_buffers.spare.pop() else {
                break;
            };
            if let Err(buffer) = endpoint.post_receive(buffer) {
                // if the vector of spare buffers is full, the timer retries
                let _ = self.rx_buffers.spare.push_within_capacity(buffer);
                break;
            }
        }
        if endpoint.posted_receives() >= target.min(LEAST_BUFFERS) {
            self.rx_buffers.pause = 0;
            self.timers.clear(Timer::Memory);
        } else if !self.rx_buffers.spare.is_empty() {
            self.is_short(sk);
        }
        wakeups.add_if(self.lacking(sk) > 0, Wakeup::Buffers);
    }
}

/// Returns true if buffers `mapped` without the connection's lock belong to this endpoint. The
/// socket may have started a new connection during the mapping.
fn is_of(endpoint: &Endpoint, mapped: &Arc<Mapper>) -> bool {
    Arc::ptr_eq(endpoint.mapper(), mapped)
}

fn make(size: usize, mapper: &Arc<Mapper>, gfp: Flags) -> Result<Buffer> {
    let mut buffer = Buffer::new(size, gfp)?;
    buffer.map(mapper, Direction::FromDevice, gfp)?;
    Ok(buffer)
}

/// Allocates and posts the first `n` receive buffers of a connection.
pub(super) fn post_first(endpoint: &mut Endpoint, size: usize, n: u16) -> Result {
    for _ in 0..n {
        let buffer = make(size, endpoint.mapper(), GFP_KERNEL)?;
        endpoint.post_receive(buffer).map_err(|_| ENOMEM)?;
    }
    endpoint.flush()
}

/// Allocates the first larger receive buffers.
fn first_buffers(size: usize, mapper: &Arc<Mapper>) -> Result<KVec<Buffer>> {
    let mut buffers = vec::with_capacity(FIRST_LARGE.into(), GFP_KERNEL)?;
    for _ in 0..FIRST_LARGE {
        let _ = buffers.push_within_capacity(make(size, mapper, GFP_KERNEL)?);
    }
    Ok(buffers)
}

/// Replies to the peer's request for larger receive buffers. Context: worker.
pub(crate) fn resize(sk: &SdpSock) {
    let (wanted, mapper, now, had) = {
        let mut c = sk.connection();
        let (wanted, mapper) = (c.rx_buffers.wanted.take(), c.mapper());
        let (Some(wanted), Some(mapper), true) = (wanted, mapper, c.connected()) else {
            return;
        };
        let RxBuffers { size, large, .. } = &mut c.rx_buffers;
        (wanted, mapper, *size as usize, large.take())
    };
    let size = (wanted.clamp(512, LARGE_CHUNK as u32) as usize).next_power_of_two();
    let size = size.min(largest(sk));
    let kept = had.is_some();
    let large = had.or_else(|| (size > MIDDLE_CHUNK).then(LargeRight::new).flatten());
    // smaller buffers may be possible when memory or permission for large ones is missing
    let grown = [size, size / 2, size / 4, size / 8]
        .into_iter()
        .filter(|s| *s > now && (large.is_some() || *s <= MIDDLE_CHUNK) && !pressure::is_tight())
        // the connection uses only the new buffers once the current ones are used up
        .find_map(|size| Some((size, first_buffers(size, &mapper).ok()?)));
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
            rx_buffers.size = size as u32;
            protocol.resize_receive(rx_buffers.size, posted);
            rx_buffers.spare = buffers;
            c.stats.resizes += 1;
            c.grow(sk);
        } else {
            // the size stays the same, and the reply reports this size
            protocol.resize_receive(rx_buffers.size, posted);
        }
        if holds {
            c.rx_buffers.large = large;
        }
        c.progress();
    }
}

/// Allocates missing receive buffers, as far as memory is available, and posts these buffers.
pub(crate) fn stock(sk: &SdpSock, gfp: Flags) -> Wakeups {
    loop {
        let (size, lacking, mapper) = {
            let c = sk.connection();
            let Some(mapper) = c.mapper() else {
                return Wakeups::default();
            };
            (c.rx_buffers.size as usize, c.lacking(sk), mapper)
        };
        let mut made = [const { None }; BATCH];
        for buffer in made.iter_mut().take(lacking) {
            *buffer = make(size, &mapper, gfp).ok();
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

/// Allocates missing receive buffers after a failed allocation. Context: worker, may sleep.
pub(crate) fn restock(sk: &SdpSock) {
    sk.connection().timers.clear(Timer::Memory);
    sk.deliver(stock(sk, GFP_KERNEL));
}

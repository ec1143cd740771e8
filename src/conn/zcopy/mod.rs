// SPDX-License-Identifier: GPL-2.0-only

//! Zero copy: RDMA between the pages of the send call and those of the receive call.
//!
//! [`Zcopy`] is the state of one connection, allocated at the first large send or advert. In each
//! direction, one call at a time uses zero copy, while others copy or wait; detached sends are not
//! limited to one call. A block of a call's memory is pinned ([`memory`]), queued, and removed once
//! nothing accesses the block any more.
//!
//! | way | queue | call | under the lock |
//! | --- | --- | --- | --- |
//! | SrcAvail: the peer reads | [`tx_blocks`] | [`send`], [`detached`] | [`tx`] |
//! | RDMA WRITE, to a reader of the peer | [`tx_blocks`] | [`send`], [`detached`] | [`ahead`] |
//! | SinkAvail: the peer writes | one [`advert`] | [`recv::be_written_to`] | [`rx`] |
//! | RDMA READ, of the peer's advert | [`transfer`] | [`recv::read`] | [`rx`] |
//!
//! [`ahead`] defines the order of blocks and other bytes of the stream.
//!
//! The queues depend on neither memory nor transport; `tests/host/zcopy` tests them on the host.
//!
//! **Which end advertises.** The end whose call comes first advertises. A blocking send call of at
//! least the threshold (`SDP_ZCOPY_THRESH`, `sdp_zcopy_thresh`) writes its bytes to a waiting
//! reader of the peer; without such a reader, the call advertises these bytes. The receiver READs
//! advertised bytes in a blocking receive call. The receiver refuses the advert for a poller, a
//! peek or a non-blocking call, which need the bytes at once and get them as Data. If the peer does
//! not react, the sender waits little longer than recent transfers took, takes its blocks back and
//! copies. A receive call that would sleep advertises a buffer of at least the threshold, once the
//! peer has sent large blocks. Without a threshold, the sender measures if zero copy is faster
//! ([`policy`]).
//!
//! **Which call waits.** Usually the call that pinned the pages waits for their release. Once the
//! connection is lost, the release does not depend on the peer. A call with `MSG_ZEROCOPY` does not
//! wait: its blocks are *detached*, and are read or written in stream order. A later
//! `Guard::progress` releases detached blocks, which notifies the program.
//!
//! [`crate::transport`] describes the owner of the pages at each step.

mod advert;
mod ahead;
pub(crate) mod detached;
pub(crate) mod local;
pub(crate) mod memory;
pub(crate) mod policy;
pub(crate) mod protected;
pub(crate) mod recv;
mod rx;
pub(crate) mod send;
pub(crate) mod spliced;
mod touches;
mod transfer;
mod tx;
mod tx_blocks;
mod waiting;

use self::advert::{Advert, AdvertState};
use self::policy::{Kind, Policy, SMALLEST};
use self::spliced::Collection;
use self::touches::{Backoff, FaultRate};
use self::transfer::Transfer;
use self::tx_blocks::TxBlocks;
pub(crate) use self::tx_blocks::{BlockUser, MOST_BLOCKS};
use super::closing::CloseEvent;
use super::{Connection, SdpSock, Threshold, Wakeup, Wakeups};
use crate::memory::protect::ProtectedMm;
use crate::protocol::Block;
use crate::sys::errno::ECONNABORTED;
use crate::sys::net::params;
use crate::sys::protect::Protector;
use crate::sys::time::{milliseconds, nanoseconds, Jiffies};
use crate::transport::{BlockId, Key, Pinned, Watch};
use core::ops::Deref;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Minimum size in bytes of an RDMA READ or WRITE for which pinning is faster than copying.
pub(crate) const LEAST_TRANSFER: usize = 4096;
/// Assumed time until the peer has read a block, before any measurement.
const FIRST_MEAN: Jiffies = milliseconds(50);
/// Minimum and maximum time that a send call waits until the peer reads its block, and a receive
/// call until the peer writes to its memory.
const LEAST_ADVERT_TIME: Jiffies = milliseconds(20);
const MOST_ADVERT_TIME: Jiffies = milliseconds(1000);
/// Time for the peer's kernel to return memory, for which the peer's program need not act.
const CANCEL_TIME: Jiffies = milliseconds(10_000);
/// Time for an OFED peer to reply to a cancel. OFED drops a SrcAvailCancel that arrives during a
/// READ of the block, and replies at the program's next receive call. Calls of an OFED peer wait
/// for 60 s.
const OFED_CANCEL_TIME: Jiffies = milliseconds(65_000);
/// Maximum number of blocks to copy after an advert that the peer did not read.
const MOST_SKIPS: u32 = 64;
/// Maximum number of sent blocks that wait for their release; further blocks are freed by a worker.
const MOST_RELEASED: usize = 4;

/// Flag in the cookie of a WRITE or message with the rest of a block, added to the block's cookie.
const REST: u64 = 1 << 63;

/// Block that was passed to the transport, for transfers of this end or access by the peer.
#[derive(Clone)]
struct Posted {
    id: BlockId,
    /// Reports the release of memory that cannot be taken back.
    watch: Watch,
}

impl From<Key> for Block {
    fn from(key: Key) -> Self {
        Block {
            size: key.len,
            r_key: key.rkey,
            address: key.address,
        }
    }
}

/// Returns true if the module parameter `zcopy_ways` allows zero copy by RDMA READ.
fn by_read() -> bool {
    params::zcopy_ways() & 1 != 0
}

fn by_write() -> bool {
    params::zcopy_ways() & 2 != 0
}

/// Zero-copy state of a connection; `None` until first used, while readers see the initial state.
pub(crate) struct ZcopyBox(Option<KBox<Zcopy>>);

impl ZcopyBox {
    pub(crate) const fn new() -> Self {
        ZcopyBox(None)
    }

    pub(crate) fn get_mut(&mut self) -> Option<&mut Zcopy> {
        self.0.as_deref_mut()
    }

    /// Returns true if the transport owns blocks.
    #[inline]
    pub(crate) fn has_posted(&self) -> bool {
        let posted =
            |z: &KBox<Zcopy>| !z.blocks.is_empty() || z.sink.is_some() || z.reading.is_some();
        self.0.as_ref().is_some_and(posted)
    }

    /// Runs `f` on the zero-copy state, if it is allocated.
    pub(crate) fn with<R: Default>(&mut self, f: impl FnOnce(&mut Zcopy) -> R) -> R {
        self.get_mut().map(f).unwrap_or_default()
    }
}

impl Deref for ZcopyBox {
    type Target = Zcopy;

    fn deref(&self) -> &Zcopy {
        const EMPTY: &Zcopy = &Zcopy::new();
        self.0.as_deref().unwrap_or(EMPTY)
    }
}

/// Zero-copy state of one connection, protected by `Socket::connection`.
pub(crate) struct Zcopy {
    /// Blocks sent from program pages.
    blocks: TxBlocks<Posted>,
    /// Pages that are being collected into a block.
    collection: Collection,
    /// Memory of sent blocks, which is released without the connection's lock.
    released: [Option<Pinned>; MOST_RELEASED],
    /// Backoff of adverts of detached blocks.
    detached_skips: Backoff,
    /// Adverts created so far. The value at creation identifies the advert in the completion that
    /// ends the peer's access.
    cookies: u64,
    /// Advert of a receive call's memory, sent or still to be sent.
    sink: Option<Advert<Posted>>,
    /// READs in flight of a receive call.
    reading: Option<Transfer<Posted>>,
    /// Running mean of the time until the peer has read a block.
    mean: Jiffies,
    /// Stream position before which bytes are copied.
    copy_until: u64,
    /// Number of blocks to copy after the next block that the peer returns.
    skips: u32,
    sink_skips: Backoff,
    /// True if the peer's readers have recently advertised sinks.
    readers_advertise: bool,
    /// Choice between copy and zero copy; `None` before the first large send.
    policy: Option<Policy>,
    /// Rate of write faults on protected blocks.
    touches: FaultRate,
    /// Address space of the last protected block.
    mm: Option<Arc<Protector<ProtectedMm>>>,
}

impl Zcopy {
    const fn new() -> Self {
        Zcopy {
            blocks: TxBlocks::new(),
            collection: Collection::None,
            released: [const { None }; MOST_RELEASED],
            detached_skips: Backoff::new(),
            cookies: 0,
            sink: None,
            reading: None,
            mean: FIRST_MEAN,
            copy_until: 0,
            skips: 0,
            sink_skips: Backoff::new(),
            readers_advertise: true,
            policy: None,
            touches: FaultRate::new(),
            mm: None,
        }
    }

    /// Resets the measurements for another connection.
    pub(crate) fn forget(&mut self) {
        (self.mean, self.copy_until, self.skips) = (FIRST_MEAN, 0, 0);
        (self.sink_skips, self.readers_advertise) = (Backoff::new(), true);
        self.detached_skips = Backoff::new();
        self.policy = None;
        self.touches = FaultRate::new();
    }

    /// Returns true if the completion of a work request makes progress, and must cause an event.
    pub(crate) fn is_busy(&self) -> bool {
        self.blocks.adverts().any(Advert::is_ending)
            || self.blocks.is_sending()
            || self.sink.as_ref().is_some_and(Advert::is_ending)
            || self.reading.is_some()
    }

    pub(crate) fn has_detached(&self) -> bool {
        self.blocks.detached_bytes() > 0
    }

    /// Handles the loss of the connection, which ends all waits.
    pub(crate) fn lost(&mut self) {
        self.blocks.lost();
        self.collection = Collection::None;
        if let Some(sink) = &mut self.sink {
            sink.state = AdvertState::Lost;
        }
        if let Some(reading) = &mut self.reading {
            reading.lost = true;
        }
    }

    /// Returns the adverts: memory that the peer has access to, or will get access to.
    fn adverts(&mut self) -> impl Iterator<Item = &mut Advert<Posted>> {
        Iterator::chain(self.blocks.adverts_mut(), self.sink.iter_mut())
    }

    fn next_cookie(&mut self) -> u64 {
        self.cookies = self.cookies.wrapping_add(1);
        self.cookies
    }

    /// Returns the time to wait until the peer reads a block.
    fn timeout_of_advert(&self) -> Jiffies {
        self.mean
            .saturating_mul(4)
            .clamp(LEAST_ADVERT_TIME, MOST_ADVERT_TIME)
    }

    /// Records a block that the peer has read within the time `took`.
    fn taken_up(&mut self, took: Jiffies) {
        self.skips = 0;
        let sum = self.mean.saturating_mul(3);
        self.mean = sum.saturating_add(took.min(MOST_ADVERT_TIME)) / 4;
    }

    /// Records a block of `size` bytes that the peer refused or did not read in time. `left` bytes
    /// of the block are copied from position `at` on. Each consecutive failure doubles the number
    /// of blocks copied before the next advert.
    fn not_taken_up(&mut self, at: u64, size: u32, left: u32) {
        let more = u64::from(self.skips).saturating_mul(size.into());
        self.copy_until = at.wrapping_add(u64::from(left)).wrapping_add(more);
        self.skips = self.skips.saturating_mul(2).clamp(1, MOST_SKIPS);
    }
}

impl Connection {
    /// Returns the minimum number of bytes for zero copy, if zero copy is on.
    pub(crate) fn zcopy_threshold(&self) -> Option<usize> {
        self.options.zcopy_threshold().bytes()
    }

    fn kind(&self) -> Kind {
        match self.endpoint.as_ref().map(|c| c.mapper()) {
            None => Kind::Local,
            Some(mapper) if mapper.is_software() => Kind::Software,
            Some(_) => Kind::Adapter,
        }
    }

    /// Returns true if a call with this many bytes uses zero copy.
    pub(crate) fn may_use_zcopy(&mut self, bytes: usize) -> bool {
        match self.options.zcopy_threshold() {
            Threshold::Adaptive => {
                let kind = self.kind();
                self.zcopy.with(|z| {
                    let policy = z.policy.get_or_insert_with(|| Policy::new(kind));
                    policy.is_direct(bytes)
                })
            }
            threshold => threshold.bytes().is_some_and(|least| bytes >= least),
        }
    }

    /// Decides like [`Self::may_use_zcopy`] for a call that begins.
    pub(crate) fn chooses_zcopy(&mut self, bytes: usize) -> bool {
        let zcopy = self.may_use_zcopy(bytes);
        let policy = self.zcopy.get_mut().and_then(|z| z.policy.as_mut());
        let pipelined = match (self.options.zcopy_threshold(), policy) {
            (Threshold::Adaptive, Some(policy)) if bytes >= SMALLEST => policy.begins(bytes),
            // the choice is unchanged
            (Threshold::Adaptive, _) => return zcopy,
            (Threshold::From(n), _) if bytes < n => return zcopy,
            _ => zcopy,
        };
        if let Some(p) = &mut self.protocol {
            // Pipelined: several blocks may be outstanding, and the peer's readers advertise memory
            p.set_pipelined(pipelined);
        }
        zcopy
    }

    /// Records a complete call of `bytes` bytes that began at time `start` ([`nanoseconds`]).
    /// `run` is the size of the call's longest run, which determined the method.
    pub(crate) fn has_sent(&mut self, run: usize, bytes: usize, start: u64) {
        let adaptive = self.options.zcopy_threshold() == Threshold::Adaptive;
        let policy = self.zcopy.get_mut().and_then(|z| z.policy.as_mut());
        if let Some(policy) = policy.filter(|_| adaptive) {
            policy.sent(run, bytes, nanoseconds().saturating_sub(start));
        }
    }

    /// Posts invalidations of memory that the peer no longer uses, while the send queue has space.
    pub(crate) fn end_access(&mut self) -> Result {
        let (Some(endpoint), Some(z)) = (self.endpoint.as_mut(), self.zcopy.get_mut()) else {
            return Ok(());
        };
        for advert in z.adverts().filter(|a| a.state == AdvertState::Done) {
            match endpoint.invalidate(advert.memory.id, advert.cookie) {
                Ok(()) => advert.invalidating(),
                // the send queue has no space; a later call continues
                Err(e) if e == ENOSPC => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Handles a completed invalidation.
    pub(crate) fn access_ended(&mut self, cookie: u64, wakeups: &mut Wakeups) {
        // an advert with this cookie exists, unless the connection was lost
        let _ = self
            .zcopy
            .with(|z| z.adverts().any(|a| a.invalidated(cookie)));
        wakeups.add(Wakeup::Zcopy);
    }

    /// Handles the completion of a READ, WRITE or message of `n` bytes of a block.
    pub(crate) fn moved(&mut self, cookie: u64, n: u32, wakeups: &mut Wakeups) {
        match cookie & REST {
            0 => self.has_read(cookie, n, wakeups),
            _ => self.rest_gone(cookie & !REST, n, wakeups),
        }
    }
}

impl SdpSock {
    /// Allocates the zero-copy state. Returns false if out of memory. Context: process, may sleep,
    /// without the connection's lock.
    #[inline(never)]
    pub(crate) fn prepare_zcopy(&self) -> bool {
        let exists = self.with(|c| c.zcopy.0.is_some());
        let new = match exists {
            true => return true,
            false => KBox::new(Zcopy::new(), GFP_KERNEL),
        };
        // if another call was first, the drop below frees this allocation
        let mut new = new.ok();
        self.with(|c| {
            if c.zcopy.0.is_none() {
                c.zcopy.0 = new.take();
            }
            c.zcopy.0.is_some()
        })
    }

    /// Aborts the connection, so that a call does not wait for its memory any longer.
    fn give_up(&self) {
        let (below, wakeups) = {
            let mut c = self.connection();
            c.close_on(CloseEvent::Failed, ECONNABORTED);
            // ends all waits, even if both streams have ended and the endpoint still exists
            c.zcopy.with(Zcopy::lost);
            (c.endpoint.take(), c.unlock())
        };
        drop(below);
        drop(wakeups);
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! The send queue of a QP: a ring of work requests in flight, from posting to completion.
//!
//! * [`requests`]: the requests, which the device executes in the order of posting;
//! * [`blocks`]: the program memory that they access.

pub(crate) mod blocks;
pub(crate) mod requests;

use self::blocks::{BlockId, BlockTable};
use super::super::bindings as c;
use super::super::pages::{Memory, MIN_BLOCK};
use super::cq::EndpointEvents;
use super::mapper::{MapperOwner, Mapping};
use super::pd::Pd;
use super::qp::QueuePair;
use super::queues::{QueueParts, Sizes, Status, MAX_COPIED, MAX_SGES};
use kernel::dma::DataDirection as Direction;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Completion of a request of the send queue, with the cookie of that request.
pub(crate) enum SendCompletion {
    /// The peer has received this message and all earlier ones.
    Sent { cookie: u64 },
    /// This message, transfer or invalidation has failed, and all requests posted after it will
    /// fail. A message whose request failed may have arrived nevertheless.
    Failed { status: Status },
    /// A READ or WRITE is complete: the bytes of a READ are in local memory, those of a WRITE have
    /// arrived at the peer.
    Moved {
        cookie: u64,
        /// Number of bytes, as the transfer returned.
        len: u32,
    },
    /// The peer's access has ended.
    Ended { cookie: u64 },
}

impl SendCompletion {
    /// Reported for a completion that the device must not report: the connection has to end.
    const INVALID: Self = SendCompletion::Failed {
        status: Status::Local,
    };
}

/// Kinds of work requests.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum WrKind {
    #[default]
    Message,
    /// A message with the given number of payload bytes from a block.
    BlockMessage(u32),
    /// A probe, whose completion is not reported.
    Probe,
    /// An RDMA READ or WRITE with a block.
    Transfer { len: u32, read: bool },
    /// A registration of a block, or the IB_WR_LOCAL_INV before the registration. Not reported.
    Register,
    /// An invalidation of the peer's access to a block.
    Invalidate,
}

/// A slot: one work request in flight.
#[derive(Default)]
pub(super) struct SendSlot {
    cookie: u64,
    kind: WrKind,
    /// Block that the request accesses.
    block: Option<BlockId>,
    /// Set if the request has its own completion.
    signaled: bool,
    /// Buffers that the device reads for the message.
    kept: [Option<Arc<Mapping>>; MAX_SGES as usize],
}

/// A work request of either kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union WorkRequest {
    rdma: c::ib_rdma_wr,
    reg: c::ib_reg_wr,
}

impl Default for WorkRequest {
    fn default() -> Self {
        WorkRequest {
            rdma: Default::default(),
        }
    }
}

impl WorkRequest {
    fn head(&mut self) -> &mut c::ib_send_wr {
        // SAFETY: Both kinds of requests begin with an `ib_send_wr`, and are plain data.
        unsafe { &mut self.rdma.wr }
    }

    fn rdma(&mut self) -> &mut c::ib_rdma_wr {
        *self = Self::default();
        // SAFETY: The work request was just written as an RDMA request.
        unsafe { &mut self.rdma }
    }
}

/// Work requests in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unacknowledged {
    Nothing,
    /// No request in flight reports its completion.
    Unsignaled,
    Signaled,
}

pub(super) type SendParts = QueueParts<SendSlot, WorkRequest>;

/// Ring of work requests in flight. Positions increase without end; the slot is the position
/// modulo the number of slots.
///
/// # Invariants
///
/// Positions from `head` to `tail` are in use; those from `flushed` on are not posted yet, those
/// before `done` are complete. Memory that the device may access for a position is kept by its
/// slot, is the headers' block, or is a block that counts the slot as a user.
pub(super) struct SendQueue<T: Send + 'static> {
    qp: Arc<QueuePair>,
    /// Each slot has `1 + max_sge` SGEs.
    pub(super) parts: SendParts,
    mapper: Arc<MapperOwner>,
    pub(super) pd: Arc<Pd>,
    lkey: u32,
    pub(super) sizes: Sizes,
    headers: Memory,
    headers_mapping: Arc<Mapping>,
    pub(super) blocks: BlockTable<T>,
    head: u64,
    done: u64,
    /// Status of the position before `done`; all earlier positions succeeded.
    status: Result<(), Status>,
    flushed: u64,
    tail: u64,
    unsignaled: usize,
    /// Number of messages posted and not known to be complete.
    pub(super) messages: u16,
    /// Number of probes in flight, as of the last [`SendQueue::poll`].
    pub(super) probes: u16,
    broken: bool,
    /// Set for siw: a completion does not complete earlier requests. A completion may overtake that
    /// of a READ, and TCP may still refer to the memory of unsignaled messages.
    unordered: bool,
}

impl<T: Send + 'static> SendQueue<T> {
    pub(super) fn new(
        qp: &Arc<QueuePair>,
        mut parts: SendParts,
        (headers, headers_mapping): (Memory, Arc<Mapping>),
        mapper: &Arc<MapperOwner>,
        pd: &Arc<Pd>,
        sizes: Sizes,
        events: Arc<dyn EndpointEvents>,
    ) -> Self {
        parts.cq.begin(events);
        SendQueue {
            qp: qp.clone(),
            mapper: mapper.clone(),
            pd: pd.clone(),
            lkey: pd.lkey(),
            sizes,
            headers,
            headers_mapping,
            blocks: BlockTable::new(),
            head: parts.first,
            done: parts.first,
            status: Ok(()),
            flushed: parts.first,
            tail: parts.first,
            parts,
            unsignaled: 0,
            messages: 0,
            probes: 0,
            broken: false,
            unordered: pd.device().is_siw(),
        }
    }

    /// Allocates and maps memory for the headers of all slots.
    pub(super) fn headers(slots: u16, mapper: &MapperOwner) -> Result<(Memory, Arc<Mapping>)> {
        let size = usize::from(slots).saturating_mul(MAX_COPIED).max(MIN_BLOCK);
        let headers = Memory::new(size.next_power_of_two(), GFP_KERNEL)?;
        let mapping = mapper
            .mapper()
            .map(&headers, Direction::ToDevice, GFP_KERNEL)?;
        Ok((headers, mapping))
    }

    /// Destroys the blocks; otherwise works as [`QueueParts::retire`]. Context: process.
    pub(super) fn into_parts(mut self) -> Option<SendParts> {
        self.blocks.destroy();
        self.parts.retire(self.tail)
    }

    fn taken(&self) -> usize {
        self.tail.wrapping_sub(self.head) as usize
    }

    /// Returns true if all requests are known to be complete.
    fn is_empty(&self) -> bool {
        self.taken() == 0
    }

    pub(super) fn space(&self) -> u16 {
        self.parts.slots.len().saturating_sub(self.taken()) as u16
    }

    /// Returns the requests that the peer's adapter may not have acknowledged, or none if the local
    /// adapter limits retries.
    pub(super) fn unacknowledged(&self) -> Unacknowledged {
        match self.taken() {
            n if n == 0 || !self.pd.device().is_rxe() => Unacknowledged::Nothing,
            n if n == self.unsignaled => Unacknowledged::Unsignaled,
            _ => Unacknowledged::Signaled,
        }
    }

    /// Returns true if the next message has to be signaled for the queue not to fill up unnoticed.
    fn must_signal(&self) -> bool {
        self.unsignaled.saturating_add(1) >= self.parts.slots.len() / 2
    }

    fn slot_of(&self, position: u64) -> usize {
        // The number of slots is not 0, which the compiler cannot see.
        let slots = self.parts.slots.len() as u64;
        position.checked_rem(slots).unwrap_or(0) as usize
    }

    /// Checks that one more request can be queued, with `reserve` slots left for others.
    ///
    /// # Errors
    ///
    /// `EIO`: the queue is broken. `ENOSPC`.
    fn check_space(&self, reserve: u16) -> Result {
        match self.space() > reserve {
            _ if self.broken => Err(EIO),
            true => Ok(()),
            false => Err(ENOSPC),
        }
    }

    /// Returns the work request at `tail`, emptied.
    fn next_wr(&mut self) -> Result<&mut c::ib_rdma_wr> {
        let index = self.slot_of(self.tail);
        Ok(self.parts.wrs.get_mut(index).ok_or(EINVAL)?.rdma())
    }

    /// Queues the work request at `tail`, which is complete except for its flags, number and links.
    fn queue(
        &mut self,
        kind: WrKind,
        block: Option<BlockId>,
        cookie: u64,
        signaled: bool,
        mut flags: c::ib_send_flags,
    ) {
        let is_read = matches!(kind, WrKind::Transfer { read: true, .. });
        if self.unordered && !is_read {
            flags |= c::ib_send_flags_IB_SEND_FENCE;
        }
        let signaled = signaled || self.unordered || self.must_signal();
        if signaled {
            flags |= c::ib_send_flags_IB_SEND_SIGNALED;
            self.unsignaled = 0;
        } else {
            self.unsignaled = self.unsignaled.saturating_add(1);
        }
        let index = self.slot_of(self.tail);
        if let Some(slot) = self.parts.slots.get_mut(index) {
            (slot.kind, slot.block) = (kind, block);
            (slot.cookie, slot.signaled) = (cookie, signaled);
        }
        let mut this = core::ptr::null_mut();
        if let Some(wr) = self.parts.wrs.get_mut(index).map(WorkRequest::head) {
            wr.send_flags = flags;
            wr.__bindgen_anon_1.wr_id = self.tail;
            this = core::ptr::from_mut(wr);
        }
        if self.tail != self.flushed {
            let last = self.slot_of(self.tail.wrapping_sub(1));
            if let Some(last) = self.parts.wrs.get_mut(last) {
                last.head().next = this;
            }
        }
        match kind {
            WrKind::Message | WrKind::BlockMessage(_) => {
                self.messages = self.messages.saturating_add(1);
            }
            WrKind::Probe => self.probes = self.probes.saturating_add(1),
            _ => {}
        }
        if let Some(block) = block {
            self.blocks.begin_use(block, is_read);
        }
        // INVARIANT: The slot keeps the request's memory, or the memory's block counts the slot.
        self.tail = self.tail.wrapping_add(1);
    }

    /// Posts the queued requests to the device.
    pub(super) fn flush(&mut self) -> Result {
        if self.broken {
            return Err(EIO);
        }
        if self.flushed == self.tail {
            return Ok(());
        }
        let first = self.slot_of(self.flushed);
        let first = self.parts.wrs.get_mut(first).ok_or(EINVAL)?.head();
        // INVARIANT: All requests are posted. A request that the device has not accepted stays in
        // its slot.
        self.flushed = self.tail;
        // After the call the driver has copied the SGE lists.
        self.blocks.lists_are_free();
        // SAFETY: The QP is alive: only the endpoint that owns `self` destroys the QP, when the
        // endpoint is dropped. `queue` has linked the requests, and the driver copies them. Memory
        // that the device accesses for a request is kept by its slot, the headers' block or a block
        // of `blocks` until the completion or the destruction of the QP.
        let ret = to_result(unsafe { c::sdp_h_ib_post_send(self.qp.raw(), first) });
        self.broken = ret.is_err();
        ret
    }

    pub(super) fn has_completion(&mut self) -> bool {
        self.head != self.flushed && self.parts.cq.has_completion()
    }

    pub(super) fn poll(&mut self) -> Option<SendCompletion> {
        if self.head == self.flushed && !self.parts.cq.is_pending() {
            return None;
        }
        loop {
            while self.head != self.done {
                if self.is_overtaken() {
                    return Some(SendCompletion::INVALID);
                }
                if let Some(sent) = self.retire() {
                    return Some(sent);
                }
            }
            let wc = self.parts.cq.take()?;
            // SAFETY: The id of a send is a number, not a pointer; both are plain bits.
            let position = unsafe { wc.__bindgen_anon_1.wr_id };
            if position < self.parts.first {
                // the completion is for an earlier QP that used this CQ
                continue;
            }
            if position.wrapping_sub(self.head) >= self.flushed.wrapping_sub(self.head) {
                // A completion that is unknown or reported twice completes nothing.
                return Some(SendCompletion::INVALID);
            }
            // INVARIANT: A send queue completes in order, which `is_overtaken` checks.
            self.done = position.wrapping_add(1);
            self.status = Status::of(wc.status);
        }
    }

    /// Returns true if a later request than that at `head` has completed first. The device may
    /// still access the request's memory, so the slot keeps it until the QP is destroyed.
    fn is_overtaken(&mut self) -> bool {
        let last = self.head.wrapping_add(1) == self.done;
        let slot = self.parts.slots.get(self.slot_of(self.head));
        let overtaken = !last && slot.is_some_and(|s| s.signaled);
        if overtaken {
            (self.done, self.broken) = (self.head, true);
        }
        overtaken
    }

    /// Takes the complete request at `head` out of the ring; returns it if it is to be reported.
    fn retire(&mut self) -> Option<SendCompletion> {
        let last = self.head.wrapping_add(1) == self.done;
        let status = match last {
            true => self.status,
            false => Ok(()),
        };
        let index = self.slot_of(self.head);
        let following = self.slot_of(self.head.wrapping_add(1));
        let following = self.parts.slots.get(following);
        let precedes_message = !last && following.is_some_and(|s| s.kind == WrKind::Message);
        let slot = self.parts.slots.get_mut(index)?;
        // INVARIANT: The request is complete, so the device no longer accesses its memory.
        slot.kept = Default::default();
        let (cookie, kind, block) = (slot.cookie, slot.kind, slot.block);
        self.head = self.head.wrapping_add(1);
        let mut is_read = false;
        match kind {
            WrKind::Message | WrKind::BlockMessage(_) => {
                self.messages = self.messages.saturating_sub(1);
            }
            WrKind::Probe => self.probes = self.probes.saturating_sub(1),
            WrKind::Transfer { read, .. } => is_read = read,
            WrKind::Register | WrKind::Invalidate => {}
        }
        if let Some(block) = block {
            let invalidated = kind == WrKind::Invalidate && status.is_ok();
            self.blocks.end_use(block, is_read, invalidated);
        }
        if let Err(status) = status {
            return Some(SendCompletion::Failed { status });
        }
        match kind {
            // The completion of a message completes all earlier messages.
            WrKind::Message if precedes_message => None,
            WrKind::Message => Some(SendCompletion::Sent { cookie }),
            WrKind::Probe | WrKind::Register => None,
            WrKind::Transfer { len, .. } | WrKind::BlockMessage(len) => {
                Some(SendCompletion::Moved { cookie, len })
            }
            WrKind::Invalidate => Some(SendCompletion::Ended { cookie }),
        }
    }
}

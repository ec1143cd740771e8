// SPDX-License-Identifier: GPL-2.0-only

//! Receive queues.
//!
//! A [`ReceiveQueue`] is the receive queue of a QP: a ring of posted buffers.

use super::super::bindings as c;
use super::cq::EndpointEvents;
use super::mapper::{Mapper, MapperOwner, Mapping};
use super::pd::Pd;
use super::qp::QueuePair;
use super::queues::{QueueParts, Status};
use crate::sys::rdma::buffer::Buffer;
use kernel::dma::DataDirection as Direction;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::Arc;

pub(super) type ReceiveParts = QueueParts<Option<(Buffer, Arc<Mapping>)>, c::ib_recv_wr>;

/// Ring of posted receive buffers.
///
/// # Invariants
///
/// A receive that is posted to the device and not complete uses the buffer of its slot, through
/// that buffer's mapping. Slots from `queued_from` on, `queued` in number, are filled but not yet
/// posted.
pub(super) struct ReceiveQueue {
    qp: Arc<QueuePair>,
    /// Work requests are numbered by the slots of the queue.
    pub(super) parts: ReceiveParts,
    mapper: Arc<MapperOwner>,
    lkey: u32,
    queued_from: usize,
    queued: usize,
    /// Number of posted buffers, including queued ones.
    pub(super) posted: u16,
    broken: bool,
}

impl ReceiveQueue {
    pub(super) fn new(
        qp: &Arc<QueuePair>,
        mut parts: ReceiveParts,
        mapper: &Arc<MapperOwner>,
        pd: &Pd,
        events: Arc<dyn EndpointEvents>,
    ) -> Self {
        parts.cq.begin(events);
        ReceiveQueue {
            qp: qp.clone(),
            parts,
            mapper: mapper.clone(),
            lkey: pd.lkey(),
            queued_from: 0,
            queued: 0,
            posted: 0,
            broken: false,
        }
    }

    /// See [`QueueParts::retire`].
    pub(super) fn into_parts(self) -> Option<ReceiveParts> {
        let first = self.parts.first.wrapping_add(self.parts.slots.len() as u64);
        self.parts.retire(first)
    }

    pub(super) fn mapper(&self) -> &Arc<Mapper> {
        self.mapper.mapper()
    }

    /// Returns the maximum number of posted buffers.
    pub(super) fn slots(&self) -> u16 {
        self.parts.slots.len() as u16
    }

    /// Returns the slot at distance `n` from the first queued slot.
    fn index(&self, n: usize) -> usize {
        // The number of slots is not 0, which the compiler cannot prove.
        let position = self.queued_from.wrapping_add(n);
        position.checked_rem(self.parts.slots.len()).unwrap_or(0)
    }

    /// Queues a buffer, which is mapped for the device to write to.
    ///
    /// # Errors
    ///
    /// Returns the buffer if it is not mapped for receiving, or the queue is full or broken.
    pub(super) fn post(&mut self, b: Buffer) -> Result<(), Buffer> {
        if self.queued == self.parts.slots.len() && self.flush().is_err() {
            return Err(b);
        }
        let index = self.index(self.queued);
        let mapping = b.mapping(self.mapper.mapper(), Direction::FromDevice);
        let Some(mapping) = mapping.cloned() else {
            return Err(b);
        };
        let number = self.parts.first.wrapping_add(index as u64);
        let Some((slot, wr, [sge, ..])) = self.parts.slot(index) else {
            return Err(b);
        };
        if self.broken || slot.is_some() {
            return Err(b);
        }
        *sge = c::ib_sge {
            addr: mapping.for_device(&self.mapper, 0, b.capacity()),
            length: b.capacity() as u32,
            lkey: self.lkey,
        };
        *wr = c::ib_recv_wr {
            sg_list: sge,
            num_sge: 1,
            ..Default::default()
        };
        wr.__bindgen_anon_1.wr_id = number;
        let this = core::ptr::from_mut(wr);
        *slot = Some((b, mapping));
        if let Some(last) = self.queued.checked_sub(1).map(|n| self.index(n)) {
            if let Some(last) = self.parts.wrs.get_mut(last) {
                last.next = this;
            }
        }
        self.queued = self.queued.saturating_add(1);
        self.posted = self.posted.saturating_add(1);
        Ok(())
    }

    /// Posts the queued requests to the device.
    pub(super) fn flush(&mut self) -> Result {
        if self.broken {
            return Err(EIO);
        }
        if self.queued == 0 {
            return Ok(());
        }
        // INVARIANT: No request is queued any more. A request that the device has not accepted
        // stays in its slot.
        let first = self.queued_from;
        self.queued_from = self.index(self.queued);
        self.queued = 0;
        let first = self.parts.wrs.get_mut(first).ok_or(EINVAL)?;
        // SAFETY: The QP is alive: only the endpoint that owns `self` destroys the QP, when the
        // endpoint is dropped. `post` has linked the requests, and the driver copies them. Each
        // request is for a buffer that its slot owns until the completion or the destruction of the
        // QP. The slot has the buffer's only `Memory`, so the CPU cannot access it.
        let ret = to_result(unsafe { c::sdp_h_ib_post_recv(self.qp.raw(), first) });
        self.broken = ret.is_err();
        ret
    }

    /// Returns the next completion: the buffer and the length of the message in the buffer.
    pub(super) fn poll(&mut self) -> Option<Result<(Buffer, u32), Status>> {
        let (wc, index) = loop {
            let wc = self.parts.cq.take()?;
            // SAFETY: The id of a receive is a number, not a pointer; both are plain bits.
            let number = unsafe { wc.__bindgen_anon_1.wr_id };
            // a lower number belongs to an earlier QP that used the CQ
            if let Some(index) = number.checked_sub(self.parts.first) {
                break (wc, index);
            }
        };
        let slot = usize::try_from(index)
            .ok()
            .and_then(|i| self.parts.slots.get_mut(i));
        // INVARIANT: The receive is complete, so the device no longer uses the buffer.
        let Some((buffer, mapping)) = slot.and_then(Option::take) else {
            // not posted
            return Some(Err(Status::Local));
        };
        self.posted = self.posted.saturating_sub(1);
        if let Err(status) = Status::of(wc.status) {
            return Some(Err(status));
        }
        // An RDMA WRITE with immediate data also consumes a receive, but leaves its buffer empty.
        if wc.opcode != c::ib_wc_opcode_IB_WC_RECV {
            return Some(Err(Status::Protocol));
        }
        let len = wc.byte_len.min(buffer.capacity() as u32);
        mapping.sync_for_cpu(&self.mapper, len as usize);
        Some(Ok((buffer, len)))
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Common parts of the queues of a QP.
//!
//! A [`super::receive::ReceiveQueue`] owns the posted receive buffers, a [`super::send::SendQueue`]
//! the memory of messages in flight, until their completion or the destruction of the QP. Work
//! requests are first queued, then posted to the device together, with a single doorbell.

use super::super::bindings as c;
use super::super::errno::{ECONNABORTED, ECONNRESET, EPROTO, ETIMEDOUT};
use super::super::vec::filled;
use super::cq::Cq;
use super::device::DeviceRef;
use kernel::prelude::*;

/// Number of sends in flight: rxe rounds up to powers of two, and this value wastes no slot.
const SEND_SLOTS: u16 = 31;
/// Maximum number of payload segments in one message.
pub(crate) const MAX_SGES: u8 = 2;
/// Maximum number of memory segments in an RDMA READ or WRITE: rxe's work requests have 512 bytes.
pub(super) const GATHER: u8 = 19;
/// Maximum size in bytes of a message that is copied for sending (inline if the device has space),
/// and of a header.
pub(crate) const MAX_COPIED: usize = 64;
/// Maximum number of messages in flight in one direction.
pub(crate) const MAX_SLOTS: u16 = 4096;

/// Reason of a failed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// Flushed, because the connection had ended or failed before.
    Flushed,
    /// The peer does not acknowledge: the peer or the network is down.
    TransportRetry,
    /// The peer had no receive buffer for too long.
    RnrRetry,
    /// The peer refused the message, or access to its memory.
    Remote,
    /// The peer sent an unexpected message, or more than fits.
    Protocol,
    /// This end failed.
    Local,
}

impl Status {
    /// Returns the result of a completion with this `ib_wc_status`.
    pub(super) fn of(status: c::ib_wc_status) -> Result<(), Self> {
        Err(match status {
            c::ib_wc_status_IB_WC_SUCCESS => return Ok(()),
            c::ib_wc_status_IB_WC_WR_FLUSH_ERR => Status::Flushed,
            c::ib_wc_status_IB_WC_RETRY_EXC_ERR | c::ib_wc_status_IB_WC_RESP_TIMEOUT_ERR => {
                Status::TransportRetry
            }
            c::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR => Status::RnrRetry,
            c::ib_wc_status_IB_WC_REM_INV_REQ_ERR
            | c::ib_wc_status_IB_WC_REM_ACCESS_ERR
            | c::ib_wc_status_IB_WC_REM_OP_ERR
            | c::ib_wc_status_IB_WC_REM_ABORT_ERR => Status::Remote,
            c::ib_wc_status_IB_WC_LOC_LEN_ERR | c::ib_wc_status_IB_WC_BAD_RESP_ERR => {
                Status::Protocol
            }
            _ => Status::Local,
        })
    }

    /// Returns the errno of a connection that ends with status `self`.
    pub(crate) fn error(self) -> Error {
        match self {
            Status::TransportRetry => ETIMEDOUT.into(),
            Status::Flushed | Status::RnrRetry | Status::Remote => ECONNRESET.into(),
            Status::Protocol => EPROTO.into(),
            Status::Local => ECONNABORTED.into(),
        }
    }
}

/// Sizes of an endpoint, within the limits of its device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Maximum number of sends in flight.
    pub(super) send_slots: u16,
    /// Maximum number of posted receive buffers.
    pub(super) receive_slots: u16,
    /// Payload segments per message.
    pub(super) max_sge: u8,
    /// Maximum size of a message that is copied into the work request (inline), in bytes.
    pub(super) inline: u16,
    /// Memory segments in one RDMA READ or WRITE.
    pub(super) gather: u8,
}

impl Sizes {
    pub(super) fn new(device: &DeviceRef, receive_slots: u16, inline: u16) -> Self {
        let limits = device.attributes();
        let most = u16::try_from(limits.max_qp_wr.min(limits.max_cqe)).unwrap_or(u16::MAX);
        let most_sge = u8::try_from(limits.max_send_sge.clamp(1, 255)).unwrap_or(u8::MAX);
        let most_read = u8::try_from(limits.max_sge_rd.clamp(1, 255)).unwrap_or(u8::MAX);
        Sizes {
            send_slots: SEND_SLOTS.min(most.max(2)),
            receive_slots: receive_slots.clamp(1, most.clamp(1, MAX_SLOTS)),
            max_sge: MAX_SGES.min(most_sge.saturating_sub(1)),
            inline: inline.min(MAX_COPIED as u16),
            gather: GATHER.min(most_sge).min(most_read).max(1),
        }
    }
}

/// Parts of a queue that can be reused with another QP.
pub(super) struct QueueParts<Slot, Wr> {
    pub(super) cq: Cq,
    pub(super) slots: KVec<Slot>,
    pub(super) wrs: KVec<Wr>,
    sges: KVec<c::ib_sge>,
    /// Number of `sges` of a slot.
    per_slot: usize,
    /// Number of the first work request.
    pub(super) first: u64,
}

impl<Slot: Default, Wr: Default> QueueParts<Slot, Wr> {
    /// Makes a CQ, and slots with one work request and `sges` memory segments each.
    pub(super) fn new(
        device: &DeviceRef,
        vector: u32,
        slots: u16,
        sges: u8,
        sent: bool,
    ) -> Result<Self> {
        let (n, per_slot) = (usize::from(slots), usize::from(sges));
        Ok(QueueParts {
            cq: Cq::new(device, slots.into(), vector, sent)?,
            slots: filled(n, GFP_KERNEL, Slot::default)?,
            wrs: filled(n, GFP_KERNEL, Wr::default)?,
            sges: filled(n.saturating_mul(per_slot), GFP_KERNEL, c::ib_sge::default)?,
            per_slot,
            first: 0,
        })
    }

    /// Returns a slot, with its work request and its memory segments.
    pub(super) fn slot(&mut self, at: usize) -> Option<(&mut Slot, &mut Wr, &mut [c::ib_sge])> {
        let first = at.saturating_mul(self.per_slot);
        let sges = self.sges.get_mut(first..)?.get_mut(..self.per_slot)?;
        Some((self.slots.get_mut(at)?, self.wrs.get_mut(at)?, sges))
    }

    /// Empties all slots and returns the parts, if they can be reused. The QP is destroyed; the
    /// next QP numbers its work requests from `first`.
    pub(super) fn retire(mut self, first: u64) -> Option<Self> {
        for slot in &mut self.slots {
            *slot = Slot::default();
        }
        self.first = first;
        self.cq.retire().then_some(self)
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Common parts of the queues of a QP.
//!
//! A [`super::receive::ReceiveQueue`] owns the posted receive buffers, a
//! [`super::send::queue::SendQueue`] the memory of messages in flight, until their completion or
//! the destruction of the QP. Work requests are first queued in them, then posted to the device
//! together, with a single doorbell.

use super::super::bindings as c;

/// Maximum number of payload segments in one message.
pub(crate) const MAX_SGES: u8 = 4;
/// Maximum size in bytes of a message that is copied for sending (inline if the device has space),
/// and of a header.
pub(crate) const MAX_COPIED: usize = 64;
/// Maximum number of messages in flight in one direction.
pub(crate) const MAX_SLOTS: u16 = 4096;

/// Status of a completion: `ib_wc_status`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct WcStatus(pub(crate) c::ib_wc_status);

impl WcStatus {
    pub(crate) fn is_success(self) -> bool {
        self.0 == c::ib_wc_status_IB_WC_SUCCESS
    }
}

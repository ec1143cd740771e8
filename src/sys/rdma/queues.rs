// SPDX-License-Identifier: GPL-2.0-only

//! Common parts of the queues of a QP.
//!
//! A [`super::receive::ReceiveQueue`] owns the posted receive buffers, a
//! [`super::send::queue::SendQueue`] the memory of messages in flight; each until the completion,
//! or until the QP is destroyed. Work requests are queued there first and posted to the device
//! together, which costs one doorbell.

use super::super::bindings as c;

/// Maximum number of payload segments in one message.
pub(crate) const MAX_SGES: u8 = 4;
/// Longest message that is copied to be sent (inline if the device has space), and longest header,
/// in bytes.
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

// SPDX-License-Identifier: GPL-2.0-only

//! What the queues of a QP have in common.
//!
//! A [`super::receive::ReceiveQueue`] owns the buffers that wait for messages, a
//! [`super::send::queue::SendQueue`] keeps the memory of the messages that are on their way; each until
//! its completion, or until the QP is destroyed. Work requests are first queued there and then
//! handed to the device together, which costs one doorbell.

use super::super::bindings as c;
use kernel::prelude::*;

/// Most pieces of payload in one message.
pub(crate) const MAX_SGES: u8 = 4;
/// The longest message that is copied to be sent, inline if the device takes so much, and the longest header.
pub(crate) const MAX_COPIED: usize = 64;
/// Most messages on their way in one direction.
pub(crate) const MAX_SLOTS: u16 = 4096;

/// How a work request ended: `ib_wc_status`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct WcStatus(pub(crate) c::ib_wc_status);

impl WcStatus {
    /// Whether it did what it was to do.
    pub(crate) fn is_success(self) -> bool {
        self.0 == c::ib_wc_status_IB_WC_SUCCESS
    }
}

/// A vector of `n` elements.
pub(super) fn filled<T>(n: usize, mut f: impl FnMut() -> T) -> Result<KVec<T>> {
    let mut v = KVec::with_capacity(n, GFP_KERNEL)?;
    for _ in 0..n {
        v.push(f(), GFP_KERNEL)?;
    }
    Ok(v)
}

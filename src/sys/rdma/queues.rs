// SPDX-License-Identifier: GPL-2.0-only

//! What the queues of a QP have in common.
//!
//! A [`super::receive::ReceiveQueue`] owns the buffers that wait for messages, a
//! [`super::send::SendQueue`] keeps the memory of the messages that are on their way; each until
//! its completion, or until the QP is destroyed. Work requests are first queued there and then
//! handed to the device together, which costs one doorbell. A [`Batch`] does the same for
//! completions.

use super::super::bindings as c;
use super::endpoint::Cq;
use kernel::prelude::*;

/// Most pieces of payload in one message.
pub(crate) const MAX_SPANS: u8 = 4;
/// Longest header of a message.
pub(crate) const MAX_HEADER: usize = 64;
/// Most messages on their way in one direction.
pub(crate) const MAX_SLOTS: u16 = 4096;
/// Completions that are taken from a CQ at once.
const BATCH: usize = 8;

/// How a work request ended: `ib_wc_status`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkStatus(pub(crate) c::ib_wc_status);

impl WorkStatus {
    /// Whether it did what it was to do.
    pub(crate) fn is_success(self) -> bool {
        self.0 == c::ib_wc_status_IB_WC_SUCCESS
    }
}

/// Completions taken from a CQ and not yet looked at.
pub(super) struct Batch {
    wcs: KVec<c::ib_wc>,
    next: usize,
    end: usize,
    /// The CQ had no more when these were taken: the next look says so without asking it again.
    drained: bool,
}

impl Batch {
    pub(super) fn new() -> Result<Self> {
        let wcs = filled(BATCH, c::ib_wc::default)?;
        Ok(Batch {
            wcs,
            next: 0,
            end: 0,
            drained: false,
        })
    }

    /// The next completion.
    pub(super) fn take(&mut self, cq: &mut Cq) -> Option<c::ib_wc> {
        if self.next == self.end {
            if core::mem::take(&mut self.drained) {
                return None;
            }
            self.next = 0;
            self.end = cq.poll(&mut self.wcs);
            self.drained = self.end != 0 && self.end < self.wcs.len();
        }
        if self.next == self.end {
            return None;
        }
        let wc = self.wcs.get(self.next).copied();
        self.next += 1;
        wc
    }

    /// Asks the CQ to tell of its next completion. Tells whether there may be some already.
    pub(super) fn arm(&mut self, cq: &mut Cq) -> bool {
        self.drained = false;
        self.next != self.end || cq.arm()
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

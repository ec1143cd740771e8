// SPDX-License-Identifier: GPL-2.0-only

//! Notification of released memory, and its accounting.

use super::protect::InFlight;
use crate::sys::net::notice::ZerocopyPiece;
use kernel::sync::atomic::AtomicFlag;
use kernel::sync::Arc;

/// Receiver of the notification that memory is released. The drop sends the notification: in
/// process context, after the pages are released.
pub(crate) enum Notify {
    /// Notification of a call with `MSG_ZEROCOPY`.
    Call(#[expect(dead_code, reason = "held until it is dropped")] ZerocopyPiece),
    /// Tasks that wait to write to the memory.
    Protected(#[expect(dead_code, reason = "held until it is dropped")] InFlight),
}

/// Accounting of pinned memory against its user's `RLIMIT_MEMLOCK`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accounting {
    /// Accounted by the pinning code.
    Here,
    /// Accounted by the pinning code, which pins the pages again even if they are already pinned.
    HereAnew,
    /// Accounted by the kernel's `MSG_ZEROCOPY` code.
    ByNotice,
}

/// Handle that shows if a block is still in use, without a reference to the block.
#[derive(Clone)]
pub(crate) struct Watch(pub(super) Arc<AtomicFlag>);

impl Watch {
    /// Returns true from the pinning to the release. After that, nothing accesses the memory.
    pub(crate) fn is_held(&self) -> bool {
        self.0.load(kernel::sync::atomic::Acquire)
    }
}

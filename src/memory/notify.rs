// SPDX-License-Identifier: GPL-2.0-only

//! Who is told that memory is let go of, and who counts it meanwhile.

use super::protect::Flight;
use crate::sys::net::notice::PieceNotice;
use kernel::sync::atomic::AtomicFlag;
use kernel::sync::Arc;

/// Whoever is told when memory is let go of: by being dropped, in process context, after the pages are.
pub(crate) enum Notify {
    /// A call with `MSG_ZEROCOPY`.
    Call(PieceNotice),
    /// Whoever waits to write to it.
    Protected(#[expect(dead_code, reason = "held until it is dropped")] Flight),
}

/// Who counts memory against its user's `RLIMIT_MEMLOCK`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Whoever pins it.
    Here,
    /// The same, and it is pinned anew, whatever may have stayed pinned.
    HereAnew,
    /// The kernel does, for whoever is told.
    ByNotice,
}

/// Tells whether a piece of memory is still in use, without owning it.
#[derive(Clone)]
pub(crate) struct Watch(pub(super) Arc<AtomicFlag>);

impl Watch {
    /// Whether it is: from the pinning to the release. Afterwards nothing accesses it.
    pub(crate) fn is_held(&self) -> bool {
        self.0.load(kernel::sync::atomic::Acquire)
    }
}

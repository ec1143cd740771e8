// SPDX-License-Identifier: GPL-2.0-only

//! Who a program's pinned memory is for: a device, or this kernel for a peer on the same machine.

use crate::sys::pin::{Pages, PinTerm, Unpinnable};
use crate::sys::rdma::mapper::Mapper;
use crate::sys::rdma::user_memory::UserMemory;
use core::mem::replace;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Most pages in one piece for a peer here: 2 MiB, as with devices.
const MOST_PAGES: usize = 512;

/// What memory is made from.
#[derive(Clone)]
pub(super) enum PinnedFor {
    /// What maps it for a device.
    Device(Arc<Mapper>),
    /// Nothing but pages.
    Here,
}

impl PinnedFor {
    /// How long to pin at least: a device's transfer lasts as long as the peer likes.
    pub(super) fn hold(&self, wanted: PinTerm) -> PinTerm {
        match self {
            PinnedFor::Device(_) => PinTerm::Long,
            PinnedFor::Here => wanted,
        }
    }

    /// Most pages in one piece, 0 if there can be none.
    pub(super) fn most_pages(&self) -> usize {
        match self {
            PinnedFor::Device(mapper) => mapper.most_pages(),
            PinnedFor::Here => MOST_PAGES,
        }
    }
}

/// Pinned memory as whoever it is for sees it. Dropped in process context.
pub(super) enum PinnedPages {
    /// Mapped for a device.
    Device(UserMemory),
    /// Only the pages. Others who hold them are copying from or to them; as long as the memory is
    /// not lent nobody does. `None` only on the way from one state to the other, and while what is for a
    /// device is taken out.
    Here(Option<Arc<Pages>>),
}

/// Does something with pages that are not lent; `None` if they are, which leaves them to those who
/// copy.
fn change<R>(pages: &mut Option<Arc<Pages>>, f: impl FnOnce(&mut Pages) -> R) -> Option<R> {
    let mut own = pages.take().and_then(Arc::into_unique_or_drop)?;
    let r = f(&mut own);
    *pages = Some(own.into());
    Some(r)
}

impl PinnedPages {
    /// Room for as many pages as one piece can have.
    pub(super) fn new(made_for: &PinnedFor) -> Result<Self> {
        Ok(match made_for {
            PinnedFor::Device(mapper) => PinnedPages::Device(UserMemory::new(mapper)),
            PinnedFor::Here => {
                PinnedPages::Here(Some(Arc::new(Pages::new(MOST_PAGES), GFP_KERNEL)?))
            }
        })
    }

    /// What it was made from.
    pub(super) fn made_for(&self) -> PinnedFor {
        match self {
            PinnedPages::Device(m) => PinnedFor::Device(m.mapper().clone()),
            PinnedPages::Here(_) => PinnedFor::Here,
        }
    }

    /// Takes out what is for a device, if it is for one, until that is put back.
    pub(super) fn take_for_device(&mut self) -> Option<UserMemory> {
        match replace(self, PinnedPages::Here(None)) {
            PinnedPages::Device(m) => Some(m),
            here => {
                *self = here;
                None
            }
        }
    }

    pub(super) fn for_device(&self) -> Option<&UserMemory> {
        match self {
            PinnedPages::Device(m) => Some(m),
            PinnedPages::Here(_) => None,
        }
    }

    pub(super) fn for_here(&self) -> Option<&Arc<Pages>> {
        match self {
            PinnedPages::Device(_) => None,
            PinnedPages::Here(p) => p.as_ref(),
        }
    }

    /// Lets a device get at what is pinned; see [`UserMemory::map`].
    pub(super) fn map(&mut self, writes: bool, for_peer: bool) -> Result {
        match self {
            PinnedPages::Device(m) => m.map(writes, for_peer),
            PinnedPages::Here(_) => Ok(()),
        }
    }

    /// How many bytes are pinned.
    pub(super) fn len(&self) -> usize {
        match self {
            PinnedPages::Device(m) => m.len(),
            PinnedPages::Here(p) => p.as_ref().map_or(0, |p| p.len()),
        }
    }

    /// How many pages are pinned.
    pub(super) fn count(&self) -> usize {
        match self {
            PinnedPages::Device(m) => m.count(),
            PinnedPages::Here(p) => p.as_ref().map_or(0, |p| p.count()),
        }
    }

    /// How many pages there is room for.
    pub(super) fn room(&self) -> usize {
        match self {
            PinnedPages::Device(m) => m.room(),
            PinnedPages::Here(p) => p.as_ref().map_or(0, |p| p.room()),
        }
    }

    /// Has `pin` pin other pages. Those that were pinned are let go of. Process context.
    ///
    /// # Errors
    ///
    /// What that says.
    pub(super) fn pin(
        &mut self,
        pin: impl FnOnce(&mut Pages) -> Result<usize, Unpinnable>,
    ) -> Result<usize, Unpinnable> {
        match self {
            PinnedPages::Device(m) => pin(m.pages()),
            PinnedPages::Here(p) => change(p, |p| {
                p.unpin();
                pin(p)
            })
            .unwrap_or(Err(Unpinnable::Fault)),
        }
    }

    /// Has `add` add pages, unless they are mapped or lent. Returns what that says. Does not sleep.
    pub(super) fn add(&mut self, add: impl FnOnce(&mut Pages) -> usize) -> usize {
        match self {
            PinnedPages::Device(m) => m.unmapped().map_or(0, add),
            PinnedPages::Here(p) => change(p, add).unwrap_or(0),
        }
    }

    pub(super) fn pages(&self) -> Option<&Pages> {
        match self {
            PinnedPages::Device(m) => Some(m.pinned()),
            PinnedPages::Here(p) => p.as_deref(),
        }
    }

    /// Takes pages of the kernel's own, with the bytes of others. Process context: sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINVAL` if there is no room for as many.
    pub(super) fn copy_from(&mut self, other: &PinnedPages) -> Result {
        let from = other.pages().ok_or(EINVAL)?;
        match self {
            PinnedPages::Device(m) => m.pages().copy_from(from),
            PinnedPages::Here(p) => change(p, |p| p.copy_from(from)).unwrap_or(Err(EINVAL)),
        }
    }

    /// Whether a device lets the peer have access.
    pub(super) fn is_registered(&self) -> bool {
        self.for_device().is_some_and(UserMemory::is_registered)
    }

    /// Lets the CPU see what a device has written.
    pub(super) fn sync_for_cpu(&self) {
        if let PinnedPages::Device(m) = self {
            m.sync_for_cpu();
        }
    }

    /// Lets a device see what the CPU has written.
    pub(super) fn sync_for_device(&self) {
        if let PinnedPages::Device(m) = self {
            m.sync_for_device();
        }
    }

    /// Lets go of the memory: nobody gets at it any more, and its pages are unpinned. Process
    /// context: sleeps.
    pub(super) fn release(&mut self) {
        match self {
            PinnedPages::Device(m) => m.release(),
            PinnedPages::Here(p) => {
                change(p, Pages::unpin);
            }
        }
    }
}

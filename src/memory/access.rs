// SPDX-License-Identifier: GPL-2.0-only

//! Who a program's pinned memory is for: a device, or this kernel for a peer on the same machine.

use crate::sys::pin::Pages;
use crate::sys::rdma::pd::Pd;
use crate::sys::rdma::user_memory::UserMemory;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Most pages in one piece for a peer here: 2 MiB, as with devices.
const MOST_PAGES: usize = 512;

/// What memory is made from.
#[derive(Clone)]
pub(super) enum Origin {
    /// A PD of a device.
    Device(Arc<Pd>),
    /// Nothing but pages.
    Here,
}

impl Origin {
    /// Whether the device is being removed.
    pub(super) fn device_goes(&self) -> bool {
        match self {
            Origin::Device(pd) => pd.device().is_going(),
            Origin::Here => false,
        }
    }

    /// Most pages in one piece, 0 if there can be none.
    pub(super) fn most_pages(&self) -> usize {
        match self {
            Origin::Device(pd) => UserMemory::most_pages(pd) as usize,
            Origin::Here => MOST_PAGES,
        }
    }
}

/// Pinned memory as whoever it is for sees it. Dropped in process context.
pub(super) enum Access {
    /// Mapped for a device.
    Device(UserMemory),
    /// Only the pages.
    Here(Pages),
}

impl Access {
    /// Room for `pages` pages.
    pub(super) fn new(origin: &Origin, pages: usize) -> Result<Self> {
        Ok(match origin {
            Origin::Device(pd) => Access::Device(UserMemory::new(pd, pages)?),
            Origin::Here => Access::Here(Pages::new(pages)?),
        })
    }

    /// What it was made from.
    pub(super) fn origin(&self) -> Origin {
        match self {
            Access::Device(m) => Origin::Device(m.pd().clone()),
            Access::Here(_) => Origin::Here,
        }
    }

    pub(super) fn for_device(&self) -> Option<&UserMemory> {
        match self {
            Access::Device(m) => Some(m),
            Access::Here(_) => None,
        }
    }

    pub(super) fn for_device_mut(&mut self) -> Option<&mut UserMemory> {
        match self {
            Access::Device(m) => Some(m),
            Access::Here(_) => None,
        }
    }

    pub(super) fn for_here(&self) -> Option<&Pages> {
        match self {
            Access::Device(_) => None,
            Access::Here(p) => Some(p),
        }
    }

    /// Makes it fit for being registered, once. Sleeps.
    pub(super) fn make_region(&mut self) -> Result {
        match self {
            Access::Device(m) => m.make_region(),
            Access::Here(_) => Ok(()),
        }
    }

    /// How many bytes are pinned.
    pub(super) fn len(&self) -> usize {
        match self {
            Access::Device(m) => m.len(),
            Access::Here(p) => p.len(),
        }
    }

    /// How many pages are pinned.
    pub(super) fn count(&self) -> usize {
        match self {
            Access::Device(m) => m.count(),
            Access::Here(p) => p.count(),
        }
    }

    /// How many pages there is room for.
    pub(super) fn room(&self) -> usize {
        match self {
            Access::Device(m) => m.room(),
            Access::Here(p) => p.room(),
        }
    }

    /// The pages, to be pinned. Those that were are let go of. Process context.
    pub(super) fn pages(&mut self) -> &mut Pages {
        match self {
            Access::Device(m) => m.pages(),
            Access::Here(p) => {
                p.unpin();
                p
            }
        }
    }

    /// Whether a device lets the peer have access.
    pub(super) fn is_registered(&self) -> bool {
        self.for_device().is_some_and(UserMemory::is_registered)
    }

    /// Lets the CPU see what a device has written.
    pub(super) fn sync_for_cpu(&self) {
        if let Access::Device(m) = self {
            m.sync_for_cpu();
        }
    }

    /// Lets a device see what the CPU has written.
    pub(super) fn sync_for_device(&self) {
        if let Access::Device(m) = self {
            m.sync_for_device();
        }
    }

    /// Lets go of the memory: nobody gets at it any more, and its pages are unpinned. Process
    /// context: sleeps.
    pub(super) fn release(&mut self) {
        match self {
            Access::Device(m) => m.release(),
            Access::Here(p) => p.unpin(),
        }
    }
}

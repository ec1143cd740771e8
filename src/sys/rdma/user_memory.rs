// SPDX-License-Identifier: GPL-2.0-only

//! Program memory for devices.
//!
//! A [`UserMemory`] holds one piece of program memory at a time: its pinned pages and, once
//! mapped, their DMA addresses for one device ([`SgMapping`]), with a region for access by the
//! peer.
//!
//! A piece goes through these steps, and back again by [`UserMemory::release`]:
//!
//! ```text
//!  empty -- pages().pin() --> pinned -- map() --> mapped -- register() --> registered
//! ```
//!
//! Pinning may wait for the program's memory without limit. So the device is held from `map` to
//! `release` only, where nothing waits for programs.
//!
//! While the device or the peer may access the memory, the [`super::send::queue::SendQueue`] owns
//! it.

use super::super::bindings as c;
use super::super::pin::Pages;
use super::dma::Direction;
use super::mapper::Mapper;
use super::mr::{Access, Key};
use super::pd::Pd;
use super::sg::SgMapping;
use kernel::prelude::*;
use kernel::sync::Arc;

/// One piece of program memory, or none. Dropped in process context.
///
/// # Invariants
///
/// What `sg` maps is in `pages`, which do not change meanwhile; what a device writes to was pinned for
/// that.
pub(crate) struct UserMemory {
    sg: Option<KBox<SgMapping>>,
    pages: Pages,
    mapper: Arc<Mapper>,
}

impl UserMemory {
    /// Makes an empty one, which takes at most as many pages as can be mapped.
    pub(crate) fn new(mapper: &Arc<Mapper>) -> Self {
        UserMemory {
            sg: None,
            pages: Pages::new(mapper.most_pages()),
            mapper: mapper.clone(),
        }
    }

    /// Returns the number of pinned bytes.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Returns the pages for pinning, after releasing the present ones. Context: process.
    pub(crate) fn pages(&mut self) -> &mut Pages {
        self.release();
        &mut self.pages
    }

    /// Returns the pages for adding others, unless they are mapped.
    pub(crate) fn unmapped(&mut self) -> Option<&mut Pages> {
        self.sg.is_none().then_some(&mut self.pages)
    }

    pub(crate) fn pinned(&self) -> &Pages {
        &self.pages
    }

    /// Returns the mapper that it was made from.
    pub(crate) fn mapper(&self) -> &Arc<Mapper> {
        &self.mapper
    }

    /// Returns the maximum number of pages.
    pub(crate) fn room(&self) -> usize {
        self.pages.room()
    }

    /// Returns the number of pinned pages.
    pub(crate) fn count(&self) -> usize {
        self.pages.count()
    }

    /// Returns true if it is mapped for the device of this PD.
    pub(super) fn is_of(&self, pd: &Arc<Pd>) -> bool {
        self.sg.as_ref().is_some_and(|sg| sg.is_of(pd))
    }

    /// Returns true if it is mapped in this direction.
    pub(super) fn is_mapped(&self, direction: Direction) -> bool {
        self.sg.as_ref().is_some_and(|sg| sg.is_mapped(direction))
    }

    /// Returns true if bytes that the program writes beside the device's may be lost while it
    /// stays mapped.
    pub(crate) fn bounces(&self) -> bool {
        self.sg.as_ref().is_some_and(|sg| sg.bounces())
    }

    /// Returns true if the peer may have access.
    pub(crate) fn is_registered(&self) -> bool {
        self.sg.as_ref().is_some_and(|sg| sg.is_registered())
    }

    /// Maps the pinned pages for the device, to write there or to read; `for_peer`: so that the
    /// peer can be given access, once. Context: process; sleeps, but not for a program.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the device is removed. `EINVAL`: nothing is pinned, the pages are not pinned for
    /// writing, or they are mapped otherwise. `EOPNOTSUPP`, `ENOMEM`. The caller has to release
    /// the memory then.
    pub(crate) fn map(&mut self, writes: bool, for_peer: bool) -> Result {
        let sg = match &mut self.sg {
            Some(sg) => sg,
            none => none.insert(self.mapper.sg_mapping()?),
        };
        // SAFETY: `self` owns the pages, and whatever changes them releases it first.
        unsafe { sg.map(&self.pages, Direction::of(writes))? };
        match for_peer {
            true => sg.describe(self.pages.len()),
            false => Ok(()),
        }
    }

    /// Syncs the pages for the CPU.
    pub(crate) fn sync_for_cpu(&self) {
        if let Some(sg) = &self.sg {
            sg.sync(true);
        }
    }

    /// Syncs the pages for the device.
    pub(crate) fn sync_for_device(&self) {
        if let Some(sg) = &self.sg {
            sg.sync(false);
        }
    }

    /// See [`SgMapping::locate`].
    pub(super) fn locate(
        &self,
        offset: usize,
        len: usize,
        sges: &mut [c::ib_sge],
    ) -> (usize, usize) {
        match &self.sg {
            Some(sg) => sg.locate(offset, len, sges),
            None => (0, 0),
        }
    }

    /// See [`SgMapping::register`].
    pub(super) fn register(&mut self, access: Access) -> Result<(c::ib_reg_wr, Key, u32)> {
        self.sg.as_mut().ok_or(EINVAL)?.register(access)
    }

    /// Returns the key for the invalidation.
    pub(super) fn rkey(&self) -> Option<u32> {
        self.sg.as_ref()?.rkey()
    }

    /// Records the end of the registration: its invalidation has completed without an error.
    pub(super) fn invalidated(&mut self) {
        if let Some(sg) = &mut self.sg {
            sg.invalidated();
        }
    }

    /// Ends the access of peer and device, unpins the pages and releases the device. Context:
    /// process, sleeps.
    pub(crate) fn release(&mut self) {
        if let Some(mut sg) = self.sg.take() {
            sg.unmap();
            self.mapper.put_back(sg);
        }
        self.pages.unpin();
    }
}

impl Drop for UserMemory {
    fn drop(&mut self) {
        self.release();
    }
}

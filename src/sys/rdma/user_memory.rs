// SPDX-License-Identifier: GPL-2.0-only

//! Memory of programs as a device sees it.
//!
//! A [`UserMemory`] is room for one piece of a program's memory at a time: its pinned pages and, once
//! they are mapped, their addresses for one device ([`SgMapping`]), with a region by which the peer
//! can be given access.
//!
//! A piece goes through these steps, and back again by [`UserMemory::release`]:
//!
//! ```text
//!  empty -- pages().pin() --> pinned -- map() --> mapped -- register() --> registered
//! ```
//!
//! Pinning may wait for the program's memory for ever. The device is held from `map` to `release` only,
//! where nothing waits for programs.
//!
//! What the device or the peer may access is owned by the [`super::send::queue::SendQueue`], which gives
//! it back when that is over.

use super::super::bindings as c;
use super::super::pin::Pages;
use super::dma::Direction;
use super::mapper::Mapper;
use super::mr::{Access, Key};
use super::pd::Pd;
use super::sg::SgMapping;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Room for one piece of a program's memory. Dropped in process context.
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
    /// Room for as many pages as can be mapped.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(mapper: &Arc<Mapper>) -> Result<Self> {
        Ok(UserMemory {
            sg: None,
            pages: Pages::new(mapper.most_pages())?,
            mapper: mapper.clone(),
        })
    }

    /// How many bytes are pinned.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// The pages, to be pinned. Those that were are let go of. Process context.
    pub(crate) fn pages(&mut self) -> &mut Pages {
        self.release();
        &mut self.pages
    }

    /// The pages, to which others may be added, unless they are mapped.
    pub(crate) fn unmapped(&mut self) -> Option<&mut Pages> {
        self.sg.is_none().then_some(&mut self.pages)
    }

    /// The pages that are pinned.
    pub(crate) fn pinned(&self) -> &Pages {
        &self.pages
    }

    /// What it was made from.
    pub(crate) fn mapper(&self) -> &Arc<Mapper> {
        &self.mapper
    }

    /// How many pages there is room for.
    pub(crate) fn room(&self) -> usize {
        self.pages.room()
    }

    /// How many pages are pinned.
    pub(crate) fn count(&self) -> usize {
        self.pages.count()
    }

    /// Whether it is mapped for the device of this PD.
    pub(super) fn is_of(&self, pd: &Arc<Pd>) -> bool {
        self.sg.as_ref().is_some_and(|sg| sg.is_of(pd))
    }

    /// Whether it is mapped in a direction.
    pub(super) fn is_mapped(&self, direction: Direction) -> bool {
        self.sg.as_ref().is_some_and(|sg| sg.is_mapped(direction))
    }

    /// Whether what the program writes beside what the device does may be lost when it stays mapped.
    pub(crate) fn bounces(&self) -> bool {
        self.sg.as_ref().is_some_and(|sg| sg.bounces())
    }

    /// Whether the peer may have access.
    pub(crate) fn is_registered(&self) -> bool {
        self.sg.as_ref().is_some_and(|sg| sg.is_registered())
    }

    /// Lets the device get at what is pinned, to write there or to read; `for_peer`: so that the peer can
    /// be given access, once. Process context; sleeps, but not for a program.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device is gone; `EINVAL` if nothing is pinned, if it is to be written and was not
    /// pinned for that, or if it is mapped otherwise; `EOPNOTSUPP`, `ENOMEM`. It is to be released then.
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

    /// Lets the CPU see what the device has written.
    pub(crate) fn sync_for_cpu(&self) {
        if let Some(sg) = &self.sg {
            sg.sync(true);
        }
    }

    /// Lets the device see what the CPU has written.
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

    /// The key that ends the registration.
    pub(super) fn rkey(&self) -> Option<u32> {
        self.sg.as_ref()?.rkey()
    }

    /// The registration has ended: the work request that ends it is complete, without an error.
    pub(super) fn invalidated(&mut self) {
        if let Some(sg) = &mut self.sg {
            sg.invalidated();
        }
    }

    /// Lets go of the memory and of the device: neither peer nor device get at it any more, and its
    /// pages are unpinned. Process context: sleeps.
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

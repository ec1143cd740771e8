// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of program memory, for a device or for a local peer.
//!
//! A [`Block`] contains one block of program memory at a time: its pinned pages and, once mapped,
//! their DMA addresses for one device ([`SgMapping`]), with a memory region for access by the peer.
//! A block for a local peer only has pages, which copies in progress share.
//!
//! A block has the following states; [`Block::release`] makes it empty again:
//!
//! ```text
//!  empty -- pin() --> pinned -- map() --> mapped -- register() --> registered
//! ```
//!
//! Pinning may wait for the program's memory without limit. A block holds the device only from
//! `map` to `release`, so that no step waits for a program while a device is held.
//!
//! While the device or the peer may access the memory, the [`super::send::SendQueue`] owns it.

use super::super::deferred::{Destroy, DropInWorker};
use super::super::pin::Pages;
use super::mapper::Mapper;
use super::mr::SgMapping;
use kernel::dma::DataDirection as Direction;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A [`Block`] with data of its owner. May be dropped in any context.
pub(crate) type OwnedBlock<T> = DropInWorker<Block<T>>;

impl<T: Send + 'static> Destroy for Block<T> {}

/// One block of program memory, or none. Context of the drop: process.
///
/// # Invariants
///
/// `sg` maps `pages`, which do not change while mapped; pages that a device writes to were pinned
/// for writing.
pub(crate) struct Block<T> {
    sg: Option<KBox<SgMapping>>,
    /// Pages; `None` while a copy in progress holds them.
    pages: Option<Arc<Pages>>,
    /// Mapper of the device; `None`: for a local peer.
    mapper: Option<Arc<Mapper>>,
    /// Data of the owner, dropped after the release.
    pub(crate) data: T,
}

impl<T> Block<T> {
    /// Makes an empty block for at most `most` pages.
    pub(crate) fn new(mapper: Option<Arc<Mapper>>, most: usize, data: T) -> Result<Self> {
        Ok(Block {
            sg: None,
            pages: Some(Arc::new(Pages::new(most), GFP_KERNEL)?),
            mapper,
            data,
        })
    }

    /// Calls `f` with the pages, unless they are mapped or a copy uses them.
    fn change<R>(&mut self, f: impl FnOnce(&mut Pages) -> R) -> Option<R> {
        if self.sg.is_some() {
            return None;
        }
        let mut own = self.pages.take().and_then(Arc::into_unique_or_drop)?;
        let r = f(&mut own);
        self.pages = Some(own.into());
        Some(r)
    }

    /// Releases the pages, and pins other pages by calling `pin`. Context: process.
    pub(crate) fn pin(&mut self, pin: impl FnOnce(&mut Pages) -> Result<usize>) -> Result<usize> {
        self.release();
        self.change(pin).unwrap_or(Err(EFAULT))
    }

    /// Adds pages by calling `add`, and returns its result, or 0 if the pages are mapped.
    pub(crate) fn add(&mut self, add: impl FnOnce(&mut Pages) -> usize) -> usize {
        self.change(add).unwrap_or(0)
    }

    /// Releases the pages, and allocates kernel pages with the same bytes. Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL`: more pages than this block may have. `ENOMEM`.
    pub(crate) fn copy_pages(&mut self, from: &Pages) -> Result {
        self.release();
        self.change(|p| p.copy_from(from)).unwrap_or(Err(EINVAL))
    }

    /// Returns the mapper; `None` if the block is for a local peer.
    pub(crate) fn mapper(&self) -> Option<&Arc<Mapper>> {
        self.mapper.as_ref()
    }

    pub(crate) fn pages(&self) -> Option<&Arc<Pages>> {
        self.pages.as_ref()
    }

    pub(crate) fn len(&self) -> usize {
        self.pages.as_deref().map_or(0, Pages::len)
    }

    pub(crate) fn count(&self) -> usize {
        self.pages.as_deref().map_or(0, Pages::count)
    }

    pub(super) fn sg(&self) -> Option<&SgMapping> {
        self.sg.as_deref()
    }

    pub(super) fn sg_mut(&mut self) -> Option<&mut SgMapping> {
        self.sg.as_deref_mut()
    }

    /// Returns true if the block may stay mapped while the program uses the memory: the peer has no
    /// access, and no bytes that the program writes next to the device's can be lost.
    pub(crate) fn may_stay(&self) -> bool {
        let sg = self.sg.as_ref();
        self.count() != 0 && sg.is_none_or(|sg| !sg.is_registered() && !sg.bounces())
    }

    /// Maps the pinned pages for the device, if there is one. With `for_peer`, or on iWARP for
    /// writing, the peer can be given access once. Context: may sleep, but not for a program.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the device is being removed. `EINVAL`: no page is pinned, the pages are not pinned
    /// for writing, or they are mapped differently. `EOPNOTSUPP`, `ENOMEM`. After an error the
    /// caller must release the memory.
    pub(crate) fn map(&mut self, direction: Direction, for_peer: bool) -> Result {
        let Some(mapper) = &self.mapper else {
            return Ok(());
        };
        let pages = self.pages.as_ref().ok_or(EINVAL)?;
        let sg = match &mut self.sg {
            Some(sg) => sg,
            none => none.insert(mapper.sg_mapping()?),
        };
        // SAFETY: By the invariants the pages are not shared. `change` does not modify the pages
        // while an `sg` exists.
        unsafe { sg.map(pages, direction)? };
        match for_peer || sg.needs_sink() {
            true => sg.describe(),
            false => Ok(()),
        }
    }

    /// Syncs the pages for the CPU, or else for the device.
    pub(crate) fn sync(&self, for_cpu: bool) {
        if let Some(sg) = &self.sg {
            sg.sync(for_cpu);
        }
    }

    /// Ends access by peer and device, unpins the pages and releases the device. Context: sleeps.
    pub(crate) fn release(&mut self) {
        if let (Some(mut sg), Some(mapper)) = (self.sg.take(), &self.mapper) {
            sg.unmap();
            mapper.put_back(sg);
        }
        self.change(Pages::unpin);
    }
}

impl<T> Drop for Block<T> {
    fn drop(&mut self) {
        self.release();
    }
}

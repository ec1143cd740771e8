// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of program memory, for a device or for a peer of this machine.
//!
//! A [`Block`] holds one block of program memory at a time: its pinned pages and, once mapped,
//! their DMA addresses for one device ([`SgMapping`]), with a region for access by the peer. A
//! block for a local peer has pages only, which the copies in progress share.
//!
//! A block has these states, and [`Block::release`] makes it empty again:
//!
//! ```text
//!  empty -- pin() --> pinned -- map() --> mapped -- register() --> registered
//! ```
//!
//! Pinning may wait for the program's memory without limit. So the device is held from `map` to
//! `release` only, where nothing waits for programs.
//!
//! While the device or the peer may access the memory, the [`super::send::queue::SendQueue`] owns
//! the block.

use super::super::deferred::DropInWorker;
use super::super::pin::{Pages, Unpinnable};
use super::dma::Direction;
use super::mapper::Mapper;
use super::sg::SgMapping;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A block with its owner's data. May be dropped in any context.
pub(crate) type OwnedBlock<T> = DropInWorker<Block<T>>;

/// One block of program memory, or none. Dropped in process context.
///
/// # Invariants
///
/// `sg` maps `pages`, which do not change meanwhile; pages that a device writes to were pinned for
/// writing. Pages for a device are not shared.
pub(crate) struct Block<T> {
    sg: Option<KBox<SgMapping>>,
    /// `None`: a copy that is still in progress has the pages.
    pages: Option<Arc<Pages>>,
    /// `None`: for a peer of this machine.
    mapper: Option<Arc<Mapper>>,
    /// Data of the owner, dropped after the release.
    pub(crate) data: T,
}

impl<T> Block<T> {
    /// Makes an empty one, which takes at most `most` pages.
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

    /// Releases the pages, and has `pin` pin others. Context: process.
    pub(crate) fn pin(
        &mut self,
        pin: impl FnOnce(&mut Pages) -> Result<usize, Unpinnable>,
    ) -> Result<usize, Unpinnable> {
        self.release();
        self.change(pin).unwrap_or(Err(Unpinnable::Fault))
    }

    /// Has `add` add pages, and returns its result: 0 if they are mapped.
    pub(crate) fn add(&mut self, add: impl FnOnce(&mut Pages) -> usize) -> usize {
        self.change(add).unwrap_or(0)
    }

    /// Releases the pages, and makes others of the kernel's own with the bytes of `other`.
    /// Context: process, may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `other` has more pages than are possible here. `ENOMEM`.
    pub(crate) fn copy_from(&mut self, other: &Self) -> Result {
        let from = other.pages.as_ref().ok_or(EINVAL)?;
        self.release();
        self.change(|p| p.copy_from(from)).unwrap_or(Err(EINVAL))
    }

    /// Returns the mapper; `None` if the block is for a peer of this machine.
    pub(crate) fn mapper(&self) -> Option<&Arc<Mapper>> {
        self.mapper.as_ref()
    }

    /// Returns the pages if they are for a peer of this machine.
    pub(crate) fn shared(&self) -> Option<&Arc<Pages>> {
        self.pages.as_ref().filter(|_| self.mapper.is_none())
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

    /// Returns true if it can stay mapped while the program uses it: the peer has no access, and no
    /// bytes that the program writes beside the device's may be lost.
    pub(crate) fn may_stay(&self) -> bool {
        let sg = self.sg.as_ref();
        self.count() != 0 && sg.is_none_or(|sg| !sg.is_registered() && !sg.bounces())
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
        let Some(mapper) = &self.mapper else {
            return Ok(());
        };
        let pages = self.pages.as_ref().ok_or(EINVAL)?;
        let sg = match &mut self.sg {
            Some(sg) => sg,
            none => none.insert(mapper.sg_mapping()?),
        };
        // SAFETY: By the invariants the pages are not shared. `change` leaves them alone as long as
        // there is an `sg`.
        unsafe { sg.map(pages, Direction::of(writes))? };
        match for_peer {
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

    /// Ends the access of peer and device, unpins the pages and releases the device. Context:
    /// process, sleeps.
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

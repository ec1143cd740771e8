// SPDX-License-Identifier: GPL-2.0-only

//! Pinned pages mapped for a device.
//!
//! An [`SgMapping`] has space for the DMA addresses of one block of program memory, and a memory
//! region for access by the peer. It is made for one PD, and holds the PD's device.

use super::super::bindings as c;
use super::super::pin::{list_for, Pages};
use super::dma::Direction;
use super::mr::{Access, Key, Region};
use super::pd::Pd;
use kernel::prelude::*;
use kernel::sync::Arc;

/// DMA addresses of pages. Dropped in process context.
///
/// # Invariants
///
/// If `mapped` is not 0, the first `entries` of `list` are mapped for the device, in `direction`,
/// to `mapped` addresses. `registered` is set whenever the region may be valid or become so.
pub(super) struct SgMapping {
    /// Memory region, for as many pages as fit in `list`.
    region: Option<Region>,
    /// Work request that registers the region for the mapped pages.
    ready: Option<(c::ib_reg_wr, Key)>,
    registered: bool,
    list: KVec<c::scatterlist>,
    entries: u32,
    mapped: u32,
    /// Number of bytes in the mapped pages.
    len: usize,
    direction: Direction,
    pd: Arc<Pd>,
}

// SAFETY: No field is tied to a thread.
unsafe impl Send for SgMapping {}
// SAFETY: Shared references give access to numbers only.
unsafe impl Sync for SgMapping {}

impl SgMapping {
    /// Makes an object without a list and a region.
    pub(super) fn new(pd: &Arc<Pd>) -> Self {
        SgMapping {
            region: None,
            ready: None,
            registered: false,
            list: KVec::new(),
            entries: 0,
            mapped: 0,
            len: 0,
            direction: Direction::ToDevice,
            pd: pd.clone(),
        }
    }

    /// Returns true if it belongs to this PD.
    pub(super) fn is_of(&self, pd: &Arc<Pd>) -> bool {
        self.mapped != 0 && Arc::ptr_eq(&self.pd, pd)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_mapped(&self, direction: Direction) -> bool {
        self.mapped != 0 && self.direction == direction
    }

    /// Returns true if bytes that the program writes next to the device's may be lost while the
    /// pages are mapped.
    pub(super) fn bounces(&self) -> bool {
        let device = self.pd.device();
        // SAFETY: The device is in use.
        self.is_mapped(Direction::FromDevice) && unsafe { c::sdp_h_sg_bounces(device.raw()) }
    }

    /// Returns true if the peer may have access.
    pub(super) fn is_registered(&self) -> bool {
        self.registered
    }

    /// Maps pages for the device, unless they are already mapped. Sleeps.
    ///
    /// # Safety
    ///
    /// The pages stay pinned and unchanged until [`SgMapping::unmap`].
    ///
    /// # Errors
    ///
    /// `EINVAL`: no page is pinned, the pages are not pinned for writing, or they are mapped
    /// differently. `ENOMEM`.
    pub(super) unsafe fn map(&mut self, pages: &Pages, direction: Direction) -> Result {
        if self.mapped != 0 {
            return match self.direction == direction {
                true => Ok(()),
                false => Err(EINVAL),
            };
        }
        let writes = direction == Direction::FromDevice;
        let most = Region::most_pages(&self.pd) as usize;
        if pages.count() == 0 || pages.count() > most || (writes && !pages.writable()) {
            return Err(EINVAL);
        }
        if self.list.capacity() < pages.count() {
            self.region = None;
            self.list = list_for(pages.count(), most)?;
        }
        let device = self.pd.device();
        let list = self.list.as_mut_ptr();
        // SAFETY: The pages are pinned and hold that many bytes from that offset on, and there is
        // space for one entry per page.
        let entries = unsafe {
            c::sdp_h_sg_fill(
                list,
                pages.raw(),
                pages.count() as u32,
                pages.offset(),
                pages.len(),
                c::sdp_h_sg_longest(device.raw()),
            )
        };
        // SAFETY: The device is in use, and the list was just filled in.
        let mapped =
            unsafe { c::ib_dma_map_sg(device.raw(), list, entries as i32, direction.raw()) };
        let mapped = u32::try_from(mapped).unwrap_or(0);
        if mapped == 0 {
            return Err(ENOMEM);
        }
        // INVARIANT: Mapped above.
        (self.entries, self.mapped, self.direction) = (entries, mapped, direction);
        self.len = pages.len();
        Ok(())
    }

    /// Syncs the pages for the CPU, or for the device.
    pub(super) fn sync(&self, for_cpu: bool) {
        let device = self.pd.device();
        if !device.is_virtual() && self.mapped != 0 {
            // SAFETY: By the invariants that many entries are mapped; the list does not change.
            unsafe {
                c::sdp_h_sg_sync(
                    device.raw(),
                    self.list.as_ptr().cast_mut(),
                    self.entries,
                    self.direction.raw(),
                    for_cpu,
                )
            }
        }
    }

    /// Fills `sges` with the DMA addresses of the `len` bytes from `offset` on, as far as they fit.
    /// Returns the number of bytes and of entries.
    pub(super) fn locate(
        &self,
        offset: usize,
        len: usize,
        sges: &mut [c::ib_sge],
    ) -> (usize, usize) {
        let mut used = 0;
        let capacity = u32::try_from(sges.len()).unwrap_or(u32::MAX);
        // SAFETY: By the invariants that many entries are mapped (if 0, nothing is found), and
        // `sges` has space for the results.
        let found = unsafe {
            c::sdp_h_sg_sges(
                self.list.as_ptr(),
                self.mapped,
                offset,
                len,
                self.pd.lkey(),
                sges.as_mut_ptr(),
                capacity,
                &mut used,
            )
        };
        (found, used as usize)
    }

    /// Writes the mapped pages into the region, which is made if needed, with a new key, for one
    /// [`SgMapping::register`]. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY`: registered. `EINVAL`: no page is mapped, or they do not fit the region.
    /// `EOPNOTSUPP`: the device has no memory regions. `ENOMEM`.
    pub(super) fn describe(&mut self) -> Result {
        if self.registered {
            return Err(EBUSY);
        }
        if self.mapped == 0 {
            return Err(EINVAL);
        }
        let access = match self.direction {
            Direction::ToDevice => Access::Read,
            Direction::FromDevice => Access::Write,
        };
        let region = match &mut self.region {
            Some(region) => region,
            none => none.insert(Region::new(&self.pd, self.list.capacity())?),
        };
        // SAFETY: By the invariants the list is mapped, and the region is not registered.
        let (wr, key) = unsafe { region.prepare(self.list.as_mut_ptr(), self.mapped, access)? };
        if key.len as usize != self.len {
            return Err(EINVAL);
        }
        self.ready = Some((wr, key));
        Ok(())
    }

    /// Returns the work request that registers all pages for the peer, the peer's key, and the key
    /// of the previous registration. The region counts as registered from now on.
    ///
    /// # Errors
    ///
    /// `EBUSY`: already registered. `EINVAL`: not described, or for other access.
    pub(super) fn register(&mut self, access: Access) -> Result<(c::ib_reg_wr, Key, u32)> {
        if self.registered {
            return Err(EBUSY);
        }
        if !self.is_mapped(Direction::of(access == Access::Write)) {
            return Err(EINVAL);
        }
        let region = self.region.as_mut().ok_or(EINVAL)?;
        let (wr, key) = self.ready.take().ok_or(EINVAL)?;
        self.registered = true;
        Ok((wr, key, region.posts_key()))
    }

    pub(super) fn rkey(&self) -> Option<u32> {
        let region = self.region.as_ref().filter(|_| self.registered)?;
        Some(region.rkey())
    }

    /// Returns true if the target of a READ has to be registered.
    pub(super) fn needs_sink(&self) -> bool {
        self.direction == Direction::FromDevice && self.pd.device().is_iwarp()
    }

    /// Records the end of the registration: its invalidation has completed without an error.
    pub(super) fn invalidated(&mut self) {
        self.registered = false;
    }

    /// Ends the access of peer and device to the pages. Context: process, sleeps.
    pub(super) fn unmap(&mut self) {
        self.ready = None;
        if self.registered {
            // The invalidation did not complete, so the region is destroyed. This ends the access
            // by its key, even if the QP still exists.
            self.region = None;
            self.registered = false;
        }
        if self.mapped != 0 {
            // SAFETY: By the invariants this is mapped, once. Work requests that use it have ended:
            // the send queue owns `self` until then.
            unsafe {
                c::ib_dma_unmap_sg(
                    self.pd.device().raw(),
                    self.list.as_mut_ptr(),
                    self.entries as i32,
                    self.direction.raw(),
                )
            };
            self.mapped = 0;
        }
    }
}

impl Drop for SgMapping {
    fn drop(&mut self) {
        self.unmap();
    }
}

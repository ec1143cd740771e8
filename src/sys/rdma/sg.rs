// SPDX-License-Identifier: GPL-2.0-only

//! Pinned pages as a device finds them.
//!
//! An [`SgMapping`] is room for the addresses of one piece of a program's memory, and a region by
//! which the peer can be given access to it. It is made for one PD, and keeps its device.

use super::super::bindings as c;
use super::super::pin::Pages;
use super::dma::Direction;
use super::mr::{Access, Key, Region};
use super::pd::Pd;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Where a device finds pages. Dropped in process context.
///
/// # Invariants
///
/// If `mapped` is not 0, the first `entries` of `list` are mapped for the device, in `direction`, to
/// `mapped` addresses. `registered` is set whenever the region may be valid or become so.
pub(super) struct SgMapping {
    region: Option<Region>,
    /// What registers the region for what is mapped.
    ready: Option<(c::ib_reg_wr, Key)>,
    registered: bool,
    list: KVec<c::scatterlist>,
    entries: u32,
    mapped: u32,
    direction: Direction,
    pd: Arc<Pd>,
}

// SAFETY: Nothing here is tied to a thread.
unsafe impl Send for SgMapping {}
// SAFETY: Shared references give access to numbers only.
unsafe impl Sync for SgMapping {}

impl SgMapping {
    /// Room for as many pages as the device takes, without a region.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(pd: &Arc<Pd>) -> Result<Self> {
        let flags = GFP_KERNEL | kernel::alloc::flags::__GFP_NOWARN;
        Ok(SgMapping {
            region: None,
            ready: None,
            registered: false,
            list: KVec::with_capacity(Self::most_pages(pd) as usize, flags)?,
            entries: 0,
            mapped: 0,
            direction: Direction::ToDevice,
            pd: pd.clone(),
        })
    }

    /// Most pages that can be registered as one, 0 if none can.
    pub(super) fn most_pages(pd: &Pd) -> u32 {
        Region::most_pages(pd)
    }

    /// Whether it is for this PD.
    pub(super) fn is_of(&self, pd: &Arc<Pd>) -> bool {
        Arc::ptr_eq(&self.pd, pd)
    }

    /// Whether it is mapped in a direction.
    pub(super) fn is_mapped(&self, direction: Direction) -> bool {
        self.mapped != 0 && self.direction == direction
    }

    /// Whether what the program writes beside what the device does may be lost when it stays mapped.
    pub(super) fn bounces(&self) -> bool {
        let device = self.pd.device();
        // SAFETY: The device is in use.
        self.is_mapped(Direction::FromDevice) && unsafe { c::sdp_h_sg_bounces(device.raw()) }
    }

    /// Whether the peer may have access.
    pub(super) fn is_registered(&self) -> bool {
        self.registered
    }

    /// Lets the device get at pages, if it does not yet. Sleeps.
    ///
    /// # Safety
    ///
    /// The pages stay pinned, and are the same, until [`SgMapping::unmap`].
    ///
    /// # Errors
    ///
    /// `EINVAL` if nothing is pinned, if it is to be written and was not pinned for that, or if it
    /// is mapped otherwise; `ENOMEM`.
    pub(super) unsafe fn map(&mut self, pages: &Pages, direction: Direction) -> Result {
        if self.mapped != 0 {
            return match self.direction == direction {
                true => Ok(()),
                false => Err(EINVAL),
            };
        }
        let writes = direction == Direction::FromDevice;
        if pages.count() == 0
            || pages.count() > self.list.capacity()
            || (writes && !pages.writable())
        {
            return Err(EINVAL);
        }
        let device = self.pd.device();
        let list = self.list.as_mut_ptr();
        // SAFETY: The pages are pinned and hold that many bytes from that offset on, and there is
        // room for one entry per page.
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
        let mapped = unsafe { c::sdp_h_sg_map(device.raw(), list, entries, direction.raw()) };
        if mapped == 0 {
            return Err(ENOMEM);
        }
        // INVARIANT: Done above.
        (self.entries, self.mapped, self.direction) = (entries, mapped, direction);
        Ok(())
    }

    /// Lets the CPU see what the device has written, or else the device what the CPU has.
    pub(super) fn sync(&self, for_cpu: bool) {
        let device = self.pd.device();
        if !device.is_virtual() {
            // SAFETY: By the invariants so many entries are mapped; the list is not changed.
            unsafe {
                c::sdp_h_sg_sync(
                    device.raw(),
                    self.list.as_ptr().cast_mut(),
                    self.mapped,
                    self.direction.raw(),
                    for_cpu,
                )
            }
        }
    }

    /// The `len` bytes from `offset` on as the device finds them, as far as there is room in
    /// `sges`: how many bytes that are, and how many entries.
    pub(super) fn locate(
        &self,
        offset: usize,
        len: usize,
        sges: &mut [c::ib_sge],
    ) -> (usize, usize) {
        let mut used = 0;
        let room = u32::try_from(sges.len()).unwrap_or(u32::MAX);
        // SAFETY: By the invariants so many entries are mapped (none: nothing is found), and there
        // is room for so many results.
        let found = unsafe {
            c::sdp_h_sg_sges(
                self.list.as_ptr(),
                self.mapped,
                offset,
                len,
                self.pd.lkey(),
                sges.as_mut_ptr(),
                room,
                &mut used,
            )
        };
        (found, used as usize)
    }

    /// Describes what is mapped to the region, which is made if there is none, with a key that was not
    /// used before: for one [`SgMapping::register`]. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is registered; `EINVAL` if nothing is mapped, or the region cannot take it;
    /// `EOPNOTSUPP` if the device has none, `ENOMEM`.
    pub(super) fn describe(&mut self, len: usize) -> Result {
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
            none => none.insert(Region::new(&self.pd)?),
        };
        // SAFETY: By the invariants the list is mapped, and the region is not registered.
        let (wr, key) = unsafe { region.prepare(self.list.as_mut_ptr(), self.mapped, access)? };
        if key.len as usize != len {
            return Err(EINVAL);
        }
        self.ready = Some((wr, key));
        Ok(())
    }

    /// The work request that registers all of it for the peer, how the peer names it, and the key of the
    /// registration before. From now on it counts as registered.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is registered already; `EINVAL` if it was not described, or for other access.
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

    /// The key that ends the registration.
    pub(super) fn rkey(&self) -> Option<u32> {
        let region = self.region.as_ref().filter(|_| self.registered)?;
        Some(region.rkey())
    }

    /// The registration has ended: the work request that ends it is complete, without an error.
    pub(super) fn invalidated(&mut self) {
        self.registered = false;
    }

    /// Neither peer nor device get at the pages any more. Process context: sleeps.
    pub(super) fn unmap(&mut self) {
        self.ready = None;
        if self.registered {
            // Its end was not seen, so there is another one. Whether the QP is gone or not, access
            // by the key is over when this returns.
            self.region = None;
            self.registered = false;
        }
        if self.mapped != 0 {
            // SAFETY: By the invariants this is mapped, once. Work requests that use it are done
            // with: the send queue owns `self` until then.
            unsafe {
                c::sdp_h_sg_unmap(
                    self.pd.device().raw(),
                    self.list.as_mut_ptr(),
                    self.entries,
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

// SPDX-License-Identifier: GPL-2.0-only

//! Memory of programs as a device sees it.
//!
//! A [`UserMemory`] is room for one piece of a program's memory at a time: its pinned pages, their
//! addresses for one device, and a region by which the peer can be given access. All of it is
//! allocated once and used again for each piece.
//!
//! A piece goes through these steps, and back again by [`UserMemory::release`]:
//!
//! ```text
//!  empty -- pages().pin() --> pinned -- map() --> mapped -- register() --> registered
//! ```
//!
//! What the device or the peer may access is owned by the [`super::send::SendQueue`], which gives
//! it back when that is over.

use super::super::bindings as c;
use super::super::pin::Pages;
use super::dma::Direction;
use super::mr::{Access, Key, Region};
use super::pd::Pd;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Room for one piece of a program's memory. Dropped in process context.
///
/// # Invariants
///
/// If `mapped` is not 0, the first `entries` of `list` describe all of `pages`, and are mapped for
/// the device, in `direction`, to `mapped` addresses; pages that it writes to are pinned for that. `registered` is set whenever the region may be
/// valid or become so.
pub(crate) struct UserMemory {
    region: Option<Region>,
    registered: bool,
    list: KVec<c::scatterlist>,
    entries: u32,
    mapped: u32,
    direction: Direction,
    pages: Pages,
    pd: Arc<Pd>,
}

// SAFETY: Nothing here is tied to a thread.
unsafe impl Send for UserMemory {}
// SAFETY: Shared references give access to numbers only.
unsafe impl Sync for UserMemory {}

impl UserMemory {
    /// Room for `pages` pages, without a region.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(pd: &Arc<Pd>, pages: usize) -> Result<Self> {
        let flags = GFP_KERNEL | kernel::alloc::flags::__GFP_NOWARN;
        Ok(UserMemory {
            region: None,
            registered: false,
            list: KVec::with_capacity(pages, flags)?,
            entries: 0,
            mapped: 0,
            direction: Direction::ToDevice,
            pages: Pages::new(pages)?,
            pd: pd.clone(),
        })
    }

    /// Most pages that can be registered as one, 0 if none can.
    pub(crate) fn most_pages(pd: &Pd) -> u32 {
        Region::most_pages(pd)
    }

    /// Makes the region, if there is none. Sleeps.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device has none, `ENOMEM`.
    pub(crate) fn make_region(&mut self) -> Result {
        if self.region.is_none() {
            self.region = Some(Region::new(&self.pd)?);
        }
        Ok(())
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

    /// What it was made for.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// How many pages there is room for.
    pub(crate) fn room(&self) -> usize {
        self.list.capacity()
    }

    /// How many pages are pinned.
    pub(crate) fn count(&self) -> usize {
        self.pages.count()
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
    pub(crate) fn bounces(&self) -> bool {
        let device = self.pd.device();
        // SAFETY: The device is in use.
        self.is_mapped(Direction::FromDevice) && unsafe { c::sdp_h_sg_bounces(device.raw()) }
    }

    /// Whether the peer may have access.
    pub(crate) fn is_registered(&self) -> bool {
        self.registered
    }

    /// Lets the device get at what is pinned.
    ///
    /// # Errors
    ///
    /// `EINVAL` if nothing is pinned, if it is to be written and was not pinned for that, or if it
    /// is mapped otherwise; `ENOMEM`.
    pub(crate) fn map(&mut self, direction: Direction) -> Result {
        if self.mapped != 0 {
            return match self.direction == direction {
                true => Ok(()),
                false => Err(EINVAL),
            };
        }
        let writes = direction == Direction::FromDevice;
        if self.pages.count() == 0
            || self.pages.count() > self.list.capacity()
            || (writes && !self.pages.writable())
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
                self.pages.raw(),
                self.pages.count() as u32,
                self.pages.offset(),
                self.pages.len(),
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

    /// Lets the CPU see what the device has written.
    pub(crate) fn sync_for_cpu(&self) {
        self.sync(true);
    }

    /// Lets the device see what the CPU has written.
    pub(crate) fn sync_for_device(&self) {
        self.sync(false);
    }

    fn sync(&self, for_cpu: bool) {
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

    /// The work request that registers all of it for the peer, and how the peer names it. From now
    /// on it counts as registered.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is registered already; `EINVAL` if there is no region, if the memory is not
    /// mapped for that, or has too many pages.
    pub(super) fn register(&mut self, access: Access) -> Result<(c::ib_reg_wr, Key)> {
        let direction = match access {
            Access::Read => Direction::ToDevice,
            Access::Write => Direction::FromDevice,
        };
        if self.registered {
            return Err(EBUSY);
        }
        if !self.is_mapped(direction) {
            return Err(EINVAL);
        }
        let count = self.pages.count();
        let region = self
            .region
            .as_mut()
            .filter(|r| count <= r.pages() as usize)
            .ok_or(EINVAL)?;
        // SAFETY: By the invariants the list is mapped, and the region is not registered.
        let (wr, key) = unsafe { region.prepare(self.list.as_mut_ptr(), self.mapped, access)? };
        if key.len as usize != self.pages.len() {
            return Err(EINVAL);
        }
        self.registered = true;
        Ok((wr, key))
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

    /// Lets go of the memory: neither peer nor device get at it any more, and its pages are
    /// unpinned. Process context: sleeps.
    pub(crate) fn release(&mut self) {
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
        self.pages.unpin();
    }
}

impl Drop for UserMemory {
    fn drop(&mut self) {
        self.release();
    }
}

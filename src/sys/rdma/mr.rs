// SPDX-License-Identifier: GPL-2.0-only

//! Pinned pages mapped for a device, and memory regions.
//!
//! An [`SgMapping`] has space for the DMA addresses of one block of program memory, and a memory
//! region (MR) for access by the peer. An [`SgMapping`] is made for one PD, and holds the PD's
//! device. The MR is created once. Work requests register the MR for one block after another
//! (IB_WR_REG_MR), and end each registration (IB_WR_LOCAL_INV).

use super::super::bindings as c;
use super::super::pin::{list_for, Pages, PAGE};
use super::super::random::random_below;
use super::destroy::wait_destroyed;
use super::pd::Pd;
use core::ptr::{self, NonNull};
use kernel::dma::DataDirection as Direction;
use kernel::error::{from_err_ptr, to_result};
use kernel::prelude::*;
use kernel::sync::Arc;

/// Maximum number of pages in one registration, unless the device has a lower limit: 2 MiB.
const MAX_PAGES: u32 = ((2 << 20) / PAGE) as u32;

/// Key of registered memory for the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) rkey: u32,
    /// Address of the first byte: not a virtual address, but random for each registration.
    pub(crate) address: u64,
    pub(crate) len: u32,
}

/// State of a memory region.
#[derive(Clone, Copy)]
enum Access {
    None,
    /// The region contains the addresses of the mapped pages and a new key.
    Prepared(Key),
    /// The peer may have access by the key of the posted registration.
    Registered(Key),
}

/// DMA addresses of pages. Dropped in process context.
///
/// # Invariants
///
/// If `mapped` is not 0, the first `entries` of `list` are mapped for the device, in `direction`,
/// to `mapped` addresses. `access` is `Registered` if the region may be or become valid.
pub(super) struct SgMapping {
    /// Memory region, for as many pages as fit in `list`.
    region: Option<Region>,
    access: Access,
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
            access: Access::None,
            list: KVec::new(),
            entries: 0,
            mapped: 0,
            len: 0,
            direction: Direction::ToDevice,
            pd: pd.clone(),
        }
    }

    /// Returns true if the mapping belongs to the given PD.
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

    /// Returns the key of the posted registration, by which the peer may have access.
    pub(super) fn key(&self) -> Option<Key> {
        match self.access {
            Access::Registered(key) => Some(key),
            _ => None,
        }
    }

    /// Returns true if the peer may have access.
    pub(super) fn is_registered(&self) -> bool {
        self.key().is_some()
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
        // SAFETY: The pages are pinned and contain `len()` bytes from `offset()` on, and the list
        // has space for one entry per page.
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
            unsafe { c::ib_dma_map_sg(device.raw(), list, entries as i32, direction as u32) };
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
            // SAFETY: By the invariants `entries` entries are mapped, so the list is fixed.
            unsafe {
                c::sdp_h_sg_sync(
                    device.raw(),
                    self.list.as_ptr().cast_mut(),
                    self.entries,
                    self.direction as u32,
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
        // SAFETY: By the invariants `entries` entries are mapped (with 0 entries nothing is found),
        // and `sges` has space for the results.
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

    /// Writes the mapped pages and a new key into the region, for one [`SgMapping::register`].
    /// Makes the region if needed. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY`: registered. `EINVAL`: no page is mapped, or the pages do not fit the region.
    /// `EOPNOTSUPP`: the device has no memory regions. `ENOMEM`.
    pub(super) fn describe(&mut self) -> Result {
        if self.is_registered() {
            return Err(EBUSY);
        }
        if self.mapped == 0 {
            return Err(EINVAL);
        }
        let region = match &mut self.region {
            Some(region) => region,
            none => none.insert(Region::new(&self.pd, self.list.capacity())?),
        };
        self.access = Access::None;
        // Selects one of 2^31 ranges of 2^31 bytes; the memory uses the start of the range.
        let base = u64::from(random_below(1 << 31).saturating_add(1)) << 31;
        let list = self.list.as_mut_ptr();
        // SAFETY: By the invariants the list is mapped, the MR exists and is not registered.
        to_result(unsafe { c::sdp_h_mr_map(region.raw(), list, self.mapped, base) })?;
        let key = region.key();
        if key.len as usize != self.len {
            return Err(EINVAL);
        }
        self.access = Access::Prepared(key);
        Ok(())
    }

    /// Returns three values: the work request that registers all pages for the peer, to read or
    /// write as the device does; the peer's key; and the key of the previous registration. The
    /// region counts as registered from now on.
    ///
    /// # Errors
    ///
    /// `EBUSY`: already registered. `EINVAL`: not described.
    pub(super) fn register(&mut self) -> Result<(c::ib_reg_wr, Key, u32)> {
        let key = match self.access {
            Access::None => return Err(EINVAL),
            Access::Prepared(key) => key,
            Access::Registered(_) => return Err(EBUSY),
        };
        let region = self.region.as_mut().ok_or(EINVAL)?;
        self.access = Access::Registered(key);
        let access = match self.direction {
            Direction::ToDevice => c::ib_access_flags_IB_ACCESS_REMOTE_READ,
            _ => {
                c::ib_access_flags_IB_ACCESS_LOCAL_WRITE | c::ib_access_flags_IB_ACCESS_REMOTE_WRITE
            }
        };
        let mut wr = c::ib_reg_wr {
            mr: region.raw(),
            key: key.rkey,
            access: access as i32,
            ..Default::default()
        };
        wr.wr.opcode = c::ib_wr_opcode_IB_WR_REG_MR;
        let before = core::mem::replace(&mut region.known, key.rkey);
        Ok((wr, key, before))
    }

    /// Returns true if the target of a READ has to be registered.
    pub(super) fn needs_sink(&self) -> bool {
        self.direction == Direction::FromDevice && self.pd.device().is_iwarp()
    }

    /// Records the end of the registration: its invalidation has completed without an error.
    pub(super) fn invalidated(&mut self) {
        self.access = Access::None;
    }

    /// Ends the access of peer and device to the pages. Context: process, sleeps.
    pub(super) fn unmap(&mut self) {
        if self.is_registered() {
            // The invalidation did not complete, so the region is destroyed. Destroying the region
            // ends the access by its key, even if the QP still exists.
            self.region = None;
        }
        self.access = Access::None;
        if self.mapped != 0 {
            // SAFETY: By the invariants the list is mapped, and this call unmaps it once. Work
            // requests that use the list have ended: the send queue owns `self` until then.
            unsafe {
                c::ib_dma_unmap_sg(
                    self.pd.device().raw(),
                    self.list.as_mut_ptr(),
                    self.entries as i32,
                    self.direction as u32,
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

/// An MR. Context of the drop: process. The drop ends all access by the region's key. If the driver
/// does not destroy the region, the destruction of the PD's only QP ends the access.
///
/// # Invariants
///
/// `raw` is an MR of `pd`, destroyed by [`Drop`] only.
pub(super) struct Region {
    raw: NonNull<c::ib_mr>,
    pd: Arc<Pd>,
    /// Key in the device: the key of the last posted registration, or the first key.
    known: u32,
}

// SAFETY: An MR may be used by any thread.
unsafe impl Send for Region {}
// SAFETY: Shared references give access to numbers that change by `&mut` only.
unsafe impl Sync for Region {}

impl Region {
    /// Returns the maximum pages of a memory region; 0 without regions of this page size.
    pub(super) fn most_pages(pd: &Pd) -> u32 {
        // SAFETY: The device is in use.
        unsafe { c::sdp_h_mr_pages(pd.device().raw()) }.min(MAX_PAGES)
    }

    /// Makes an MR without a registration. Sleeps.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the device supports no MR. Other errors: errors of the device.
    fn new(pd: &Arc<Pd>, pages: usize) -> Result<Self> {
        let pages = Self::most_pages(pd).min(u32::try_from(pages).unwrap_or(u32::MAX));
        if pages == 0 {
            return Err(crate::sys::errno::EOPNOTSUPP.into());
        }
        // SAFETY: The PD exists.
        let mr = unsafe { c::ib_alloc_mr(pd.raw(), c::ib_mr_type_IB_MR_TYPE_MEM_REG, pages) };
        let raw = NonNull::new(from_err_ptr(mr)?).ok_or(ENOMEM)?;
        // INVARIANT: The MR was made above.
        let mut region = Region {
            raw,
            pd: pd.clone(),
            known: 0,
        };
        region.known = region.key().rkey;
        Ok(region)
    }

    fn raw(&self) -> *mut c::ib_mr {
        self.raw.as_ptr()
    }

    /// Returns the key that [`SgMapping::describe`] has written.
    fn key(&self) -> Key {
        // SAFETY: By the invariants the MR exists; only `describe` changes the key, by `&mut`.
        let mr = unsafe { self.raw.as_ref() };
        Key {
            rkey: mr.rkey,
            address: mr.iova,
            len: u32::try_from(mr.length).unwrap_or(u32::MAX),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let gone = wait_destroyed("an MR", || {
            // SAFETY: By the invariants the MR exists, and only this call destroys the MR, once.
            unsafe { c::ib_dereg_mr_user(self.raw(), ptr::null_mut()) }
        });
        if !gone {
            self.pd.has_left();
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Memory regions.
//!
//! A [`Region`] is a fast-register memory region (MR). The MR of a region is created once. Work
//! requests register it for one block after another (IB_WR_REG_MR), each ended by another one
//! (IB_WR_LOCAL_INV). [`super::block::Block`] owns memory and region and selects what to register.

use super::super::bindings as c;
use super::super::pin::PAGE;
use super::super::random::random_below;
use super::destroy::wait_destroyed;
use super::pd::Pd;
use core::ptr::{self, NonNull};
use kernel::prelude::*;
use kernel::sync::Arc;

/// Maximum number of pages in one registration, unless the device has a lower limit: 2 MiB.
pub(super) const MAX_PAGES: u32 = ((2 << 20) / PAGE) as u32;

/// Access of the peer to registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    fn flags(self) -> c::ib_access_flags {
        match self {
            Access::Read => c::ib_access_flags_IB_ACCESS_REMOTE_READ,
            Access::Write => {
                c::ib_access_flags_IB_ACCESS_LOCAL_WRITE | c::ib_access_flags_IB_ACCESS_REMOTE_WRITE
            }
        }
    }
}

/// Key of registered memory for the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) rkey: u32,
    /// Address of the first byte: not an address of this machine, but random for each registration.
    pub(crate) address: u64,
    pub(crate) len: u32,
}

/// An MR. Context of the drop: process. The drop ends all access by the region's key. If the driver
/// does not destroy it, the destruction of its PD's only QP ends the access.
///
/// # Invariants
///
/// `raw` is an MR of `pd`, destroyed by [`Drop`] only.
pub(super) struct Region {
    raw: NonNull<c::ib_mr>,
    pd: Arc<Pd>,
    /// Key in the device: that of the last posted registration, or the first one.
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
    /// `EOPNOTSUPP`: the device supports none. Other errors: those of the device.
    pub(super) fn new(pd: &Arc<Pd>, pages: usize) -> Result<Self> {
        let pages = Self::most_pages(pd).min(u32::try_from(pages).unwrap_or(u32::MAX));
        if pages == 0 {
            return Err(crate::sys::errno::EOPNOTSUPP.into());
        }
        // SAFETY: The PD exists.
        let mr = unsafe { c::ib_alloc_mr(pd.raw(), c::ib_mr_type_IB_MR_TYPE_MEM_REG, pages) };
        let raw = NonNull::new(kernel::error::from_err_ptr(mr)?).ok_or(ENOMEM)?;
        // INVARIANT: The MR was made above.
        let mut region = Region {
            raw,
            pd: pd.clone(),
            known: 0,
        };
        region.known = region.rkey();
        Ok(region)
    }

    /// Records that the last prepared key is about to be posted. Returns the key that the device
    /// has until then, under which no memory is registered.
    pub(super) fn posts_key(&mut self) -> u32 {
        let key = self.rkey();
        core::mem::replace(&mut self.known, key)
    }

    pub(super) fn raw(&self) -> *mut c::ib_mr {
        self.raw.as_ptr()
    }

    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: By the invariants the MR exists; only `prepare` changes its key.
        unsafe { (*self.raw()).rkey }
    }

    /// Prepares the MR with memory, a new key and address, for the registering work request.
    ///
    /// # Safety
    ///
    /// The list is mapped for the device and has `entries` entries. The region is not registered.
    pub(super) unsafe fn prepare(
        &mut self,
        list: *mut c::scatterlist,
        entries: u32,
        access: Access,
    ) -> Result<(c::ib_reg_wr, Key)> {
        // 2^31 ranges of 2^31 bytes each; the memory uses the start of one.
        let base = u64::from(random_below(1 << 31).saturating_add(1)) << 31;
        // SAFETY: By the caller's guarantee and the invariants.
        let ret = unsafe { c::sdp_h_mr_map(self.raw(), list, entries, base) };
        kernel::error::to_result(ret)?;
        // SAFETY: By the invariants the MR exists, and the numbers were written above.
        let mr = unsafe { &*self.raw() };
        let key = Key {
            rkey: mr.rkey,
            address: mr.iova,
            len: u32::try_from(mr.length).map_err(|_| EINVAL)?,
        };
        let mut wr = c::ib_reg_wr {
            mr: self.raw(),
            key: mr.rkey,
            access: access.flags() as i32,
            ..Default::default()
        };
        wr.wr.opcode = c::ib_wr_opcode_IB_WR_REG_MR;
        Ok((wr, key))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let gone = wait_destroyed("an MR", || {
            // SAFETY: By the invariants the MR exists, and only this call destroys it, once.
            unsafe { c::ib_dereg_mr_user(self.raw(), ptr::null_mut()) }
        });
        if !gone {
            self.pd.has_left();
        }
    }
}

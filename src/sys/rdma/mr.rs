// SPDX-License-Identifier: GPL-2.0-only

//! Memory regions.
//!
//! A [`Region`] is a fast-register MR: made once, it is registered for one piece of memory after
//! another by work requests (IB_WR_REG_MR), and each registration ends with another one
//! (IB_WR_LOCAL_INV). What is to be registered is decided by
//! [`super::user_memory::UserMemory`], which owns memory and region alike.

use super::super::bindings as c;
use super::super::random::random_below;
use super::destroy::until_gone;
use super::pd::Pd;
use core::ptr::{self, NonNull};
use kernel::prelude::*;
use kernel::sync::Arc;

/// Most pages in one registration. Devices say how many they can; this is enough for 2 MiB.
pub(super) const MAX_PAGES: u32 = 512;

/// What the peer may do with registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
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

/// How the peer names registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    /// The R_Key.
    pub(crate) rkey: u32,
    /// Where it begins. This is no address of ours, but made up for the occasion.
    pub(crate) address: u64,
    /// How many bytes.
    pub(crate) len: u32,
}

/// An MR. Dropped in process context, which ends every access by its key: if the driver does not destroy it,
/// that of the one QP of its PD has to end it.
///
/// # Invariants
///
/// `raw` is an MR of `pd`, destroyed by [`Drop`] only.
pub(super) struct Region {
    raw: NonNull<c::ib_mr>,
    pd: Arc<Pd>,
    /// The key that the device knows: of the last registration that was posted, or the first one.
    known: u32,
}

// SAFETY: An MR may be used by any thread.
unsafe impl Send for Region {}
// SAFETY: Shared references give access to numbers that change with `&mut` only.
unsafe impl Sync for Region {}

impl Region {
    /// Most pages that a region of that device is made for; 0 if it has none for pages of ours.
    pub(super) fn most_pages(pd: &Pd) -> u32 {
        // SAFETY: The device is in use.
        unsafe { c::sdp_h_mr_pages(pd.device().raw()) }.min(MAX_PAGES)
    }

    /// Makes an MR that is registered for nothing. Sleeps.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device has none; what it says.
    pub(super) fn new(pd: &Arc<Pd>) -> Result<Self> {
        let pages = Self::most_pages(pd);
        if pages == 0 {
            return Err(crate::sys::errno::EOPNOTSUPP.into());
        }
        // SAFETY: The PD exists.
        let mr = unsafe { c::ib_alloc_mr(pd.raw(), c::ib_mr_type_IB_MR_TYPE_MEM_REG, pages) };
        let raw = NonNull::new(kernel::error::from_err_ptr(mr)?).ok_or(ENOMEM)?;
        // INVARIANT: Made above.
        let mut region = Region {
            raw,
            pd: pd.clone(),
            known: 0,
        };
        region.known = region.rkey();
        Ok(region)
    }

    /// The last key that it was prepared with is about to be posted. Returns the one that the device knows until
    /// then, and by which nothing is registered any more.
    pub(super) fn posts_key(&mut self) -> u32 {
        let key = self.rkey();
        core::mem::replace(&mut self.known, key)
    }

    /// The MR as C code knows it.
    pub(super) fn raw(&self) -> *mut c::ib_mr {
        self.raw.as_ptr()
    }

    /// Its key now.
    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: By the invariants the MR exists; only `prepare` changes its key.
        unsafe { (*self.raw()).rkey }
    }

    /// Describes memory to the MR, with a key and an address that were not used before, for the
    /// work request that comes back to register it.
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
        // 2^31 places for 2^31 bytes each, of which memory uses the first few.
        let base = u64::from(random_below(1 << 31) + 1) << 31;
        // SAFETY: By the caller, and by the invariants.
        let ret = unsafe { c::sdp_h_mr_map(self.raw(), list, entries, base) };
        kernel::error::to_result(ret)?;
        // SAFETY: By the invariants the MR exists, and the numbers were just written.
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
        let gone = until_gone("an MR", || {
            // SAFETY: By the invariants the MR exists, and this is the only place that ends that, once.
            unsafe { c::ib_dereg_mr_user(self.raw(), ptr::null_mut()) }
        });
        if !gone {
            self.pd.has_left();
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Protection domains.
//!
//! A [`Pd`] is shared by one QP and the memory registered for its peer. The device checks keys
//! against the PD, so each QP has its own PD: no peer can reach memory advertised by another
//! connection, whatever key it uses. The PD serves another QP once no memory is registered in it.

use super::super::bindings as c;
use super::device::DeviceRef;
use core::ptr::{self, NonNull};
use kernel::prelude::*;
use kernel::sync::atomic::{AtomicFlag, Relaxed};
use kernel::sync::Arc;

/// A PD. The last reference is dropped in process context.
///
/// # Invariants
///
/// `raw` is a PD of `device`, destroyed by [`Drop`] only, after all objects made from it: each
/// holds a reference, or sets `left`.
pub(crate) struct Pd {
    raw: NonNull<c::ib_pd>,
    /// Set when an object of this PD could not be destroyed: no other QP may use the PD.
    left: AtomicFlag,
    device: DeviceRef,
}

// SAFETY: A PD may be used by any thread.
unsafe impl Send for Pd {}
// SAFETY: Any number of threads may use a PD at once; its fields do not change.
unsafe impl Sync for Pd {}

impl Pd {
    pub(super) fn new(device: &DeviceRef) -> Result<Arc<Self>> {
        // SAFETY: The device is in use; the name is static.
        let pd = unsafe { c::__ib_alloc_pd(device.raw(), 0, super::name()) };
        let raw = NonNull::new(kernel::error::from_err_ptr(pd)?).ok_or(ENOMEM)?;
        let pd = Pd {
            raw,
            left: AtomicFlag::new(false),
            device: device.clone(),
        };
        Ok(Arc::new(pd, GFP_KERNEL)?)
    }

    pub(super) fn raw(&self) -> *mut c::ib_pd {
        self.raw.as_ptr()
    }

    /// Records that an object of this PD was not destroyed. The caller drops a reference later.
    pub(super) fn has_left(&self) {
        // the reference count of the PD orders this store
        self.left.store(true, Relaxed);
    }

    /// Returns true if the PD can serve another QP.
    pub(super) fn is_clean(&self) -> bool {
        !self.left.load(Relaxed)
    }

    pub(crate) fn device(&self) -> &DeviceRef {
        &self.device
    }

    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: By the invariants the PD exists; the key never changes.
        unsafe { (*self.raw()).local_dma_lkey }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        if self.is_clean() {
            // SAFETY: By the invariants the PD exists and all objects made from it are destroyed.
            unsafe { c::ib_dealloc_pd_user(self.raw(), ptr::null_mut()) };
        }
    }
}

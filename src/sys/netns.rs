// SPDX-License-Identifier: GPL-2.0-only

//! Network namespaces: a [`Net`] is one `struct net`.

use super::bindings as c;
use core::ptr::NonNull;
use kernel::sync::aref::AlwaysRefCounted;
use kernel::types::Opaque;

#[repr(transparent)]
pub(crate) struct Net(Opaque<c::net>);

// SAFETY: Namespaces are shared by all threads.
unsafe impl Send for Net {}
// SAFETY: Namespaces are shared by all threads; the only operation is to count references.
unsafe impl Sync for Net {}

// SAFETY: `get_net` and `put_net` count references, and a namespace with references stays.
unsafe impl AlwaysRefCounted for Net {
    fn inc_ref(&self) {
        // SAFETY: `self` is a live namespace.
        unsafe { c::get_net(self.as_raw()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller passes a reference that it owns.
        unsafe { c::put_net(obj.as_ptr().cast::<c::net>()) }
    }
}

impl Net {
    /// Returns the namespace behind a pointer.
    ///
    /// # Safety
    ///
    /// `net` must point to a namespace that is referenced during all of `'a`.
    pub(crate) unsafe fn from_raw<'a>(net: *const c::net) -> &'a Self {
        // SAFETY: The type is transparent; the caller guarantees the rest.
        unsafe { &*net.cast::<Self>() }
    }

    pub(crate) fn as_raw(&self) -> *mut c::net {
        self.0.get()
    }
}

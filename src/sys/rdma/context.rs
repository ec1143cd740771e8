// SPDX-License-Identifier: GPL-2.0-only

//! Contexts of C callbacks.

use core::ops::Deref;
use core::ptr::NonNull;
use kernel::ffi::c_void;
use kernel::prelude::*;

/// A value at a fixed address that C code points to, until the context is dropped.
///
/// # Invariants
///
/// The pointer was leaked from a box, and only [`Drop`] frees it.
pub(super) struct Context<T>(NonNull<T>);

// SAFETY: A context owns its value, as a box does.
unsafe impl<T: Send> Send for Context<T> {}
// SAFETY: Shared references give access to shared references of the value.
unsafe impl<T: Sync> Sync for Context<T> {}

impl<T> Context<T> {
    pub(super) fn new(value: T) -> Result<Self> {
        // INVARIANT: The pointer is leaked from a box in this call.
        Ok(Context(NonNull::from(KBox::leak(KBox::new(
            value, GFP_KERNEL,
        )?))))
    }

    pub(super) fn as_ptr(&self) -> *mut c_void {
        self.0.as_ptr().cast()
    }
}

impl<T> Deref for Context<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the invariants the pointer is valid, and C code only uses shared references.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Context<T> {
    fn drop(&mut self) {
        // SAFETY: By the invariants. The owner has removed the pointer from the C object.
        drop(unsafe { KBox::from_raw(self.0.as_ptr()) });
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! What C hands to our callbacks.

use core::ptr::NonNull;
use kernel::ffi::c_void;
use kernel::prelude::*;

/// A value that stays where it is, for C to have a pointer to it, until this is dropped.
///
/// # Invariants
///
/// The pointer was leaked from a box, and only [`Drop`] frees it.
pub(super) struct Context<T>(NonNull<T>);

// SAFETY: It owns the value, as a box does.
unsafe impl<T: Send> Send for Context<T> {}
// SAFETY: Shared references give access to nothing but the address.
unsafe impl<T: Sync> Sync for Context<T> {}

impl<T> Context<T> {
    /// Puts a value there.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(value: T) -> Result<Self> {
        // INVARIANT: Leaked here.
        Ok(Context(NonNull::from(KBox::leak(KBox::new(
            value, GFP_KERNEL,
        )?))))
    }

    /// Where it is.
    pub(super) fn as_ptr(&self) -> *mut c_void {
        self.0.as_ptr().cast()
    }
}

impl<T> Drop for Context<T> {
    fn drop(&mut self) {
        // SAFETY: By the invariants. Whoever made it has seen to it that C has no pointer any more.
        drop(unsafe { KBox::from_raw(self.0.as_ptr()) });
    }
}

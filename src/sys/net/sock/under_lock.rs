// SPDX-License-Identifier: GPL-2.0-only

//! State of a socket that the socket lock protects.

use super::{Locked, Sock};
use crate::sys::net::netns::InNet;
use core::cell::UnsafeCell;
use core::mem::size_of;
use core::ptr;

/// A value in the socket layer's part of a socket. Only the holder of the socket lock accesses it.
pub(crate) struct UnderLock<T>(UnsafeCell<T>);

// SAFETY: One task at a time accesses the value: the holder of a lock.
unsafe impl<T: Send> Sync for UnderLock<T> {}

impl<T> UnderLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        UnderLock(UnsafeCell::new(value))
    }
}

impl<S: InNet> Sock<S> {
    /// Returns a value of this socket.
    ///
    /// Panics if the value or the lock is another socket's.
    #[inline]
    pub(crate) fn under_lock<'a, T>(
        &'a self,
        lock: &'a mut Locked<'_>,
        value: &'a UnderLock<T>,
    ) -> &'a mut T {
        let start = ptr::from_ref(self).addr();
        let offset = ptr::from_ref(value).addr().wrapping_sub(start);
        assert!(offset < size_of::<Self>() && ptr::from_ref(lock.sk).addr() == start);
        // SAFETY: The value is a part of this socket, and `lock` is this socket's. Another
        // reference to the value would have borrowed the same lock, which is borrowed for `'a`.
        unsafe { &mut *value.0.get() }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Values that cross the border in setsockopt(2) and getsockopt(2).

use super::super::bindings as c;
use super::super::errno::{EFAULT, EINVAL};
use super::sock::SockCore;
use core::marker::PhantomData;
use kernel::prelude::*;

/// The value that a setsockopt(2) call passes.
///
/// # Invariants
///
/// `value` and `len` are those of a setsockopt call that is under way.
pub(crate) struct NewValue<'a> {
    value: c::sockptr_t,
    len: u32,
    _call: PhantomData<&'a ()>,
}

impl NewValue<'_> {
    /// # Safety
    ///
    /// `value` and `len` must be the arguments of a setsockopt call that lasts for the lifetime.
    pub(super) unsafe fn new(value: c::sockptr_t, len: u32) -> Self {
        NewValue {
            value,
            len,
            _call: PhantomData,
        }
    }

    /// The value as an integer, which most options are.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is shorter than an integer, `EFAULT` if it cannot be read.
    pub(crate) fn int(&self) -> Result<i32> {
        if (self.len as usize) < size_of::<i32>() {
            return Err(EINVAL.into());
        }
        let mut v: i32 = 0;
        // SAFETY: `v` has room for the four bytes; the rest is checked by the C code.
        let e = unsafe {
            c::sdp_h_copy_from_sockptr((&raw mut v).cast(), self.value, size_of::<i32>())
        };
        if e < 0 {
            Err(Error::from_errno(e))
        } else {
            Ok(v)
        }
    }

    /// Has the option set by the code that all sockets over IP share, as far as it is fit for SDP.
    /// The caller does not hold the socket lock.
    pub(crate) fn forward(&self, sk: &SockCore, level: i32, name: i32) -> Result {
        // SAFETY: The sock is an inet_sock of its family with initialised IPv6 part where needed;
        // the value is that of the call. The function takes the socket lock itself.
        kernel::error::to_result(unsafe {
            c::sdp_h_setsockopt(sk.raw(), level, name, self.value, self.len)
        })
    }
}

/// Where a getsockopt(2) call wants its value.
///
/// # Invariants
///
/// The pointers are those of a getsockopt call that is under way.
pub(crate) struct OldValue<'a> {
    value: *mut u8,
    len: *mut i32,
    _call: PhantomData<&'a ()>,
}

impl OldValue<'_> {
    /// # Safety
    ///
    /// `value` and `len` must be the user pointers of a getsockopt call that lasts for the
    /// lifetime.
    pub(super) unsafe fn new(value: *mut u8, len: *mut i32) -> Self {
        OldValue {
            value,
            len,
            _call: PhantomData,
        }
    }

    /// Room that the caller offers, in bytes.
    ///
    /// # Errors
    ///
    /// `EFAULT`, or `EINVAL` for a negative length.
    pub(crate) fn room(&self) -> Result<usize> {
        let mut len = 0;
        // SAFETY: `len` is the user pointer of the call, which get_user() checks.
        let e = unsafe { c::sdp_h_get_user_int(self.len, &mut len) };
        if e < 0 {
            return Err(EFAULT.into());
        }
        usize::try_from(len).map_err(|_| EINVAL.into())
    }

    /// Gives as much of `bytes` as the caller has room for.
    pub(crate) fn give(&self, bytes: &[u8]) -> Result {
        let n = self.room()?.min(bytes.len());
        // SAFETY: The pointers are the user's, which the C functions check; `bytes` has n bytes.
        let failed = unsafe {
            c::sdp_h_put_user_int(n as i32, self.len) != 0
                || c::sdp_h_copy_to_user(self.value.cast(), bytes.as_ptr().cast(), n) != 0
        };
        if failed {
            Err(EFAULT.into())
        } else {
            Ok(())
        }
    }

    /// Gives an integer.
    pub(crate) fn give_int(&self, v: i32) -> Result {
        self.give(&v.to_ne_bytes())
    }

    /// Asks the code that all sockets over IP share, which also knows the errnos of unknown levels.
    /// The caller does not hold the socket lock.
    pub(crate) fn forward(&self, sk: &SockCore, level: i32, name: i32) -> Result {
        // SAFETY: As for `NewValue::forward`; the pointers are those of the call.
        kernel::error::to_result(unsafe {
            c::sdp_h_getsockopt(sk.raw(), level, name, self.value, self.len)
        })
    }
}

/// What a program gets as the bytes of a structure of the kernel's interface.
///
/// # Safety
///
/// The type is made of integers only, and zeroed memory is one: no byte of it, padding included,
/// is anything but what was put there.
pub(crate) unsafe trait Interface: pin_init::Zeroable {}

// SAFETY: integers and bit fields of integers; see `Answer::as_bytes` for what lies between them.
unsafe impl Interface for c::tcp_info {}
// SAFETY: eighteen integers of the same size.
unsafe impl Interface for c::sdp_info {}

/// The value of an option that is a structure, all zero at first.
pub(crate) struct Answer<T: Interface>(T);

impl<T: Interface> Answer<T> {
    /// All zero.
    pub(crate) fn new() -> Self {
        Answer(pin_init::zeroed())
    }

    /// The fields, to be filled in.
    pub(crate) fn fields(&mut self) -> &mut T {
        &mut self.0
    }

    /// The bytes that the program gets.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        // SAFETY: By `Interface`, plain integers, made from zeroed memory and changed in place, so
        // all its bytes are initialised.
        unsafe { core::slice::from_raw_parts((&raw const self.0).cast(), size_of::<T>()) }
    }
}

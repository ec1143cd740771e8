// SPDX-License-Identifier: GPL-2.0-only

//! Option values of setsockopt(2) and getsockopt(2).

use super::super::bindings as c;
use super::super::errno::{EFAULT, EINVAL};
use super::sock::SockCore;
use core::marker::PhantomData;
use kernel::prelude::*;
use kernel::transmute::AsBytes;
use kernel::uaccess::{UserPtr, UserSlice};

/// Value of a setsockopt(2) call.
///
/// # Invariants
///
/// `value` and `len` are the arguments of a setsockopt call in progress.
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

    /// Returns the value as an integer.
    ///
    /// Errors: `EINVAL`: the value is shorter than an integer. `EFAULT`.
    pub(crate) fn int(&self) -> Result<i32> {
        if (self.len as usize) < size_of::<i32>() {
            return Err(EINVAL.into());
        }
        let mut v: i32 = 0;
        // SAFETY: `v` has space for the four bytes; the C code checks the rest.
        match unsafe { c::copy_from_sockptr((&raw mut v).cast(), self.value, size_of::<i32>()) } {
            0 => Ok(v),
            _ => Err(EFAULT.into()),
        }
    }

    /// Returns true for options at `SOL_SOCKET` that require the core to process packets, which SDP
    /// does not have: filters, selection among listeners, time stamps.
    pub(super) fn is_of_tcp_alone(&self, name: u32) -> bool {
        match name {
            c::SO_ATTACH_FILTER
            | c::SO_ATTACH_BPF
            | c::SO_ATTACH_REUSEPORT_CBPF
            | c::SO_ATTACH_REUSEPORT_EBPF => true,
            // a value that disables time stamps is accepted
            c::SO_TIMESTAMPING_OLD | c::SO_TIMESTAMPING_NEW => self.int().is_ok_and(|v| v != 0),
            _ => false,
        }
    }

    /// Sets an option that SDP supports by IP's shared code. Context: without the socket lock.
    pub(crate) fn forward(&self, sk: &SockCore, level: i32, name: i32) -> Result {
        // SAFETY: The sock is an inet_sock of its family, with the IPv6 part initialised where
        // needed. The value is the value of the call. The function takes the socket lock itself.
        kernel::error::to_result(unsafe {
            c::sdp_h_setsockopt(sk.raw(), level, name, self.value, self.len)
        })
    }
}

/// Destination of a getsockopt(2) call.
///
/// # Invariants
///
/// The pointers are the arguments of a getsockopt call in progress.
pub(crate) struct OldValue<'a> {
    value: *mut u8,
    len: *mut i32,
    _call: PhantomData<&'a ()>,
}

impl OldValue<'_> {
    /// # Safety
    ///
    /// `value` and `len` must be the user pointers of a getsockopt call during the lifetime.
    pub(super) unsafe fn new(value: *mut u8, len: *mut i32) -> Self {
        OldValue {
            value,
            len,
            _call: PhantomData,
        }
    }

    /// Returns the caller's space in bytes.
    ///
    /// Errors: `EFAULT`. `EINVAL`: the length is negative.
    pub(crate) fn space(&self) -> Result<usize> {
        let len = self.len().reader().read::<i32>()?;
        usize::try_from(len).map_err(|_| EINVAL.into())
    }

    fn len(&self) -> UserSlice {
        UserSlice::new(UserPtr::from_ptr(self.len.cast()), size_of::<i32>())
    }

    /// Copies `bytes`, cut to the caller's space.
    pub(crate) fn give(&self, bytes: &[u8]) -> Result {
        let n = self.space()?.min(bytes.len());
        self.len().writer().write(&(n as i32))?;
        let value = UserSlice::new(UserPtr::from_ptr(self.value.cast()), n);
        value.writer().write_slice(bytes.get(..n).unwrap_or(bytes))
    }

    pub(crate) fn give_int(&self, v: i32) -> Result {
        self.give(&v.to_ne_bytes())
    }

    /// Reads the option by the shared code of IP sockets, which returns the right errnos for
    /// unknown levels, too. Context: without the socket lock.
    pub(crate) fn forward(&self, sk: &SockCore, level: i32, name: i32) -> Result {
        // SAFETY: The sock is an inet_sock, as for `NewValue::forward`; the pointers are the
        // arguments of this call.
        kernel::error::to_result(unsafe {
            c::sdp_h_getsockopt(sk.raw(), level, name, self.value, self.len)
        })
    }
}

// SAFETY: The structure contains integers, and bit fields in whole integers, without padding.
unsafe impl AsBytes for c::tcp_info {}
// SAFETY: The structure contains integers of one size.
unsafe impl AsBytes for c::sdp_info {}

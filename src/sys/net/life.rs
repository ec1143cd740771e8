// SPDX-License-Identifier: GPL-2.0-only

//! Construction and destruction of a [`Sock`], and the functions of its work items and timer.

use super::super::bindings as c;
use super::super::netns::Net;
use super::family::Family;
use super::netns;
use super::sock::Sock;
use core::mem::{offset_of, MaybeUninit};
use core::ptr::{self, NonNull};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

impl<T: Family> Sock<T> {
    /// Makes a socket with this listener's options, as TCP does on a SYN. The sock has no
    /// descriptor yet.
    pub(crate) fn child(&self) -> Result<ARef<Self>> {
        // SAFETY: `self` is alive and listens, so its options are stable enough to be copied; the
        // work functions have the right signature.
        let sk = unsafe { c::sdp_h_sock_clone(self.raw(), Some(work::<T>), Some(timer::<T>)) };
        // SAFETY: The C code has made a new sock. The bytes of the new sock beyond the C part are a
        // bitwise copy of the listener's, and must be overwritten without a drop.
        unsafe { Self::adopt(sk) }
    }

    /// Initialises the Rust part of a new C object.
    ///
    /// # Safety
    ///
    /// `sk` is null or a new sock of the family's slab with one reference and default destructor.
    pub(super) unsafe fn adopt(sk: *mut c::sock) -> Result<ARef<Self>> {
        let Some(sk) = NonNull::new(sk) else {
            return Err(ENOMEM);
        };
        // SAFETY: By the requirements.
        if let Err(e) = unsafe { Self::furnish(sk) } {
            // SAFETY: No other reference exists; without the destructor, only the C part is freed.
            unsafe {
                (*sk.as_ptr()).sk_destruct = None;
                c::sdp_h_sock_discard(sk.as_ptr());
            }
            return Err(e);
        }
        // SAFETY: INVARIANT: a complete `Sock<T>`, whose only reference is handed over.
        Ok(unsafe { ARef::from_raw(sk.cast()) })
    }

    /// Initialises the Rust part of a new C object, and sets the destructor that drops that part.
    ///
    /// # Safety
    ///
    /// `sk` is a new, unused sock of one of the family's slabs.
    pub(super) unsafe fn furnish(sk: NonNull<c::sock>) -> Result {
        // SAFETY: The creator holds the sock's namespace: a caller of socket(2), a kernel user, or
        // a request from a device in that namespace.
        let net = unsafe { Net::from_raw((*sk.as_ptr()).__sk_common.skc_net.net) };
        let netns = netns::of::<T::Net>(net).ok_or(ENODEV)?.clone();
        // SAFETY: The object has the size of `Sock<T>`, so the data is at this offset in the
        // object. The data does not move, and has no other user until the destructor drops it.
        let data: &'static mut MaybeUninit<T> =
            unsafe { &mut *sk.as_ptr().byte_add(Self::DATA_OFFSET).cast() };
        data.write_pin_init(T::init(&netns))?;
        // SAFETY: The object has space for the data. From now on the destructor drops all parts.
        unsafe {
            sk.as_ptr()
                .byte_add(Self::NETNS_OFFSET)
                .cast::<Arc<T::Net>>()
                .write(netns);
            (*sk.as_ptr()).sk_destruct = Some(destruct::<T>);
        }
        Ok(())
    }

    /// Releases a socket that never had a descriptor. For other sockets, and on later calls, only
    /// drops the reference.
    pub(crate) fn discard(me: ARef<Self>) {
        // SAFETY: The reference is handed over to the C function, which drops it.
        unsafe { c::sdp_h_child_discard(ARef::into_raw(me).as_ptr().cast()) }
    }
}

/// # Safety
///
/// `work` or `timer`: `item` is the work item at offset `at` in a socket.
unsafe fn of_item<T: Family>(item: *mut c::work_struct, at: usize) -> ARef<Sock<T>> {
    // SAFETY: By the requirements.
    unsafe { ARef::from_raw(NonNull::new_unchecked(item.byte_sub(at).cast())) }
}

/// Runs a sock's work item.
///
/// # Safety
///
/// `work` is the work item of a sock of the family, queued with a reference that the caller owns.
pub(super) unsafe extern "C" fn work<T: Family>(work: *mut c::work_struct) {
    // SAFETY: The work item belongs to a sock of the family, and was queued with a reference that
    // this function now owns.
    let sk = unsafe { of_item::<T>(work, offset_of!(c::sdp_h_sock, work)) };
    sk.charged(|| (T::OPS.work)(&sk, sk.take_jobs()));
}

/// Runs a sock's timer, in a worker.
///
/// # Safety
///
/// `work` is the timer's work item of a sock of the family, queued with a reference that the caller
/// owns.
pub(super) unsafe extern "C" fn timer<T: Family>(work: *mut c::work_struct) {
    // SAFETY: The timer is that of a sock of this family, with a reference.
    let sk = unsafe { of_item::<T>(work, offset_of!(c::sdp_h_sock, timer)) };
    sk.charged(|| (T::OPS.timer)(&sk));
}

/// Drops the Rust part of a sock, and then the C part.
///
/// # Safety
///
/// Called once, with a sock of the family whose last reference was dropped.
unsafe extern "C" fn destruct<T: Family>(sk: *mut c::sock) {
    // SAFETY: Called once, when the last reference is dropped; `furnish` has initialised the data.
    // The C part is an inet_sock, as the generic destructors require.
    unsafe {
        let v6 = Sock::<T>::from_raw(sk).is_v6();
        ptr::drop_in_place(sk.byte_add(Sock::<T>::DATA_OFFSET).cast::<T>());
        ptr::drop_in_place(sk.byte_add(Sock::<T>::NETNS_OFFSET).cast::<Arc<T::Net>>());
        if v6 {
            c::inet6_sock_destruct(sk);
        } else {
            c::inet_sock_destruct(sk);
        }
    }
}

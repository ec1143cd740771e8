// SPDX-License-Identifier: GPL-2.0-only

//! Callbacks of the network core in `struct proto`, called by the generic code of IP sockets.
//!
//! [`calls`](super::calls) contains the functions for descriptors, and the common requirements.

#![expect(
    clippy::missing_safety_doc,
    reason = "a comment in `calls` states what all callbacks rely on"
)]

use super::super::address::{AF_INET, AF_INET6, AF_INET6_SDP, AF_INET_SDP};
use super::super::bindings as c;
use super::super::errno::{EINVAL, EPROTONOSUPPORT, ESOCKTNOSUPPORT};
use super::calls::errno;
use super::family::Family;
use super::life::{timer, work};
use super::options::{NewValue, OldValue};
use super::sock::{Locked, Sock};
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::aref::ARef;

/// Fills in a zeroed element of `sdp_h_proto`. TCP's families are for `IPPROTO_SDP`.
pub(super) fn fill_proto<T: Family>(
    p: &mut c::proto,
    family: u16,
    module: &ThisModule,
    name: &CStr,
) {
    p.owner = module.as_ptr();
    p.obj_size = size_of::<Sock<T>>() as u32;
    p.ipv6_pinfo_offset = match family {
        AF_INET6_SDP | AF_INET6 => offset_of!(c::sdp_h_sock, inet6) as u32,
        _ => 0,
    };
    for (to, from) in p.name.iter_mut().zip(name.to_bytes()) {
        *to = *from as kernel::ffi::c_char;
    }
    p.close = Some(close::<T>);
    p.disconnect = Some(disconnect::<T>);
    p.ioctl = Some(ioctl::<T>);
    p.shutdown = Some(shutdown::<T>);
    p.setsockopt = Some(setsockopt::<T>);
    p.getsockopt = Some(getsockopt::<T>);
    p.keepalive = Some(keepalive::<T>);
    p.get_port = Some(get_port::<T>);
    p.put_port = Some(put_port::<T>);
    p.unhash = Some(unhash);
    if matches!(family, AF_INET | AF_INET6) {
        p.init = Some(init::<T>);
        p.destroy = Some(destroy::<T>);
    }
}

pub(super) unsafe extern "C" fn create<T: Family, const V6: bool>(
    net: *mut c::net,
    socket: *mut c::socket,
    protocol: i32,
    kern: i32,
) -> i32 {
    // SAFETY: The core passes a socket under construction that belongs to this call.
    let number = match unsafe { (*socket).type_ } as u32 {
        c::sock_type_SOCK_STREAM => c::IPPROTO_TCP,
        // no kernel user may cast a SOCK_SEQPACKET sock to a `tcp_sock`
        c::sock_type_SOCK_SEQPACKET => 0,
        _ => return -ESOCKTNOSUPPORT.0,
    };
    if protocol != 0 && protocol as u32 != number {
        return -EPROTONOSUPPORT.0;
    }
    let i = usize::from(V6);
    let family = if V6 { AF_INET6_SDP } else { AF_INET_SDP };
    // SAFETY: The protocol is registered as long as the family; `net` and `socket` are the call's.
    let sk = unsafe {
        (*socket).ops = (&raw const c::sdp_h_ops).cast::<c::proto_ops>().add(i);
        c::sdp_h_custom_sockopt(socket);
        c::sdp_h_sock_create(
            net,
            socket,
            family.into(),
            number as i32,
            (&raw mut c::sdp_h_proto).cast::<c::proto>().add(i),
            kern,
            Some(work::<T>),
            Some(timer::<T>),
        )
    };
    // SAFETY: `sk` is null or a new sock of the family's slab.
    let r = unsafe { Sock::<T>::adopt(sk) }.and_then(|sk| match (T::OPS.opened)(&sk) {
        Ok(()) => {
            // From now on the descriptor owns the reference, which close() drops.
            ARef::into_raw(sk);
            Ok(())
        }
        Err(e) => {
            // SAFETY: The sock will get no descriptor, and has no users yet.
            unsafe { c::sdp_h_sock_discard(ARef::into_raw(sk).as_ptr().cast()) };
            Err(e)
        }
    });
    if r.is_err() {
        // SAFETY: `socket` is valid; its sock is freed.
        unsafe { (*socket).sk = ptr::null_mut() };
    }
    errno(r)
}

/// Completes socket(2), after `inet_create()`.
unsafe extern "C" fn init<T: Family>(sk: *mut c::sock) -> i32 {
    let Some(new) = NonNull::new(sk) else {
        return -EINVAL.0;
    };
    // SAFETY: Called by the core with a new sock of the protocol, whose descriptor belongs to the
    // call. If this function fails, the core calls `destroy` and drops the last reference.
    let r = unsafe {
        to_result(c::sdp_h_ipproto_init(sk, Some(work::<T>), Some(timer::<T>)))
            .and_then(|()| Sock::<T>::furnish(new))
            .and_then(|()| {
                (*sk.cast::<c::sdp_h_sock>()).furnished = true;
                (T::OPS.dual.begun)(Sock::from_raw(sk))
            })
    };
    errno(r)
}

/// Cleans up when socket(2) fails after `init`.
unsafe extern "C" fn destroy<T: Family>(sk: *mut c::sock) {
    // SAFETY: Called by the core with the sock of the call; the sock has no other users.
    unsafe {
        if (*sk.cast::<c::sdp_h_sock>()).furnished {
            (T::OPS.dual.undone)(Sock::from_raw(sk));
        }
        c::sdp_h_tcp_discard(sk);
    }
}

unsafe extern "C" fn get_port<T: Family>(sk: *mut c::sock, port: u16) -> i32 {
    // SAFETY: Called by the generic bind code with the sock of the call.
    errno((T::OPS.take_port)(unsafe { Sock::from_raw(sk) }, port))
}

unsafe extern "C" fn put_port<T: Family>(sk: *mut c::sock) {
    // SAFETY: The core passes a sock of the module's protocol.
    (T::OPS.give_port)(unsafe { Sock::from_raw(sk) })
}

unsafe extern "C" fn ioctl<T: Family>(sk: *mut c::sock, command: i32, result: *mut i32) -> i32 {
    // SAFETY: Called by inet_ioctl() with the sock of the call and space for an integer.
    match (T::OPS.ioctl)(unsafe { Sock::<T>::from_raw(sk) }, command as u32) {
        Ok(v) => {
            // SAFETY: The core passes a writable `result`.
            unsafe { *result = v };
            0
        }
        Err(e) => e.to_errno(),
    }
}

unsafe extern "C" fn shutdown<T: Family>(sk: *mut c::sock, how: i32) {
    // SAFETY: Called by inet_shutdown() with the sock of the call, locked.
    (T::OPS.shutdown)(unsafe { Sock::<T>::from_raw(sk) }, how as u8)
}

unsafe extern "C" fn disconnect<T: Family>(sk: *mut c::sock, _flags: i32) -> i32 {
    // SAFETY: Called by inet_shutdown() with the sock of the call, locked.
    let (sk, mut lock) = unsafe {
        let sk = Sock::<T>::from_raw(sk);
        (sk, Locked::held(sk))
    };
    (T::OPS.disconnect)(sk, &mut lock);
    0
}

unsafe extern "C" fn close<T: Family>(sk: *mut c::sock, linger: kernel::ffi::c_long) {
    // SAFETY: inet_release() calls this once, with the descriptor's sock and its reference.
    unsafe {
        (T::OPS.close)(Sock::<T>::from_raw(sk), linger.max(0) as usize);
        c::sdp_h_sock_discard(sk);
    }
}

unsafe extern "C" fn unhash(_: *mut c::sock) {}

unsafe extern "C" fn setsockopt<T: Family>(
    sk: *mut c::sock,
    level: i32,
    name: i32,
    value: c::sockptr_t,
    len: u32,
) -> i32 {
    // SAFETY: Called by the core with the sock and the arguments of the call.
    let (sk, value) = unsafe { (Sock::<T>::from_raw(sk), NewValue::new(value, len)) };
    errno((T::OPS.set_option)(sk, level, name, &value))
}

unsafe extern "C" fn getsockopt<T: Family>(
    sk: *mut c::sock,
    level: i32,
    name: i32,
    value: *mut u8,
    len: *mut i32,
) -> i32 {
    // SAFETY: Called by the core with the sock and the arguments of the call.
    let (sk, value) = unsafe { (Sock::<T>::from_raw(sk), OldValue::new(value.cast(), len)) };
    errno((T::OPS.get_option)(sk, level, name, &value))
}

unsafe extern "C" fn keepalive<T: Family>(sk: *mut c::sock, on: i32) {
    // SAFETY: Called by setsockopt(2)'s code with the sock of the call, locked.
    (T::OPS.set_keepalive)(unsafe { Sock::<T>::from_raw(sk) }, on != 0)
}

// SPDX-License-Identifier: GPL-2.0-only

//! Callbacks of the network core for sockets of families 27 and 28.
//!
//! Each callback turns raw pointers into safe types, calls the method of [`Family`] and turns the
//! result into an errno.

#![expect(
    clippy::missing_safety_doc,
    reason = "what all callbacks rely on is said once, above the first of them"
)]

use super::super::address::{self, Address, Named, Purpose, AF_INET6_SDP, AF_INET_SDP};
use super::super::bindings as c;
use super::super::errno::{EAFNOSUPPORT, EINVAL, ENOPROTOOPT, EPROTONOSUPPORT, ESOCKTNOSUPPORT};
use super::descriptor::Descriptor;
use super::family::Family;
use super::life::{timer, work};
use super::message::{RecvMsg, SendMsg};
use super::options::{NewValue, OldValue};
use super::sock::{Flag, Sock};
use core::mem::offset_of;
use core::ptr;
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::aref::ARef;

/// # Safety
///
/// `p` points to a zeroed `proto` that is not registered.
pub(super) unsafe fn fill_proto<T: Family>(
    p: *mut c::proto,
    module: &'static ThisModule,
    v6: bool,
    name: &CStr,
) {
    // SAFETY: By the requirements of this function.
    let p = unsafe { &mut *p };
    p.owner = module.as_ptr();
    p.obj_size = size_of::<Sock<T>>() as u32;
    p.ipv6_pinfo_offset = if v6 {
        offset_of!(c::sdp_h_sock, inet6) as u32
    } else {
        0
    };
    for (to, from) in p.name.iter_mut().zip(name.to_bytes()) {
        *to = *from as kernel::ffi::c_char;
    }
    p.close = Some(close::<T>);
    p.disconnect = Some(disconnect::<T>);
    p.accept = Some(accept::<T>);
    p.ioctl = Some(ioctl::<T>);
    p.shutdown = Some(shutdown::<T>);
    p.setsockopt = Some(setsockopt::<T>);
    p.getsockopt = Some(getsockopt::<T>);
    p.keepalive = Some(keepalive::<T>);
    p.get_port = Some(get_port::<T>);
    p.put_port = Some(put_port::<T>);
    p.unhash = Some(unhash);
}

/// # Safety
///
/// `o` points to a zeroed `proto_ops` that nobody uses yet.
pub(super) unsafe fn fill_ops<T: Family>(
    o: *mut c::proto_ops,
    module: &'static ThisModule,
    v6: bool,
) {
    // SAFETY: By the requirements of this function.
    let o = unsafe { &mut *o };
    o.owner = module.as_ptr();
    o.family = if v6 { AF_INET6_SDP } else { AF_INET_SDP }.into();
    if v6 {
        o.release = Some(c::inet6_release);
        o.getname = Some(c::inet6_getname);
        o.ioctl = Some(c::inet6_ioctl);
    } else {
        o.release = Some(c::inet_release);
        o.getname = Some(c::inet_getname);
        o.ioctl = Some(c::inet_ioctl);
    }
    o.bind = Some(bind::<T>);
    o.connect = Some(connect::<T>);
    o.socketpair = Some(c::sock_no_socketpair);
    o.accept = Some(accept_on);
    o.poll = Some(poll::<T>);
    o.gettstamp = Some(c::sock_gettstamp);
    o.listen = Some(listen::<T>);
    o.shutdown = Some(c::inet_shutdown);
    o.setsockopt = Some(setsockopt_on::<T>);
    o.getsockopt = Some(c::sock_common_getsockopt);
    o.sendmsg = Some(sendmsg::<T>);
    o.recvmsg = Some(recvmsg::<T>);
    o.splice_eof = Some(splice_eof::<T>);
    o.mmap = Some(c::sock_no_mmap);
    o.set_rcvlowat = Some(set_rcvlowat::<T>);
    o.set_peek_off = Some(c::sk_set_peek_off);
}

pub(super) fn errno(r: Result) -> i32 {
    match r {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

pub(super) fn count(r: Result<usize>) -> i32 {
    match r {
        Ok(n) => i32::try_from(n).unwrap_or(i32::MAX),
        Err(e) => e.to_errno(),
    }
}

pub(super) unsafe extern "C" fn create<T: Family, const V6: bool>(
    net: *mut c::net,
    socket: *mut c::socket,
    protocol: i32,
    kern: i32,
) -> i32 {
    // SAFETY: The core passes a socket that is being made and belongs to this call.
    if unsafe { (*socket).type_ } as u32 != c::sock_type_SOCK_STREAM {
        return -ESOCKTNOSUPPORT.0;
    }
    if protocol != 0 && protocol as u32 != c::IPPROTO_TCP {
        return -EPROTONOSUPPORT.0;
    }
    let i = usize::from(V6);
    // SAFETY: The protocol is registered, as long as the family is; `net` and `socket` are those of
    // the call.
    let sk = unsafe {
        (*socket).ops = &raw const c::sdp_h_ops[i];
        c::sdp_h_custom_sockopt(socket);
        c::sdp_h_sock_create(
            net,
            socket,
            [AF_INET_SDP, AF_INET6_SDP][i].into(),
            c::IPPROTO_TCP as i32,
            &raw mut c::sdp_h_proto[i],
            kern,
            Some(work::<T>),
            Some(timer::<T>),
        )
    };
    // SAFETY: A new sock of this family's slab.
    let r = unsafe { Sock::<T>::adopt(sk) }.and_then(|sk| match (T::OPS.opened)(&sk) {
        Ok(()) => {
            // The descriptor owns the reference from here on; close() drops it.
            ARef::into_raw(sk);
            Ok(())
        }
        Err(e) => {
            // SAFETY: The descriptor gets none, and nobody else has begun to use the sock.
            unsafe { c::sdp_h_sock_discard(ARef::into_raw(sk).as_ptr().cast()) };
            Err(e)
        }
    });
    if r.is_err() {
        // SAFETY: As above; the sock is gone.
        unsafe { (*socket).sk = ptr::null_mut() };
    }
    errno(r)
}

/// # Safety
///
/// `socket` is a descriptor of the family in use by a call, which lasts for `'a`.
pub(super) unsafe fn of<'a, T: Family>(socket: *mut c::socket) -> &'a Sock<T> {
    // SAFETY: By the requirements; a descriptor in use has its sock.
    unsafe { Sock::from_raw((*socket).sk) }
}

/// # Safety
///
/// `address` points to `len` bytes that live for `'a`.
pub(super) unsafe fn name<'a>(address: *mut c::sockaddr_unsized, len: i32) -> &'a [u8] {
    // SAFETY: By the requirements of this function.
    unsafe { core::slice::from_raw_parts(address.cast(), usize::try_from(len).unwrap_or(0)) }
}

// The functions below are only called by the network core, through the tables above: with socks and
// descriptors of this family (made by `create` or `Sock::child`, or by `inet_create` and `init` of
// `ipproto.rs`) that are in use for the time of the
// call. That is what their SAFETY comments rely on.

pub(super) unsafe extern "C" fn bind<T: Family>(
    socket: *mut c::socket,
    address: *mut c::sockaddr_unsized,
    len: i32,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the family and an address of `len` bytes.
    let (sk, bytes) = unsafe { (of::<T>(socket), name(address, len)) };
    let to = match address::read(bytes, sk.is_v6(), Purpose::Bind) {
        Ok(Named::Address(a)) => a,
        Ok(Named::Unspecified) => return -EAFNOSUPPORT.0,
        Err(e) => return e.to_errno(),
    };
    // SAFETY: The generic code takes an inet_sock and a sockaddr of its own family, of the given
    // length; `get_port` and `put_port` are the only callbacks that it needs.
    let e = unsafe {
        if sk.is_v6() {
            let mut b = address::write_in6(&to);
            c::inet6_bind(socket, b.as_mut_ptr().cast(), b.len() as i32)
        } else {
            let mut b = address::write_in(&to);
            c::inet_bind(socket, b.as_mut_ptr().cast(), b.len() as i32)
        }
    };
    let r = kernel::error::to_result(e);
    if r.is_err() && sk.port() == 0 && sk.is_v6() {
        // the generic code resets the address of sockets of family 10 only
        let _lock = sk.lock();
        sk.set_local(&Address::any(true));
    }
    (T::OPS.bound)(sk, &to, r);
    e
}

unsafe extern "C" fn get_port<T: Family>(sk: *mut c::sock, port: u16) -> i32 {
    // SAFETY: Called by the generic bind code with the sock of the call.
    errno((T::OPS.take_port)(unsafe { Sock::from_raw(sk) }, port))
}

unsafe extern "C" fn put_port<T: Family>(sk: *mut c::sock) {
    // SAFETY: As for `get_port`.
    (T::OPS.give_port)(unsafe { Sock::from_raw(sk) })
}

unsafe extern "C" fn connect<T: Family>(
    socket: *mut c::socket,
    address: *mut c::sockaddr_unsized,
    len: i32,
    flags: i32,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the family and an address of `len` bytes.
    let (sk, bytes) = unsafe { (of::<T>(socket), name(address, len)) };
    errno(
        address::read(bytes, sk.is_v6(), Purpose::Connect).and_then(|to| {
            (T::OPS.connect)(
                &Descriptor { socket, sk },
                &to,
                flags as u32 & c::O_NONBLOCK != 0,
            )
        }),
    )
}

unsafe extern "C" fn listen<T: Family>(socket: *mut c::socket, backlog: i32) -> i32 {
    // SAFETY: Called by the core with a descriptor of the family.
    let sk = unsafe { of::<T>(socket) };
    errno((T::OPS.listen)(
        &Descriptor { socket, sk },
        backlog.max(0) as u32,
    ))
}

/// accept(2) on a descriptor: [`accept`] makes the connection, the generic code the descriptor.
unsafe extern "C" fn accept_on(
    socket: *mut c::socket,
    new: *mut c::socket,
    arg: *mut c::proto_accept_arg,
) -> i32 {
    // SAFETY: Called by the core with descriptors of the family; the arguments are handed on.
    unsafe {
        let e = c::inet_accept(socket, new, arg);
        if e == 0 {
            c::sdp_h_custom_sockopt(new);
        }
        e
    }
}

/// setsockopt(2) on a descriptor, at all levels.
pub(super) unsafe extern "C" fn setsockopt_on<T: Family>(
    socket: *mut c::socket,
    level: i32,
    name: i32,
    value: c::sockptr_t,
    len: u32,
) -> i32 {
    if level as u32 != c::SOL_SOCKET {
        // SAFETY: Called by the core with a descriptor of the family; the arguments are handed on.
        return unsafe { c::sock_common_setsockopt(socket, level, name, value, len) };
    }
    // The core takes these for any socket, and for ours nobody would heed them.
    // SAFETY: As above.
    if is_of_tcp_alone(name as u32, &unsafe { NewValue::new(value, len) }) {
        return -ENOPROTOOPT.0;
    }
    // The core allows these options to its own families, or to TCP, only.
    if matches!(name as u32, c::SO_REUSEPORT | c::SO_ZEROCOPY) {
        // SAFETY: As above.
        let (sk, value) = unsafe { (of::<T>(socket), NewValue::new(value, len)) };
        return errno(value.int().and_then(|v| {
            let lock = sk.lock();
            match name as u32 {
                c::SO_REUSEPORT => lock.set_reuse_port(v != 0),
                _ if !(0..=1).contains(&v) => return Err(EINVAL.into()),
                _ => sk.set_flag(Flag::ZeroCopy, v != 0),
            }
            Ok(())
        }));
    }
    // SAFETY: As above.
    unsafe { c::sock_setsockopt(socket, level, name, value, len) }
}

/// Returns true for options at `SOL_SOCKET` that would make the core handle packets, of which SDP
/// has none: filters, a choice among listeners, time stamps.
fn is_of_tcp_alone(name: u32, value: &NewValue<'_>) -> bool {
    match name {
        c::SO_ATTACH_FILTER
        | c::SO_ATTACH_BPF
        | c::SO_ATTACH_REUSEPORT_CBPF
        | c::SO_ATTACH_REUSEPORT_EBPF => true,
        // requesting none is fine
        c::SO_TIMESTAMPING_OLD | c::SO_TIMESTAMPING_NEW => value.int().is_ok_and(|v| v != 0),
        _ => false,
    }
}

unsafe extern "C" fn accept<T: Family>(
    sk: *mut c::sock,
    arg: *mut c::proto_accept_arg,
) -> *mut c::sock {
    // SAFETY: Called by inet_accept() with the sock of the call and its argument.
    let (sk, arg) = unsafe { (Sock::<T>::from_raw(sk), &mut *arg) };
    match (T::OPS.accept)(sk, arg.flags as u32 & c::O_NONBLOCK != 0) {
        Ok(new) => {
            arg.is_empty = (sk.waiting() == 0).into();
            // The new descriptor owns the reference from here on.
            ARef::into_raw(new.into_sock()).as_ptr().cast()
        }
        Err(e) => {
            arg.err = e.to_errno();
            ptr::null_mut()
        }
    }
}

pub(super) unsafe extern "C" fn poll<T: Family>(
    file: *mut c::file,
    socket: *mut c::socket,
    wait: *mut c::poll_table_struct,
) -> c::__poll_t {
    // SAFETY: Called by the core with an open file of the family's descriptor.
    unsafe {
        c::sock_poll_wait(file, socket, wait);
        (T::OPS.poll)(of::<T>(socket))
    }
}

pub(super) unsafe extern "C" fn sendmsg<T: Family>(
    socket: *mut c::socket,
    message: *mut c::msghdr,
    _len: usize,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the family and the message of the call.
    let sk = unsafe { of::<T>(socket) };
    sk.charged(|| {
        // SAFETY: As above.
        let e = unsafe { c::sdp_h_cmsg_check(sk.raw(), message) };
        if e < 0 {
            return e;
        }
        // SAFETY: As above; nobody else uses the message from here on.
        count((T::OPS.send)(sk, &mut unsafe {
            SendMsg::from_raw(message)
        }))
    })
}

pub(super) unsafe extern "C" fn splice_eof<T: Family>(socket: *mut c::socket) {
    // SAFETY: Called by the core with a descriptor of the family.
    (T::OPS.splice_eof)(unsafe { of::<T>(socket) })
}

pub(super) unsafe extern "C" fn recvmsg<T: Family>(
    socket: *mut c::socket,
    message: *mut c::msghdr,
    len: usize,
    flags: i32,
) -> i32 {
    if flags as u32 & c::MSG_ERRQUEUE != 0 {
        // SAFETY: Called by the core with a descriptor of the family and the message of the call.
        return unsafe {
            let room = i32::try_from(len).unwrap_or(i32::MAX);
            c::sdp_h_recv_error((*socket).sk, message, room)
        };
    }
    // SAFETY: Called by the core with a descriptor of the family and the message of the call.
    let (sk, mut to) = unsafe { (of::<T>(socket), RecvMsg::from_raw(message, flags as u32)) };
    count(sk.charged(|| (T::OPS.receive)(sk, &mut to)))
}

unsafe extern "C" fn ioctl<T: Family>(sk: *mut c::sock, command: i32, result: *mut i32) -> i32 {
    // SAFETY: Called by inet_ioctl() with the sock of the call and room for an integer.
    match (T::OPS.ioctl)(unsafe { Sock::<T>::from_raw(sk) }, command as u32) {
        Ok(v) => {
            // SAFETY: As above.
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
    (T::OPS.disconnect)(unsafe { Sock::<T>::from_raw(sk) });
    0
}

unsafe extern "C" fn close<T: Family>(sk: *mut c::sock, linger: kernel::ffi::c_long) {
    // SAFETY: Called by inet_release(), once, with the sock of the descriptor, whose reference is
    // dropped here.
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

pub(super) unsafe extern "C" fn set_rcvlowat<T: Family>(sk: *mut c::sock, bytes: i32) -> i32 {
    // SAFETY: Called by setsockopt(2)'s code with the sock of the call, locked.
    let sk = unsafe { Sock::<T>::from_raw(sk) };
    errno((T::OPS.set_rcvlowat)(sk, bytes))
}

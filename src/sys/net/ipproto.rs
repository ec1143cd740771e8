// SPDX-License-Identifier: GPL-2.0-only

//! `IPPROTO_SDP`: sockets of `AF_INET` and `AF_INET6` that are SDP, or become TCP.
//!
//! The network core knows them by an `inet_protosw` each, which [`registration`](super::registration) makes. Their
//! sock is one of the family's ([`Family`]); beneath their descriptor is a TCP socket ([`Tcp`]).
//! [`DualOps`](super::family::DualOps) says which of the two a call is for; the callbacks here hand it on. When TCP is
//! chosen, the open file becomes one of the TCP socket, so that calls come here no more, but for
//! those that were under way.

#![expect(
    clippy::missing_safety_doc,
    reason = "what all callbacks rely on is said in `calls`, above the first of its callbacks"
)]

use super::super::address::{AF_INET, AF_INET6};
use super::super::bindings as c;
use super::super::errno::{EINVAL, EOPNOTSUPP};
use super::calls::{self, errno, of};
use super::descriptor::Descriptor;
use super::family::{Chosen, Family};
use super::life;
use super::sock::Sock;
use super::tcp::{op, Name, Tcp};
use core::ptr::{self, NonNull};
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::aref::ARef;

/// Range of shutdown(2)'s argument.
const SHUT_RD: i32 = 0;
const SHUT_RDWR: i32 = 2;

/// # Safety
///
/// `p` points to a `proto` of the family that is not registered.
pub(super) unsafe fn fill_proto<T: Family>(p: *mut c::proto) {
    // SAFETY: By the requirements of this function.
    let p = unsafe { &mut *p };
    p.init = Some(init::<T>);
    p.destroy = Some(destroy::<T>);
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
    unsafe { calls::fill_ops::<T>(o, module, v6) };
    // SAFETY: As above.
    let o = unsafe { &mut *o };
    o.family = if v6 { AF_INET6 } else { AF_INET }.into();
    o.release = Some(release::<T>);
    o.bind = Some(bind::<T>);
    o.connect = Some(connect::<T>);
    o.accept = Some(accept::<T>);
    o.getname = Some(getname::<T>);
    o.poll = Some(poll::<T>);
    o.ioctl = Some(ioctl::<T>);
    o.listen = Some(listen::<T>);
    o.shutdown = Some(shutdown::<T>);
    o.setsockopt = Some(setsockopt::<T>);
    o.getsockopt = Some(getsockopt::<T>);
    o.sendmsg = Some(sendmsg::<T>);
    o.recvmsg = Some(recvmsg::<T>);
    o.splice_eof = Some(splice_eof::<T>);
}

/// # Safety
///
/// `socket` is a descriptor of `IPPROTO_SDP` in use by a call, which lasts for `'a`.
unsafe fn call<'a, T: Family>(socket: *mut c::socket) -> Descriptor<'a, T> {
    Descriptor {
        socket,
        // SAFETY: By the requirements of this function.
        sk: unsafe { of(socket) },
    }
}

impl<T: Family> Descriptor<'_, T> {
    /// bind(2) by SDP alone.
    pub(crate) fn bind_sdp(&self, name: &Name) -> Result {
        let mut name = *name;
        // SAFETY: The descriptor is in use by a call; the address has as many bytes as it says.
        to_result(unsafe {
            calls::bind::<T>(self.socket, name.as_mut_ptr().cast(), name.raw_len())
        })
    }
}

/// The TCP socket, if the call is for that.
fn chosen<'a, T: Family>(call: &Descriptor<'a, T>) -> Option<Tcp<'a>> {
    call.tcp()
        .filter(|_| (T::OPS.dual.chosen)(call.sk) == Chosen::Tcp)
}

/// The end of socket(2), after what `inet_create()` has done.
unsafe extern "C" fn init<T: Family>(sk: *mut c::sock) -> i32 {
    let Some(new) = NonNull::new(sk) else {
        return -EINVAL.0;
    };
    // SAFETY: Called by the core with a new sock of the protocol, whose descriptor belongs to the
    // call. If this fails, `destroy` follows, and the last reference is dropped.
    let r = unsafe {
        to_result(c::sdp_h_ipproto_init(
            sk,
            Some(life::work::<T>),
            Some(life::timer::<T>),
        ))
        .and_then(|()| Sock::<T>::furnish(new))
        .and_then(|()| {
            (*sk.cast::<c::sdp_h_sock>()).furnished = true;
            (T::OPS.dual.begun)(Sock::from_raw(sk))
        })
    };
    errno(r)
}

/// socket(2) has failed after `init` was called.
unsafe extern "C" fn destroy<T: Family>(sk: *mut c::sock) {
    // SAFETY: Called by the core with the sock of the call, which nobody else knows.
    unsafe {
        if (*sk.cast::<c::sdp_h_sock>()).furnished {
            (T::OPS.dual.undone)(Sock::from_raw(sk));
        }
        c::sdp_h_tcp_discard(sk);
    }
}

unsafe extern "C" fn release<T: Family>(socket: *mut c::socket) -> i32 {
    // SAFETY: Called by the core with a descriptor that was released before, or that nobody uses
    // any more.
    unsafe {
        if (*socket).sk.is_null() {
            return 0;
        }
        let call = call::<T>(socket);
        (T::OPS.dual.closing)(call.sk, chosen(&call).as_ref());
        let v6 = call.sk.is_v6();
        // a worker may be about to choose TCP: from here on there is none
        let tcp = c::sdp_h_tcp_take((*socket).sk);
        let e = if v6 {
            c::inet6_release(socket)
        } else {
            c::inet_release(socket)
        };
        if !tcp.is_null() {
            c::sdp_h_tcp_drop(socket, tcp);
        }
        e
    }
}

unsafe extern "C" fn bind<T: Family>(
    socket: *mut c::socket,
    address: *mut c::sockaddr_unsized,
    len: i32,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the protocol and an address of `len` bytes.
    unsafe {
        let call = call::<T>(socket);
        if call.tcp().is_none() {
            return calls::bind::<T>(socket, address, len);
        }
        errno(
            Name::new(calls::name(address, len)).and_then(|name| (T::OPS.dual.bind)(&call, &name)),
        )
    }
}

unsafe extern "C" fn connect<T: Family>(
    socket: *mut c::socket,
    address: *mut c::sockaddr_unsized,
    len: i32,
    flags: i32,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the protocol and an address of `len` bytes.
    let (call, bytes) = unsafe { (call::<T>(socket), calls::name(address, len)) };
    errno(Name::new(bytes).and_then(|name| (T::OPS.dual.connect)(&call, &name, flags as u32)))
}

unsafe extern "C" fn listen<T: Family>(socket: *mut c::socket, backlog: i32) -> i32 {
    // SAFETY: Called by the core with a descriptor of the protocol.
    let call = unsafe { call::<T>(socket) };
    errno((T::OPS.dual.listen)(&call, backlog.max(0) as u32))
}

unsafe extern "C" fn accept<T: Family>(
    socket: *mut c::socket,
    new: *mut c::socket,
    arg: *mut c::proto_accept_arg,
) -> i32 {
    // SAFETY: Called by the core with descriptors of the protocol and its argument.
    let (call, flags) = unsafe { (call::<T>(socket), (*arg).flags) };
    let non_blocking = flags as u32 & c::O_NONBLOCK != 0;
    let mut tcp = |tcp: &Tcp<'_>| {
        // SAFETY: As above; called for the TCP socket beneath this one, until it succeeds.
        to_result(unsafe { c::sdp_h_tcp_accept(tcp.raw(), new, arg) })
    };
    match (T::OPS.dual.accept)(&call, non_blocking, &mut tcp) {
        // SAFETY: A new connection, whose reference the new descriptor owns from here on.
        Ok(Some(sk)) => unsafe {
            c::sdp_h_graft(socket, new, ARef::into_raw(sk.into_sock()).as_ptr().cast())
        },
        Ok(None) => {}
        Err(e) => return e.to_errno(),
    }
    let is_empty = call.sk.waiting() == 0 && call.tcp().is_none_or(|t| t.queue_is_empty());
    // SAFETY: As above.
    unsafe { (*arg).is_empty = is_empty.into() };
    0
}

unsafe extern "C" fn getname<T: Family>(
    socket: *mut c::socket,
    address: *mut c::sockaddr,
    peer: i32,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the protocol, or with one that accept(2) has
    // just made of TCP's, and room for an address.
    unsafe {
        let ops = ptr::read_volatile(&raw const (*socket).ops);
        let own = [0, 1].map(|i| &raw const c::sdp_h_ipproto_ops[i]);
        if !own.contains(&ops) {
            return (*ops)
                .getname
                .map_or(-EOPNOTSUPP.0, |f| f(socket, address, peer));
        }
        let call = call::<T>(socket);
        match chosen(&call) {
            Some(tcp) => op!(tcp, getname(address, peer)),
            None if call.sk.is_v6() => c::inet6_getname(socket, address, peer),
            None => c::inet_getname(socket, address, peer),
        }
    }
}

unsafe extern "C" fn poll<T: Family>(
    file: *mut c::file,
    socket: *mut c::socket,
    wait: *mut c::poll_table_struct,
) -> c::__poll_t {
    // SAFETY: Called by the core with an open file of the descriptor.
    unsafe {
        let call = call::<T>(socket);
        // registers the poller, which gets the TCP socket's wakeups there, too
        let events = calls::poll::<T>(file, socket, wait);
        let Some(tcp) = call.tcp() else {
            return events;
        };
        let of_tcp = || {
            let ops = ptr::read_volatile(&raw const (*tcp.raw()).ops);
            (*ops)
                .poll
                .map_or(0, |f| f(file, tcp.raw(), ptr::null_mut()))
        };
        match (T::OPS.dual.chosen)(call.sk) {
            Chosen::Tcp => of_tcp(),
            Chosen::Both if call.sk.state() == super::sock::State::Listen => events | of_tcp(),
            _ => events,
        }
    }
}

unsafe extern "C" fn ioctl<T: Family>(
    socket: *mut c::socket,
    command: u32,
    argument: kernel::ffi::c_ulong,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the protocol; the arguments are handed on.
    unsafe {
        let call = call::<T>(socket);
        match chosen(&call) {
            Some(tcp) => op!(tcp, ioctl(command, argument)),
            None if call.sk.is_v6() => c::inet6_ioctl(socket, command, argument),
            None => c::inet_ioctl(socket, command, argument),
        }
    }
}

unsafe extern "C" fn shutdown<T: Family>(socket: *mut c::socket, how: i32) -> i32 {
    // before anything is given up for it
    if !(SHUT_RD..=SHUT_RDWR).contains(&how) {
        return -EINVAL.0;
    }
    // SAFETY: Called by the core with a descriptor of the protocol; the arguments are handed on.
    unsafe {
        let call = call::<T>(socket);
        match ((T::OPS.dual.given_up)(call.sk), call.tcp()) {
            (Err(e), _) => e.to_errno(),
            (Ok(Chosen::Tcp), Some(tcp)) => op!(tcp, shutdown(how)),
            (Ok(Chosen::Both), Some(tcp)) => {
                c::inet_shutdown(socket, how);
                op!(tcp, shutdown(how))
            }
            _ => {
                let e = c::inet_shutdown(socket, how);
                (T::OPS.dual.leave_port)(call.sk);
                e
            }
        }
    }
}

unsafe extern "C" fn setsockopt<T: Family>(
    socket: *mut c::socket,
    level: i32,
    name: i32,
    value: c::sockptr_t,
    len: u32,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the protocol.
    let call = unsafe { call::<T>(socket) };
    let tcp = |tcp: &Tcp<'_>| {
        // SAFETY: As above; the arguments are handed on.
        to_result(unsafe {
            if level as u32 == c::SOL_SOCKET {
                c::sock_setsockopt(tcp.raw(), level, name, value, len)
            } else {
                op!(tcp, setsockopt(level, name, value, len))
            }
        })
    };
    let sdp = || {
        // SAFETY: As above.
        to_result(unsafe { calls::setsockopt_on::<T>(socket, level, name, value, len) })
    };
    errno((T::OPS.dual.set)(&call, level, name, &tcp, &sdp))
}

unsafe extern "C" fn getsockopt<T: Family>(
    socket: *mut c::socket,
    level: i32,
    name: i32,
    value: *mut u8,
    len: *mut i32,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the protocol.
    let call = unsafe { call::<T>(socket) };
    let tcp = |tcp: &Tcp<'_>| {
        // SAFETY: As above; the arguments are handed on.
        to_result(unsafe { op!(tcp, getsockopt(level, name, value, len)) })
    };
    let sdp = || {
        // SAFETY: As above.
        to_result(unsafe { c::sock_common_getsockopt(socket, level, name, value, len) })
    };
    errno((T::OPS.dual.get)(&call, level, name, &tcp, &sdp))
}

unsafe extern "C" fn sendmsg<T: Family>(
    socket: *mut c::socket,
    message: *mut c::msghdr,
    len: usize,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the protocol and the message of the call.
    unsafe {
        let call = call::<T>(socket);
        let flags = (*message).msg_flags;
        let non_blocking = flags & c::MSG_DONTWAIT != 0;
        let side = match (T::OPS.dual.settled)(call.sk, call.sk.send_timeout(non_blocking)) {
            Ok(Chosen::Both) if flags & c::MSG_FASTOPEN != 0 => {
                (T::OPS.dual.prefer_tcp)(call.sk);
                (T::OPS.dual.chosen)(call.sk)
            }
            Ok(side) => side,
            Err(e) => return e.to_errno(),
        };
        match call.tcp() {
            Some(tcp) if side == Chosen::Tcp => op!(tcp, sendmsg(message, len)),
            _ => calls::sendmsg::<T>(socket, message, len),
        }
    }
}

unsafe extern "C" fn splice_eof<T: Family>(socket: *mut c::socket) {
    // SAFETY: Called by the core with a descriptor of the protocol.
    unsafe {
        match chosen(&call::<T>(socket)) {
            Some(tcp) => tcp.splice_eof(),
            None => calls::splice_eof::<T>(socket),
        }
    }
}

unsafe extern "C" fn recvmsg<T: Family>(
    socket: *mut c::socket,
    message: *mut c::msghdr,
    len: usize,
    flags: i32,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the protocol and the message of the call.
    unsafe {
        let call = call::<T>(socket);
        let non_blocking = flags as u32 & c::MSG_DONTWAIT != 0;
        let side = if flags as u32 & (c::MSG_OOB | c::MSG_ERRQUEUE) != 0 {
            // which never wait
            Ok((T::OPS.dual.chosen)(call.sk))
        } else {
            (T::OPS.dual.settled)(call.sk, call.sk.receive_timeout(non_blocking))
        };
        match (side, call.tcp()) {
            (Err(e), _) => e.to_errno(),
            (Ok(Chosen::Tcp), Some(tcp)) => op!(tcp, recvmsg(message, len, flags)),
            _ => calls::recvmsg::<T>(socket, message, len, flags),
        }
    }
}

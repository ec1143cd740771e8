// SPDX-License-Identifier: GPL-2.0-only

//! Callbacks in `struct proto_ops`, for descriptors of families 27 and 28, and of `IPPROTO_SDP`.
//!
//! Each callback converts raw pointers to safe types, calls a function of
//! [`Ops`](super::family::Ops) and converts the result to an errno.
//!
//! A descriptor of `IPPROTO_SDP` has a TCP socket ([`Tcp`]); [`DualOps`](super::family::DualOps)
//! selects SDP or TCP for each call. Once TCP is chosen, the open file belongs to the TCP socket,
//! so only calls already in progress still reach these callbacks.

#![expect(
    clippy::missing_safety_doc,
    reason = "a comment above the first callback states what all callbacks rely on"
)]

use super::super::address::{self, Address, Purpose};
use super::super::bindings as c;
use super::super::errno::{EAFNOSUPPORT, EINVAL, ENOPROTOOPT, EOPNOTSUPP};
use super::descriptor::Descriptor;
use super::family::{FallbackState, Family};
use super::message::{RecvMsg, SendMsg};
use super::options::NewValue;
use super::sock::{Flag, Sock, State};
use super::tcp::{op, Name, Tcp};
use core::ptr;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::aref::ARef;

/// Range of shutdown(2)'s argument.
const SHUT_RD: i32 = 0;
const SHUT_RDWR: i32 = 2;

/// Fills in an element of `sdp_h_ops`.
pub(super) fn fill_ops<T: Family>(o: &mut c::proto_ops, family: u16, module: &'static ThisModule) {
    o.owner = module.as_ptr();
    o.family = family.into();
    o.release = Some(release::<T>);
    o.bind = Some(bind::<T>);
    o.connect = Some(connect::<T>);
    o.socketpair = Some(c::sock_no_socketpair);
    o.accept = Some(accept::<T>);
    o.getname = Some(getname::<T>);
    o.poll = Some(poll::<T>);
    o.ioctl = Some(ioctl::<T>);
    o.gettstamp = Some(c::sock_gettstamp);
    o.listen = Some(listen::<T>);
    o.shutdown = Some(shutdown::<T>);
    o.setsockopt = Some(setsockopt::<T>);
    o.getsockopt = Some(getsockopt::<T>);
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

/// # Safety
///
/// `socket` is a descriptor of the family, in use by a call for at least `'a`.
pub(super) unsafe fn call<'a, T: Family>(socket: *mut c::socket) -> Descriptor<'a, T> {
    Descriptor {
        socket,
        // SAFETY: By the requirements the descriptor is in use, and a descriptor in use has a sock.
        sk: unsafe { Sock::from_raw((*socket).sk) },
    }
}

/// Returns the TCP socket if the call must use TCP.
fn chosen<'a, T: Family>(call: &Descriptor<'a, T>) -> Option<Tcp<'a>> {
    call.tcp()
        .filter(|_| (T::OPS.dual.chosen)(call.sk) == FallbackState::Tcp)
}

/// # Safety
///
/// `address` points to `len` bytes that live for `'a`.
unsafe fn name<'a>(address: *mut c::sockaddr_unsized, len: i32) -> &'a [u8] {
    // SAFETY: By the requirements of this function the bytes live for `'a`.
    unsafe { core::slice::from_raw_parts(address.cast(), usize::try_from(len).unwrap_or(0)) }
}

// The callbacks, here and in `proto.rs`, are only called by the network core, through their tables.
// The callbacks' socks and descriptors belong to this family (made by `create` or `Sock::child`, or
// by `inet_create` and `init`) and are in use during the call. The SAFETY comments of all callbacks
// rely on this paragraph.

unsafe extern "C" fn release<T: Family>(socket: *mut c::socket) -> i32 {
    // SAFETY: The core passes a descriptor that was released before, or that has no users.
    unsafe {
        if (*socket).sk.is_null() {
            return 0;
        }
        let call = call::<T>(socket);
        if call.tcp().is_some() {
            (T::OPS.dual.closing)(call.sk, chosen(&call).as_ref());
        }
        // a worker may be choosing TCP; from now on the sock has no TCP socket
        let tcp = c::sdp_h_tcp_take((*socket).sk);
        // inet6_release() would also leave multicast groups, but no SDP socket can join any
        let e = c::inet_release(socket);
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
    // SAFETY: Called by the core with a descriptor of the family and an address of `len` bytes.
    let (call, bytes) = unsafe { (call::<T>(socket), name(address, len)) };
    errno(match call.tcp() {
        None => call.bind_sdp(bytes),
        Some(_) => Name::new(bytes).and_then(|name| (T::OPS.dual.bind)(&call, &name)),
    })
}

impl<T: Family> Descriptor<'_, T> {
    /// Implements bind(2) for SDP alone.
    pub(crate) fn bind_sdp(&self, name: &[u8]) -> Result {
        let sk = self.sk;
        let to = address::read(name, sk.is_v6(), Purpose::Bind)?;
        let to = to.ok_or(Error::from(EAFNOSUPPORT))?;
        let mut name = Name::of(&to, sk.is_v6());
        let (bytes, len) = (name.as_mut_ptr().cast(), name.raw_len());
        // SAFETY: The descriptor is in use by this call. The generic code requires an inet_sock,
        // and a sockaddr of its family with the given length. The generic code only calls
        // `get_port` and `put_port`.
        let r = to_result(unsafe {
            match sk.is_v6() {
                true => c::inet6_bind(self.socket, bytes, len),
                false => c::inet_bind(self.socket, bytes, len),
            }
        });
        if r.is_err() && sk.port() == 0 && sk.is_v6() {
            // the generic code resets the address only of sockets of family 10
            let _lock = sk.lock();
            sk.set_local(&Address::any(true));
        }
        (T::OPS.bound)(sk, &to, r);
        r
    }
}

unsafe extern "C" fn connect<T: Family>(
    socket: *mut c::socket,
    address: *mut c::sockaddr_unsized,
    len: i32,
    flags: i32,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the family and an address of `len` bytes.
    let (call, bytes) = unsafe { (call::<T>(socket), name(address, len)) };
    let (sk, flags) = (call.sk, flags as u32);
    errno(if sk.is_either() {
        Name::new(bytes).and_then(|name| (T::OPS.dual.connect)(&call, &name, flags))
    } else {
        address::read(bytes, sk.is_v6(), Purpose::Connect)
            .and_then(|to| (T::OPS.connect)(&call, to.as_ref(), flags & c::O_NONBLOCK != 0))
    })
}

unsafe extern "C" fn listen<T: Family>(socket: *mut c::socket, backlog: i32) -> i32 {
    // SAFETY: Called by the core with a descriptor of the family.
    let call = unsafe { call::<T>(socket) };
    errno((T::OPS.listen)(&call, backlog.max(0) as u32))
}

unsafe extern "C" fn accept<T: Family>(
    socket: *mut c::socket,
    new: *mut c::socket,
    arg: *mut c::proto_accept_arg,
) -> i32 {
    // SAFETY: Called by the core with descriptors of the family and its argument.
    let (call, flags) = unsafe { (call::<T>(socket), (*arg).flags) };
    let non_blocking = flags as u32 & c::O_NONBLOCK != 0;
    let mut tcp = |tcp: &Tcp<'_>| {
        // SAFETY: The arguments are valid. Repeating the call on the TCP socket is allowed.
        to_result(unsafe { c::sdp_h_tcp_accept(tcp.raw(), new, arg) })
    };
    let accepted = match call.sk.is_either() {
        true => (T::OPS.dual.accept)(&call, non_blocking, &mut tcp),
        false => (T::OPS.accept)(call.sk, non_blocking).map(Some),
    };
    match accepted {
        // SAFETY: A new connection; from now on the new descriptor owns the connection's reference.
        Ok(Some(sk)) => unsafe {
            c::sdp_h_graft(socket, new, ARef::into_raw(sk.into_sock()).as_ptr().cast())
        },
        Ok(None) => {}
        Err(e) => return e.to_errno(),
    }
    let is_empty = call.sk.waiting() == 0 && call.tcp().is_none_or(|t| t.queue_is_empty());
    // SAFETY: The core passes valid arguments.
    unsafe { (*arg).is_empty = is_empty.into() };
    0
}

unsafe extern "C" fn getname<T: Family>(
    socket: *mut c::socket,
    address: *mut c::sockaddr,
    peer: i32,
) -> i32 {
    // SAFETY: Called by the core with space for an address, and a descriptor of the family or a new
    // one that accept(2) has switched to TCP.
    unsafe {
        let ops = ptr::read_volatile(&raw const (*socket).ops);
        let own = (&raw const c::sdp_h_ops).cast::<c::proto_ops>();
        if !(own..own.add(4)).contains(&ops) {
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
        // registers the poller in a queue that also gets the TCP socket's wakeups
        c::sock_poll_wait(file, socket, wait);
        let events = (T::OPS.poll)(call.sk);
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
            FallbackState::Tcp => of_tcp(),
            FallbackState::Both if call.sk.state() == State::Listen => events | of_tcp(),
            _ => events,
        }
    }
}

unsafe extern "C" fn ioctl<T: Family>(
    socket: *mut c::socket,
    command: u32,
    argument: kernel::ffi::c_ulong,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the family; the arguments are passed on.
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
    // checks the argument before the call can abort a connection
    if !(SHUT_RD..=SHUT_RDWR).contains(&how) {
        return -EINVAL.0;
    }
    // SAFETY: Called by the core with a descriptor of the family; the arguments are passed on.
    unsafe {
        let call = call::<T>(socket);
        let Some(tcp) = call.tcp() else {
            return c::inet_shutdown(socket, how);
        };
        match (T::OPS.dual.given_up)(call.sk) {
            Err(e) => e.to_errno(),
            Ok(FallbackState::Tcp) => op!(tcp, shutdown(how)),
            Ok(FallbackState::Both) => {
                c::inet_shutdown(socket, how);
                op!(tcp, shutdown(how))
            }
            Ok(_) => {
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
    // SAFETY: Called by the core with a descriptor of the family.
    let call = unsafe { call::<T>(socket) };
    let tcp = |tcp: &Tcp<'_>| {
        // SAFETY: The core passes valid arguments, which are passed on.
        to_result(unsafe {
            if level as u32 == c::SOL_SOCKET {
                c::sock_setsockopt(tcp.raw(), level, name, value, len)
            } else {
                op!(tcp, setsockopt(level, name, value, len))
            }
        })
    };
    // SAFETY: The core passes valid arguments.
    let sdp = || unsafe { setsockopt_by_sdp(&call, level, name, value, len) };
    errno((T::OPS.dual.set)(&call, level, name, &tcp, &sdp))
}

/// Implements setsockopt(2) for SDP alone, at all levels.
///
/// # Safety
///
/// `value` and `len` are those of the call.
unsafe fn setsockopt_by_sdp<T: Family>(
    call: &Descriptor<'_, T>,
    level: i32,
    name: i32,
    value: c::sockptr_t,
    len: u32,
) -> Result {
    // SAFETY: By the requirements.
    let (sk, new) = (call.sk, unsafe { NewValue::new(value, len) });
    let at_socket = level as u32 == c::SOL_SOCKET;
    match name as u32 {
        _ if !at_socket => {}
        // the core accepts options for packets of any socket, but SDP would ignore such an option
        name if new.is_of_tcp_alone(name) => return Err(ENOPROTOOPT.into()),
        c::SO_PEEK_OFF if sk.is_seqpacket() => return Err(EOPNOTSUPP.into()),
        // the core restricts `SO_REUSEPORT` and `SO_ZEROCOPY` to its own families or to TCP
        c::SO_REUSEPORT => {
            let on = new.int()? != 0;
            sk.lock().set_reuse_port(on);
            return Ok(());
        }
        c::SO_ZEROCOPY => {
            let on = match new.int()? {
                v @ 0..=1 => v != 0,
                _ => return Err(EINVAL.into()),
            };
            let _lock = sk.lock();
            sk.set_flag(Flag::ZeroCopy, on);
            return Ok(());
        }
        _ => {}
    }
    // SAFETY: The call uses the descriptor; by the requirements the value is valid.
    let r = to_result(unsafe {
        match at_socket {
            true => c::sock_setsockopt(call.socket, level, name, value, len),
            false => c::sock_common_setsockopt(call.socket, level, name, value, len),
        }
    });
    if at_socket && matches!(name as u32, c::SO_SNDBUF | c::SO_SNDBUFFORCE) {
        // the core wakes only pollers, but send calls may also wait for space
        sk.wake();
    }
    r
}

unsafe extern "C" fn getsockopt<T: Family>(
    socket: *mut c::socket,
    level: i32,
    name: i32,
    value: *mut u8,
    len: *mut i32,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the family.
    let call = unsafe { call::<T>(socket) };
    let tcp = |tcp: &Tcp<'_>| {
        // SAFETY: The core passes valid arguments, which are passed on.
        to_result(unsafe { op!(tcp, getsockopt(level, name, value, len)) })
    };
    let sdp = || {
        // SAFETY: The core passes valid arguments.
        to_result(unsafe { c::sock_common_getsockopt(socket, level, name, value, len) })
    };
    errno((T::OPS.dual.get)(&call, level, name, &tcp, &sdp))
}

unsafe extern "C" fn sendmsg<T: Family>(
    socket: *mut c::socket,
    message: *mut c::msghdr,
    len: usize,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the family and the message of the call.
    let (call, flags, control) = unsafe {
        let (flags, control) = ((*message).msg_flags, (*message).msg_controllen);
        (call::<T>(socket), flags, control)
    };
    let sk = call.sk;
    // a connected sock has chosen SDP
    if let Some(tcp) = call.tcp().filter(|_| !sk.is_connected()) {
        let non_blocking = flags & c::MSG_DONTWAIT != 0;
        let side = match (T::OPS.dual.settled)(sk, sk.send_timeout(non_blocking)) {
            Ok(FallbackState::Both) if flags & c::MSG_FASTOPEN != 0 => {
                (T::OPS.dual.prefer_tcp)(sk);
                (T::OPS.dual.chosen)(sk)
            }
            Ok(side) => side,
            Err(e) => return e.to_errno(),
        };
        if side == FallbackState::Tcp {
            // SAFETY: The core passes valid arguments.
            return unsafe { op!(tcp, sendmsg(message, len)) };
        }
    }
    if control > 0 {
        let cookie = &mut c::sockcm_cookie::default();
        // SAFETY: The core passes valid arguments; the cookie lives during the call.
        let e = unsafe { c::sock_cmsg_send(sk.raw(), message, cookie) };
        if e < 0 {
            return e;
        }
    }
    // SAFETY: The core's message is valid; only this call uses the message from now on.
    count((T::OPS.send)(sk, &mut unsafe {
        SendMsg::from_raw(message)
    }))
}

unsafe extern "C" fn splice_eof<T: Family>(socket: *mut c::socket) {
    // SAFETY: Called by the core with a descriptor of the family.
    let call = unsafe { call::<T>(socket) };
    match chosen(&call) {
        Some(tcp) => tcp.splice_eof(),
        None => (T::OPS.splice_eof)(call.sk),
    }
}

unsafe extern "C" fn recvmsg<T: Family>(
    socket: *mut c::socket,
    message: *mut c::msghdr,
    len: usize,
    flags: i32,
) -> i32 {
    // SAFETY: Called by the core with a descriptor of the family and the message of the call.
    let (call, bits) = (unsafe { call::<T>(socket) }, flags as u32);
    let sk = call.sk;
    if let Some(tcp) = call.tcp().filter(|_| !sk.is_connected()) {
        let side = if bits & (c::MSG_OOB | c::MSG_ERRQUEUE) != 0 {
            // calls with `MSG_OOB` or `MSG_ERRQUEUE` do not wait for the choice between SDP and TCP
            Ok((T::OPS.dual.chosen)(sk))
        } else {
            (T::OPS.dual.settled)(sk, sk.receive_timeout(bits & c::MSG_DONTWAIT != 0))
        };
        match side {
            Err(e) => return e.to_errno(),
            // SAFETY: The core passes valid arguments.
            Ok(FallbackState::Tcp) => return unsafe { op!(tcp, recvmsg(message, len, flags)) },
            Ok(_) => {}
        }
    }
    if bits & c::MSG_ERRQUEUE != 0 {
        let space = i32::try_from(len).unwrap_or(i32::MAX);
        // SAFETY: The core passes valid arguments.
        return unsafe { c::sdp_h_recv_error(sk.raw(), message, space) };
    }
    // SAFETY: The core passes valid arguments.
    let mut to = unsafe { RecvMsg::from_raw(message, bits) };
    count((T::OPS.receive)(sk, &mut to))
}

unsafe extern "C" fn set_rcvlowat<T: Family>(sk: *mut c::sock, bytes: i32) -> i32 {
    // SAFETY: Called by setsockopt(2)'s code with the sock of the call, locked.
    let sk = unsafe { Sock::<T>::from_raw(sk) };
    errno((T::OPS.set_rcvlowat)(sk, bytes))
}

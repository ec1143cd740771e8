// SPDX-License-Identifier: GPL-2.0-only

//! A socket as the network core sees it.
//!
//! A [`Sock`] is one `struct sock` together with the state of type `T` that the socket layer keeps
//! for it, in one object of the protocol's slab. It lives as long as somebody holds a reference
//! ([`ARef`]), which may be long after the program has closed its descriptor.

use super::super::bindings as c;
use super::super::errno::{Errno, ETIMEDOUT};
use super::super::rdma::Net;
use super::super::time::Jiffies;
use super::address::{Address, AF_INET, AF_INET6, AF_INET6_SDP};
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::sync::aref::AlwaysRefCounted;
use kernel::types::{NotThreadSafe, Opaque};

/// A timeout that never ends (`MAX_SCHEDULE_TIMEOUT`).
pub(crate) const FOREVER: isize = isize::MAX;

/// States of a connection, by the names and numbers that `/proc/net/sdp` and `TCP_INFO` use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    Established = 1,
    SynSent = 2,
    SynRecv = 3,
    FinWait1 = 4,
    FinWait2 = 5,
    TimeWait = 6,
    Close = 7,
    CloseWait = 8,
    LastAck = 9,
    Listen = 10,
    Closing = 11,
}

impl State {
    fn from_raw(v: u8) -> Self {
        match v {
            1 => State::Established,
            2 => State::SynSent,
            3 => State::SynRecv,
            4 => State::FinWait1,
            5 => State::FinWait2,
            6 => State::TimeWait,
            8 => State::CloseWait,
            9 => State::LastAck,
            10 => State::Listen,
            11 => State::Closing,
            _ => State::Close,
        }
    }
}

/// `RCV_SHUTDOWN`: nothing more will be received.
pub(crate) const RCV_SHUTDOWN: u8 = 1;
/// `SEND_SHUTDOWN`: nothing more will be sent.
pub(crate) const SEND_SHUTDOWN: u8 = 2;
/// Both directions.
pub(crate) const SHUTDOWN_MASK: u8 = 3;

/// Flags of `enum sock_flags` that the socket layer looks at.
#[derive(Clone, Copy)]
pub(crate) enum Flag {
    /// `SO_KEEPALIVE`.
    KeepOpen,
    /// `SO_LINGER`.
    Linger,
    /// `SO_OOBINLINE`.
    UrgInline,
    /// `SO_ZEROCOPY`.
    ZeroCopy,
}

impl Flag {
    fn raw(self) -> i32 {
        (match self {
            Flag::KeepOpen => c::sock_flags_SOCK_KEEPOPEN,
            Flag::Linger => c::sock_flags_SOCK_LINGER,
            Flag::UrgInline => c::sock_flags_SOCK_URGINLINE,
            Flag::ZeroCopy => c::sock_flags_SOCK_ZEROCOPY,
        }) as i32
    }
}

/// A `struct sock` of the family, with the socket layer's part `T`.
///
/// # Invariants
///
/// `c` is an initialised `struct sdp_h_sock` that was allocated with the size of `Self`, its
/// reference count is not zero while the object can be reached, and `data` is initialised.
#[repr(C)]
pub(crate) struct Sock<T> {
    c: Opaque<c::sdp_h_sock>,
    data: T,
}

// SAFETY: A `struct sock` may be used from any thread; the methods of `Sock` use only what the
// network core allows without further locks or through the lock guard. A `Sock` is only ever made
// for a `T` that is a `Family`, which has to be `Send` and `Sync`. (A bound on `T` here would make
// the question circular for a `T` that holds references to other socks.)
unsafe impl<T> Send for Sock<T> {}
// SAFETY: As above.
unsafe impl<T> Sync for Sock<T> {}

// SAFETY: `sk_refcnt` counts the references; `Sock` is freed by `sk_free()` when it drops to zero.
unsafe impl<T> AlwaysRefCounted for Sock<T> {
    fn inc_ref(&self) {
        // SAFETY: By the invariants the sock is alive, so its count is not zero.
        unsafe { c::sdp_h_sock_hold(self.raw()) }
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller gives up one reference, so the sock is alive until this call.
        unsafe { c::sdp_h_sock_put(obj.cast().as_ptr()) }
    }
}

/// See [`Sock::memory_scope`]. Scopes of a task end in the reverse order of their beginnings.
pub(crate) struct MemoryScope<'a, T> {
    before: c::sdp_h_memory,
    _sk: &'a Sock<T>,
    _task: NotThreadSafe,
}

impl<T> Drop for MemoryScope<'_, T> {
    fn drop(&mut self) {
        // SAFETY: Filled in by this task's `sdp_h_memory_begin`.
        unsafe { c::sdp_h_memory_end(&mut self.before) }
    }
}

/// A field of `struct sock` that others may change at the same time: `READ_ONCE`.
macro_rules! read_once {
    ($self:ident . $($field:tt)+) => {
        // SAFETY: By the invariants of `Sock` the field is initialised and lives as long as
        // `self`; a volatile read of a naturally aligned integer does not tear.
        unsafe { ptr::read_volatile(&raw const (*$self.raw()).$($field)+) }
    };
}

/// `WRITE_ONCE`, the counterpart of `read_once`.
macro_rules! write_once {
    ($self:ident . $field:ident = $v:expr) => {
        // SAFETY: As for `read_once`; readers of the field expect that it may change at any time.
        unsafe { ptr::write_volatile(&raw mut (*$self.raw()).$field, $v) }
    };
}

impl<T> Sock<T> {
    /// The socket layer's part.
    pub(crate) fn data(&self) -> &T {
        &self.data
    }

    /// The C object.
    pub(in crate::sys) fn raw(&self) -> *mut c::sock {
        self.c.get().cast()
    }

    fn raw_helper(&self) -> *mut c::sdp_h_sock {
        self.c.get()
    }

    /// Reads a C pointer as a `Sock`.
    ///
    /// # Safety
    ///
    /// `sk` must point to a sock of this family, made by `Family`'s create or clone code with the
    /// same `T`, with `data` initialised, and must stay referenced for `'a`.
    pub(in crate::sys) unsafe fn from_raw<'a>(sk: *mut c::sock) -> &'a Self {
        // SAFETY: By the requirements of this function `sk` is the start of a `Sock<T>`.
        unsafe { &*sk.cast::<Self>() }
    }

    /// Where the part of the socket layer is within the object.
    pub(in crate::sys) const DATA_OFFSET: usize = offset_of!(Self, data);

    /// A number that tells this socket from every other one that is alive.
    pub(crate) fn id(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Whether the socket is of an IPv6 family: 28, or `AF_INET6` with `IPPROTO_SDP`.
    pub(crate) fn is_v6(&self) -> bool {
        let family = read_once!(self.__sk_common.skc_family);
        matches!(family, AF_INET6 | AF_INET6_SDP)
    }

    /// Whether it is one of `IPPROTO_SDP`, or was accepted by one.
    pub(crate) fn is_either(&self) -> bool {
        let family = read_once!(self.__sk_common.skc_family);
        matches!(family, AF_INET | AF_INET6)
    }

    /// The connection's state.
    pub(crate) fn state(&self) -> State {
        State::from_raw(read_once!(self.__sk_common.skc_state))
    }

    /// Changes the state; the kernel's `inet_sock_set_state` tracepoint shows it.
    pub(crate) fn set_state(&self, s: State) {
        // SAFETY: `raw` is an inet_sock by the invariants, which is all that the function needs.
        unsafe { c::inet_sk_set_state(self.raw(), s as i32) }
    }

    /// `RCV_SHUTDOWN` and `SEND_SHUTDOWN` bits.
    pub(crate) fn shutdown(&self) -> u8 {
        read_once!(self.sk_shutdown)
    }

    /// Adds bits to [`Sock::shutdown`]. The caller holds what orders all who do, and who adds them
    /// elsewhere (the kernel does) adds them again so.
    pub(crate) fn add_shutdown(&self, how: u8) {
        write_once!(self.sk_shutdown = self.shutdown() | how)
    }

    /// Forgets all shutdown bits, for a socket that is used again.
    pub(crate) fn clear_shutdown(&self) {
        write_once!(self.sk_shutdown = 0)
    }

    /// Whether an error waits to be reported.
    pub(crate) fn has_error(&self) -> bool {
        read_once!(self.sk_err) != 0
    }

    /// Whether the error queue has something for the program.
    pub(crate) fn has_notices(&self) -> bool {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_has_notices(self.raw()) }
    }

    /// Sets the error that the next call reports.
    pub(crate) fn set_error(&self, e: Errno) {
        write_once!(self.sk_err = e.0)
    }

    /// Takes the pending error, if there is one.
    pub(crate) fn take_error(&self) -> Result {
        // SAFETY: By the invariants the sock is alive; sk_err is exchanged atomically.
        let e = unsafe { c::sdp_h_sock_error(self.raw()) };
        if e < 0 {
            Err(Error::from_errno(e))
        } else {
            Ok(())
        }
    }

    /// What a send call that fails with `e` reports: the pending error in place of `EPIPE`, and
    /// SIGPIPE with that (`sk_stream_error`).
    pub(crate) fn stream_error(&self, e: Error, flags: u32) -> Error {
        // SAFETY: By the invariants the sock is alive; the caller is a send call.
        Error::from_errno(unsafe { c::sk_stream_error(self.raw(), flags as i32, e.to_errno()) })
    }

    /// `SO_RCVBUF` in bytes (as getsockopt(2) tells it, doubled).
    pub(crate) fn rcvbuf(&self) -> usize {
        read_once!(self.sk_rcvbuf).max(0) as usize
    }

    /// `SO_SNDBUF` in bytes (as getsockopt(2) tells it, doubled).
    pub(crate) fn sndbuf(&self) -> usize {
        read_once!(self.sk_sndbuf).max(0) as usize
    }

    /// Whether the program has fixed the receive buffer by `SO_RCVBUF`.
    pub(crate) fn rcvbuf_is_fixed(&self) -> bool {
        self.user_lock(c::SOCK_RCVBUF_LOCK)
    }

    /// Raises the receive buffer unless the program has fixed it by `SO_RCVBUF`.
    pub(crate) fn grow_rcvbuf(&self, bytes: usize) {
        if !self.user_lock(c::SOCK_RCVBUF_LOCK) && self.rcvbuf() < bytes {
            write_once!(self.sk_rcvbuf = i32::try_from(bytes).unwrap_or(i32::MAX))
        }
    }

    /// Raises the send buffer unless the program has fixed it by `SO_SNDBUF`.
    pub(crate) fn grow_sndbuf(&self, bytes: usize) {
        if !self.user_lock(c::SOCK_SNDBUF_LOCK) && self.sndbuf() < bytes {
            write_once!(self.sk_sndbuf = i32::try_from(bytes).unwrap_or(i32::MAX))
        }
    }

    /// Whether the program has chosen the size or address itself (`SOCK_*_LOCK`).
    fn user_lock(&self, bit: u32) -> bool {
        // SAFETY: By the invariants the sock is alive. The flags are a bit field that only
        // setsockopt(2) and bind(2) change; a stale value is as good as one read a moment earlier.
        let locks = unsafe { (*self.raw()).sk_userlocks };
        u32::from(locks) & bit != 0
    }

    /// Whether the local address was chosen by bind(2).
    pub(crate) fn address_is_bound(&self) -> bool {
        self.user_lock(c::SOCK_BINDADDR_LOCK)
    }

    /// Whether the local port was chosen by bind(2).
    pub(crate) fn port_is_bound(&self) -> bool {
        self.user_lock(c::SOCK_BINDPORT_LOCK)
    }

    /// Bytes that must be there before a receiver is woken (`SO_RCVLOWAT`).
    pub(crate) fn rcvlowat(&self) -> usize {
        read_once!(self.sk_rcvlowat).max(1) as usize
    }

    /// The highest value that `SO_RCVLOWAT` may have, by TCP's rule.
    pub(crate) fn most_rcvlowat(&self) -> i32 {
        if self.user_lock(c::SOCK_RCVBUF_LOCK) {
            return i32::try_from(self.rcvbuf() / 2).unwrap_or(i32::MAX);
        }
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_most_rmem(self.raw()) / 2 }
    }

    /// While the result lives, memory that this task takes is charged to the socket's memory cgroup,
    /// and found as the socket's owner allows (`sk_allocation`). Not called in interrupts.
    pub(crate) fn memory_scope(&self) -> MemoryScope<'_, T> {
        let mut before = c::sdp_h_memory::default();
        // SAFETY: By the invariants the sock is alive, and keeps its memory cgroup alive; the
        // result borrows it.
        unsafe { c::sdp_h_memory_begin(self.raw(), &mut before) };
        MemoryScope {
            before,
            _sk: self,
            _task: NotThreadSafe,
        }
    }

    /// Tells how much memory the queues hold (`SO_MEMINFO`). The caller serialises calls.
    pub(crate) fn set_memory(&self, receive: usize, send: usize) {
        let clamp = |n| i32::try_from(n).unwrap_or(i32::MAX);
        write_once!(self.sk_wmem_queued = clamp(send));
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_set_rmem(self.raw(), clamp(receive)) };
    }

    /// Sets [`Sock::rcvlowat`].
    pub(crate) fn set_rcvlowat(&self, bytes: i32) {
        write_once!(self.sk_rcvlowat = bytes)
    }

    /// The interface of `SO_BINDTODEVICE`, 0 for any.
    pub(crate) fn bound_interface(&self) -> i32 {
        read_once!(self.__sk_common.skc_bound_dev_if)
    }

    /// `SO_REUSEADDR`.
    pub(crate) fn reuse_address(&self) -> bool {
        // SAFETY: By the invariants the sock is alive; a bit field changed by setsockopt(2) only.
        unsafe { (*self.raw()).__sk_common.skc_reuse() != 0 }
    }

    /// `SO_REUSEPORT`.
    pub(crate) fn reuse_port(&self) -> bool {
        // SAFETY: As for `reuse_address`.
        unsafe { (*self.raw()).__sk_common.skc_reuseport() != 0 }
    }

    /// `SO_LINGER`'s time in jiffies.
    pub(crate) fn linger_time(&self) -> usize {
        read_once!(self.sk_lingertime) as usize
    }

    /// Whether a flag is set.
    pub(crate) fn flag(&self, f: Flag) -> bool {
        // SAFETY: By the invariants the sock is alive; flags are read atomically.
        unsafe { c::sdp_h_sock_flag(self.raw(), f.raw()) }
    }

    /// Sets or clears a flag. The caller holds the socket lock.
    pub(crate) fn set_flag(&self, f: Flag, on: bool) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_sock_set_flag(self.raw(), f.raw(), on) }
    }

    /// How long a receive may wait, in jiffies: 0 for not at all.
    pub(crate) fn receive_timeout(&self, non_blocking: bool) -> isize {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_rcvtimeo(self.raw(), non_blocking) as isize }
    }

    /// How long a send or connect may wait, in jiffies: 0 for not at all.
    pub(crate) fn send_timeout(&self, non_blocking: bool) -> isize {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_sndtimeo(self.raw(), non_blocking) as isize }
    }

    /// The local address and port.
    pub(crate) fn local(&self) -> Address {
        let mut a = c::sdp_h_addr::default();
        // SAFETY: By the invariants the sock is alive; `a` is writable.
        unsafe { c::sdp_h_local(self.raw(), &mut a) };
        Address::from_c(&a, self.is_v6())
    }

    /// The peer's address and port.
    pub(crate) fn remote(&self) -> Address {
        let mut a = c::sdp_h_addr::default();
        // SAFETY: By the invariants the sock is alive; `a` is writable.
        unsafe { c::sdp_h_remote(self.raw(), &mut a) };
        Address::from_c(&a, self.is_v6())
    }

    /// Sets the local address and the port that getsockname(2) tells.
    pub(crate) fn set_local(&self, a: &Address) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_set_local(self.raw(), &a.to_c()) }
    }

    /// Sets the peer's address and port.
    pub(crate) fn set_remote(&self, a: &Address) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_set_remote(self.raw(), &a.to_c()) }
    }

    /// Whether the address is one of this machine's (in the socket's namespace).
    pub(crate) fn is_own_address(&self, a: &Address) -> bool {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_is_own_address(self.raw(), &a.to_c()) }
    }

    /// Whether the address is an IPv4 broadcast address of one of this machine's networks.
    pub(crate) fn is_broadcast(&self, a: &Address) -> bool {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_is_broadcast(self.raw(), &a.to_c()) }
    }

    /// The address that a connection to `to` would come from, with port 0, as the routes say now.
    /// The socket lock is held.
    pub(crate) fn route_source(&self, to: &Address) -> Option<Address> {
        let mut a = c::sdp_h_addr::default();
        // SAFETY: By the invariants the sock is alive; `a` is writable.
        unsafe { c::sdp_h_source(self.raw(), &to.to_c(), to.scope as i32, &mut a) }
            .then(|| Address::from_c(&a, self.is_v6()))
    }

    /// The port that the socket holds, 0 for none.
    pub(crate) fn port(&self) -> u16 {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_num(self.raw()) }
    }

    /// Sets the port that the socket holds.
    pub(crate) fn set_port(&self, port: u16) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_set_num(self.raw(), port) }
    }

    /// Whether an IPv6 socket takes no IPv4 (`IPV6_V6ONLY`).
    pub(crate) fn v6_only(&self) -> bool {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_ipv6_only(self.raw()) }
    }

    /// Where `MSG_PEEK` begins, in bytes that were not read (`SO_PEEK_OFF`); negative for no such place.
    pub(crate) fn peek_offset(&self) -> i32 {
        read_once!(self.sk_peek_off)
    }

    /// Moves that place, if there is one, but not in front of the next byte to be read. The caller holds
    /// the socket lock.
    pub(crate) fn move_peek_offset(&self, by: isize) {
        let old = self.peek_offset();
        if old >= 0 {
            let new = (old as isize)
                .saturating_add(by)
                .clamp(0, i32::MAX as isize);
            self.set_peek_offset(new as i32);
        }
    }

    /// Sets it.
    pub(crate) fn set_peek_offset(&self, to: i32) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sk_set_peek_off(self.raw(), to) };
    }

    /// The ports from which an ephemeral one is chosen (`IP_LOCAL_PORT_RANGE` or the sysctl).
    pub(crate) fn port_range(&self) -> (u16, u16) {
        let (mut low, mut high) = (0, 0);
        // SAFETY: By the invariants the sock is alive; both results are writable.
        unsafe { c::inet_sk_get_local_port_range(self.raw(), &mut low, &mut high) };
        (low.clamp(1, 65535) as u16, high.clamp(1, 65535) as u16)
    }

    /// Allows others of the same user to bind the same port (`SO_REUSEPORT`). The caller holds the
    /// socket lock.
    pub(crate) fn set_reuse_port(&self, on: bool) {
        // SAFETY: By the invariants the sock is alive; the bit field is changed under the lock.
        unsafe { (*self.raw()).__sk_common.set_skc_reuseport(on.into()) }
    }

    /// Whether the administrator has taken a port out of the ephemeral ones.
    pub(crate) fn port_is_reserved(&self, port: u16) -> bool {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_reserved_port(self.raw(), port) }
    }

    /// The owner, as a number of the initial user namespace.
    pub(crate) fn uid(&self) -> u32 {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_uid(self.raw()) }
    }

    /// The owner, as a number of the user namespace of whoever reads the file.
    pub(crate) fn uid_for(&self, reader: &SeqFile) -> u32 {
        // SAFETY: By the invariants the sock is alive; a `SeqFile` is a `seq_file` that is open.
        unsafe { c::sdp_h_uid_for(ptr::from_ref(reader).cast_mut().cast(), self.raw()) }
    }

    /// The inode number of the descriptor, 0 when it has been closed.
    pub(crate) fn inode(&self) -> u64 {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_ino(self.raw()) as u64 }
    }

    /// `SO_PRIORITY`, if the program has set it and not only the traffic class.
    pub(crate) fn priority(&self) -> Option<i32> {
        // SAFETY: By the invariants the sock is alive.
        let p = unsafe { c::sdp_h_priority(self.raw()) };
        (p >= 0).then_some(p)
    }

    /// The type of service or traffic class that packets to the peer carry.
    pub(crate) fn traffic_class(&self) -> u8 {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_tos(self.raw()) }
    }

    /// The network namespace.
    pub(crate) fn net(&self) -> &Net {
        // SAFETY: By the invariants the sock is alive. It keeps its namespace alive if a program has
        // made it, and its memory if a kernel user has, who closes the socket before the end.
        unsafe { Net::from_raw(c::sdp_h_sock_net(self.raw())) }
    }

    /// Whether the namespace cannot end before the socket is closed.
    pub(crate) fn keeps_namespace(&self) -> bool {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_keeps_net(self.raw()) }
    }

    /// Most connections that wait to be accepted (listen(2)).
    pub(crate) fn backlog(&self) -> u32 {
        read_once!(self.sk_max_ack_backlog)
    }

    /// Sets [`Sock::backlog`].
    pub(crate) fn set_backlog(&self, n: u32) {
        write_once!(self.sk_max_ack_backlog = n)
    }

    /// Tells how many connections wait to be accepted (shown by diagnostics).
    pub(crate) fn set_waiting(&self, n: u32) {
        write_once!(self.sk_ack_backlog = n)
    }

    /// Wakes all who poll or wait for a change of state.
    pub(crate) fn state_changed(&self) {
        // SAFETY: By the invariants the sock is alive, and its callback is set.
        unsafe { c::sdp_h_state_change(self.raw()) }
    }

    /// Wakes those who poll for something to read.
    pub(crate) fn data_ready(&self) {
        // SAFETY: As for `state_changed`.
        unsafe { c::sdp_h_data_ready(self.raw()) }
    }

    /// Wakes those who poll for room to write.
    pub(crate) fn write_space(&self) {
        // SAFETY: As for `state_changed`.
        unsafe { c::sdp_h_write_space(self.raw()) }
    }

    /// Wakes those who poll for errors.
    pub(crate) fn error_report(&self) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sk_error_report(self.raw()) }
    }

    /// Sends SIGURG to the owner (urgent data is on its way).
    pub(crate) fn send_sigurg(&self) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sk_send_sigurg(self.raw()) }
    }

    /// Sends SIGIO to the owner of an O_ASYNC descriptor: the peer has hung up.
    pub(crate) fn sigio_hup(&self) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_wake_async(self.raw(), c::SOCK_WAKE_WAITD as i32, c::POLL_HUP as i32) }
    }

    /// Sends SIGIO to the owner of an O_ASYNC descriptor: connected.
    pub(crate) fn sigio_out(&self) {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_wake_async(self.raw(), c::SOCK_WAKE_IO as i32, c::POLL_OUT as i32) }
    }

    /// Asks for [`Sock::write_space`] when room appears. The caller looks for room once more
    /// after this call.
    pub(crate) fn want_space(&self) {
        // SAFETY: By the invariants the sock is alive; the caller comes from a socket call, so
        // the socket is not orphaned.
        unsafe { c::sdp_h_nospace(self.raw()) }
    }

    /// Whether [`Sock::want_space`] was called since the last time.
    pub(crate) fn take_want_space(&self) -> bool {
        // SAFETY: By the invariants the sock is alive; the callback lock keeps `sk_socket`.
        unsafe { c::sdp_h_clear_nospace(self.raw()) }
    }

    /// Takes the socket lock (`lock_sock`), which serialises the socket calls. May sleep.
    pub(crate) fn lock(&self) -> Locked<'_, T> {
        // SAFETY: By the invariants the sock is alive; socket calls may sleep.
        unsafe { c::sdp_h_lock_sock(self.raw()) };
        Locked {
            sk: self,
            _not_send: NotThreadSafe,
        }
    }

    /// Wakes everybody who waits in [`Sock::sleep`]. May be called in any context.
    pub(crate) fn wake(&self) {
        // SAFETY: By the invariants the wait queue is initialised.
        unsafe { c::sdp_h_wake(self.raw_helper()) }
    }

    /// Wakes one of those who wait in [`Sock::sleep_in_turn`], and all others. May be called in any context.
    pub(crate) fn wake_one(&self) {
        // SAFETY: As for `wake`.
        unsafe { c::sdp_h_wake_one(self.raw_helper()) }
    }

    /// A mark for [`Sock::sleep`]: take it, look at the condition, then sleep by it.
    pub(crate) fn wake_mark(&self) -> i32 {
        // SAFETY: `events` is initialised; the counter is only compared, a stale value makes
        // `sleep` return at once.
        unsafe { ptr::read_volatile(&raw const (*self.raw_helper()).events.counter) }
    }

    /// Sleeps until [`Sock::wake`] was called since `mark` was taken.
    ///
    /// Returns what is left of `timeout` jiffies.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` or `EINTR` on a signal, as the calls of a socket with such a timeout report.
    pub(crate) fn sleep(&self, mark: i32, timeout: isize) -> Result<isize> {
        // SAFETY: By the invariants the wait queue is initialised; the caller is a socket call,
        // which may sleep.
        let left =
            unsafe { c::sdp_h_sleep(self.raw_helper(), mark, timeout as kernel::ffi::c_long) };
        slept(left, timeout)
    }

    /// [`Sock::sleep`] of one among several who wait for the same, each of which takes one of what comes.
    pub(crate) fn sleep_in_turn(&self, mark: i32, timeout: isize) -> Result<isize> {
        // SAFETY: As for `sleep`.
        let left = unsafe { c::sdp_h_sleep_in_turn(self.raw_helper(), mark, timeout) };
        slept(left, timeout)
    }

    /// [`Sock::sleep`] that only the death of the caller ends before its time.
    ///
    /// # Errors
    ///
    /// `EINTR` if the caller is to die, `ETIMEDOUT`.
    pub(crate) fn sleep_killably(&self, mark: i32, timeout: Jiffies) -> Result {
        // SAFETY: As for `sleep`.
        let left = unsafe {
            c::sdp_h_sleep_killably(self.raw_helper(), mark, timeout as kernel::ffi::c_long)
        };
        match left {
            0 => Err(ETIMEDOUT.into()),
            ..0 => Err(EINTR),
            _ => Ok(()),
        }
    }

    /// [`Sock::sleep`] that nothing ends before its time, for what cannot take long.
    pub(crate) fn sleep_through(&self, mark: i32, timeout: Jiffies) {
        // SAFETY: As for `sleep`.
        unsafe { c::sdp_h_sleep_through(self.raw_helper(), mark, timeout as kernel::ffi::c_long) }
    }

    /// Whether somebody wants to be told when there is something to read, other than by a call that
    /// waits for it.
    pub(crate) fn is_watched(&self) -> bool {
        // SAFETY: By the invariants the sock is alive.
        unsafe { c::sdp_h_is_watched(self.raw()) }
    }

    /// Has the work function run in a worker with these job bits. May be called in any context.
    pub(crate) fn schedule(&self, jobs: u32) {
        // SAFETY: By the invariants work and jobs are initialised and the sock is alive.
        unsafe { c::sdp_h_schedule(self.raw_helper(), jobs as i32) }
    }

    /// Takes all job bits that were scheduled.
    pub(in crate::sys) fn take_jobs(&self) -> u32 {
        // SAFETY: `jobs` is an initialised atomic_t; the kernel's atomic exchange is used through
        // a reference to it as an `Atomic`, which has the same layout.
        let jobs = unsafe {
            kernel::sync::atomic::Atomic::<i32>::from_ptr(
                &raw mut (*self.raw_helper()).jobs.counter,
            )
        };
        jobs.xchg(0, kernel::sync::atomic::Full) as u32
    }

    /// Has the timer function run in a worker after `delay` at the latest: a sooner setting stays,
    /// and the function, which then comes too early, sets the timer again.
    pub(crate) fn set_timer(&self, delay: Jiffies) {
        // SAFETY: By the invariants the timer is initialised and the sock is alive.
        unsafe { c::sdp_h_arm_timer(self.raw_helper(), delay as kernel::ffi::c_ulong) }
    }

    /// Forgets the timer, unless its function has begun.
    pub(crate) fn clear_timer(&self) {
        // SAFETY: By the invariants the timer is initialised and the sock is alive.
        unsafe { c::sdp_h_cancel_timer(self.raw_helper()) }
    }
}

/// The socket lock, held.
///
/// # Invariants
///
/// `lock_sock()` was called by this thread for `sk` and `release_sock()` not yet.
pub(crate) struct Locked<'a, T> {
    sk: &'a Sock<T>,
    _not_send: NotThreadSafe,
}

impl<'a, T> Locked<'a, T> {
    /// Lets go of the lock for the time of `f`.
    pub(crate) fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        // SAFETY: By the invariants the lock is held.
        unsafe { c::release_sock(self.sk.raw()) };
        let r = f();
        // SAFETY: The sock is alive; INVARIANT: held again.
        unsafe { c::sdp_h_lock_sock(self.sk.raw()) };
        r
    }
}

impl<T> Drop for Locked<'_, T> {
    fn drop(&mut self) {
        // SAFETY: By the invariants the lock is held.
        unsafe { c::release_sock(self.sk.raw()) }
    }
}

/// What comes of a sleep that has left so much of `timeout`, or was interrupted.
fn slept(left: isize, timeout: isize) -> Result<isize> {
    if left < 0 {
        return Err(interrupted(timeout));
    }
    if timeout == FOREVER {
        Ok(FOREVER)
    } else {
        Ok(left)
    }
}

/// What a call with this timeout reports that a signal has ended.
pub(crate) fn interrupted(timeout: isize) -> Error {
    // SAFETY: A pure function of the timeout.
    Error::from_errno(unsafe { c::sdp_h_intr_errno(timeout as kernel::ffi::c_long) })
}

/// Whether others wait for the processor that the caller is on: a moment's answer.
pub(crate) fn is_crowded() -> bool {
    // SAFETY: Looks at the current processor only.
    unsafe { c::sdp_h_is_crowded() }
}

/// Lets others have the processor if it is their turn. The caller may sleep.
pub(crate) fn give_way() {
    // SAFETY: The caller is a task that may sleep.
    unsafe { c::sdp_h_give_way() }
}

/// Whether a signal waits for the calling thread.
pub(crate) fn signal_pending() -> bool {
    // SAFETY: Looks at the current task only.
    unsafe { c::sdp_h_signal_pending() }
}

// SPDX-License-Identifier: GPL-2.0-only

//! The TCP socket beneath a socket of `IPPROTO_SDP`.
//!
//! A descriptor of `IPPROTO_SDP` has a TCP `struct socket` besides its own sock, from socket(2) to
//! close(2). [`Tcp`] refers to the TCP socket during a call on the descriptor
//! ([`Descriptor::tcp`]), or under the mutex of [`SockCore::decide`], which close(2) takes.

use super::super::address::{self, Address, Purpose, AF_INET, AF_INET6, AF_UNSPEC};
use super::super::bindings as c;
use super::super::errno::{EAFNOSUPPORT, EINVAL, EOPNOTSUPP};
use super::descriptor::Descriptor;
use super::netns::InNet;
use super::sock::{slept, SockCore};
use core::marker::PhantomData;
use core::ptr;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::types::NotThreadSafe;

/// Maximum length of a socket address (`struct sockaddr_storage`).
const NAME_LEN: usize = 128;

/// A socket address, as passed by the program.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Name {
    bytes: [u8; NAME_LEN],
    len: u8,
}

impl Name {
    pub(crate) const EMPTY: Self = Name {
        bytes: [0; NAME_LEN],
        len: 0,
    };

    pub(super) fn new(bytes: &[u8]) -> Result<Self> {
        let mut me = Self::EMPTY;
        me.bytes
            .get_mut(..bytes.len())
            .ok_or(Error::from(EINVAL))?
            .copy_from_slice(bytes);
        me.len = bytes.len() as u8;
        Ok(me)
    }

    /// Makes a name of `AF_INET` or `AF_INET6`.
    pub(crate) fn of(a: &Address, v6: bool) -> Self {
        let (four, six) = (address::write_in(a), address::write_in6(a));
        Self::new(if v6 { &six } else { &four }).unwrap_or(Self::EMPTY)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }

    fn family(&self) -> Option<u16> {
        let family = self.bytes().first_chunk()?;
        Some(u16::from_ne_bytes(*family))
    }

    pub(crate) fn is_unspecified(&self) -> bool {
        self.family() == Some(AF_UNSPEC)
    }

    /// Returns true if the port is 0, so that bind(2) chooses one.
    pub(crate) fn wants_port(&self) -> bool {
        self.bytes().get(2..4) == Some(&[0; 2])
    }

    /// Returns the destination of connect(2).
    pub(crate) fn destination(&self, v6: bool) -> Result<Address> {
        let (family, least) = if v6 { (AF_INET6, 24) } else { (AF_INET, 16) };
        if self.bytes().len() < least {
            return Err(EINVAL.into());
        }
        if self.family() != Some(family) {
            return Err(EAFNOSUPPORT.into());
        }
        address::read(self.bytes(), v6, Purpose::Connect)?.ok_or(EAFNOSUPPORT.into())
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut kernel::ffi::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    pub(super) fn raw_len(&self) -> i32 {
        self.len.into()
    }
}

/// # Invariants
///
/// `socket` is the TCP socket of an `IPPROTO_SDP` descriptor, and is not released during `'a`.
#[derive(Clone, Copy)]
pub(crate) struct Tcp<'a> {
    socket: *mut c::socket,
    _life: PhantomData<&'a ()>,
}

/// Calls a function of the TCP socket's `proto_ops`, whose first argument is the socket.
macro_rules! op {
    ($tcp:expr, $name:ident($($argument:expr),*)) => {
        match (*ptr::read_volatile(&raw const (*$tcp.raw()).ops)).$name {
            Some(f) => f($tcp.raw(), $($argument),*),
            None => -EOPNOTSUPP.0,
        }
    };
}
pub(super) use op;

impl<'a> Tcp<'a> {
    pub(super) fn raw(&self) -> *mut c::socket {
        self.socket
    }

    /// # Safety
    ///
    /// `sk` is a sock of the family. The TCP socket of the descriptor, if any, outlives `'a`.
    unsafe fn of(sk: *mut c::sock) -> Option<Self> {
        // SAFETY: The requirements exclude a release; the pointer only changes for the release.
        let socket = unsafe { ptr::read_volatile(&raw const (*sk.cast::<c::sdp_h_sock>()).tcp) };
        // INVARIANT: By the requirements.
        (!socket.is_null()).then_some(Tcp {
            socket,
            _life: PhantomData,
        })
    }

    /// Returns the port that the TCP socket holds, 0 if none.
    pub(crate) fn port(&self) -> u16 {
        self.local(false).port
    }

    pub(crate) fn local(&self, v6: bool) -> Address {
        let mut a = c::sdp_h_addr::default();
        // SAFETY: By the invariants the socket is alive; `a` is writable.
        unsafe { c::sdp_h_tcp_name(self.socket, &mut a) };
        Address::from_c(&a, v6)
    }

    pub(crate) fn bind(&self, name: &Name) -> Result {
        let mut name = *name;
        // SAFETY: By the invariants the socket is alive; BPF hooks may write to the address.
        to_result(unsafe { op!(self, bind(name.as_mut_ptr().cast(), name.raw_len())) })
    }

    /// Handles the end of splice(2)'s source.
    pub(super) fn splice_eof(&self) {
        // SAFETY: By the invariants the socket is alive.
        unsafe {
            if let Some(f) = (*ptr::read_volatile(&raw const (*self.raw()).ops)).splice_eof {
                f(self.raw());
            }
        }
    }

    /// Undoes bind(2); `ifindex` is the interface that the socket was bound to earlier, 0 if none.
    pub(crate) fn unbind(&self, ifindex: i32) {
        // SAFETY: By the invariants the socket is alive.
        unsafe { c::sdp_h_tcp_unbind(self.socket, ifindex) }
    }

    /// Locks the socket, which has no port, so that it can take a port. May sleep.
    pub(crate) fn ports(&self) -> Ports<'a> {
        // SAFETY: By the invariants the socket is alive.
        unsafe { c::lock_sock_nested((*self.socket).sk, 0) };
        // INVARIANT: This call has taken the lock.
        Ports {
            tcp: *self,
            _not_send: NotThreadSafe,
        }
    }

    /// Releases the port of a destroyed connection, unless the program has chosen it.
    pub(crate) fn leave_port(&self) {
        // SAFETY: By the invariants the socket is alive.
        unsafe { c::sdp_h_tcp_leave_port(self.socket) }
    }

    pub(crate) fn listen(&self, backlog: u32) -> Result {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        // SAFETY: By the invariants the socket is alive.
        to_result(unsafe { op!(self, listen(backlog)) })
    }

    pub(crate) fn connect(&self, name: &Name, flags: u32) -> Result {
        let mut name = *name;
        // SAFETY: By the invariants the socket is alive.
        to_result(unsafe {
            op!(
                self,
                connect(name.as_mut_ptr().cast(), name.raw_len(), flags as i32)
            )
        })
    }

    /// Runs the BPF hooks of connect(2), which may change the address.
    pub(crate) fn pre_connect(&self, name: &mut Name) -> Result {
        let len = name.raw_len();
        // SAFETY: By the invariants the socket is alive.
        to_result(unsafe { c::sdp_h_tcp_pre_connect(self.socket, name.as_mut_ptr(), len) })
    }

    /// Starts connect(2) without the hooks of `pre_connect`. Errors are stored in the socket.
    pub(crate) fn begin(&self, name: &Name) {
        let mut name = *name;
        // SAFETY: By the invariants the socket is alive.
        unsafe { c::sdp_h_tcp_begin(self.socket, name.as_mut_ptr(), name.raw_len()) }
    }

    /// Waits until connect(2) has a result; returns the remaining time, 0 on time-out.
    pub(crate) fn wait_connected(&self, timeout: isize) -> Result<isize> {
        // SAFETY: By the invariants the socket is alive; a call on the descriptor may sleep.
        let left = unsafe { c::sdp_h_tcp_wait_connected(self.socket, timeout) };
        slept(left, timeout)
    }

    /// Returns true if accept(2) would find no connection.
    pub(super) fn queue_is_empty(&self) -> bool {
        // SAFETY: By the invariants the socket is alive, and its sock is TCP's.
        unsafe {
            let sk = (*self.socket).sk.cast::<c::inet_connection_sock>();
            c::reqsk_queue_empty(&raw const (*sk).icsk_accept_queue)
        }
    }

    /// Returns true if a connection was established, even if it has ended.
    pub(crate) fn was_connected(&self) -> bool {
        // SAFETY: By the invariants the socket is alive, and its sock is TCP's.
        let sk = unsafe { (*self.socket).sk.cast::<c::tcp_sock>() };
        // the count includes the SYN once the peer has acknowledged it.
        // SAFETY: By the invariants the socket is alive; the kernel reads the field by READ_ONCE.
        unsafe { ptr::read_volatile(&raw const (*sk).bytes_acked) != 0 }
    }

    /// Takes over the cookie, the owner and the receivers of SIGIO of the descriptor.
    pub(crate) fn inherit(&self, sk: &SockCore) {
        // SAFETY: By the invariants the socket is alive, and so is its descriptor.
        unsafe { c::sdp_h_tcp_inherit(sk.raw(), self.socket) }
    }

    /// Switches the open file to the TCP socket.
    pub(crate) fn take_file(&self, sk: &SockCore) {
        // SAFETY: By the invariants the socket is alive, and so is its descriptor.
        unsafe { c::sdp_h_tcp_take_file(sk.raw(), self.socket) }
    }
}

/// Lets the TCP socket take a port.
///
/// # Invariants
///
/// This thread holds the socket lock.
pub(crate) struct Ports<'a> {
    tcp: Tcp<'a>,
    _not_send: NotThreadSafe,
}

impl Ports<'_> {
    /// Takes a port if it is free, or if all its holders took it by this function with the same
    /// address and interface (`covered`).
    pub(crate) fn take(&self, port: u16, covered: bool) -> bool {
        // SAFETY: By the invariants the socket is alive and locked.
        unsafe { c::sdp_h_tcp_take_port(self.tcp.socket, port, covered) }
    }

    /// Undoes that.
    pub(crate) fn give(&self) {
        // SAFETY: By the invariants the socket is alive and locked.
        unsafe { c::sdp_h_tcp_give_port((*self.tcp.socket).sk) }
    }
}

impl Drop for Ports<'_> {
    fn drop(&mut self) {
        // SAFETY: By the invariants the socket is alive, and locked by this thread.
        unsafe { c::release_sock((*self.tcp.socket).sk) }
    }
}

impl<'a, T: InNet> Descriptor<'a, T> {
    pub(crate) fn tcp(&self) -> Option<Tcp<'a>> {
        // SAFETY: A call uses the descriptor during `'a`; the TCP socket is freed later.
        unsafe { Tcp::of(self.sk.raw()) }
    }
}

/// Lock of the choice between SDP and TCP.
///
/// # Invariants
///
/// This thread has called `sdp_h_decide()`, or `sdp_h_try_decide()` with success, for `sk`, and
/// not yet `sdp_h_decided()`.
pub(crate) struct DecisionLock<'a> {
    sk: &'a SockCore,
    _not_send: NotThreadSafe,
}

impl SockCore {
    /// Takes the decision lock, which must be taken before the socket lock. May sleep.
    pub(crate) fn decide(&self) -> DecisionLock<'_> {
        // SAFETY: By the invariants the mutex is initialised.
        unsafe { c::sdp_h_decide(self.raw()) };
        // INVARIANT: This call has taken the lock.
        DecisionLock {
            sk: self,
            _not_send: NotThreadSafe,
        }
    }

    /// Tries [`SockCore::decide`] for a worker, without waiting: the holder may sleep in a page
    /// fault. If the trylock fails, [`SockCore::schedule`] queues the job again.
    pub(crate) fn try_decide(&self, job: u32) -> Option<DecisionLock<'_>> {
        // SAFETY: By the invariants the mutex is initialised.
        let taken = unsafe { c::sdp_h_try_decide(self.raw(), job as i32) };
        // INVARIANT: This call has taken the lock. Not `then_some`: a lock that was not taken must
        // not be dropped.
        taken.then(|| DecisionLock {
            sk: self,
            _not_send: NotThreadSafe,
        })
    }

    /// Copies address, port, the flags of bind(2) and the bound interface from the TCP socket, or
    /// undoes the copy. Returns the address. Context: socket lock held.
    pub(crate) fn share_name(&self, tcp: Option<&Tcp<'_>>) -> Address {
        let v6 = self.is_v6();
        let local = tcp.map_or(Address::any(v6), |tcp| tcp.local(v6));
        self.set_local(&local);
        // SAFETY: The socks are alive; the TCP socket may be null.
        unsafe { c::sdp_h_tcp_share_name(self.raw(), tcp.map_or(ptr::null(), |tcp| tcp.raw())) };
        local
    }
}

impl DecisionLock<'_> {
    /// Returns the TCP socket; `None` if the descriptor is closed or never had one.
    pub(crate) fn tcp(&self) -> Option<Tcp<'_>> {
        // SAFETY: The TCP socket is only removed under the mutex, which this task holds.
        unsafe { Tcp::of(self.sk.raw()) }
    }
}

impl Drop for DecisionLock<'_> {
    fn drop(&mut self) {
        // SAFETY: By the invariants this task holds the mutex.
        unsafe { c::sdp_h_decided(self.sk.raw()) }
    }
}

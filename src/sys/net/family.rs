// SPDX-License-Identifier: GPL-2.0-only

//! Functions of a socket family, one for each socket call.

use super::super::address::Address;
use super::super::netns::Net;
use super::descriptor::Descriptor;
use super::message::{PipeSink, RecvMsg, SendMsg};
use super::netns::{self, InNet};
use super::options::{NewValue, OldValue};
use super::sock::{Locked, Sock, Unaccepted};
use super::tcp::{Name, Tcp};
use kernel::prelude::*;

pub(crate) trait Family: InNet + Sized + Send + Sync + 'static {
    fn init(netns: &Self::Net) -> impl PinInit<Self, Error>;
    const OPS: Ops<Self>;
}

/// The socket calls of a family.
///
/// Context: process, may sleep, no locks, unless stated otherwise. A `bool` argument is true if the
/// call must not block. A pair of integers is the level and the name of an option.
pub(crate) struct Ops<T: InNet> {
    pub(crate) opened: fn(&Sock<T>) -> Result,
    /// Assigns a port (0: any) to a socket with a local address. Context: socket lock held.
    pub(crate) take_port: fn(&Sock<T>, u16) -> Result,
    /// Releases the port of a bind(2) that a BPF program refuses. Context: socket lock held.
    pub(crate) give_port: fn(&Sock<T>),
    /// Records the result of bind(2) to an address (`SDP_LAST_BIND_ERR`).
    pub(crate) bound: fn(&Sock<T>, &Address, Result),
    /// connect(2); `None`: to `AF_UNSPEC`.
    pub(crate) connect: fn(&Descriptor<'_, T>, Option<&Address>, bool) -> Result,
    pub(crate) listen: fn(&Descriptor<'_, T>, u32) -> Result,
    pub(crate) accept: fn(&Sock<T>, bool) -> Result<Unaccepted<T>>,
    /// poll(2): returns the current events, as EPOLL* bits. The caller is a registered waiter.
    pub(crate) poll: fn(&Sock<T>) -> u32,
    pub(crate) send: fn(&Sock<T>, &mut SendMsg<'_>) -> Result<usize>,
    /// Handles an early end of the source of splice(2) or sendfile(2).
    pub(crate) splice_eof: fn(&Sock<T>),
    pub(crate) receive: fn(&Sock<T>, &mut RecvMsg<'_>) -> Result<usize>,
    /// splice(2) from the socket, by pages. `None`: `receive` has to copy the bytes for the pipe.
    pub(crate) splice: fn(&Sock<T>, &mut PipeSink, bool) -> Result<Option<usize>>,
    /// ioctl(2) for commands with an integer result.
    pub(crate) ioctl: fn(&Sock<T>, u32) -> Result<i32>,
    /// shutdown(2), after the shutdown bits were set. Context: socket lock held.
    pub(crate) shutdown: fn(&Sock<T>, u8),
    /// Resets the connection and closes the socket at once. Context: socket lock held.
    pub(crate) disconnect: fn(&Sock<T>, &mut Locked<'_>),
    /// close(2) of the last descriptor. May wait for up to the given number of jiffies.
    pub(crate) close: fn(&Sock<T>, usize),
    pub(crate) set_option: fn(&Sock<T>, i32, i32, &NewValue<'_>) -> Result,
    pub(crate) get_option: fn(&Sock<T>, i32, i32, &OldValue<'_>) -> Result,
    /// Handles a change of `SO_KEEPALIVE`. Context: socket lock held.
    pub(crate) set_keepalive: fn(&Sock<T>, bool),
    pub(crate) set_rcvlowat: fn(&Sock<T>, i32) -> Result,
    /// Executes the jobs of [`Sock::schedule`](super::sock::SockCore::schedule), in a worker.
    pub(crate) work: fn(&Sock<T>, u32),
    /// Handles an expired [`Sock::set_timer`](super::sock::SockCore::set_timer), in a worker.
    pub(crate) timer: fn(&Sock<T>),
    pub(crate) dual: DualOps<T>,
}

/// Protocol of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FallbackState {
    /// SDP is selected for the current connection.
    Sdp,
    /// TCP, permanently.
    Tcp,
    /// The protocol is undecided: no connect(2) has begun.
    Both,
    /// The protocol is undecided: connect(2) is in progress.
    Neither,
}

/// Sets or gets an option of the TCP socket.
pub(crate) type TcpOption<'a> = &'a dyn Fn(&Tcp<'_>) -> Result;

/// The socket calls of `IPPROTO_SDP`.
#[allow(clippy::type_complexity, reason = "signatures of socket calls")]
pub(crate) struct DualOps<T: InNet> {
    pub(crate) begun: fn(&Sock<T>) -> Result,
    /// Cleans up after a failed socket(2).
    pub(crate) undone: fn(&Sock<T>),
    pub(crate) chosen: fn(&Sock<T>) -> FallbackState,
    /// Waits up to the given number of jiffies for the decision between SDP and TCP; returns the
    /// protocol. `EAGAIN`: undecided. `ERESTARTSYS`, `EINTR`: a signal.
    pub(crate) settled: fn(&Sock<T>, isize) -> Result<FallbackState>,
    /// Cancels a connect attempt by SDP, and returns the protocol. `ERESTARTSYS`: switching to TCP.
    pub(crate) given_up: fn(&Sock<T>) -> Result<FallbackState>,
    /// Releases the port if the socket has no connection and no connect attempt.
    pub(crate) leave_port: fn(&Sock<T>),
    /// Switches an undecided descriptor to TCP for a feature that only TCP has.
    pub(crate) prefer_tcp: fn(&Sock<T>),
    pub(crate) bind: fn(&Descriptor<'_, T>, &Name) -> Result,
    pub(crate) connect: fn(&Descriptor<'_, T>, &Name, u32) -> Result,
    /// accept(2), without blocking if the second argument is true: returns the new connection, or
    /// `None` if the last argument has accepted a TCP connection.
    pub(crate) accept: fn(
        &Descriptor<'_, T>,
        bool,
        &mut dyn FnMut(&Tcp<'_>) -> Result,
    ) -> Result<Option<Unaccepted<T>>>,
    /// setsockopt(2) with level and name, and functions that set the option on each socket.
    pub(crate) set: fn(&Descriptor<'_, T>, i32, i32, TcpOption<'_>, &dyn Fn() -> Result) -> Result,
    pub(crate) get: fn(&Descriptor<'_, T>, i32, i32, TcpOption<'_>, &dyn Fn() -> Result) -> Result,
    /// close(2). The last argument is the TCP socket if the descriptor has switched to it.
    pub(crate) closing: fn(&Sock<T>, Option<&Tcp<'_>>),
}

/// Returns the family's data of a namespace; `None` if no family is registered.
pub(crate) fn netns_of<T: Family>(net: &Net) -> Option<&T::Net> {
    netns::of(net).map(|data| &**data)
}

// SPDX-License-Identifier: GPL-2.0-only

//! Functions of a socket family, one for each socket call.

use super::super::address::{Address, Named};
use super::super::netns::Net;
use super::descriptor::Descriptor;
use super::message::{RecvMsg, SendMsg};
use super::netns::{self, InNet};
use super::options::{NewValue, OldValue};
use super::sock::Sock;
use super::tcp::{Name, Tcp};
use super::unaccepted::Unaccepted;
use kernel::prelude::*;

pub(crate) trait Family: InNet + Sized + Send + Sync + 'static {
    fn init(netns: &Self::Net) -> impl PinInit<Self, Error>;
    const OPS: Ops<Self>;
}

/// The socket calls of a family.
///
/// Context: process, may sleep, no locks, unless said otherwise. A bool says that the call must not
/// block, two integers are the level and the name of an option.
pub(crate) struct Ops<T: InNet> {
    pub(crate) opened: fn(&Sock<T>) -> Result,
    /// Takes a port (0: any) for the socket, whose local address is set. The socket lock is held.
    pub(crate) take_port: fn(&Sock<T>, u16) -> Result,
    /// Gives that back: a BPF program does not let the socket have it. The socket lock is held.
    pub(crate) give_port: fn(&Sock<T>),
    /// Notes how bind(2) of an address ended (`SDP_LAST_BIND_ERR`).
    pub(crate) bound: fn(&Sock<T>, &Address, Result),
    pub(crate) connect: fn(&Descriptor<'_, T>, &Named, bool) -> Result,
    pub(crate) listen: fn(&Descriptor<'_, T>, u32) -> Result,
    pub(crate) accept: fn(&Sock<T>, bool) -> Result<Unaccepted<T>>,
    /// poll(2): the events that are there, as EPOLL* bits. The caller waits already.
    pub(crate) poll: fn(&Sock<T>) -> u32,
    pub(crate) send: fn(&Sock<T>, &mut SendMsg<'_>) -> Result<usize>,
    /// The source of splice(2) or sendfile(2) ends here, although more was announced.
    pub(crate) splice_eof: fn(&Sock<T>),
    pub(crate) receive: fn(&Sock<T>, &mut RecvMsg<'_>) -> Result<usize>,
    /// ioctl(2) for commands that give an integer.
    pub(crate) ioctl: fn(&Sock<T>, u32) -> Result<i32>,
    /// shutdown(2), after the bits were added. The socket lock is held.
    pub(crate) shutdown: fn(&Sock<T>, u8),
    /// Makes the socket unconnected and closed, at once. The socket lock is held.
    pub(crate) disconnect: fn(&Sock<T>),
    /// close(2) of the last descriptor. May wait for this many jiffies.
    pub(crate) close: fn(&Sock<T>, usize),
    pub(crate) set_option: fn(&Sock<T>, i32, i32, &NewValue<'_>) -> Result,
    pub(crate) get_option: fn(&Sock<T>, i32, i32, &OldValue<'_>) -> Result,
    /// `SO_KEEPALIVE` was set. The socket lock is held.
    pub(crate) set_keepalive: fn(&Sock<T>, bool),
    pub(crate) set_rcvlowat: fn(&Sock<T>, i32) -> Result,
    /// Does the jobs given to [`Sock::schedule`](super::sock::SockCore::schedule); in a worker.
    pub(crate) work: fn(&Sock<T>, u32),
    /// Runs when the time of [`Sock::set_timer`](super::sock::SockCore::set_timer) has passed.
    /// Context: worker.
    pub(crate) timer: fn(&Sock<T>),
    pub(crate) dual: DualOps<T>,
}

/// The kind of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FallbackState {
    /// SDP's, for this connection.
    Sdp,
    /// TCP's, for good.
    Tcp,
    /// Both, as no connect(2) was begun.
    Both,
    /// Not known yet: connect(2) is under way.
    Neither,
}

/// Sets or gets an option of the TCP socket.
pub(crate) type TcpOption<'a> = &'a dyn Fn(&Tcp<'_>) -> Result;

/// The socket calls of `IPPROTO_SDP`.
#[allow(clippy::type_complexity, reason = "signatures of socket calls")]
pub(crate) struct DualOps<T: InNet> {
    pub(crate) begun: fn(&Sock<T>) -> Result,
    /// socket(2) has failed afterwards.
    pub(crate) undone: fn(&Sock<T>),
    /// The kind of the descriptor now.
    pub(crate) chosen: fn(&Sock<T>) -> FallbackState,
    /// As `chosen`, but waits up to this many jiffies for the decision. `EAGAIN`: undecided.
    /// `ERESTARTSYS`, `EINTR`: a signal.
    pub(crate) settled: fn(&Sock<T>, isize) -> Result<FallbackState>,
    /// As `chosen`, but cancels an attempt by SDP. `ERESTARTSYS`: TCP is taking over.
    pub(crate) given_up: fn(&Sock<T>) -> Result<FallbackState>,
    /// No connection is left, and none is tried.
    pub(crate) leave_port: fn(&Sock<T>),
    /// The program wants a feature of TCP alone, on a descriptor that is both.
    pub(crate) prefer_tcp: fn(&Sock<T>),
    pub(crate) bind: fn(&Descriptor<'_, T>, &Name) -> Result,
    pub(crate) connect: fn(&Descriptor<'_, T>, &Name, u32) -> Result,
    /// accept(2), without blocking if the second argument is true: the new connection, or none if
    /// the last argument has taken one of TCP.
    pub(crate) accept: fn(
        &Descriptor<'_, T>,
        bool,
        &mut dyn FnMut(&Tcp<'_>) -> Result,
    ) -> Result<Option<Unaccepted<T>>>,
    /// setsockopt(2) of level and name, by a way to set it on each of the two.
    pub(crate) set: fn(&Descriptor<'_, T>, i32, i32, TcpOption<'_>, &dyn Fn() -> Result) -> Result,
    pub(crate) get: fn(&Descriptor<'_, T>, i32, i32, TcpOption<'_>, &dyn Fn() -> Result) -> Result,
    /// close(2), while the TCP socket is still there. It is given if it has won.
    pub(crate) closing: fn(&Sock<T>, Option<&Tcp<'_>>),
}

/// The family's data of a namespace; `None` if there is no family.
pub(crate) fn netns_of<T: Family>(net: &Net) -> Option<&T::Net> {
    netns::of(net).map(|data| &**data)
}

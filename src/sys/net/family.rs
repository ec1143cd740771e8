// SPDX-License-Identifier: GPL-2.0-only

//! What a socket family is: what each of its socket calls does.

use super::super::address::{Address, Named};
use super::super::netns::Net;
use super::descriptor::Descriptor;
use super::message::{RecvMsg, SendMsg};
use super::netns::{self, InNet};
use super::options::{NewValue, OldValue};
use super::sock::Sock;
use super::unaccepted::Unaccepted;
use kernel::prelude::*;

/// What the socket calls do on sockets of the family.
///
/// Unless said otherwise a method is called in process context, may sleep, and holds no lock.
pub(crate) trait Family: InNet + Sized + Send + Sync + 'static {
    /// The part of a new socket.
    fn init() -> impl PinInit<Self, Error>;
    /// A socket was made by socket(2).
    fn opened(sk: &Sock<Self>) -> Result;
    /// Takes a port (0: any) for the socket, whose local address is set. The socket lock is held.
    fn take_port(sk: &Sock<Self>, port: u16) -> Result;
    /// Gives that back: a BPF program does not let the socket have it. The socket lock is held.
    fn give_port(sk: &Sock<Self>);
    /// Notes how bind(2) of an address ended (`SDP_LAST_BIND_ERR`).
    fn bound(sk: &Sock<Self>, to: &Address, result: Result);
    /// connect(2).
    fn connect(call: &Descriptor<'_, Self>, to: &Named, non_blocking: bool) -> Result;
    /// listen(2).
    fn listen(call: &Descriptor<'_, Self>, backlog: u32) -> Result;
    /// accept(2): the new connection.
    fn accept(sk: &Sock<Self>, non_blocking: bool) -> Result<Unaccepted<Self>>;
    /// poll(2): the events that are there, as EPOLL* bits. The caller waits already.
    fn poll(sk: &Sock<Self>) -> u32;
    /// sendmsg(2).
    fn send(sk: &Sock<Self>, message: &mut SendMsg<'_>) -> Result<usize>;
    /// What splice(2) and sendfile(2) take from ends here, although they had announced more.
    fn splice_eof(sk: &Sock<Self>);
    /// recvmsg(2).
    fn receive(sk: &Sock<Self>, to: &mut RecvMsg<'_>) -> Result<usize>;
    /// ioctl(2) for commands that give an integer.
    fn ioctl(sk: &Sock<Self>, command: u32) -> Result<i32>;
    /// shutdown(2), after the bits were added. The socket lock is held.
    fn shutdown(sk: &Sock<Self>, how: u8);
    /// Makes the socket unconnected and closed, at once. The socket lock is held.
    fn disconnect(sk: &Sock<Self>) -> Result;
    /// close(2) of the last descriptor; `linger` is how long it may wait, in jiffies.
    fn close(sk: &Sock<Self>, linger: usize);
    /// setsockopt(2) at levels other than `SOL_SOCKET`.
    fn set_option(sk: &Sock<Self>, level: i32, name: i32, value: &NewValue<'_>) -> Result;
    /// getsockopt(2) at levels other than `SOL_SOCKET`.
    fn get_option(sk: &Sock<Self>, level: i32, name: i32, value: &OldValue<'_>) -> Result;
    /// `SO_KEEPALIVE` was set. The socket lock is held.
    fn set_keepalive(sk: &Sock<Self>, on: bool);
    /// `SO_RCVLOWAT` was set to `bytes`.
    fn set_rcvlowat(sk: &Sock<Self>, bytes: i32) -> Result;
    /// Does the jobs that were given to [`Sock::schedule`](super::sock::SockCore::schedule); in a worker.
    fn work(sk: &Sock<Self>, jobs: u32);
    /// The time given to [`Sock::set_timer`](super::sock::SockCore::set_timer) has come; in a worker.
    fn timer(sk: &Sock<Self>);
}

/// What the family's namespace data is, for code that has no socket at hand; `None` if there is no family.
pub(crate) fn netns_of<T: Family>(net: &Net) -> Option<&T::Net> {
    netns::of(net).map(|data| &**data)
}

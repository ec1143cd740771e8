// SPDX-License-Identifier: GPL-2.0-only

//! Whose connections they are: what a transport asks of the layer above it.

use crate::sys::rdma::cm::REPLY_DATA;
use kernel::prelude::*;
use kernel::sync::aref::AlwaysRefCounted;

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Disconnect {
    /// The peer ended it.
    Peer,
    /// We ended it, and the peer knows.
    Acked,
    /// We ended it, and the peer did not answer.
    TimedOut,
    /// The time is over in which packets of it may still come.
    TimeWaitExit,
}

/// Tells one link from another of the same owner, as long as either lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkId(usize);

impl LinkId {
    /// The id of what lies there.
    pub(super) fn of<T>(link: &T) -> Self {
        LinkId(core::ptr::from_ref(link).addr())
    }
}

/// Tells one resolver from another of the same owner, as long as either lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ResolverId(usize);

impl ResolverId {
    /// The id of what lies there.
    pub(super) fn of<T>(search: &T) -> Self {
        ResolverId(core::ptr::from_ref(search).addr())
    }
}

/// What a device's removal ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    /// A search for an address.
    Search(ResolverId),
    /// A connection, or one that is being made.
    Link(LinkId),
}

/// Whose connection it is.
///
/// Unless a method says otherwise, upcalls are made in process context, without locks but a socket lock of whoever calls, one at a time for one
/// link, and may sleep; but all connections of the host wait meanwhile. Those for a connection that was dropped may
/// still come for a moment.
///
/// What is told of a connection comes with its [`LinkId`], because an owner that has dropped a
/// [`super::CmLink`] and made another may still be told of the first one; likewise [`ResolverId`] and
/// [`super::Resolver`].
pub(crate) trait Upcalls: AlwaysRefCounted + Send + Sync + Sized + 'static {
    /// Who decides on requests for connections, a [`super::Acceptor`].
    type Acceptor: 'static;

    /// There is something to [`super::Transport::poll_receive`]. Called in any context, in hard
    /// interrupts as well, with locks of the transport held: wake somebody, and no more.
    fn receive_ready(&self);

    /// [`Upcalls::receive_ready`] by a task that may sleep once it has let go of its lock. Whether it is to call
    /// [`Upcalls::attend`] then, in place of a worker.
    fn receive_ready_by_task(&self) -> bool;

    /// Takes what has come to an owner that no program has any more.
    fn attend(&self);

    /// The peer has taken all messages that have come to it, for which others wait
    /// ([`super::Endpoint::arm_taking`]). Called by its task, without locks, which may sleep.
    fn taken(&self);

    /// Whether somebody watches for what comes, of which the owner is not told. Called like
    /// [`Upcalls::receive_ready`].
    fn is_watched(&self) -> bool;

    /// The peer carries something out that is done sooner if a task of the owner that waits looks for
    /// an [`super::Endpoint::copy_job`]. Called in process context; wake it, if there is one.
    fn help(&self);

    /// There is something to [`super::Transport::poll_send`], or memory that was lent to an endpoint
    /// was let go of. Called like [`Upcalls::receive_ready`].
    fn send_ready(&self);

    /// A [`super::Resolver`] has come to its end. May come before [`super::Resolver::start`]
    /// returns, with the locks of its caller.
    fn resolved(&self, search: ResolverId, result: Result);

    /// The peer accepts, with this private data. May come before [`super::Resolver::connect`] returns. An error
    /// rejects the connection, and nothing more comes of it.
    fn replied(&self, link: LinkId, data: &[u8; REPLY_DATA]) -> Result;

    /// Messages can be sent.
    fn established(&self, link: LinkId);

    /// The connection was not made. `ESTALE`: the peer took the request for one from a connection that
    /// it still had, and has given that up; asked anew it may accept.
    fn refused(&self, link: LinkId, error: Error);

    /// The connection has ended; what was posted is being flushed.
    fn disconnected(&self, link: LinkId, how: Disconnect);

    /// The device of a link or a resolver is being removed, which waits until endpoint, link and
    /// resolver are dropped and all buffers are unmapped. May be called more than once. It may come
    /// for a link that the owner has not put into its place yet: see [`super::CmLink::is_removing`].
    fn device_removed(&self, of: Attempt);
}

/// What becomes of a request.
pub(crate) enum Verdict {
    /// A link was made by [`super::Request::create`], and replies or has replied.
    Accepted,
    /// We do not want it.
    Reject,
    /// Nobody listens there.
    Unknown,
    /// No answer, as if the request had been lost: the peer asks again.
    Drop,
}

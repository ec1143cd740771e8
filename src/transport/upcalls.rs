// SPDX-License-Identifier: GPL-2.0-only

//! Upcalls of the transport to the layer above it, and types of several files of the transport.

use crate::sys::rdma::cm::REPLY_DATA;
use kernel::prelude::*;
use kernel::sync::aref::AlwaysRefCounted;

/// Identifies a link or resolver of an owner during its lifetime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkId(usize);

impl LinkId {
    pub(crate) fn of<T>(link: &T) -> Self {
        LinkId(core::ptr::from_ref(link).addr())
    }
}

/// Owner of a connection.
///
/// Context: process, without locks, may sleep, one call at a time for each link. All connection
/// setup of the host waits for an upcall. Upcalls for a dropped connection may still arrive for a
/// short time.
///
/// Each upcall about a link or resolver contains its [`LinkId`]: an owner that has replaced a
/// [`super::CmLink`] or [`super::Resolver`] may still get upcalls of the old one.
pub(crate) trait Upcalls: AlwaysRefCounted + Send + Sync + Sized + 'static {
    /// The queue of sends (`sent`) or of receives has a completion, or blocks were released.
    /// Context: any, including hard interrupts, with locks of the transport held. Only wakes.
    fn completed(&self, sent: bool);

    /// A [`super::Resolver`] has finished. `resolved` may be called before
    /// [`super::Resolver::start`] returns, with the locks of its caller.
    fn resolved(&self, search: LinkId, result: Result);

    /// The peer accepts, with this private data. May be called before [`super::Resolver::connect`]
    /// returns. An error rejects the connection; no other upcall follows.
    fn replied(&self, link: LinkId, data: &[u8; REPLY_DATA]) -> Result;

    /// The connection is established: messages can be sent.
    fn established(&self, link: LinkId);

    /// The connection failed. `ESTALE`: the peer took the request for one of an older connection
    /// and has now dropped that connection; a retry may succeed.
    fn refused(&self, link: LinkId, error: Error);

    /// The connection was ended by the peer (`by_peer`) or this end; posted requests are flushed.
    fn disconnected(&self, link: LinkId, by_peer: bool);

    /// The device of a link or resolver is being removed. The removal waits until endpoint, link
    /// and resolver are dropped and all buffers are unmapped. May be called more than once, also
    /// for a link that the owner has not stored yet: see [`super::CmLink::is_removing`].
    fn device_removed(&self, of: LinkId);
}

/// Decision on a connection request.
pub(crate) enum Verdict {
    /// [`super::Request::create`] has made a link, which replies to the peer.
    Accepted,
    Reject,
    /// No listener at that port.
    Unknown,
    /// Send no reply, as if the request had been lost: the peer repeats the request.
    Drop,
}

/// Phase of a connection.
///
/// ```text
///  New ---- REQ out ----> Requested ---- REP in, RTU out ----> Established
///   |                                                           ^    |
///   '------ REP out ----> Replied ------ RTU or message in -----'    |-- DREQ out --> Leaving
///                                                                    |                  |
///  any of them --- REJ, no answer ---> Closed <------- DREQ in ------'-- DREP, no answer'
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    Requested,
    Replied,
    Established,
    Leaving,
    Closed,
}

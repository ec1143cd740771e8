// SPDX-License-Identifier: GPL-2.0-only

//! Upcalls of the transport to the layer above, and types that several files of the transport use.

use crate::sys::rdma::cm::REPLY_DATA;
use kernel::prelude::*;
use kernel::sync::aref::AlwaysRefCounted;

/// Identifies a link or resolver during the lifetime of that object.
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
/// setup of the host waits for the return of an upcall. Upcalls for a dropped connection may still
/// arrive for a short time.
///
/// Each upcall about a link or resolver contains the [`LinkId`] of that object: an owner that has
/// replaced a [`super::CmLink`] or [`super::Resolver`] may still get upcalls of the old object.
pub(crate) trait Upcalls: AlwaysRefCounted + Send + Sync + Sized + 'static {
    /// Reports a completion in the queue of sends (`sent`) or of receives, or the release of
    /// blocks. Context: any, including hard IRQ, with locks of the transport held. Must only wake
    /// tasks.
    fn completed(&self, sent: bool);

    /// Reports the result of a [`super::Resolver`]. May be called before [`super::Resolver::start`]
    /// returns, with the locks of that function's caller.
    fn resolved(&self, search: LinkId, result: Result);

    /// Handles the peer's reply, with its private data. May be called before
    /// [`super::Resolver::connect`] returns. An error rejects the connection, and no other upcall
    /// follows.
    fn replied(&self, link: LinkId, data: &[u8; REPLY_DATA]) -> Result;

    /// Reports that the connection is established, so that messages can be sent.
    fn established(&self, link: LinkId);

    /// Reports that the connection has failed. `ESTALE`: the peer took the request for a part of an
    /// older connection, and has now dropped the older connection; a retry may succeed.
    fn refused(&self, link: LinkId, error: Error);

    /// Reports that the peer (`by_peer`) or this end has ended the connection. The transport
    /// flushes posted requests.
    fn disconnected(&self, link: LinkId, by_peer: bool);

    /// Reports the removal of the device of a link or resolver. The removal waits until endpoint,
    /// link and resolver are dropped and all buffers are unmapped. May be called more than once,
    /// even for a link that the owner has not stored yet ([`super::CmLink::is_removing`]).
    fn device_removed(&self, of: LinkId);
}

/// Decision on a connection request.
pub(crate) enum Verdict {
    /// [`super::Request::create`] has made a link, which replies to the peer.
    Accepted,
    Reject,
    /// No socket listens at the requested port.
    Unknown,
    /// Send no reply, as if the request had been lost, so that the peer repeats the request.
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

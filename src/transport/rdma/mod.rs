// SPDX-License-Identifier: GPL-2.0-only

//! Connections by an RDMA device: InfiniBand, or RoCE.
//!
//! A connection has two halves that live apart. The [`Endpoint`] carries messages and belongs to
//! whoever holds the connection's lock. The [`CmLink`] is the connection towards the connection
//! manager, and makes upcalls to the connection's owner ([`Upcalls`]), in process context and one at a time.
//!
//! * [`resolve`]: from an IP address to a route, and from there to a link (active side);
//! * [`connect`]: REQ, and what its answer leads to;
//! * [`mod@listen`]: ports at which requests may come in;
//! * [`accept`]: such requests (passive side);
//! * [`cm_link`]: the life of a connection and its end;
//! * [`endpoint`]: the messages;
//! * [`registry`]: devices, ports that are listened at, and what has to go with a device;
//! * [`device`]: devices that come and go.
//!
//! **Who keeps what.** An owner holds its `Endpoint`, `CmLink` and [`Resolver`]; they hold the owner
//! in turn. The owner breaks the ring by dropping them: when it is closed, when it is refused, and
//! on [`Upcalls::device_removed`], where the removal waits for it. All three may be dropped anywhere,
//! in upcalls and under spinlocks, because their parts are destroyed by the module's workqueue:
//! there the owner's last reference may be dropped, too. A link that is dropped while connected
//! says goodbye to the peer by itself.
//!
//! **Locks.** That of [`registry`] is a mutex and inner to all locks of the owner that
//! may sleep; no upcall is made under it. A link's state has a spinlock under which nothing is
//! called.

pub(crate) mod accept;
pub(crate) mod cm_link;
pub(crate) mod connect;
pub(crate) mod device;
pub(crate) mod endpoint;
pub(crate) mod listen;
mod registry;
pub(crate) mod resolve;

pub(crate) use accept::{Acceptor, Request};
pub(crate) use cm_link::CmLink;
pub(crate) use device::{start, Service};
pub(crate) use endpoint::Endpoint;
pub(crate) use listen::{listen, Listening};
pub(crate) use resolve::Resolver;

use super::{
    Attempt, Config, Disconnect, LinkId, Net, ResolverId, Upcalls, Verdict, REPLY_DATA,
    REQUEST_DATA,
};

/// Where SDP's service IDs begin; the port is added (IBA Annex A4).
pub(crate) const SERVICE_ID: u64 = 0x1_0000;

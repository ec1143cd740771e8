// SPDX-License-Identifier: GPL-2.0-only

//! Connections by an RDMA device: InfiniBand, or RoCE.
//!
//! A connection has two halves with separate lifetimes. The [`Endpoint`] carries messages and
//! belongs to the holder of the connection's lock. The [`CmLink`] is the connection manager's side;
//! it calls the connection's owner ([`Upcalls`]) in process context, one call at a time.
//!
//! * [`resolve`]: from an IP address to a route and a link (active side);
//! * [`connect`]: REQ and its replies;
//! * [`mod@listen`]: listening ports;
//! * [`accept`]: connection requests (passive side);
//! * [`cm_link`]: the life of a connection and its end;
//! * [`endpoint`]: the messages;
//! * [`registry`]: devices, listening ports, and the clients of each device;
//! * [`device`]: arrival and removal of devices.
//!
//! **References.** An owner holds its `Endpoint`, `CmLink` and [`Resolver`]; they hold the owner in
//! turn. The owner breaks the cycle by dropping them: on close, on a refusal, and on
//! [`Upcalls::device_removed`], where the removal waits for it. All three may be dropped in any
//! context, in upcalls and under spinlocks: the module's workqueue destroys their parts, and may
//! drop the owner's last reference. The drop of a connected link disconnects from the peer.
//!
//! **Locks.** The lock of [`registry`] is a mutex, inner to all locks of the owner that may sleep;
//! no upcall is made under it. The state of a link has a spinlock under which nothing is called.

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

use crate::sys::rdma::cm::SERVICE_ID;

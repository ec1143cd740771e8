// SPDX-License-Identifier: GPL-2.0-only

//! Connections between two sockets of one network namespace. They need no device.
//!
//! The two ends share a [`pair`]. A posted message goes into the other end's buffer, and the owner
//! gets the same [`Upcalls`] events as for a device. Payload of RDMA requests is copied once, from
//! pages to pages. The task that posted it copies after releasing the connection's lock; a waiting
//! task of the other end helps with large transfers ([`super::Endpoint::copy_job`]).
//!
//! * [`connect`]: connection requests and replies;
//! * [`cm_link`]: connection states;
//! * [`endpoint`]: the transport, at one end;
//! * [`pair`]: state of both ends, under one lock;
//! * [`pair_end`]: requests posted at one end;
//! * [`received`]: buffers of an end, and the messages in them;
//! * [`ready`]: notification of the owners;
//! * [`tally`]: counts of an end, read without the lock;
//! * [`copy_job`]: execution of READs and WRITEs;
//! * [`blocks`] and [`block_span`]: blocks of program memory;
//! * [`waiting`]: messages that wait for the peer's buffers.
//!
//! **Locks.** The pair's spinlock is taken under that of either connection. No upcall is made
//! under it, nor under the spinlock of a link's state. The locks of two connections are never held
//! together: an end leaves events for the other one and wakes it.
//!
//! **References.** As with [`super::rdma`]: endpoint and link hold the owner. They may be dropped
//! in any context, because a workqueue finishes; `destroy` does it at once. Two links hold each
//! other until one of them ends.

mod block_span;
mod blocks;
mod cm_link;
mod connect;
mod copy_job;
mod endpoint;
mod pair;
mod pair_end;
mod ready;
mod received;
mod tally;
mod waiting;

pub(crate) use cm_link::CmLink;
pub(crate) use connect::{Acceptor, Request, Resolver};
pub(crate) use copy_job::CopyJob;
pub(crate) use endpoint::Endpoint;
pub(crate) use ready::OrphanedPeer;

use super::{
    Config, Disconnect, LinkId, Net, ResolverId, Upcalls, Verdict, REPLY_DATA, REQUEST_DATA,
};

// SPDX-License-Identifier: GPL-2.0-only

//! Connections over an RDMA device: InfiniBand, RoCE or iWARP.
//!
//! A connection has two halves with separate lifetimes. The [`Endpoint`] carries messages in order
//! and does not interpret them. Callers use an endpoint under the connection's spinlock, so its
//! methods never sleep. The [`CmLink`] is the half at the connection manager. A link makes upcalls
//! ([`Upcalls`]) to the connection's owner in process context, one at a time.
//!
//! **References.** An owner holds references to its `Endpoint`, `CmLink` and [`Resolver`], which in
//! turn hold references to the owner. The owner breaks this cycle by dropping all three: on close,
//! on a refusal, and on [`Upcalls::device_removed`], where the removal waits for the drop.
//! Endpoint, link and resolver may be dropped in any context, in upcalls and under spinlocks: the
//! module's workqueue destroys their parts, and may drop the owner's last reference. The drop of a
//! connected link disconnects from the peer.
//!
//! **Locks.** The lock of [`registry`] is a mutex, inner to all locks of the owner that may sleep;
//! no upcall is made under this mutex. The state of a link has a spinlock, under which no function
//! is called.
//!
//! # Memory of programs
//!
//! Payload can also be transferred between the memory of the two programs, by RDMA. One end
//! advertises a block of memory (`Endpoint::register`). The other end READs or WRITEs the block
//! (`Endpoint::transfer`), using a block of its own. Each block takes these steps:
//!
//! | step | context | call |
//! |---|---|---|
//! | get a block | lock | [`Endpoint::spares`], else `BlockPool::pinning` |
//! | ... or allocate one | sleeps | `Pinning::make` |
//! | pin, map | sleeps | `Pinned::pin_source`, `Pinned::pin_destination`; if refused, copy |
//! | post the block | lock | `Endpoint::post_block`; keep a `Pinned::watch` |
//! | grant access | lock | `Endpoint::register`, send the [`Key`], `Endpoint::flush` |
//! | ... or use the peer's | lock | `Endpoint::transfer`, report a WRITE, `Endpoint::flush` |
//! | ... or send messages | lock | `Endpoint::post_block_span`, then `Endpoint::flush` |
//! | wait | no lock | for the peer's report, or for [`SendCompletion::Moved`] |
//! | end the access | lock | `Endpoint::invalidate`, wait for [`SendCompletion::Ended`] |
//! | take the block back | lock | `Endpoint::take_back` |
//! | unpin | sleeps | `Pinned::into_spare`; advance the call's iterator by the bytes moved |
//! | keep the block | lock | [`Endpoint::spares`] |
//!
//! "Lock" means under the connection's lock, "sleeps" process context without locks. `PinTerm` is
//! `Long` for an advert and `Short` for a transfer of this end. The caller repeats `transfer` until
//! all bytes are queued.
//!
//! **Order.** Requests are carried out in the order of posting. A message posted after
//! `Endpoint::register` arrives once the granted access exists, and a message posted after a WRITE
//! arrives after the bytes of the WRITE. The bytes of a READ are in memory once the READ completes,
//! so the message that reports the READ must be posted after the completion.
//!
//! **Space.** Transfers, registrations and invalidations take slots of the send queue, but leave a
//! quarter of the slots to messages (invalidations: an eighth). `ENOSPC`: retry after the next
//! completion. The number of READs in flight is limited to the number that both devices agreed on,
//! because one more READ would block the messages behind it. Program memory has many segments for
//! the device (pages or large pages), and a work request covers only a few of them. So one call may
//! queue only the beginning of a range, and the caller repeats the call for the rest. Each part of
//! a transfer has its own completion.
//!
//! **Owner of the pages.** The caller owns the pages from pinning to `Endpoint::post_block` and
//! from `Endpoint::take_back` to the release, and only the program accesses them. From `post_block`
//! to `take_back`, the transport owns the pages. `take_back` returns pages only when nothing can
//! access them: all transfers are complete, successful or not, and the peer's access is
//! invalidated. Neither a killed caller, a closed socket nor a dropped transport unpins a page in
//! use.
//!
//! **End of the peer's access.** The owner calls `Endpoint::invalidate` once the peer has reported
//! the advert as done or given it up, or if the advert was never sent. An earlier call is wrong:
//! the peer's requests in flight would break the connection, and rxe might even copy bytes after
//! the call ([`crate::sys::rdma::send::blocks`]). If the report does not arrive, the owner has to
//! abort the connection.
//!
//! **When the connection breaks**, transfers fail. The caller can take back the memory of failed
//! transfers once their completions are polled. Memory to which the peer had access stays with the
//! transport until the transport is dropped. The drop destroys the queue pair, releases all memory
//! and calls [`Upcalls::completed`]. So the caller drops the transport and waits until
//! [`Watch::is_held`] is false. The wait depends on neither the peer nor a process, and need not be
//! killable.
//!
//! **When the device is removed**, no step waits for a program. Mappings belong to the transport
//! ([`crate::sys::rdma::mapper`]) and end with it. Pinning may fault, and a page fault has no time
//! limit. So a [`Pinned`] holds the device only after pinning, and its owner posts or releases it
//! without accessing the program's memory. A `Pinning` does not hold the device.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod accept;
mod cm_link;
mod device;
mod endpoint;
mod listen;
mod registry;
mod resolve;
pub(crate) mod upcalls;

pub(crate) use accept::{Acceptor, Request};
pub(crate) use cm_link::CmLink;
pub(crate) use device::{start, Service};
pub(crate) use endpoint::Endpoint;
pub(crate) use listen::{listen, Listening};
pub(crate) use resolve::Resolver;
pub(crate) use upcalls::{LinkId, Upcalls, Verdict};

pub(crate) use crate::memory::pinned::{Pinned, Watch};
pub(crate) use crate::sys::netns::Net;
pub(crate) use crate::sys::rdma::buffer::Sge;
pub(crate) use crate::sys::rdma::cm::{Config, REPLY_DATA, REQUEST_DATA};
pub(crate) use crate::sys::rdma::cq::Arming;
pub(crate) use crate::sys::rdma::mr::Key;
pub(crate) use crate::sys::rdma::queues::Status;
pub(crate) use crate::sys::rdma::send::blocks::{BlockId, BlockSpan, Transfer};
pub(crate) use crate::sys::rdma::send::requests::SendWr;
pub(crate) use crate::sys::rdma::send::{SendCompletion, Unacknowledged};

use crate::sys::net::params;
use crate::sys::rdma::cm::SERVICE_ID;

/// Returns the TCP port that iWARP uses for an SDP port. The TCP port of the same number belongs to
/// the TCP socket of an `IPPROTO_SDP` listener.
fn tcp_port(port: u16) -> u16 {
    port ^ params::iwarp_port_xor() as u16
}

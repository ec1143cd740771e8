// SPDX-License-Identifier: GPL-2.0-only

//! Transports: the carriers of messages.
//!
//! A [`Transport`] is one end of a connection. It sends and receives messages in order and does
//! not interpret them. [`rdma`] uses an RDMA device; [`local`] connects two sockets of one kernel;
//! [`dispatch`] selects one of them for callers that need not know the difference.
//!
//! A transport is used under the lock of the connection, which may be a spinlock: its methods
//! never sleep. It may be dropped in any context.
//!
//! # Memory of programs
//!
//! Payload can also be moved directly between the memory of the two programs, by RDMA. One end
//! advertises a block of memory ([`Transport::register`]), the other READs or WRITEs it
//! ([`Transport::transfer`]) from or into a block of its own. The steps for each block:
//!
//! | step | context | call |
//! |---|---|---|
//! | get a block | lock | [`Endpoint::spares`], else [`Endpoint::pinning`] |
//! | ... or allocate it | sleeps | [`Pinning::make`] |
//! | pin, map | sleeps | [`Pinned::pin_source`], [`Pinned::pin_destination`]; if refused, copy |
//! | post the block | lock | [`Transport::post_block`]; keep a [`Pinned::watch`] |
//! | grant access | lock | [`Transport::register`], send the [`Key`], [`Transport::flush`] |
//! | ... or use the peer's | lock | [`Transport::transfer`], report a WRITE, [`Transport::flush`] |
//! | ... or send messages | lock | [`Transport::post_block_span`], then [`Transport::flush`] |
//! | wait | no lock | for the peer's report, or for [`SendCompletion::Moved`] |
//! | end the access | lock | [`Transport::invalidate`], wait for [`SendCompletion::Ended`] |
//! | take it back | lock | [`Transport::take_back`] |
//! | unpin | sleeps | [`Pinned::release`]; advance the call's iterator by the bytes moved |
//! | keep the block | lock | [`Endpoint::spares`] |
//!
//! "Lock" means under the connection's lock, "sleeps" process context without locks. `PinTerm` is
//! `Long` for an advert and `Short` for a transfer of this end. `transfer` is repeated until all
//! bytes are queued.
//!
//! **Order.** Requests are carried out in the order of posting. The access that
//! [`Transport::register`] grants is there before a message behind it arrives, and so are the
//! bytes of a WRITE. The bytes of a READ are there once it completes: the message that reports it
//! must be posted after the completion.
//!
//! **Space.** Transfers, registrations and invalidations take slots of the send queue, but leave
//! some of them to messages (a quarter; invalidations leave an eighth). `ENOSPC`: retry after the
//! next completion. The number of READs in flight is limited to what both devices agreed on,
//! because one more would block the messages behind it. Program memory has many segments for the
//! device (pages or large pages), and a work request covers a few of them. So one call may queue
//! only the beginning of its range, and is repeated for the rest. Each part has its own
//! completion.
//!
//! **Owner of the pages.** The caller owns the pages from pinning to [`Transport::post_block`] and
//! from [`Transport::take_back`] to the release; only the program accesses them then. In between
//! the transport owns them. `take_back` returns them only when nothing can access them any more:
//! all transfers are complete, with or without success, and the peer's access is invalidated.
//! Neither a killed caller, a closed socket nor a dropped transport unpins a page that is still
//! accessed.
//!
//! **End of the peer's access.** The owner calls [`Transport::invalidate`] once the peer has
//! reported the advert as done or given it up, or if the advert was never sent. Not earlier:
//! requests in flight at the peer would break the connection, and rxe might even copy bytes
//! afterwards ([`crate::sys::rdma::send::blocks`]). If the report does not arrive, the owner has
//! to abort the connection.
//!
//! **When the connection breaks**, transfers fail. Their memory can be reclaimed after their
//! completions were polled. Memory that the peer had access to stays with the transport until the
//! drop. The drop destroys the queue pair, releases all memory and calls [`Upcalls::send_ready`].
//! So the caller drops the transport and waits until [`Watch::is_held`] is false. The wait depends
//! on no peer or process and need not be killable.
//!
//! **When the device goes**, nothing waits for a program. Mappings belong to the transport
//! ([`crate::sys::rdma::mapper`]) and go with it. Pinning may fault, which has no time limit. So a
//! [`Pinned`] holds the device only after pinning, and its owner posts or releases it without
//! touching the program's memory. A [`Pinning`] holds nothing.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

pub(crate) mod dispatch;
#[allow(clippy::arithmetic_side_effects, reason = "counts of its own")]
pub(crate) mod local;
mod phase;
pub(crate) mod rdma;
mod types;
pub(crate) mod upcalls;

pub(crate) use dispatch::{start, usable_address, Acceptor, CmLink, Endpoint, Request, Resolver};
pub(crate) use local::CopyJob;
pub(crate) use rdma::{listen, Listening, Service};
pub(crate) use types::{
    Completion, Config, Head, Limits, NotifyOn, SendCompletion, Status, BSDH, HEAD,
};
pub(crate) use upcalls::{Attempt, Disconnect, LinkId, ResolverId, Upcalls, Verdict};

pub(crate) use crate::memory::notify::Watch;
pub(crate) use crate::memory::pinned::{Pinned, Pinning};
pub(crate) use crate::sys::netns::Net;
use crate::sys::rdma::buffer::Buffer;
pub(crate) use crate::sys::rdma::buffer::Sge;
pub(crate) use crate::sys::rdma::cm::{REPLY_DATA, REQUEST_DATA};
pub(crate) use crate::sys::rdma::cq::Arming;
use crate::sys::rdma::mapper::Mapper;
pub(crate) use crate::sys::rdma::mr::{Access, Key};
pub(crate) use crate::sys::rdma::send::blocks::{BlockId, BlockSpan, Transfer};
pub(crate) use crate::sys::rdma::send::message::SendWr;
pub(crate) use crate::sys::rdma::send::queue::Unacknowledged;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Carrier of the messages of one connection. Methods that only one kind has are in [`Endpoint`].
pub(crate) trait Transport: Send {
    fn limits(&self) -> Limits;

    /// Returns the mapper for [`Buffer::map_receive`] and [`Buffer::map_send`], which a buffer
    /// needs once, without the lock, before [`Transport::post_receive`] or
    /// [`Transport::post_send`]. `None`: buffers need no mapping.
    fn mapper(&self) -> Option<&Arc<Mapper>>;

    /// Posts a buffer for a received message. Returns the buffer if there is no space, if it is
    /// not mapped, or if the transport is broken.
    fn post_receive(&mut self, b: Buffer) -> Result<(), Buffer>;

    /// Queues a message.
    ///
    /// The buffers may be dropped at once, but must not be written to before the message completes.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the queue is full. `EINVAL`: beyond the limits, or not mapped. `EIO`: the
    /// transport is broken.
    fn post_send(&mut self, s: &SendWr<'_>) -> Result;

    /// Queues a message with payload from a block. [`SendCompletion::Moved`] follows, at the
    /// latest with the completion of a later signaled message.
    ///
    /// # Errors
    ///
    /// As [`Transport::post_send`], and `EINVAL`: more than [`Transport::block_payload`]. `EBUSY`:
    /// the peer has access to the block. `ENOENT`: no such block.
    fn post_block_span(&mut self, s: &SendWr<'_>, payload: &BlockSpan) -> Result;

    /// Returns the number of these bytes that one message can carry; 0 if messages cannot carry
    /// them.
    fn block_payload(&mut self, payload: &BlockSpan) -> u32;

    /// Posts the queued requests to the device.
    ///
    /// # Errors
    ///
    /// The transport is broken; the connection has to be aborted.
    fn flush(&mut self) -> Result;

    fn poll_receive(&mut self) -> Option<Completion>;

    fn poll_send(&mut self) -> Option<SendCompletion>;

    /// Arms the notification for the next completion of a receive. Cheap while an earlier request
    /// is still armed.
    fn arm_receive(&mut self, of: NotifyOn) -> Arming;

    /// Arms the notification for the next completion of a send, like [`Transport::arm_receive`].
    fn arm_send(&mut self) -> Arming;

    fn posted_receives(&self) -> u16;

    /// Returns the number of messages that can still be posted.
    fn send_space(&self) -> u16;

    /// Returns the number of messages posted and not known to be complete.
    fn in_flight(&self) -> u16;

    /// Takes over pinned memory as a block, for access by the device or the peer.
    ///
    /// # Errors
    ///
    /// The memory, if it was made for another transport, if nothing is pinned, or at the maximum
    /// number of blocks.
    fn post_block(&mut self, p: Pinned) -> Result<BlockId, Pinned>;

    /// Returns the memory of a block.
    ///
    /// # Errors
    ///
    /// `EBUSY`: it may still be accessed. `ENOENT`: no such block.
    fn take_back(&mut self, block: BlockId) -> Result<Pinned>;

    /// Registers a block for access by the peer and returns its key. Key and address are new each
    /// time.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: no space now. `EBUSY`: the peer has access already. `EINVAL`: not pinned for this
    /// access, or registered before. `ENOENT`: no such block. `EIO`: the transport is broken.
    fn register(&mut self, block: BlockId, access: Access) -> Result<Key>;

    /// Invalidates the peer's access; [`SendCompletion::Ended`] follows.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: no space now. `EALREADY`: invalidated before. `EINVAL`: the peer has no access.
    /// `ENOENT`: no such block. `EIO`: the transport is broken.
    fn invalidate(&mut self, block: BlockId, cookie: u64) -> Result;

    /// Queues an RDMA READ or WRITE, or the beginning of one, and returns the number of bytes
    /// queued; [`SendCompletion::Moved`] follows.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: no space now, or the maximum number of READs is in flight. `EINVAL`: outside the
    /// block, not pinned for this access, no bytes, or an impossible address. `EBUSY`: the peer
    /// has access to the block. `ENOENT`: no such block. `ENOMEM`. `EIO`: the transport is broken.
    fn transfer(&mut self, block: BlockId, t: &Transfer) -> Result<u32>;
}

// SPDX-License-Identifier: GPL-2.0-only

//! What carries messages.
//!
//! A [`Transport`] is one end of a connection: it takes messages and gives messages, in order, and
//! knows nothing of what they mean. [`rdma`] does it with an RDMA device, [`local`] without, for
//! connections whose two ends are here; [`dispatch`] is for those who need not know which one it is.
//!
//! A transport is used under the lock of the connection, which may be a spinlock: nothing of it
//! sleeps. It is dropped wherever its owner likes.
//!
//! # Memory of programs
//!
//! Payload can also go straight between the memory of the two programs, by RDMA. One end advertises
//! a piece of memory ([`Transport::register`]), the other READs or WRITEs it
//! ([`Transport::transfer`]) from or into a piece of its own. For each piece, the steps are:
//!
//! | step | where | call |
//! |---|---|---|
//! | room for it | under the lock | [`Endpoint::spare_for`]; if there is none, [`Endpoint::pinning`] and then, without the lock, [`Pinning::make`] |
//! | pin, and map for the device | process context, no lock | [`Pinned::pin_source`] or [`Pinned::pin_destination`]; `PinTerm::Long` for an advert, `PinTerm::Short` for a transfer of ours; a refusal means: copy |
//! | hand it over | under the lock | [`Transport::lend`], and keep a [`Pinned::watch`] |
//! | let the peer have access | under the lock | [`Transport::register`], then the message that carries the [`Key`], then [`Transport::flush`] |
//! | or access the peer's | under the lock | [`Transport::transfer`] until all is queued, then, after a WRITE, the message that reports it, then [`Transport::flush`] |
//! | or send it in messages | under the lock | [`Transport::post_lent`], then [`Transport::flush`] |
//! | wait | no lock | for the peer's report, or for [`SendCompletion::Moved`] |
//! | end the peer's access | under the lock | [`Transport::invalidate`], and wait for [`SendCompletion::Ended`] |
//! | get it back | under the lock | [`Transport::reclaim`] |
//! | unpin | process context, no lock | [`Pinned::release`], and advance the call's iterator by what was moved |
//! | for the next time | under the lock | [`Endpoint::keep`] |
//!
//! **Order.** Everything that is posted is carried out in the order in which it was posted. The
//! access that [`Transport::register`] gives is there before a message behind it arrives, and so are
//! the bytes of a WRITE. The bytes of a READ are there when it is complete: the message that reports
//! it is to be posted after that.
//!
//! **Room.** Transfers, registrations and their ends take slots of the send queue, but leave
//! some of them to messages (a quarter; the ends of registrations an eighth). `ENOSPC` means: again after the next completion.
//! Only so many READs can be under way as both devices agreed on, because one more would hold up the messages behind
//! it. What a program's memory is in is many pieces for the device (pages, as a rule, or large ones),
//! and a work request has a few of them; so one call may queue only the beginning of
//! what it was asked for, and is repeated for the rest. Each has its own completion.
//!
//! **Who owns the pages.** The caller does, from the pinning to [`Transport::lend`] and from
//! [`Transport::reclaim`] to the release; nothing accesses them then but the program. In between the
//! transport does. `reclaim` gives them back only when nothing can access them any more: all
//! transfers are complete, in whatever way, and access for the peer was ended and that is complete.
//! A caller that is killed, a socket that is closed, a transport that is dropped: nothing of that
//! unpins a page that is still accessed.
//!
//! **How the peer's access ends.** By [`Transport::invalidate`], once the peer has reported that it
//! is done with the advert, or that it gives it up, or if it was never told of it. Not sooner: what
//! the peer has under way would break the connection, and with rxe might even be copied afterwards
//! ([`crate::sys::rdma::send::blocks`]). If the report does not come, the connection is to be
//! aborted.
//!
//! **When the connection breaks**, transfers fail and their memory can be reclaimed when their
//! completions were polled. Memory that the peer had access to stays with the transport until that
//! is dropped, which destroys the queue pair first; after that all of it is let go of, and
//! [`Upcalls::send_ready`] is called. So the caller drops the transport, or has it dropped, and
//! waits until [`Watch::is_held`] is no longer true. That wait needs nothing of the peer, nor of any
//! other process, and so need not be killable.
//!
//! **When the device goes**, nothing waits for a program. What is mapped for the device belongs to the
//! transport ([`crate::sys::rdma::mapper`]) and goes with it. Pinning may fault, and so take for ever; a
//! [`Pinned`] holds the device only from then on, and its owner lends or releases it without touching a
//! program's memory. A [`Pinning`] holds nothing.

pub(crate) mod dispatch;
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
use crate::sys::rdma::buffer::Buffer;
pub(crate) use crate::sys::rdma::buffer::Sge;
pub(crate) use crate::sys::rdma::cm::{REPLY_DATA, REQUEST_DATA};
pub(crate) use crate::sys::rdma::cq::Arming;
use crate::sys::rdma::mapper::Mapper;
pub(crate) use crate::sys::rdma::mr::{Access, Key};
pub(crate) use crate::sys::rdma::send::blocks::{LentSpan, Loan, Transfer};
pub(crate) use crate::sys::rdma::send::message::SendWr;
pub(crate) use crate::sys::rdma::Net;
use kernel::prelude::*;
use kernel::sync::Arc;

/// What carries the messages of one connection. What only one of the two does is in [`Endpoint`].
pub(crate) trait Transport: Send {
    /// What can be done.
    fn limits(&self) -> Limits;

    /// What makes buffers fit for [`Transport::post_receive`] ([`Buffer::map_receive`]) and
    /// [`Transport::post_send`] ([`Buffer::map_send`]), once for each buffer and without the lock;
    /// `None` if they are as they are.
    fn mapper(&self) -> Option<&Arc<Mapper>>;

    /// Queues a buffer for a message to come into. Gives it back when there is no room, when it is
    /// not mapped, or when the transport is broken.
    fn post_receive(&mut self, b: Buffer) -> Result<(), Buffer>;

    /// Queues a message.
    ///
    /// The buffers may be dropped at once, but must not be written to before the message is
    /// complete.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when as many are on their way as can be, `EINVAL` for what the limits do not allow
    /// or is not mapped, `EIO` when the transport is broken.
    fn post_send(&mut self, s: &SendWr<'_>) -> Result;

    /// Queues a message with payload from lent memory in place of buffers;
    /// [`SendCompletion::Moved`] follows, at the latest with the end of a later one that is signaled.
    ///
    /// # Errors
    ///
    /// As [`Transport::post_send`], and `EINVAL` for more than [`Transport::lent_payload`] says, `EBUSY` if
    /// the peer has access to the memory, `ENOENT`.
    fn post_lent(&mut self, s: &SendWr<'_>, payload: &LentSpan) -> Result;

    /// How many of these bytes of lent memory one message can have; 0 if they cannot be sent so.
    fn lent_payload(&mut self, payload: &LentSpan) -> u32;

    /// Hands over all that is queued.
    ///
    /// # Errors
    ///
    /// The transport is broken then, and the connection is to be aborted.
    fn flush(&mut self) -> Result;

    /// The next end of a receive.
    fn poll_receive(&mut self) -> Option<Completion>;

    /// The next end of a send.
    fn poll_send(&mut self) -> Option<SendCompletion>;

    /// Asks to be told of the next end of a receive. Costs little when that was asked for before and
    /// nothing was told since.
    fn arm_receive(&mut self, of: NotifyOn) -> Arming;

    /// Asks to be told of the next end of a send, like [`Transport::arm_receive`].
    fn arm_send(&mut self) -> Arming;

    /// How many buffers wait for messages.
    fn posted_receives(&self) -> u16;

    /// How many more messages can be posted.
    fn send_room(&self) -> u16;

    /// How many messages were posted and are not known to be complete.
    fn in_flight(&self) -> u16;

    /// Takes over pinned memory, for the device or the peer to access.
    ///
    /// # Errors
    ///
    /// Gives it back if it was not made for this transport, if nothing is pinned, or if as many
    /// pieces are lent as can be.
    fn lend(&mut self, p: Pinned) -> Result<Loan, Pinned>;

    /// Gives lent memory back.
    ///
    /// # Errors
    ///
    /// `EBUSY` while it may be accessed; `ENOENT` if it is not lent (any more).
    fn reclaim(&mut self, loan: Loan) -> Result<Pinned>;

    /// Lets the peer access all of a piece of memory, and tells how it names that. Each time the
    /// key and the address are others.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when there is no room now; `EBUSY` if the peer has access already; `EINVAL` if the
    /// memory was not pinned for that, or the second time; `ENOENT`; `EIO` when the transport is broken.
    fn register(&mut self, loan: Loan, access: Access) -> Result<Key>;

    /// Ends that; [`SendCompletion::Ended`] follows.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when there is no room now; `EALREADY` the second time; `EINVAL` if the peer has no
    /// access; `ENOENT`; `EIO` when the transport is broken.
    fn invalidate(&mut self, loan: Loan, cookie: u64) -> Result;

    /// Queues an RDMA READ or WRITE, or the beginning of one, and tells how many bytes that are;
    /// [`SendCompletion::Moved`] follows.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when there is no room now, or as many READs are under way as can be; `EINVAL` for
    /// what is beyond the memory or was not pinned for that, for no bytes, and for an address that
    /// cannot be; `EBUSY` if the peer has access to the memory; `ENOENT`, `ENOMEM`; `EIO` when the
    /// transport is broken.
    fn transfer(&mut self, loan: Loan, t: &Transfer) -> Result<u32>;
}

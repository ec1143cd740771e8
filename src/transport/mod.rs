// SPDX-License-Identifier: GPL-2.0-only

//! What carries messages.
//!
//! A [`Transport`] is one end of a connection: it takes messages and gives messages, in order, and
//! knows nothing of what they mean. [`verbs`] does it with an RDMA device.
//!
//! A transport is used under the lock of the connection, which may be a spinlock: nothing of it
//! sleeps. It is dropped wherever its owner likes.

pub(crate) mod verbs;

use crate::memory::buffer::Buffer;
pub(crate) use crate::memory::buffer::Span;
use crate::sys::errno::{ECONNABORTED, ECONNRESET, EPROTO, ETIMEDOUT};
use kernel::prelude::*;

/// What a transport can do.
#[derive(Clone, Copy, Debug)]
#[allow(
    dead_code,
    reason = "what a transport can tell, whether the sockets ask for it yet or not"
)]
pub(crate) struct Limits {
    /// Most bytes in one message, header included.
    pub(crate) max_message: u32,
    /// Most messages that can be on their way.
    pub(crate) send_slots: u16,
    /// Most buffers that can wait for messages.
    pub(crate) receive_slots: u16,
    /// Most pieces of payload in one message.
    pub(crate) spans: u8,
    /// Messages up to this length are copied when they are posted: their buffers are free again at
    /// once and need not be mapped.
    pub(crate) inline: u16,
    /// Longest header.
    pub(crate) header: u16,
    /// Most RDMA READs in progress.
    pub(crate) reads: u8,
}

/// A message to be sent.
pub(crate) struct Sending<'a> {
    /// What it begins with; copied.
    pub(crate) header: &'a [u8],
    /// What follows, from mapped buffers ([`Transport::map_send`]).
    pub(crate) payload: &'a [Span<'a>],
    /// Tell when it is complete. The transport may tell of others as well.
    pub(crate) signaled: bool,
    /// Wake the peer even if it waits for solicited messages only.
    pub(crate) solicited: bool,
    /// What to call it in its [`SendCompletion`].
    pub(crate) cookie: u64,
}

/// Why something failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// It was given up because the connection had ended or failed before.
    Flushed,
    /// The peer does not acknowledge: it is gone, or the network is.
    TransportRetry,
    /// The peer had no receive buffer, for too long.
    RnrRetry,
    /// The peer refused access to its memory, or the message.
    Remote,
    /// The peer sent what does not belong here, or more than fits.
    Protocol,
    /// Something of ours is broken.
    Local,
}

impl Status {
    /// The errno of a connection that ends like that.
    pub(crate) fn error(self) -> Error {
        match self {
            Status::TransportRetry => ETIMEDOUT.into(),
            Status::Flushed | Status::RnrRetry | Status::Remote => ECONNRESET.into(),
            Status::Protocol => EPROTO.into(),
            Status::Local => ECONNABORTED.into(),
        }
    }
}

/// The end of a receive.
#[allow(
    dead_code,
    reason = "what a transport can tell, whether the sockets ask for it yet or not"
)]
pub(crate) enum Completion {
    /// A message has come.
    Received {
        /// It is in here, from the beginning.
        buffer: KBox<Buffer>,
        /// Its length.
        len: u32,
    },
    /// No message will come into this buffer.
    Failed {
        /// The buffer.
        buffer: Option<KBox<Buffer>>,
        /// Why.
        status: Status,
    },
}

/// The end of a message that was sent.
#[allow(
    dead_code,
    reason = "what a transport can tell, whether the sockets ask for it yet or not"
)]
pub(crate) enum SendCompletion {
    /// The peer has this message and all that were posted before it.
    Sent {
        /// What its poster called it.
        cookie: u64,
    },
    /// This message and those after it may or may not have arrived.
    Failed {
        /// What its poster called it.
        cookie: u64,
        /// Why.
        status: Status,
    },
}

/// What carries the messages of one connection.
pub(crate) trait Transport: Send {
    /// What can be done.
    fn limits(&self) -> Limits;

    /// Makes a buffer fit for [`Transport::post_receive`]. Needed once for each buffer.
    fn map_receive(&mut self, b: &mut Buffer) -> Result;

    /// Makes a buffer fit for [`Transport::post_send`]. Needed once for each buffer.
    fn map_send(&mut self, b: &mut Buffer) -> Result;

    /// Queues a buffer for a message to come into. Gives it back when there is no room, when it is
    /// not mapped, or when the transport is broken.
    fn post_receive(&mut self, b: KBox<Buffer>) -> Result<(), KBox<Buffer>>;

    /// Queues a message.
    ///
    /// The buffers may be dropped at once, but must not be written to before the message is
    /// complete.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when as many are on their way as can be, `EINVAL` for what the limits do not allow
    /// or is not mapped, `EIO` when the transport is broken.
    fn post_send(&mut self, s: &Sending<'_>) -> Result;

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

    /// Asks to be told of the next end of a receive. If `true` comes back, there may be some
    /// already that nobody tells of: poll again.
    fn arm_receive(&mut self) -> bool;

    /// Asks to be told of the next end of a send, like [`Transport::arm_receive`].
    fn arm_send(&mut self) -> bool;

    /// Queues a probe: nothing comes of it unless the peer is gone, and then the connection fails.
    ///
    /// # Errors
    ///
    /// As [`Transport::post_send`].
    fn probe(&mut self) -> Result;

    /// Probes that the peer has not answered yet, as far as [`Transport::poll_send`] knows.
    fn probes(&self) -> u16;

    /// How many buffers wait for messages.
    fn posted_receives(&self) -> u16;

    /// How many more messages can be posted.
    fn send_room(&self) -> u16;

    /// How many messages were posted and are not known to be complete.
    fn in_flight(&self) -> u16;
}

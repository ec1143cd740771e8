// SPDX-License-Identifier: GPL-2.0-only

//! Plain data types of a [`Endpoint`](super::Endpoint).

use crate::sys::errno::{ECONNABORTED, ECONNRESET, EPROTO, ETIMEDOUT};
use crate::sys::rdma::buffer::Buffer;
use kernel::prelude::*;

/// Longest header, including bytes that travel in the same message without a buffer of their own.
pub(crate) const HEAD: usize = 40;
/// Bytes of the header before the payload of Data (BSDH).
pub(crate) const BSDH: u32 = crate::protocol::BSDH_LEN as u32;

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Limits {
    /// Maximum number of posted receive buffers.
    pub(crate) receive_slots: u16,
    /// Maximum number of payload segments in one message.
    pub(crate) max_sge: u8,
    /// Bytes of a message that take no space in the receive buffer.
    pub(crate) header_aside: u32,
    /// Maximum number of program pages in one block of pinned memory; 0: no zero copy.
    pub(crate) pinned_pages: u16,
}

/// Receive completions that are notified.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub(crate) enum NotifyOn {
    /// Messages with [`SendWr::solicited`](super::SendWr::solicited); others only while
    /// [`Upcalls::is_watched`](super::Upcalls::is_watched). A later call polls for the rest.
    Solicited,
    /// All messages.
    Next,
}

/// Reason of a failed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// Flushed, because the connection had ended or failed before.
    Flushed,
    /// The peer does not acknowledge: peer or network are down.
    TransportRetry,
    /// The peer had no receive buffer for too long.
    RnrRetry,
    /// The peer refused access to its memory, or the message.
    Remote,
    /// The peer sent an unexpected message, or more than fits.
    Protocol,
    /// A local failure.
    Local,
}

impl Status {
    /// Returns the errno of a connection that ends with this status.
    pub(crate) fn error(self) -> Error {
        match self {
            Status::TransportRetry => ETIMEDOUT.into(),
            Status::Flushed | Status::RnrRetry | Status::Remote => ECONNRESET.into(),
            Status::Protocol => EPROTO.into(),
            Status::Local => ECONNABORTED.into(),
        }
    }
}

/// Completion of a receive.
pub(crate) enum Completion {
    /// A message has arrived.
    Received {
        /// Buffer with the message from its beginning, without the bytes in `head`.
        buffer: Buffer,
        /// Length of the message, including `head`.
        len: u32,
        /// First bytes of the message: exactly its headers, where they arrived apart from the
        /// buffer.
        head: Option<Head>,
    },
    /// No message will arrive in this buffer.
    Failed {
        /// Reason.
        status: Status,
    },
}

#[derive(Clone, Copy)]
pub(crate) struct Head {
    bytes: [u8; HEAD],
    len: u8,
}

impl Head {
    pub(super) const EMPTY: Self = Head {
        bytes: [0; HEAD],
        len: 0,
    };

    /// Copies `from`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: more than [`HEAD`] bytes.
    pub(super) fn new(from: &[u8]) -> Result<Self> {
        let mut bytes = [0; HEAD];
        let to = bytes.get_mut(..from.len()).ok_or(EINVAL)?;
        to.copy_from_slice(from);
        let len = from.len() as u8;
        Ok(Head { bytes, len })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }
}

/// Completion of a request of the send queue.
pub(crate) enum SendCompletion {
    /// The peer has this message and all posted before it.
    Sent {
        /// Cookie of the request.
        cookie: u64,
    },
    /// This message, transfer or invalidation has failed, and so will all posted after it. A
    /// message may have arrived nevertheless.
    Failed {
        /// Reason.
        status: Status,
    },
    /// A READ or WRITE is complete: the bytes of a READ are in local memory, those of a WRITE have
    /// arrived at the peer.
    Moved {
        /// Cookie of the request.
        cookie: u64,
        /// Number of bytes, as [`Endpoint::transfer`](super::Endpoint::transfer) returned.
        len: u32,
    },
    /// The peer's access has ended.
    Ended {
        /// Cookie of [`Endpoint::invalidate`](super::Endpoint::invalidate).
        cookie: u64,
    },
}

/// Parameters of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Config {
    /// Number of messages in flight.
    pub(crate) send_slots: u16,
    /// Number of posted receive buffers.
    pub(crate) receive_slots: u16,
    /// Payload segments per message.
    pub(crate) max_sge: u8,
    /// Longest message, in bytes, that is copied into the work request (inline).
    pub(crate) inline: u16,
    /// Retries of a message that the peer does not acknowledge, up to 7; rxe takes 7 for unlimited.
    pub(crate) retry_count: u8,
    /// Retries by the peer of a message that finds no buffer here; 7 is unlimited.
    pub(crate) rnr_retry: u8,
    /// Code of the time before such a retry (IBA table 45; 12 is 0.64 ms).
    pub(crate) min_rnr_timer: u8,
    /// RDMA READs in flight in either direction.
    pub(crate) reads: u8,
    /// Pieces of memory in one RDMA READ or WRITE.
    pub(crate) gather: u8,
    /// Code of the time to wait for a reply to a REQ, REP or DREQ: 4.096 us times 2 to the power.
    /// With 18 and RoCE's path a REQ is repeated every 1.5 s.
    pub(crate) response_timeout: u8,
    /// Retries of these, up to 15.
    pub(crate) cm_retries: u8,
    /// Steps by which a request's path MTU is below that of the route; each halves it.
    pub(crate) mtu_steps: u8,
}

impl Default for Config {
    /// Sizes that waste nothing in rxe, which rounds up to powers of two.
    fn default() -> Self {
        Config {
            send_slots: 31,
            receive_slots: 31,
            max_sge: 2,
            inline: 48,
            retry_count: 6,
            rnr_retry: 7,
            min_rnr_timer: 12,
            reads: 4,
            // the most that fit rxe's 512 bytes for a work request
            gather: 19,
            response_timeout: 18,
            cm_retries: 15,
            mtu_steps: 0,
        }
    }
}

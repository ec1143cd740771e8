// SPDX-License-Identifier: GPL-2.0-only

//! What a [`Transport`](super::Transport) is told and tells: plain data.

use crate::sys::errno::{ECONNABORTED, ECONNRESET, EPROTO, ETIMEDOUT};
use crate::sys::rdma::buffer::Buffer;
use kernel::prelude::*;

/// Longest header, with what may go in the same message without a buffer of its own.
pub(crate) const HEAD: usize = 40;
/// Bytes of the header before the payload of Data (BSDH).
pub(crate) const BSDH: u32 = crate::protocol::BSDH_LEN as u32;

/// What a transport can do.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Limits {
    /// Most buffers that can wait for messages.
    pub(crate) receive_slots: u16,
    /// Most pieces of payload in one message.
    pub(crate) max_sge: u8,
    /// Bytes of a message of payload that do not take room in the buffer it is received into.
    pub(crate) header_aside: u32,
    /// Most pages of a program in one piece of pinned memory; 0 if there is no zero copy.
    pub(crate) pinned_pages: u16,
}

/// Of which receives to tell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub(crate) enum NotifyOn {
    /// Those of messages whose sender wants that ([`SendWr::solicited`](super::SendWr::solicited)), and others only while
    /// [`Upcalls::is_watched`](super::Upcalls::is_watched): some call will poll for them.
    Solicited,
    /// All.
    Next,
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
pub(crate) enum Completion {
    /// A message has come.
    Received {
        /// It is in here, from the beginning; but for what is in `head`.
        buffer: Buffer,
        /// Its length, all told.
        len: u32,
        /// Its first bytes, all headers among them and nothing else, if they came by themselves.
        head: Option<Head>,
    },
    /// No message will come into this buffer.
    Failed {
        /// Why.
        status: Status,
    },
}

/// Headers of a message.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    bytes: [u8; HEAD],
    len: u8,
}

impl Head {
    /// None of the bytes.
    pub(super) const EMPTY: Self = Head {
        bytes: [0; HEAD],
        len: 0,
    };

    /// A copy of `from`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more than [`HEAD`] bytes.
    pub(super) fn new(from: &[u8]) -> Result<Self> {
        let mut bytes = [0; HEAD];
        let to = bytes.get_mut(..from.len()).ok_or(EINVAL)?;
        to.copy_from_slice(from);
        let len = from.len() as u8;
        Ok(Head { bytes, len })
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }
}

/// The end of a message that was sent.
pub(crate) enum SendCompletion {
    /// The peer has this message and all that were posted before it.
    Sent {
        /// What its poster called it.
        cookie: u64,
    },
    /// This message, transfer or end of access has failed, and so will what was posted after it. A
    /// message may have arrived nevertheless.
    Failed {
        /// Why.
        status: Status,
    },
    /// A READ or WRITE is complete: a READ's bytes are in the memory it was for, a WRITE's have
    /// arrived at the peer.
    Moved {
        /// What its poster called it.
        cookie: u64,
        /// How many bytes, as [`Transport::transfer`](super::Transport::transfer) has told.
        len: u32,
    },
    /// The peer's access has ended.
    Ended {
        /// What [`Transport::invalidate`](super::Transport::invalidate) was given.
        cookie: u64,
    },
}

/// How a connection is to be.
#[derive(Clone, Copy)]
pub(crate) struct Config {
    /// Messages that can be on their way.
    pub(crate) send_slots: u16,
    /// Buffers that can wait for messages.
    pub(crate) receive_slots: u16,
    /// Pieces of payload per message.
    pub(crate) max_sge: u8,
    /// Length of a message up to which it is copied into the work request.
    pub(crate) inline: u16,
    /// How often a message is repeated that the peer does not acknowledge, up to 7; but rxe takes 7
    /// to mean without end.
    pub(crate) retry_count: u8,
    /// How often the peer repeats a message that finds no buffer here; 7 is without end.
    pub(crate) rnr_retry: u8,
    /// Code of the time after which it does (IBA table 45; 12 is 0.64 ms).
    pub(crate) min_rnr_timer: u8,
    /// RDMA READs in progress, in either direction.
    pub(crate) reads: u8,
    /// Pieces of memory in one RDMA READ or WRITE.
    pub(crate) gather: u8,
    /// Code of the time to wait for an answer to a REQ, REP or DREQ: 4.096 us times 2 to the power.
    /// With 18 and RoCE's path a REQ is repeated every 1.5 s.
    pub(crate) response_timeout: u8,
    /// How often it is repeated, up to 15.
    pub(crate) cm_retries: u8,
}

impl Default for Config {
    /// Sizes for which rxe, which rounds up to powers of two, wastes nothing.
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
        }
    }
}

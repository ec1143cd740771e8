// SPDX-License-Identifier: GPL-2.0-only

//! What was posted at an end of a local connection and waits: for a buffer at the other end, for
//! somebody to copy it, or for the end of what is copied.

use crate::sys::pages::Block;
use crate::sys::rdma::buffer::Sge;
use crate::transport::{BlockId, BlockSpan, Head, SendWr, Transfer};
use kernel::prelude::*;
use kernel::sync::Arc;

/// Most pieces of payload in one message.
pub(super) const SGES: usize = 2;

/// A piece of payload that waits in its sender's memory.
pub(super) struct PayloadSge {
    pub(super) block: Arc<Block>,
    pub(super) offset: u32,
    pub(super) len: u32,
}

/// A message that waits.
pub(super) struct WaitingMessage {
    pub(super) head: Head,
    pub(super) pieces: [Option<PayloadSge>; SGES],
    pub(super) signaled: bool,
    pub(super) solicited: bool,
    pub(super) cookie: u64,
}

impl WaitingMessage {
    /// Refers to the payload where it is.
    pub(super) fn new(s: &SendWr<'_>) -> Result<Self> {
        let mut pieces = [const { None }; SGES];
        for (piece, sge) in pieces.iter_mut().zip(s.payload) {
            *piece = Some(PayloadSge {
                block: sge.buffer.block().ok_or(EINVAL)?.clone(),
                offset: sge.offset,
                len: sge.len,
            });
        }
        Ok(WaitingMessage {
            head: Head::new(s.header)?,
            pieces,
            signaled: s.signaled,
            solicited: s.solicited,
            cookie: s.cookie,
        })
    }

    /// Bytes of payload.
    pub(super) fn payload(&self) -> usize {
        self.pieces.iter().flatten().map(|p| p.len as usize).sum()
    }
}

/// A message with payload from lent memory that waits.
pub(super) struct LentMessage {
    pub(super) head: Head,
    pub(super) payload: BlockSpan,
    pub(super) solicited: bool,
    pub(super) cookie: u64,
}

/// What was posted and waits.
pub(super) enum Waiting {
    Message(WaitingMessage),
    Lent(LentMessage),
    /// A READ or WRITE.
    Transfer(PartialTransfer),
    /// The end of the peer's access to memory.
    Invalidate {
        loan: BlockId,
        cookie: u64,
    },
}

impl Waiting {
    /// Bytes of payload that a message brings.
    pub(super) fn payload(&self) -> usize {
        match self {
            Waiting::Message(m) => m.payload(),
            Waiting::Lent(m) => m.payload.len as usize,
            Waiting::Transfer(_) | Waiting::Invalidate { .. } => 0,
        }
    }
}

/// A READ or WRITE that waits, of which the first bytes are copied or being copied.
pub(super) struct PartialTransfer {
    pub(super) loan: BlockId,
    pub(super) transfer: Transfer,
    /// Bytes that somebody has begun with.
    pub(super) begun: u32,
    /// Bytes that are copied.
    pub(super) copied: u32,
}

impl PartialTransfer {
    /// Nothing of it is copied.
    pub(super) fn new(loan: BlockId, transfer: &Transfer) -> Self {
        PartialTransfer {
            loan,
            transfer: *transfer,
            begun: 0,
            copied: 0,
        }
    }

    /// Bytes that nobody has begun with.
    pub(super) fn left(&self) -> u32 {
        self.transfer.len.saturating_sub(self.begun)
    }
}

/// Copies payload to where it goes.
pub(super) fn copy_sges(sges: &[Sge<'_>], mut to: &mut [u8]) -> Result {
    for sge in sges {
        let bytes = sge.bytes()?;
        let (now, rest) = to.split_at_mut_checked(bytes.len()).ok_or(EMSGSIZE)?;
        now.copy_from_slice(bytes);
        to = rest;
    }
    Ok(())
}

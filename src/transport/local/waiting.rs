// SPDX-License-Identifier: GPL-2.0-only

//! Requests posted at a local end that wait for a buffer of the other end, or for a copy.

use crate::sys::pages::Block;
use crate::sys::rdma::buffer::Sge;
use crate::transport::{BlockId, BlockSpan, Head, SendWr, Transfer};
use kernel::prelude::*;
use kernel::sync::Arc;

/// Maximum number of payload segments in a message.
pub(super) const SGES: usize = 2;

/// Payload segment in the sender's buffer.
pub(super) struct PayloadSge {
    pub(super) block: Arc<Block>,
    pub(super) offset: u32,
    pub(super) len: u32,
}

pub(super) struct WaitingMessage {
    pub(super) head: Head,
    pub(super) pieces: [Option<PayloadSge>; SGES],
    pub(super) signaled: bool,
    pub(super) solicited: bool,
    pub(super) cookie: u64,
}

impl WaitingMessage {
    /// Creates the message; the payload stays in the sender's buffers.
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

    pub(super) fn payload(&self) -> usize {
        self.pieces.iter().flatten().map(|p| p.len as usize).sum()
    }
}

/// Waiting message with payload from a block.
pub(super) struct BlockMessage {
    pub(super) head: Head,
    pub(super) payload: BlockSpan,
    pub(super) solicited: bool,
    pub(super) cookie: u64,
}

/// Waiting request.
pub(super) enum Waiting {
    Message(WaitingMessage),
    Lent(BlockMessage),
    /// A READ or WRITE.
    Transfer(PartialTransfer),
    /// The end of the peer's access to memory.
    Invalidate {
        block: BlockId,
        cookie: u64,
    },
}

impl Waiting {
    /// Returns the payload bytes of a message.
    pub(super) fn payload(&self) -> usize {
        match self {
            Waiting::Message(m) => m.payload(),
            Waiting::Lent(m) => m.payload.len as usize,
            Waiting::Transfer(_) | Waiting::Invalidate { .. } => 0,
        }
    }
}

/// READ or WRITE; its first bytes may be copied already.
pub(super) struct PartialTransfer {
    pub(super) block: BlockId,
    pub(super) transfer: Transfer,
    /// Bytes of begun segments, copied or not.
    pub(super) begun: u32,
    pub(super) copied: u32,
}

impl PartialTransfer {
    pub(super) fn new(block: BlockId, transfer: &Transfer) -> Self {
        PartialTransfer {
            block,
            transfer: *transfer,
            begun: 0,
            copied: 0,
        }
    }

    /// Returns the bytes that have not begun.
    pub(super) fn left(&self) -> u32 {
        self.transfer.len.saturating_sub(self.begun)
    }
}

/// Copies the payload to `to`.
pub(super) fn copy_sges(sges: &[Sge<'_>], mut to: &mut [u8]) -> Result {
    for sge in sges {
        let bytes = sge.bytes()?;
        let (now, rest) = to.split_at_mut_checked(bytes.len()).ok_or(EMSGSIZE)?;
        now.copy_from_slice(bytes);
        to = rest;
    }
    Ok(())
}

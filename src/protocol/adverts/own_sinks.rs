// SPDX-License-Identifier: GPL-2.0-only

//! Sink adverts of this end: blocks of its readers' memory that the peer may write by RDMA.
//!
//! The adverts return in order, each with the bytes written (RdmaWrCompl), or empty because Data
//! arrived instead. All adverts return empty when the peer confirms a cancel (SinkCancelAck), ends
//! its stream or leaves Pipelined mode.
//!
//! # Data that crosses a sink advert
//!
//! The source may send Data before it receives a sink advert. Both ends detect this by counting
//! (NonDiscards, `docs/protocol.md`): the source counts the messages with payload that it sends,
//! the sink those that it receives. A message with payload that finds sink adverts outstanding
//! voids the oldest of them and is not counted; its bytes go to the reader of that advert. Each
//! SinkAvail contains the sink's count. The source accepts the advert if its own count is equal. If
//! the source's count is higher, the advert was void on arrival. The source then drops the advert
//! and subtracts one message from its count. A source that has accepted a sink advert and sends
//! Data nevertheless voids its oldest advert and does not count the message.
//!
//! A block must hold the payload of any message that voids it, so it holds the largest payload.

use super::super::Violation;
use super::own::Own;

/// The outstanding adverts, by their sizes.
pub(crate) type OwnSinks = Own<u32>;

impl OwnSinks {
    /// Handles a RdmaWrCompl.
    pub(crate) fn written(&mut self, size: u32) -> Result<(), Violation> {
        let room = self.pop().ok_or(Violation::UnexpectedRdmaWrCompl)?;
        if size > room {
            return Err(Violation::RdmaWrComplSize);
        }
        Ok(())
    }

    /// Handles a SinkCancelAck.
    pub(crate) fn cancel_confirmed(&mut self) -> Result<(), Violation> {
        if !self.is_cancelled() {
            return Err(Violation::UnexpectedSinkCancelAck);
        }
        self.clear();
        Ok(())
    }
}

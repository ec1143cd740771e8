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
use super::ring::Ring;
use super::OWN_ADVERTS;

/// State of a SinkAvailCancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancel {
    No,
    Due,
    /// The SinkAvailCancel is sent and adverts are outstanding.
    Sent,
}

#[derive(Clone, Debug)]
pub(crate) struct OwnSinks {
    /// Sizes of the outstanding adverts.
    adverts: Ring<u32, OWN_ADVERTS>,
    cancel: Cancel,
    /// Messages with payload received that voided no sink advert.
    non_discards: u32,
}

impl OwnSinks {
    pub(crate) fn new() -> Self {
        OwnSinks {
            adverts: Ring::new(),
            cancel: Cancel::No,
            non_discards: 0,
        }
    }

    /// Returns the number of adverts that the peer may be writing to.
    pub(crate) fn count(&self) -> usize {
        self.adverts.len()
    }

    /// Returns true if another advert may be sent; `limit` is the maximum.
    pub(crate) fn room(&self, limit: usize) -> bool {
        self.cancel == Cancel::No && self.count() < limit.min(OWN_ADVERTS)
    }

    pub(crate) fn non_discards(&self) -> u32 {
        self.non_discards
    }

    /// Adds a sent advert. The caller has checked [`room`](Self::room).
    pub(crate) fn advertised(&mut self, size: u32) {
        self.adverts.push(size);
    }

    /// Counts a received message with payload. Returns true if it has voided the oldest advert.
    pub(crate) fn crossed(&mut self) -> bool {
        let crossed = self.adverts.pop().is_some();
        if crossed {
            self.settle();
        } else {
            self.non_discards = self.non_discards.wrapping_add(1);
        }
        crossed
    }

    /// Handles a RdmaWrCompl.
    pub(crate) fn written(&mut self, size: u32) -> Result<(), Violation> {
        let oldest = self.adverts.pop();
        let room = oldest.ok_or(Violation::UnexpectedRdmaWrCompl)?;
        if size > room {
            return Err(Violation::RdmaWrComplSize);
        }
        self.settle();
        Ok(())
    }

    /// Requests the return of all adverts.
    pub(crate) fn cancel(&mut self) {
        if self.count() > 0 && self.cancel == Cancel::No {
            self.cancel = Cancel::Due;
        }
    }

    /// Returns true if a SinkAvailCancel is due.
    pub(crate) fn cancel_due(&self) -> bool {
        self.cancel == Cancel::Due
    }

    /// Marks the SinkAvailCancel as sent.
    pub(crate) fn cancelled(&mut self) {
        self.cancel = Cancel::Sent;
    }

    /// Handles a SinkCancelAck.
    pub(crate) fn cancel_confirmed(&mut self) -> Result<(), Violation> {
        if self.cancel != Cancel::Sent {
            return Err(Violation::UnexpectedSinkCancelAck);
        }
        self.void();
        Ok(())
    }

    /// Voids all adverts. Returns true if there were any adverts.
    pub(crate) fn void(&mut self) -> bool {
        let some = self.count() > 0;
        self.adverts.clear();
        self.settle();
        some
    }

    /// Ends a cancel when no advert is outstanding.
    fn settle(&mut self) {
        if self.adverts.is_empty() {
            self.cancel = Cancel::No;
        }
    }
}

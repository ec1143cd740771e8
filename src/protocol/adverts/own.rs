// SPDX-License-Identifier: GPL-2.0-only

//! Outstanding adverts of this end, and the cancel of these adverts.
//!
//! # Source adverts: blocks of this end's stream that the peer may read by RDMA
//!
//! An advert is finished when the peer has reported all its bytes (RdmaRdCompl). A refusal or the
//! reply to a cancel (SendSm) returns all unfinished adverts, which the peer stops reading. MSeqAck
//! identifies the advert that a report is about: a report that does not cover the oldest advert is
//! about an earlier advert, and stale. While no advert is outstanding, every report is stale.
//!
//! # Sink adverts: blocks of this end's readers' memory that the peer may write by RDMA
//!
//! Sink adverts return in order, each with the bytes written (RdmaWrCompl), or empty because Data
//! arrived instead. All sink adverts return empty when the peer confirms a cancel (SinkCancelAck),
//! ends its stream or leaves Pipelined mode.
//!
//! ## Data that crosses a sink advert
//!
//! The source may send Data before it receives a sink advert. Both ends detect crossing Data by
//! counting (NonDiscards, `docs/protocol.md`): the source counts sent messages with payload, and
//! the sink counts received ones. A message with payload that finds sink adverts outstanding voids
//! the oldest one and is not counted. The message's bytes go to the reader of that advert. Each
//! SinkAvail contains the sink's count. The source accepts the advert if the source's own count is
//! equal. If the source's count is higher, the advert was void on arrival. Then the source drops
//! the advert and subtracts one message from the count. A source that has accepted a sink advert
//! and sends Data nevertheless voids its oldest advert and does not count the message.
//!
//! A block has space for the largest payload, since any message may void the block.

use super::super::credits::after;
use super::super::Violation;
use super::queue::Queue;

/// Maximum number of own adverts of each kind that are outstanding at a time.
const OWN_ADVERTS: usize = 8;

/// State of a SrcAvailCancel or SinkAvailCancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancel {
    No,
    Due,
    /// The cancel is sent, and adverts are still outstanding.
    Sent,
}

/// Adverts that the peer may be accessing, with the oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Own<T: Copy + Default> {
    adverts: Queue<T, OWN_ADVERTS>,
    cancel: Cancel,
}

impl<T: Copy + Default> Own<T> {
    pub(crate) fn new() -> Self {
        Own {
            adverts: Queue::new(),
            cancel: Cancel::No,
        }
    }

    /// Returns the number of adverts that the peer may be accessing.
    pub(crate) fn count(&self) -> usize {
        self.adverts.len()
    }

    /// Returns true if another advert may be sent: no cancel is pending, and fewer than `limit`
    /// adverts are outstanding.
    pub(crate) fn room(&self, limit: usize) -> bool {
        self.cancel == Cancel::No && self.count() < limit.min(OWN_ADVERTS)
    }

    /// Adds a sent advert. The caller has checked [`room`](Self::room).
    pub(crate) fn push(&mut self, advert: T) {
        self.adverts.push(advert);
    }

    /// Removes the oldest advert. The removal of the last advert ends a cancel.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let oldest = self.adverts.pop();
        if self.adverts.is_empty() {
            self.cancel = Cancel::No;
        }
        oldest
    }

    /// Removes all adverts. Returns true if any advert was outstanding.
    pub(crate) fn clear(&mut self) -> bool {
        let some = self.count() > 0;
        self.adverts.truncate(0);
        self.cancel = Cancel::No;
        some
    }

    /// Requests the return of all adverts.
    pub(crate) fn cancel(&mut self) {
        if self.count() > 0 && self.cancel == Cancel::No {
            self.cancel = Cancel::Due;
        }
    }

    /// Returns true if the message that cancels the adverts is due.
    pub(crate) fn cancel_due(&self) -> bool {
        self.cancel == Cancel::Due
    }

    /// Marks the message that cancels the adverts as sent.
    pub(crate) fn cancelled(&mut self) {
        self.cancel = Cancel::Sent;
    }
}

/// Advert that the peer may be reading.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnSource {
    mseq: u32,
    size: u32,
    /// Number of bytes that the peer has received, including bytes inside the SrcAvail.
    done: u32,
}

pub(crate) type OwnSources = Own<OwnSource>;

impl OwnSources {
    /// Adds a sent advert. The caller has checked [`room`](Self::room).
    pub(crate) fn advertised(&mut self, mseq: u32, size: u32, inline: u32) {
        self.push(OwnSource {
            mseq,
            size,
            done: inline,
        });
    }

    /// Handles a RdmaRdCompl. Returns the bytes of the oldest advert that the report adds, and true
    /// if the peer has read the advert to its end.
    pub(crate) fn read(
        &mut self,
        size: u32,
        mseq_ack: u32,
    ) -> Result<Option<(u32, bool)>, Violation> {
        let Some(oldest) = self.adverts.first_mut() else {
            return Ok(None);
        };
        if after(oldest.mseq, mseq_ack) {
            return Ok(None);
        }
        let done = oldest.done.checked_add(size).filter(|d| *d <= oldest.size);
        oldest.done = done.ok_or(Violation::RdmaRdComplSize)?;
        let finished = oldest.done == oldest.size;
        if finished {
            self.pop();
        }
        Ok((finished || size > 0).then_some((size, finished)))
    }

    /// Handles a SendSm. Returns the number of bytes of the oldest advert that the peer has, or
    /// `None` for a stale SendSm. The peer has received nothing of the other adverts.
    pub(crate) fn refused(&mut self, mseq_ack: u32) -> Option<u32> {
        let oldest = *self.adverts.first()?;
        if after(oldest.mseq, mseq_ack) {
            return None;
        }
        self.clear();
        Some(oldest.done)
    }

    /// Handles a valid sink advert of the peer. Returns true if the advert has voided source
    /// adverts.
    pub(crate) fn void(&mut self, mseq_ack: u32) -> Result<bool, Violation> {
        if self
            .adverts
            .first()
            .is_some_and(|a| !after(a.mseq, mseq_ack))
        {
            return Err(Violation::SinkAvailDuringAdvert);
        }
        Ok(self.clear())
    }
}

/// Sizes of the outstanding sink adverts.
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
        if self.cancel != Cancel::Sent {
            return Err(Violation::UnexpectedSinkCancelAck);
        }
        self.clear();
        Ok(())
    }
}

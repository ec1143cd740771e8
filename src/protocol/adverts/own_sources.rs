// SPDX-License-Identifier: GPL-2.0-only

//! Source adverts of this end: blocks of its stream that the peer may read by RDMA.
//!
//! An advert is finished when the peer has reported all its bytes (RdmaRdCompl). A refusal or the
//! reply to a cancel (SendSm) returns all of them unfinished: the peer reads no more of them.
//! MSeqAck identifies the advert that a report is about: a report that does not cover the oldest
//! advert is about an earlier one and stale. While nothing is outstanding, every report is stale.

use super::super::sequence::after;
use super::super::Violation;
use super::ring::Ring;
use super::OWN_ADVERTS;

/// One advert that the peer may be reading.
#[derive(Clone, Copy, Debug, Default)]
struct OwnSource {
    mseq: u32,
    size: u32,
    /// Bytes that the peer has received, including those inside the SrcAvail.
    done: u32,
}

/// State of a SrcAvailCancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancel {
    No,
    Due,
    /// The SrcAvailCancel is sent; the adverts are neither finished nor refused.
    Sent,
}

/// Meaning of a report of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes of the oldest advert that this report adds.
    pub(crate) bytes: u32,
    /// Set if the peer has read the advert to its end.
    pub(crate) finished: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct OwnSources {
    adverts: Ring<OwnSource, OWN_ADVERTS>,
    cancel: Cancel,
}

impl OwnSources {
    pub(crate) fn new() -> Self {
        OwnSources {
            adverts: Ring::new(),
            cancel: Cancel::No,
        }
    }

    /// Returns true if the peer may be reading.
    pub(crate) fn outstanding(&self) -> bool {
        !self.adverts.is_empty()
    }

    /// Returns the number of adverts that the peer may be reading.
    pub(crate) fn count(&self) -> usize {
        self.adverts.len()
    }

    /// Returns true if another advert may be sent (at most `limit`): not during a cancel.
    pub(crate) fn room(&self, limit: usize) -> bool {
        self.cancel == Cancel::No && self.count() < limit.min(OWN_ADVERTS)
    }

    /// Adds a sent advert. The caller has checked [`room`](Self::room).
    pub(crate) fn advertised(&mut self, mseq: u32, size: u32, inline: u32) {
        self.adverts.push(OwnSource {
            mseq,
            size,
            done: inline,
        });
    }

    /// Handles a RdmaRdCompl.
    pub(crate) fn read(&mut self, size: u32, mseq_ack: u32) -> Result<Option<Progress>, Violation> {
        let Some(oldest) = self.adverts.front_mut() else {
            return Ok(None);
        };
        if after(oldest.mseq, mseq_ack) {
            return Ok(None);
        }
        let done = oldest.done.checked_add(size).filter(|d| *d <= oldest.size);
        oldest.done = done.ok_or(Violation::RdmaRdComplSize)?;
        let finished = oldest.done == oldest.size;
        if finished {
            self.adverts.pop();
            if self.adverts.is_empty() {
                self.cancel = Cancel::No;
            }
        }
        Ok((finished || size > 0).then_some(Progress {
            bytes: size,
            finished,
        }))
    }

    /// Handles a SendSm. Returns the number of bytes of the oldest advert that the peer has, `None`
    /// for a stale SendSm. The peer has received nothing of the other adverts.
    pub(crate) fn refused(&mut self, mseq_ack: u32) -> Option<u32> {
        let oldest = *self.adverts.front()?;
        if after(oldest.mseq, mseq_ack) {
            return None;
        }
        self.adverts.clear();
        self.cancel = Cancel::No;
        Some(oldest.done)
    }

    /// Handles a valid sink advert of the peer. Returns true if it has voided source adverts.
    pub(crate) fn void(&mut self, mseq_ack: u32) -> Result<bool, Violation> {
        let Some(oldest) = self.adverts.front() else {
            return Ok(false);
        };
        if !after(oldest.mseq, mseq_ack) {
            return Err(Violation::SinkAvailDuringAdvert);
        }
        self.adverts.clear();
        self.cancel = Cancel::No;
        Ok(true)
    }

    /// Requests the return of all adverts.
    pub(crate) fn cancel(&mut self) {
        if self.outstanding() && self.cancel == Cancel::No {
            self.cancel = Cancel::Due;
        }
    }

    /// Returns true if a SrcAvailCancel is due.
    pub(crate) fn cancel_due(&self) -> bool {
        self.cancel == Cancel::Due
    }

    /// Marks the SrcAvailCancel as sent.
    pub(crate) fn cancelled(&mut self) {
        self.cancel = Cancel::Sent;
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Source adverts that we made: blocks of our stream that the peer may read by RDMA.
//!
//! An advert is finished when the peer has reported every byte of it (RdmaRdCompl). All of them
//! come back unfinished, at once, when the peer refuses them or answers our cancel (SendSm): it
//! reads nothing of them any more. Which reports are about what is told by their MSeqAck: one that
//! does not cover the oldest advert is about an earlier one, and stale. Once nothing is
//! outstanding, whatever is said about source adverts is.

use super::super::sequence::after;
use super::super::Violation;
use super::ring::Ring;
use super::OWN_ADVERTS;

/// An advert that the peer may be reading.
#[derive(Clone, Copy, Debug, Default)]
struct Advert {
    mseq: u32,
    size: u32,
    /// Bytes that the peer has, with those that went in the SrcAvail.
    done: u32,
}

/// How far taking the adverts back has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancel {
    No,
    /// A SrcAvailCancel is to be sent.
    Due,
    /// It was sent, and the adverts are neither finished nor refused.
    Sent,
}

/// What the peer's report means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// So many bytes more of the oldest advert were read.
    pub(crate) bytes: u32,
    /// These were the last.
    pub(crate) finished: bool,
}

/// Our source adverts.
#[derive(Clone, Debug)]
pub(crate) struct OwnSources {
    adverts: Ring<Advert, OWN_ADVERTS>,
    cancel: Cancel,
}

impl OwnSources {
    pub(crate) fn new() -> Self {
        OwnSources {
            adverts: Ring::new(),
            cancel: Cancel::No,
        }
    }

    /// Whether the peer may be reading.
    pub(crate) fn outstanding(&self) -> bool {
        !self.adverts.is_empty()
    }

    /// How many adverts the peer may be reading.
    pub(crate) fn count(&self) -> usize {
        self.adverts.len()
    }

    /// Whether one more may go, if so many are allowed. While a cancel is on its way none may.
    pub(crate) fn room(&self, limit: usize) -> bool {
        self.cancel == Cancel::No && self.count() < limit.min(OWN_ADVERTS)
    }

    /// A SrcAvail goes. Comes only if there is [`room`](Self::room).
    pub(crate) fn advertised(&mut self, mseq: u32, size: u32, inline: u32) {
        self.adverts.push(Advert {
            mseq,
            size,
            done: inline,
        });
    }

    /// A RdmaRdCompl came.
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

    /// A SendSm came. If it is about what is outstanding, returns how many bytes of the oldest
    /// advert the peer has; it has none of the others.
    pub(crate) fn refused(&mut self, mseq_ack: u32) -> Option<u32> {
        let oldest = *self.adverts.front()?;
        if after(oldest.mseq, mseq_ack) {
            return None;
        }
        self.adverts.clear();
        self.cancel = Cancel::No;
        Some(oldest.done)
    }

    /// A sink advert of the peer came that is good. Returns whether it has voided adverts of ours.
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

    /// The owner wants the adverts back.
    pub(crate) fn cancel(&mut self) {
        if self.outstanding() && self.cancel == Cancel::No {
            self.cancel = Cancel::Due;
        }
    }

    /// Whether a SrcAvailCancel is to be sent.
    pub(crate) fn cancel_due(&self) -> bool {
        self.cancel == Cancel::Due
    }

    /// The SrcAvailCancel goes.
    pub(crate) fn cancelled(&mut self) {
        self.cancel = Cancel::Sent;
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Source adverts of this end: blocks of its stream that the peer may read by RDMA.
//!
//! An advert is finished when the peer has reported all its bytes (RdmaRdCompl). A refusal or the
//! reply to a cancel (SendSm) returns all of them unfinished: the peer reads no more of them.
//! MSeqAck identifies the advert that a report is about: a report that does not cover the oldest
//! advert is about an earlier one and stale. While nothing is outstanding, every report is stale.

use super::super::sequence::after;
use super::super::Violation;
use super::own::Own;

/// One advert that the peer may be reading.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnSource {
    mseq: u32,
    size: u32,
    /// Bytes that the peer has received, including those inside the SrcAvail.
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
        let Some(oldest) = self.oldest_mut() else {
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

    /// Handles a SendSm. Returns the number of bytes of the oldest advert that the peer has, `None`
    /// for a stale SendSm. The peer has received nothing of the other adverts.
    pub(crate) fn refused(&mut self, mseq_ack: u32) -> Option<u32> {
        let oldest = *self.oldest()?;
        if after(oldest.mseq, mseq_ack) {
            return None;
        }
        self.clear();
        Some(oldest.done)
    }

    /// Handles a valid sink advert of the peer. Returns true if it has voided source adverts.
    pub(crate) fn void(&mut self, mseq_ack: u32) -> Result<bool, Violation> {
        if self.oldest().is_some_and(|a| !after(a.mseq, mseq_ack)) {
            return Err(Violation::SinkAvailDuringAdvert);
        }
        Ok(self.clear())
    }
}

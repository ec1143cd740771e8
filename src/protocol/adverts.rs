// SPDX-License-Identifier: GPL-2.0-only

//! Source adverts of the peer, and their refusal.
//!
//! This end has no zero copy: it takes the bytes that come inside a SrcAvail, and answers
//! "send the rest as Data" (SendSm). The peer may have sent more adverts, or a SrcAvailCancel,
//! before it sees that answer. Whether it has is known exactly: a message of the peer whose
//! MSeqAck covers the SendSm was sent after it.
//!
//! One SendSm refuses all adverts of the peer: those received before it, and, since they follow
//! in the stream, those that cross it. It also answers a SrcAvailCancel, if that came before it
//! was sent; a cancel that finds everything answered gets no answer, as the source that crossed
//! a SendSm accepts that.

use super::message::{Mode, SrcAvail};
use super::sequence::after;
use super::Violation;

/// How far the refusal of the peer's adverts has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The peer has no advert outstanding.
    Nothing,
    /// A SendSm is to be sent.
    Due,
    /// A SendSm with this MSeq was sent, and the peer has not acknowledged it.
    Sent(u32),
}

/// The peer's source adverts.
#[derive(Clone, Debug)]
pub(super) struct PeerAdverts {
    refusal: Refusal,
    /// Adverts that the peer believes outstanding.
    outstanding: u16,
    /// How many we said we can hold.
    limit: u16,
}

impl PeerAdverts {
    /// No adverts; `limit` is the MaxAdverts that we announced.
    pub(super) fn new(limit: u16) -> Self {
        PeerAdverts {
            refusal: Refusal::Nothing,
            outstanding: 0,
            limit,
        }
    }

    /// Whether the peer has adverts that are not finished, by all it knows.
    pub(super) fn outstanding(&self) -> bool {
        self.refusal != Refusal::Nothing
    }

    /// A message with this MSeqAck came: comes before anything else is done with it.
    pub(super) fn acknowledged(&mut self, mseq_ack: u32) {
        if let Refusal::Sent(mseq) = self.refusal {
            if !after(mseq, mseq_ack) {
                self.forget();
            }
        }
    }

    /// A SrcAvail came, with `inline` bytes of the buffer in it.
    pub(super) fn advertised(
        &mut self,
        advert: &SrcAvail,
        inline: u32,
        mode: Mode,
    ) -> Result<(), Violation> {
        let limit = match mode {
            Mode::Buffered => return Err(Violation::SrcAvailMode),
            Mode::Combined => 1,
            Mode::Pipelined if inline > 0 => return Err(Violation::SrcAvailMode),
            Mode::Pipelined => self.limit,
        };
        if self.outstanding >= limit {
            return Err(Violation::SrcAvailLimit);
        }
        if advert.size <= inline {
            return Err(Violation::SrcAvailSize);
        }
        self.outstanding = self.outstanding.saturating_add(1);
        if self.refusal == Refusal::Nothing {
            self.refusal = Refusal::Due;
        }
        Ok(())
    }

    /// The adverts are void without an answer: the mode was changed from Pipelined to Combined,
    /// and the peer advertises anew what it still wants to.
    pub(super) fn forget(&mut self) {
        self.refusal = Refusal::Nothing;
        self.outstanding = 0;
    }

    /// Whether a SendSm is to be sent.
    pub(super) fn refusal_due(&self) -> bool {
        self.refusal == Refusal::Due
    }

    /// The SendSm is sent, with this MSeq.
    pub(super) fn refused(&mut self, mseq: u32) {
        self.refusal = Refusal::Sent(mseq);
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Source adverts of the peer: blocks of the peer's stream that this end may READ, or refuse.
//!
//! **Reports.** A RdmaRdCompl is about the oldest unfinished advert. So an advert stays in the
//! queue until the last report about it is sent, and a report never covers two adverts. A report
//! waits while READs of the advert are in flight, because the report includes their bytes.
//!
//! **Refusal.** A SendSm refuses all adverts that the peer sent before it received the SendSm,
//! including adverts that cross the SendSm. MSeqAck identifies the crossing adverts: a message of
//! the peer whose MSeqAck covers the SendSm was sent later. Before a SendSm, this end starts no new
//! READ, waits for the READs in flight, and reports their bytes. If these reports cover all bytes,
//! no SendSm is needed.
//!
//! **Cancel.** A SrcAvailCancel causes the same steps, even without a reader. The cancel needs no
//! reply if all bytes are reported or a SendSm has crossed the cancel. While READs are in flight,
//! MSeqAck stays below the MSeq of the cancel, as in GEN2, which shows the source that the cancel
//! is not complete ([`PeerSources::acknowledgement`]).

use super::super::credits::after;
use super::super::message::{Block, Mode};
use super::super::Violation;
use super::queue::Queue;
use super::MAX_ADVERTS;

/// Advert that this end may read.
#[derive(Clone, Copy, Debug, Default)]
struct PeerSource {
    /// Rest of the block that no READ covers.
    rest: Block,
    /// Number of bytes of READs in flight.
    reading: u32,
    /// Number of bytes read and not yet reported.
    done: u32,
}

/// State of a refusal of the peer's adverts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    No,
    /// The bytes that remain after the READs in flight will be refused.
    Wanted,
    /// A SendSm with this MSeq is sent, and not yet acknowledged.
    Sent(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct PeerSources {
    adverts: Queue<PeerSource, MAX_ADVERTS>,
    /// True if the owner can read adverts; otherwise each advert is refused on arrival.
    readable: bool,
    refusal: Refusal,
    /// MSeq of a SrcAvailCancel without a reply.
    cancel: Option<u32>,
    /// True once a READ of the current adverts was posted.
    begun: bool,
    /// Number of adverts that the peer counts as outstanding.
    outstanding: u16,
    /// Maximum number of adverts that this end announced.
    limit: u16,
    /// MSeq of the last RdmaRdCompl, until the peer acknowledges it.
    reported: Option<u32>,
}

impl PeerSources {
    /// Creates an empty queue. `limit` is the MaxAdverts that this end announced.
    pub(crate) fn new(limit: u16, readable: bool) -> Self {
        PeerSources {
            adverts: Queue::new(),
            readable,
            refusal: Refusal::No,
            cancel: None,
            begun: false,
            outstanding: 0,
            limit,
            reported: None,
        }
    }

    pub(crate) fn outstanding(&self) -> bool {
        self.outstanding > 0
    }

    /// Returns true if any advert is neither finished nor refused.
    pub(crate) fn held(&self) -> bool {
        self.outstanding() && !matches!(self.refusal, Refusal::Sent(_))
    }

    /// Handles the MSeqAck of a message, before any other function for the message.
    pub(crate) fn acknowledged(&mut self, mseq_ack: u32) {
        self.reported = self.reported.filter(|mseq| after(*mseq, mseq_ack));
        if let Refusal::Sent(mseq) = self.refusal {
            if !after(mseq, mseq_ack) {
                self.nothing();
            }
        }
    }

    /// Handles a SrcAvail with `inline` bytes of the block in its payload. Returns true if the
    /// bytes outside the SrcAvail may be read.
    pub(crate) fn advertised(
        &mut self,
        advert: &Block,
        inline: u32,
        mode: Mode,
    ) -> Result<bool, Violation> {
        let limit = match mode {
            Mode::Buffered => return Err(Violation::SrcAvailMode),
            Mode::Combined => 1,
            Mode::Pipelined if inline > 0 => return Err(Violation::SrcAvailMode),
            Mode::Pipelined => self.limit,
        };
        if self.cancel.is_some() {
            return Err(Violation::SrcAvailDuringCancel);
        }
        if self.outstanding >= limit {
            return Err(Violation::SrcAvailLimit);
        }
        if advert.size <= inline {
            return Err(Violation::SrcAvailSize);
        }
        if !advert.is_in_range() {
            return Err(Violation::SrcAvailRange);
        }
        self.outstanding = self.outstanding.saturating_add(1);
        if self.refusal != Refusal::No {
            return Ok(false);
        }
        let mut rest = *advert;
        rest.advance(inline);
        let kept = self.readable
            && self.adverts.push(PeerSource {
                rest,
                reading: 0,
                done: 0,
            });
        if !kept {
            self.refusal = Refusal::Wanted;
        }
        Ok(kept)
    }

    /// Handles a SrcAvailCancel with this MSeq.
    pub(crate) fn cancelled(&mut self, mseq: u32) {
        if self.held() && self.cancel.is_none() {
            self.refusal = Refusal::Wanted;
            self.cancel = Some(mseq);
        }
    }

    /// Refuses the bytes that no READ covers.
    pub(crate) fn refuse(&mut self) {
        if self.outstanding() && self.refusal == Refusal::No {
            self.refusal = Refusal::Wanted;
        }
    }

    /// Returns the address and size of the memory to read next.
    pub(crate) fn next(&self) -> Option<Block> {
        let open = self.adverts.iter().filter(|_| self.refusal == Refusal::No);
        open.map(|a| a.rest).find(|rest| rest.size > 0)
    }

    /// Returns the number of bytes that may still be read.
    pub(crate) fn bytes(&self) -> u32 {
        let open = self.adverts.iter().filter(|_| self.refusal == Refusal::No);
        open.fold(0, |sum: u32, a| sum.saturating_add(a.rest.size))
    }

    /// Records a posted READ of `bytes` bytes of [`next`](Self::next).
    pub(crate) fn started(&mut self, bytes: u32) {
        self.begun = true;
        if let Some(advert) = self.adverts.iter_mut().find(|a| a.rest.size > 0) {
            let bytes = advert.rest.advance(bytes);
            advert.reading = advert.reading.saturating_add(bytes);
        }
    }

    /// Records the completion of the oldest READs, `bytes` bytes in all.
    pub(crate) fn ended(&mut self, mut bytes: u32) {
        for advert in self.adverts.iter_mut() {
            let part = bytes.min(advert.reading);
            bytes = bytes.saturating_sub(part);
            advert.reading = advert.reading.saturating_sub(part);
            advert.done = advert.done.saturating_add(part);
        }
    }

    pub(crate) fn is_begun(&self) -> bool {
        self.begun
    }

    pub(crate) fn reading(&self) -> bool {
        self.adverts.iter().any(|a| a.reading > 0)
    }

    /// Returns the MSeqAck to send. `received` is the MSeq of the last received message.
    ///
    /// While MSeqAck is held back, this end must not send stream bytes, adverts or mode changes,
    /// which would seem to the peer to cross its own messages.
    pub(crate) fn acknowledgement(&self, received: u32) -> u32 {
        match self.cancel {
            Some(mseq) if self.reading() => mseq.wrapping_sub(1),
            _ => received,
        }
    }

    /// Returns the number of bytes to report for the oldest advert.
    pub(crate) fn report_due(&self) -> u32 {
        match self.adverts.first() {
            Some(oldest) if oldest.reading == 0 => oldest.done,
            _ => 0,
        }
    }

    /// Returns true if a report of the oldest advert can wait for a later report.
    pub(crate) fn report_can_wait(&self) -> bool {
        let more = self.adverts.first().is_some_and(|a| a.rest.size > 0);
        more && self.refusal == Refusal::No
    }

    /// Returns true if a cancel of the peer is pending.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_some()
    }

    /// Handles stream bytes after a cancel without a reply, which show that the peer no longer
    /// waits. The cancel stays pending if read bytes are not reported yet.
    pub(crate) fn given_up(&mut self) {
        if self.cancel.is_some() && !self.reading() && self.report_due() == 0 {
            self.nothing();
        }
    }

    /// Records a sent RdmaRdCompl.
    pub(crate) fn report(&mut self, mseq: u32) {
        let Some(oldest) = self.adverts.first_mut() else {
            return;
        };
        oldest.done = 0;
        self.reported = Some(mseq);
        if oldest.rest.size == 0 {
            self.adverts.pop();
            self.outstanding = self.outstanding.saturating_sub(1);
            if self.outstanding == 0 {
                self.nothing();
            }
        }
    }

    /// Returns true if the next message about the adverts is the last such message.
    pub(crate) fn end_due(&self) -> bool {
        let last = self.adverts.first().is_some_and(|a| a.rest.size == 0);
        self.refusal_due() || self.outstanding == 1 && last && self.report_due() > 0
    }

    /// Returns true if a SendSm is due.
    pub(crate) fn refusal_due(&self) -> bool {
        let over = !self.reading() && self.report_due() == 0;
        self.refusal == Refusal::Wanted && over
    }

    /// Records a sent SendSm.
    pub(crate) fn refused(&mut self, mseq: u32) {
        self.adverts.truncate(0);
        self.cancel = None;
        self.refusal = Refusal::Sent(mseq);
    }

    /// Handles a change of the peer from Pipelined to Combined. The peer's adverts are void without
    /// a reply, and the peer advertises the unread bytes again. The peer must have received all
    /// reports.
    pub(crate) fn void(&mut self) -> Result<(), Violation> {
        let unknown = self.reading() || self.report_due() > 0 || self.reported.is_some();
        if self.outstanding() && unknown {
            return Err(Violation::ModeChange);
        }
        self.nothing();
        Ok(())
    }

    fn nothing(&mut self) {
        self.adverts.truncate(0);
        self.refusal = Refusal::No;
        self.cancel = None;
        self.begun = false;
        self.outstanding = 0;
    }
}

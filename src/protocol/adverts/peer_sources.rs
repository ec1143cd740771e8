// SPDX-License-Identifier: GPL-2.0-only

//! Source adverts of the peer: blocks of its stream that we may read by RDMA, or refuse.
//!
//! **Reports.** RdmaRdCompl counts for the oldest advert that is not finished. So an advert stays
//! here until its last report has gone, and the reports of two adverts are never put into one. A
//! report waits while READs of its advert are under way: they may make it a larger one.
//!
//! **Refusal.** A SendSm refuses all adverts of the peer: those received before it, and, since
//! they follow in the stream, those that cross it. Whether one does is known exactly: a message of
//! the peer whose MSeqAck covers the SendSm was sent after it. Before a refusal goes, no new READ
//! is started, those under way end, and what they read is reported. If nothing is left then, there
//! is nothing to refuse.
//!
//! **Cancel.** A SrcAvailCancel makes us do the same, whether or not anybody reads. If everything
//! is reported, or a refusal has crossed it, it needs no answer. While READs are under way MSeqAck
//! stays below the cancel's MSeq, as GEN2 has it, so that the source knows that we have not done
//! what it wants; see [`PeerSources::acknowledgement`].

use super::super::message::{Mode, SrcAvail};
use super::super::sequence::after;
use super::super::Violation;
use super::ring::Ring;
use super::{Remote, MAX_ADVERTS};

/// An advert that may be read.
#[derive(Clone, Copy, Debug, Default)]
struct Advert {
    /// Of the next byte that no READ was started for.
    address: u64,
    r_key: u32,
    /// Bytes that no READ was started for.
    left: u32,
    /// Bytes that READs are fetching.
    reading: u32,
    /// Bytes that were read and not reported.
    done: u32,
}

/// How far refusing the peer's adverts has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    No,
    /// What is not read when the READs under way have ended is to be refused.
    Wanted,
    /// A SendSm with this MSeq was sent, and the peer has not acknowledged it.
    Sent(u32),
}

/// The peer's source adverts.
#[derive(Clone, Debug)]
pub(crate) struct PeerSources {
    adverts: Ring<Advert, MAX_ADVERTS>,
    /// Whether somebody could read them; else they are refused as they come.
    readable: bool,
    refusal: Refusal,
    /// MSeq of a SrcAvailCancel that was not answered.
    cancel: Option<u32>,
    /// A READ was started of what is here.
    begun: bool,
    /// Adverts that the peer believes outstanding.
    outstanding: u16,
    /// How many we said we can hold.
    limit: u16,
    /// MSeq of the last RdmaRdCompl, until the peer acknowledges it.
    reported: Option<u32>,
}

impl PeerSources {
    /// No adverts; `limit` is the MaxAdverts that we announced.
    pub(crate) fn new(limit: u16, readable: bool) -> Self {
        PeerSources {
            adverts: Ring::new(),
            readable,
            refusal: Refusal::No,
            cancel: None,
            begun: false,
            outstanding: 0,
            limit,
            reported: None,
        }
    }

    /// Whether the peer has adverts that are not finished, by all it knows.
    pub(crate) fn outstanding(&self) -> bool {
        self.outstanding > 0
    }

    /// Whether there are adverts that are neither finished nor refused.
    pub(crate) fn held(&self) -> bool {
        self.outstanding() && !matches!(self.refusal, Refusal::Sent(_))
    }

    /// A message with this MSeqAck came: comes before anything else is done with it.
    pub(crate) fn acknowledged(&mut self, mseq_ack: u32) {
        self.reported = self.reported.filter(|mseq| after(*mseq, mseq_ack));
        if let Refusal::Sent(mseq) = self.refusal {
            if !after(mseq, mseq_ack) {
                self.nothing();
            }
        }
    }

    /// A SrcAvail came, with `inline` bytes of the block in it. Returns whether the rest may be
    /// read.
    pub(crate) fn advertised(
        &mut self,
        advert: &SrcAvail,
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
        let last = u64::from(advert.size.saturating_sub(1));
        if advert.address.checked_add(last).is_none() {
            return Err(Violation::SrcAvailRange);
        }
        self.outstanding = self.outstanding.saturating_add(1);
        if self.refusal != Refusal::No {
            return Ok(false);
        }
        let kept = self.readable
            && self.adverts.push(Advert {
                address: advert.address.saturating_add(inline.into()),
                r_key: advert.r_key,
                left: advert.size.saturating_sub(inline),
                reading: 0,
                done: 0,
            });
        if !kept {
            self.refusal = Refusal::Wanted;
        }
        Ok(kept)
    }

    /// A SrcAvailCancel with this MSeq came.
    pub(crate) fn cancelled(&mut self, mseq: u32) {
        if self.held() && self.cancel.is_none() {
            self.refusal = Refusal::Wanted;
            self.cancel = Some(mseq);
        }
    }

    /// The owner will not read what it has not begun to read.
    pub(crate) fn refuse(&mut self) {
        if self.outstanding() && self.refusal == Refusal::No {
            self.refusal = Refusal::Wanted;
        }
    }

    /// What to read next.
    pub(crate) fn next(&self) -> Option<Remote> {
        if self.refusal != Refusal::No {
            return None;
        }
        let advert = self.adverts.get(self.unread()?)?;
        Some(Remote {
            address: advert.address,
            r_key: advert.r_key,
            size: advert.left,
        })
    }

    /// How much there is to be read in all.
    pub(crate) fn bytes(&self) -> u32 {
        (0..self.adverts.len())
            .filter(|_| self.refusal == Refusal::No)
            .filter_map(|at| self.adverts.get(at))
            .fold(0, |sum: u32, a| sum.saturating_add(a.left))
    }

    /// The place of the first advert that is not read to its end.
    fn unread(&self) -> Option<usize> {
        (0..self.adverts.len()).find(|at| self.adverts.get(*at).is_some_and(|a| a.left > 0))
    }

    /// A READ of so many bytes of [`next`](Self::next) was posted.
    pub(crate) fn started(&mut self, bytes: u32) {
        let at = self.unread();
        self.begun = true;
        if let Some(advert) = at.and_then(|at| self.adverts.get_mut(at)) {
            let bytes = bytes.min(advert.left);
            advert.address = advert.address.saturating_add(bytes.into());
            advert.left = advert.left.saturating_sub(bytes);
            advert.reading = advert.reading.saturating_add(bytes);
        }
    }

    /// READs of so many bytes have ended, the oldest ones.
    pub(crate) fn ended(&mut self, bytes: u32) {
        let mut bytes = bytes;
        for at in 0..self.adverts.len() {
            if let Some(advert) = self.adverts.get_mut(at) {
                let part = bytes.min(advert.reading);
                bytes = bytes.saturating_sub(part);
                advert.reading = advert.reading.saturating_sub(part);
                advert.done = advert.done.saturating_add(part);
            }
        }
    }

    /// Whether somebody has begun to read.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Whether READs are under way.
    pub(crate) fn reading(&self) -> bool {
        (0..self.adverts.len()).any(|at| self.adverts.get(at).is_some_and(|a| a.reading > 0))
    }

    /// The MSeqAck to send when `received` was the last message to come.
    ///
    /// While it is held back, nothing may be sent of which the peer tells by MSeqAck whether it
    /// crossed a message of its own: no stream bytes, adverts or mode changes.
    pub(crate) fn acknowledgement(&self, received: u32) -> u32 {
        match self.cancel {
            Some(mseq) if self.reading() => mseq.wrapping_sub(1),
            _ => received,
        }
    }

    /// Bytes to report of the oldest advert; 0: none.
    pub(crate) fn report_due(&self) -> u32 {
        match self.adverts.front() {
            Some(oldest) if oldest.reading == 0 => oldest.done,
            _ => 0,
        }
    }

    /// Whether more is to be reported of the oldest advert later, so that this can wait for it.
    pub(crate) fn report_can_wait(&self) -> bool {
        let more = self.adverts.front().is_some_and(|oldest| oldest.left > 0);
        more && self.refusal == Refusal::No
    }

    /// Whether the peer has taken back what is neither finished nor refused.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_some()
    }

    /// Stream bytes came after a cancel that we could not answer: the peer waits no longer. Not so if
    /// some of them were read and the peer does not know.
    pub(crate) fn given_up(&mut self) {
        if self.cancel.is_some() && !self.reading() && self.report_due() == 0 {
            self.nothing();
        }
    }

    /// The RdmaRdCompl goes.
    pub(crate) fn report(&mut self, mseq: u32) {
        let Some(oldest) = self.adverts.front_mut() else {
            return;
        };
        oldest.done = 0;
        self.reported = Some(mseq);
        if oldest.left == 0 {
            self.adverts.pop();
            self.outstanding = self.outstanding.saturating_sub(1);
            if self.outstanding == 0 {
                self.nothing();
            }
        }
    }

    /// Whether the next message about them is the last one.
    pub(crate) fn end_due(&self) -> bool {
        let last = self.adverts.front().is_some_and(|oldest| oldest.left == 0);
        self.refusal_due() || self.outstanding == 1 && last && self.report_due() > 0
    }

    /// Whether a SendSm is to be sent.
    pub(crate) fn refusal_due(&self) -> bool {
        let over = !self.reading() && self.report_due() == 0;
        self.refusal == Refusal::Wanted && over
    }

    /// The SendSm goes, with this MSeq.
    pub(crate) fn refused(&mut self, mseq: u32) {
        self.adverts.clear();
        self.cancel = None;
        self.refusal = Refusal::Sent(mseq);
    }

    /// The peer has gone from Pipelined to Combined: its adverts are void without an answer, and
    /// it advertises anew what it still wants to. It must know then how far we have read.
    pub(crate) fn void(&mut self) -> Result<(), Violation> {
        let unknown = self.reading() || self.report_due() > 0 || self.reported.is_some();
        if self.outstanding() && unknown {
            return Err(Violation::ModeChange);
        }
        self.nothing();
        Ok(())
    }

    /// Nothing is outstanding any more.
    fn nothing(&mut self) {
        self.adverts.clear();
        self.refusal = Refusal::No;
        self.cancel = None;
        self.begun = false;
        self.outstanding = 0;
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Sink adverts of the peer: blocks of its readers' memory that we may write by RDMA.
//!
//! **Writing.** The oldest block is written from its start; then a RdmaWrCompl says how much of it
//! was, and the next block's turn comes. Messages go behind the WRITEs that were posted before
//! them, so nothing that is said about a block is said too early. Blocks that are written and not
//! yet reported stay here, in front of the others.
//!
//! **Behind Data.** Where several blocks are advertised, those behind the one that Data of ours has
//! voided are good. They are not written to all the same, nor is any that the peer advertised before
//! it had our last Data: its reader wants them back as soon as it sees that, since it would have to
//! move what is written there. It takes them back, or further Data voids them.
//!
//! **Void adverts.** Which of the peer's adverts are void because Data of ours crossed them is told
//! by counting: see [`super::own_sinks`]. Adverts that crossed our change from Pipelined to
//! Combined are void, too: the peer drops them when it sees that. Messages with payload that we
//! sent behind the change found no advert there, and have nothing to do with these.

use super::super::message::SinkAvail;
use super::super::sequence::after;
use super::super::Violation;
use super::ring::Ring;
use super::{Remote, MAX_ADVERTS};

/// A block that may be written.
#[derive(Clone, Copy, Debug, Default)]
struct Advert {
    /// Of the next byte to write.
    address: u64,
    r_key: u32,
    /// Bytes from there to the end; of a complete one, bytes written.
    size: u32,
}

/// Our change from Pipelined to Combined, which the peer has not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// The ModeChange's MSeq.
    mseq: u32,
    /// Messages with payload sent since.
    since: u32,
}

/// The peer's sink adverts.
#[derive(Clone, Debug)]
pub(crate) struct PeerSinks {
    adverts: Ring<Advert, MAX_ADVERTS>,
    /// How many of them, the oldest ones, are written and to be reported.
    complete: u8,
    /// How many of them, the oldest ones, the peer has advertised without having had all our Data.
    doubtful: u8,
    /// Bytes written to the one behind those.
    written: u32,
    /// A SinkCancelAck is to be sent.
    confirmation: bool,
    /// Messages with payload sent that no sink advert was void for.
    non_discards: u32,
    /// MSeq of the last message with payload, or of a later one that the peer has.
    last: u32,
    left: Option<Left>,
    limit: u16,
}

impl PeerSinks {
    /// No adverts; `limit` is the MaxAdverts that we announced.
    pub(crate) fn new(limit: u16) -> Self {
        PeerSinks {
            adverts: Ring::new(),
            complete: 0,
            doubtful: 0,
            written: 0,
            confirmation: false,
            non_discards: 0,
            last: 0,
            left: None,
            limit,
        }
    }

    fn current(&self) -> usize {
        usize::from(self.complete)
    }

    /// Whether there are blocks that may be written.
    pub(crate) fn held(&self) -> bool {
        self.adverts.len() > self.current()
    }

    /// Whether there is nothing to write and nothing to say.
    pub(crate) fn idle(&self) -> bool {
        self.adverts.is_empty() && !self.confirmation
    }

    /// A message with this MSeqAck came: comes before anything else is done with it.
    pub(crate) fn acknowledged(&mut self, mseq_ack: u32) {
        self.left = self.left.filter(|left| after(left.mseq, mseq_ack));
        if !after(self.last, mseq_ack) {
            // as good, and never so old that it would seem to come
            self.last = mseq_ack;
        }
    }

    /// A SinkAvail came. Returns whether it may be written to: it may be void. `pipelined` is the
    /// mode of our half.
    pub(crate) fn advertised(
        &mut self,
        advert: &SinkAvail,
        mseq_ack: u32,
        pipelined: bool,
    ) -> Result<bool, Violation> {
        if !pipelined && self.left.is_none() {
            return Err(Violation::SinkAvailMode);
        }
        if self.confirmation {
            return Err(Violation::SinkAvailDuringCancel);
        }
        let last = advert.size.checked_sub(1);
        let last = last.ok_or(Violation::SinkAvailSize)?;
        if advert.address.checked_add(last.into()).is_none() {
            return Err(Violation::SinkAvailRange);
        }
        let since = self.left.map_or(0, |left| left.since);
        if advert.non_discards != self.non_discards.wrapping_sub(since) {
            // The peer must have been without some message of ours.
            if since == 0 && !after(self.last, mseq_ack) {
                return Err(Violation::NonDiscards);
            }
            self.non_discards = self.non_discards.wrapping_sub(1);
            return Ok(false);
        }
        if self.left.is_some() {
            return Ok(false);
        }
        let kept = self.adverts.len() < usize::from(self.limit)
            && self.adverts.push(Advert {
                address: advert.address,
                r_key: advert.r_key,
                size: advert.size,
            });
        if kept && after(self.last, mseq_ack) {
            self.doubtful = self.adverts.len() as u8;
        }
        if kept {
            Ok(true)
        } else {
            Err(Violation::SinkAvailLimit)
        }
    }

    /// Where to write next.
    pub(crate) fn next(&self) -> Option<Remote> {
        if self.doubtful > self.complete {
            return None;
        }
        let advert = self.adverts.get(self.current())?;
        Some(Remote {
            address: advert.address,
            r_key: advert.r_key,
            size: advert.size,
        })
    }

    /// How much room there is in all.
    pub(crate) fn bytes(&self) -> u32 {
        (self.current().max(self.doubtful.into())..self.adverts.len())
            .filter_map(|at| self.adverts.get(at))
            .fold(0, |sum: u32, a| sum.saturating_add(a.size))
    }

    /// A WRITE of so many bytes to [`next`](Self::next) was posted.
    pub(crate) fn written(&mut self, bytes: u32) {
        let current = self.current();
        if let Some(advert) = self.adverts.get_mut(current) {
            let bytes = bytes.min(advert.size);
            advert.address = advert.address.saturating_add(bytes.into());
            advert.size = advert.size.saturating_sub(bytes);
            self.written = self.written.saturating_add(bytes);
            if advert.size == 0 {
                self.finish();
            }
        }
    }

    /// Nothing more is written to the block that was being written to; returns whether one was.
    pub(crate) fn finish(&mut self) -> bool {
        let written = core::mem::take(&mut self.written);
        let current = self.current();
        match self.adverts.get_mut(current) {
            Some(advert) if written > 0 => {
                advert.size = written;
                self.complete = self.complete.saturating_add(1);
                true
            }
            _ => false,
        }
    }

    /// Bytes to report of the oldest block.
    pub(crate) fn report_due(&self) -> Option<u32> {
        let oldest = self.adverts.front().filter(|_| self.complete > 0)?;
        Some(oldest.size)
    }

    /// The RdmaWrCompl goes.
    pub(crate) fn report(&mut self) {
        if self.adverts.pop().is_some() {
            self.complete = self.complete.saturating_sub(1);
            self.doubtful = self.doubtful.saturating_sub(1);
        }
    }

    /// A message with payload goes, with this MSeq. Nothing is to be reported then, and nothing
    /// half written.
    pub(crate) fn payload(&mut self, mseq: u32) {
        self.last = mseq;
        if self.adverts.pop().is_some() {
            self.doubtful = self.adverts.len() as u8;
            return;
        }
        self.non_discards = self.non_discards.wrapping_add(1);
        if let Some(left) = &mut self.left {
            left.since = left.since.wrapping_add(1);
        }
    }

    /// A SinkAvailCancel came.
    pub(crate) fn cancelled(&mut self) {
        self.finish();
        if self.held() {
            self.confirmation = true;
        }
        self.adverts.truncate(self.current());
        self.doubtful = self.doubtful.min(self.complete);
    }

    /// Whether a SinkCancelAck is to be sent.
    pub(crate) fn confirmation_due(&self) -> bool {
        self.confirmation
    }

    /// The SinkCancelAck goes.
    pub(crate) fn confirmed(&mut self) {
        self.confirmation = false;
    }

    /// Our stream ends: all adverts are void. Nothing is to be reported then.
    pub(crate) fn void(&mut self) {
        self.adverts.clear();
        (self.complete, self.doubtful) = (0, 0);
    }

    /// Whether the peer knows that our half was Combined once, if it was.
    pub(crate) fn may_leave(&self) -> bool {
        self.idle() && self.left.is_none()
    }

    /// We change from Pipelined to Combined, by the message with this MSeq.
    pub(crate) fn left(&mut self, mseq: u32) {
        self.left = Some(Left { mseq, since: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever writes for long sends no payload meanwhile.
    #[test]
    fn payload_is_never_too_long_ago() {
        let mut sinks = PeerSinks::new(16);
        sinks.payload(1);
        for mseq_ack in [1, 0x7fff_ffff, 0x9000_0000] {
            sinks.acknowledged(mseq_ack);
        }
        let advert = SinkAvail {
            size: 100,
            r_key: 1,
            address: 2,
            non_discards: 1,
        };
        assert_eq!(sinks.advertised(&advert, 0x9000_0000, true), Ok(true));
        assert!(sinks.next().is_some());
    }
}

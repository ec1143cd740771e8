// SPDX-License-Identifier: GPL-2.0-only

//! Sink adverts of the peer: memory of the peer's readers that this end may write by RDMA.
//!
//! **Writing.** This end writes the oldest block from its start, reports the bytes written by
//! RdmaWrCompl, and continues with the next block. A report is never early, since a message arrives
//! after the WRITEs that were posted before it. Written blocks stay in the queue until reported.
//!
//! **Behind Data.** Data of this end voids the oldest of several advertised blocks; the others stay
//! valid. This end does not write to void blocks, nor to any block advertised before the peer had
//! received the Data. The reader would have to move bytes written there, so it takes the blocks
//! back when the Data arrives. The peer cancels void blocks, or further Data voids them.
//!
//! **Void adverts.** Counting identifies the adverts that Data of this end has crossed
//! ([`super::own`]). Adverts that crossed a change from Pipelined to Combined are void as well: the
//! peer drops them when it receives the ModeChange. Messages with payload after the change find no
//! advert at the peer and void none.

use super::super::credits::after;
use super::super::message::{Block, SinkAvail};
use super::super::Violation;
use super::queue::Queue;
use super::MAX_ADVERTS;

/// A change of this end from Pipelined to Combined that the peer has not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// MSeq of the ModeChange that permits adverts.
    mseq: u32,
    /// Number of messages with payload sent since the ModeChange.
    since: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct PeerSinks {
    /// Unwritten rests of the blocks. The size of a complete block is the number of written bytes.
    adverts: Queue<Block, MAX_ADVERTS>,
    /// Number of adverts at the front that are written and not yet reported.
    complete: usize,
    /// Number of adverts at the front that the peer sent before it had received all Data.
    doubtful: usize,
    /// Number of bytes written to the first incomplete advert.
    written: u32,
    /// True if a SinkCancelAck is due.
    confirmation: bool,
    /// Number of sent messages with payload that voided no sink advert.
    non_discards: u32,
    /// MSeq of the last message with payload, or of a later message that the peer has acknowledged.
    last: u32,
    left: Option<Left>,
    limit: u16,
}

impl PeerSinks {
    /// Creates an empty queue. `limit` is the MaxAdverts that this end announced.
    pub(crate) fn new(limit: u16) -> Self {
        PeerSinks {
            adverts: Queue::new(),
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

    /// Returns true if the queue contains blocks that may be written.
    pub(crate) fn held(&self) -> bool {
        self.adverts.len() > self.complete
    }

    /// Handles the MSeqAck of a message, before any other function for the message.
    pub(crate) fn acknowledged(&mut self, mseq_ack: u32) {
        self.left = self.left.filter(|left| after(left.mseq, mseq_ack));
        if !after(self.last, mseq_ack) {
            // keeps `last` a valid number that is never so old that it seems to lie in the future
            self.last = mseq_ack;
        }
    }

    /// Handles a SinkAvail. Returns true if the block may be written to, or false if it is void.
    /// `pipelined` is true if the sending half is in Pipelined mode.
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
        if advert.block.size == 0 {
            return Err(Violation::SinkAvailSize);
        }
        if !advert.block.is_in_range() {
            return Err(Violation::SinkAvailRange);
        }
        let since = self.left.map_or(0, |left| left.since);
        if advert.non_discards != self.non_discards.wrapping_sub(since) {
            // The peer sent the advert before it had received all messages of this end.
            if since == 0 && !after(self.last, mseq_ack) {
                return Err(Violation::NonDiscards);
            }
            self.non_discards = self.non_discards.wrapping_sub(1);
            return Ok(false);
        }
        if self.left.is_some() {
            return Ok(false);
        }
        if self.adverts.len() >= self.limit.into() || !self.adverts.push(advert.block) {
            return Err(Violation::SinkAvailLimit);
        }
        if after(self.last, mseq_ack) {
            self.doubtful = self.adverts.len();
        }
        Ok(true)
    }

    /// Returns the address and size of the memory to write next.
    pub(crate) fn next(&self) -> Option<Block> {
        if self.doubtful > self.complete {
            return None;
        }
        self.adverts.get(self.complete).copied()
    }

    /// Returns the number of bytes that may still be written.
    pub(crate) fn bytes(&self) -> u32 {
        let written = self.complete.max(self.doubtful);
        let open = self.adverts.iter().skip(written);
        open.fold(0, |sum: u32, a| sum.saturating_add(a.size))
    }

    /// Records a posted WRITE of `bytes` bytes to [`next`](Self::next).
    pub(crate) fn written(&mut self, bytes: u32) {
        if let Some(advert) = self.adverts.get_mut(self.complete) {
            self.written = self.written.saturating_add(advert.advance(bytes));
            if advert.size == 0 {
                self.finish();
            }
        }
    }

    /// Closes the block that is being written. Returns true if a block was being written.
    pub(crate) fn finish(&mut self) -> bool {
        let written = core::mem::take(&mut self.written);
        match self.adverts.get_mut(self.complete) {
            Some(advert) if written > 0 => {
                advert.size = written;
                self.complete = self.complete.saturating_add(1);
                true
            }
            _ => false,
        }
    }

    /// Returns the number of bytes to report for the oldest block.
    pub(crate) fn report_due(&self) -> Option<u32> {
        let oldest = self.adverts.first().filter(|_| self.complete > 0)?;
        Some(oldest.size)
    }

    /// Marks the RdmaWrCompl as sent.
    pub(crate) fn report(&mut self) {
        if self.adverts.pop().is_some() {
            self.complete = self.complete.saturating_sub(1);
            self.doubtful = self.doubtful.saturating_sub(1);
        }
    }

    /// Handles a message with payload that is being sent. The caller has reported all written bytes
    /// and closed the current block.
    pub(crate) fn payload(&mut self, mseq: u32) {
        self.last = mseq;
        if self.adverts.pop().is_some() {
            self.doubtful = self.adverts.len();
            return;
        }
        self.non_discards = self.non_discards.wrapping_add(1);
        if let Some(left) = &mut self.left {
            left.since = left.since.wrapping_add(1);
        }
    }

    /// Handles a SinkAvailCancel.
    pub(crate) fn cancelled(&mut self) {
        self.finish();
        if self.held() {
            self.confirmation = true;
        }
        self.adverts.truncate(self.complete);
        self.doubtful = self.doubtful.min(self.complete);
    }

    /// Returns true if a SinkCancelAck is due.
    pub(crate) fn confirmation_due(&self) -> bool {
        self.confirmation
    }

    /// Marks the SinkCancelAck as sent.
    pub(crate) fn confirmed(&mut self) {
        self.confirmation = false;
    }

    /// Voids all adverts at the end of the stream. The caller has reported all written bytes.
    pub(crate) fn void(&mut self) {
        self.adverts.truncate(0);
        (self.complete, self.doubtful) = (0, 0);
    }

    /// Returns true if no bytes are left to write or report, and the peer has acknowledged every
    /// change to Combined.
    pub(crate) fn may_leave(&self) -> bool {
        self.adverts.is_empty() && !self.confirmation && self.left.is_none()
    }

    /// Records a change from Pipelined to Combined by the message with this MSeq.
    pub(crate) fn left(&mut self, mseq: u32) {
        self.left = Some(Left { mseq, since: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests a long series of WRITEs, during which this end sends no payload.
    #[test]
    fn payload_is_never_too_long_ago() {
        let mut sinks = PeerSinks::new(16);
        sinks.payload(1);
        for mseq_ack in [1, 0x7fff_ffff, 0x9000_0000] {
            sinks.acknowledged(mseq_ack);
        }
        let block = Block {
            size: 100,
            r_key: 1,
            address: 2,
        };
        let advert = SinkAvail {
            block,
            non_discards: 1,
        };
        assert_eq!(sinks.advertised(&advert, 0x9000_0000, true), Ok(true));
        assert!(sinks.next().is_some());
    }
}

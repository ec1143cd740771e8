// SPDX-License-Identifier: GPL-2.0-only

//! Detects when an OFED peer could take a SrcAvail for Data.
//!
//! OFED posts the last RdmaRdCompl of an advert while OFED's record of the advert still exists, and
//! then sends the queued messages. With two credits left, the peer polls its receive queue in the
//! same call, and takes a SrcAvail in this queue for Data: the program reads the header and the
//! inline byte. With more credits, the peer does not poll. Messages are queued only after a lack of
//! credits. The peer posts receive buffers only after it has removed the record. So an increased
//! sum of Bufs and MSeqAck shows that the record is removed.

use super::super::credits::after;

/// State that decides if the peer may still have a record of the last advert.
#[derive(Clone, Debug, Default)]
pub(crate) struct StaleRecord {
    /// Sum of Bufs and MSeqAck in the last report.
    since: Option<u32>,
    /// Set if the peer had few credits after its last message.
    few: bool,
}

impl StaleRecord {
    /// Handles a received message. `edge` is the sum of the message's Bufs and MSeqAck. `few` is
    /// true if the message may have used up the peer's credits, and `finished` if the message is
    /// the last report of an advert.
    pub(crate) fn received(&mut self, edge: u32, few: bool, finished: bool) {
        if finished && (few || self.few) {
            self.since = Some(edge);
        } else if self.since.is_some_and(|since| after(edge, since)) {
            self.since = None;
        }
        self.few = few;
    }

    /// Returns true while no SrcAvail may be sent.
    pub(crate) fn is_possible(&self) -> bool {
        self.since.is_some()
    }
}

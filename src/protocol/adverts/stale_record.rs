// SPDX-License-Identifier: GPL-2.0-only

//! The time in which a peer of OFED's line takes a SrcAvail for Data.
//!
//! OFED posts the last RdmaRdCompl of an advert while the advert is still on record, and sends its
//! queue behind it. With two credits left it polls its receive queue in the same call, and takes
//! a SrcAvail from there for Data: the program reads header and inline byte. With more credits it
//! does not poll. Its queue is empty unless it lacked credits before. It posts receive buffers only
//! when the record is gone. So a larger sum of Bufs and MSeqAck shows that the call is over.

use super::super::sequence::after;

/// State that decides if the peer may still have our last advert on record.
#[derive(Clone, Debug, Default)]
pub(crate) struct StaleRecord {
    /// Bufs and MSeqAck of the report, added up.
    since: Option<u32>,
    /// Set if the peer had few credits after its last message.
    few: bool,
}

impl StaleRecord {
    /// Takes in a message. `edge` is the sum of its Bufs and MSeqAck. `few` is set if the peer may
    /// have run out of credits by it, `finished` if it is the last report about an advert.
    pub(crate) fn received(&mut self, edge: u32, few: bool, finished: bool) {
        if finished && (few || self.few) {
            self.since = Some(edge);
        } else if self.since.is_some_and(|since| after(edge, since)) {
            self.since = None;
        }
        self.few = few;
    }

    /// Returns true while no SrcAvail may go.
    pub(crate) fn is_possible(&self) -> bool {
        self.since.is_some()
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Adverts of both ends for zero copy, in both halves of a connection (IBA Annex A4).
//!
//! | accessed by | half we send (we are the source) | half we receive (we are the sink) |
//! |---|---|---|
//! | sink | [`OwnSources`]: SrcAvail, SrcAvailCancel | [`PeerSources`]: RdmaRdCompl, SendSm |
//! | source | [`PeerSinks`]: RdmaWrCompl, SinkCancelAck | [`OwnSinks`]: SinkAvail, its cancel |
//!
//! In each half, either source adverts or sink adverts are outstanding. If the two kinds cross, the
//! sink adverts win: the sink drops the source adverts without a reply. A valid sink advert shows
//! the source that all source adverts were dropped.
//!
//! [`super::connection`] contains the calls of the owner.
//!
//! # Other implementations
//!
//! A peer that announces MaxAdverts 1 counts as OFED. An OFED peer gets one source advert at a
//! time, after it has shown support for source adverts. An OFED peer gets no advert while one of
//! its own adverts is outstanding, or while it may take an advert for Data ([`StaleRecord`]). An
//! OFED peer gets no sink advert and no ModeChange. Messages of an OFED peer are handled like those
//! of any peer: any number of inline bytes, several reports, and refusals at any time are valid.
//!
//! GEN2, which cannot connect because of its major version 1, ignores a SendSm that does not reply
//! to a cancel. Without a cancel, this end sends a SendSm only if the owner refuses or cannot read,
//! and otherwise sends reports. The flag REQ_PIPE, which GEN2 sets on all reports, is ignored,
//! since the owner itself detects large blocks.

mod own;
mod peer_sinks;
mod peer_sources;
mod queue;
mod stale_record;

pub(super) use self::own::{OwnSinks, OwnSources};
pub(super) use self::peer_sinks::PeerSinks;
pub(super) use self::peer_sources::PeerSources;
pub(super) use self::stale_record::StaleRecord;

use super::message::Block;

/// Maximum number of kept adverts of the peer, for each kind: MaxAdverts with zero copy.
pub const MAX_ADVERTS: usize = 16;

impl Block {
    /// Returns true if the block ends at or before the last address.
    fn is_in_range(&self) -> bool {
        let last = self.size.saturating_sub(1);
        self.address.checked_add(last.into()).is_some()
    }

    /// Removes up to `bytes` bytes from the front. Returns the number of removed bytes.
    fn advance(&mut self, bytes: u32) -> u32 {
        let bytes = bytes.min(self.size);
        self.address = self.address.saturating_add(bytes.into());
        self.size = self.size.saturating_sub(bytes);
        bytes
    }
}

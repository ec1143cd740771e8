// SPDX-License-Identifier: GPL-2.0-only

//! Pages passed to the socket by `MSG_SPLICE_PAGES`, collected from several calls. The block holds
//! references to the pages, not pins.

use super::super::budget::Account;
use super::Charged;
use crate::sys::errno::{ENOBUFS, EOPNOTSUPP};
use crate::sys::net::message::SendMsg;
use crate::sys::pin::PAGE;
use crate::sys::rdma::block::Block;
use crate::sys::rdma::dma::Direction::ToDevice;
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::Arc;

impl Block<Charged> {
    /// Prepares an empty block for [`Self::add_pages`]. Context: process, may sleep.
    pub(crate) fn collect(&mut self) -> Result {
        self.data.watched = None;
        self.clear();
        self.pin(|pages| pages.reserve(usize::MAX).map(|()| 0))?;
        self.data.held.xchg(true, Full);
        Ok(())
    }

    /// Adds up to `most` bytes of the pages that a call sends next, without advancing the call, if
    /// they continue the collected pages. Returns the number of bytes. Context: any.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the call has no bytes left. `ENOBUFS`: the limit of this direction is reached.
    pub(crate) fn add_pages(
        &mut self,
        from: &SendMsg<'_>,
        most: usize,
        account: &Arc<Account>,
    ) -> Result<usize> {
        let (at, len) = from.run(most).ok_or(EOPNOTSUPP)?;
        let pages = (at % PAGE).saturating_add(len).div_ceil(PAGE);
        let mut charge = account.charge(ToDevice, pages).ok_or(ENOBUFS)?;
        let before = self.count();
        let n = self.add(|pages| from.add_pages(pages, len));
        charge.shrink(self.count().saturating_sub(before));
        match &mut self.data.charge {
            Some(sum) => sum.add(charge),
            none => *none = Some(charge),
        }
        Ok(n)
    }

    /// Maps the added pages; may sleep. Returns true if the peer may get access (`for_peer`).
    ///
    /// # Errors
    ///
    /// Returns an error of the device; the call can be repeated.
    pub(crate) fn map_added(&mut self, for_peer: bool) -> Result<bool> {
        if for_peer && self.map(ToDevice, true).is_ok() {
            return Ok(true);
        }
        self.map(ToDevice, false).map(|()| false)
    }
}

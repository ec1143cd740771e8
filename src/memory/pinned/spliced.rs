// SPDX-License-Identifier: GPL-2.0-only

//! Pages passed to the socket by `MSG_SPLICE_PAGES`, collected from several calls. They are held
//! by references, not pins.

use super::super::budget::{Account, Use};
use super::{Pinned, Refusal};
use crate::sys::net::message::SendMsg;
use crate::sys::pin::{Pages, Unpinnable, PAGE};
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::Arc;

impl Pinned {
    /// Makes it ready for [`Pinned::add_pages`], with nothing in it. Process context; sleeps.
    pub(crate) fn collect(&mut self) -> Result {
        if let Some(watched) = self.watched.take() {
            self.piece = self.piece.take().or_else(|| watched.take());
        }
        if self.piece.is_none() {
            self.piece = Some(self.pinning.piece()?);
        }
        let piece = self.piece().ok_or(ENOMEM)?;
        piece.release();
        let reserve = |pages: &mut Pages| {
            pages
                .reserve(usize::MAX)
                .map_or(Err(Unpinnable::Fault), |()| Ok(0))
        };
        piece.memory.pin(reserve).map_err(|_| ENOMEM)?;
        piece.held.xchg(true, Full);
        Ok(())
    }

    /// Adds up to `most` bytes of the pages that a call sends next, without advancing it. Adds
    /// only pages that continue at the end of those collected. Returns the number of bytes.
    /// Context: any.
    ///
    /// # Errors
    ///
    /// The reason that no more can be added.
    pub(crate) fn add_pages(
        &mut self,
        from: &SendMsg<'_>,
        most: usize,
        account: &Arc<Account>,
    ) -> Result<usize, Refusal> {
        let piece = self.piece().ok_or(Refusal::NoMemory)?;
        let (at, len) = from.run(most).ok_or(Refusal::NotUser)?;
        let pages = (at % PAGE).saturating_add(len).div_ceil(PAGE);
        let mut charge = account.charge(Use::Send, pages).ok_or(Refusal::Budget)?;
        let before = piece.memory.count();
        let n = piece.memory.add(|pages| from.add_pages(pages, len));
        charge.shrink(piece.memory.count().saturating_sub(before));
        match &mut piece.charge {
            Some(sum) => sum.add(charge),
            none => *none = Some(charge),
        }
        Ok(n)
    }

    /// Maps the added pages. Returns true if the peer can be given access. Context: process, may
    /// sleep.
    ///
    /// # Errors
    ///
    /// Error of the device; the call can be repeated.
    pub(crate) fn map_added(&mut self) -> Result<bool> {
        let piece = self.piece().ok_or(EINVAL)?;
        if piece.map(Use::Send, true).is_ok() {
            return Ok(true);
        }
        piece.map(Use::Send, false).map(|()| false)
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Memory that its program cannot write to meanwhile ([`super::super::protect`]).

use super::super::budget::{Account, Use};
use super::super::notify::Accounting;
use super::{Pinned, Refusal};
use crate::sys::net::message::{Ranges, SendMsg};
use crate::sys::pin::{Pages, PinTerm};
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::Arc;

impl Pinned {
    /// [`Pinned::pin_counted`], and shows the pages to `seen`, and where they are, before the device is held: that may fault. It
    /// sees them once more where they are pinned again.
    pub(crate) fn pin_seen(
        &mut self,
        from: &mut SendMsg<'_>,
        most: usize,
        how: (PinTerm, Accounting),
        account: &Arc<Account>,
        seen: &mut dyn FnMut(&Pages, Ranges<'_>),
    ) -> Result<usize, Refusal> {
        let piece = from.run(most);
        self.pin(account, Use::Send, piece, how, |pages, len, hold| {
            let n = from.pin(pages, len, hold)?;
            seen(pages, from.ranges(n));
            Ok(n)
        })
    }

    /// The same bytes in memory of the kernel's own, which has the charge of this from then on. Nobody has this but the
    /// caller. Process context, without locks; sleeps.
    pub(crate) fn copied(&mut self) -> Result<Pinned> {
        let mut copy = self.pinning.make()?;
        let from = self.piece().ok_or(EINVAL)?;
        let to = copy.piece().ok_or(EINVAL)?;
        to.memory.copy_from(&from.memory)?;
        // without a region it goes in messages
        to.map(Use::Send, true)
            .or_else(|_| to.map(Use::Send, false))?;
        to.charge = from.charge.take();
        to.held.xchg(true, Full);
        Ok(copy)
    }
}

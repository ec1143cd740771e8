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
    /// [`Pinned::pin_counted`] with a callback. Calls `seen` with the pages and their addresses
    /// before the device is held, since it may fault. If the pages are pinned again, calls it once
    /// more.
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

    /// Copies the bytes to kernel memory and moves the charge to the copy. The caller has the only
    /// reference. Context: process, may sleep, no locks.
    pub(crate) fn copied(&mut self) -> Result<Pinned> {
        let mut copy = self.pinning.make()?;
        let from = self.piece().ok_or(EINVAL)?;
        let to = copy.piece().ok_or(EINVAL)?;
        to.memory.copy_from(&from.memory)?;
        // without a region it is sent in messages
        to.map(Use::Send, true)
            .or_else(|_| to.map(Use::Send, false))?;
        to.charge = from.charge.take();
        to.held.xchg(true, Full);
        Ok(copy)
    }
}

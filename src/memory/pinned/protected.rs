// SPDX-License-Identifier: GPL-2.0-only

//! Memory that its program cannot write to while it is in flight ([`super::super::protect`]).

use super::super::budget::{Account, Use};
use super::super::notify::Accounting;
use super::{Charged, Pinned, Pinning};
use crate::sys::net::message::{Ranges, SendMsg};
use crate::sys::pin::{Pages, PinTerm};
use crate::sys::rdma::block::Block;
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::Arc;

impl Pinned {
    /// Replaces the block by a copy in kernel memory, which takes over the charge. Returns the
    /// replaced one.
    pub(crate) fn replace_by(&mut self, mut copy: Pinned) -> Pinned {
        copy.data.charge = self.data.charge.take();
        core::mem::replace(self, copy)
    }
}

impl Block<Charged> {
    /// [`Self::pin_counted`] with a callback. Calls `seen` with the pages and their addresses
    /// before the device is held, since `seen` may fault. If the pages have to be pinned again,
    /// calls `seen` once more.
    pub(crate) fn pin_seen(
        &mut self,
        from: &mut SendMsg<'_>,
        most: usize,
        how: (PinTerm, Accounting),
        account: &Arc<Account>,
        seen: &mut dyn FnMut(&Pages, Ranges<'_>),
    ) -> Result<usize> {
        let piece = from.run(most);
        self.pin_range(account, Use::Send, piece, how, |pages, len, hold| {
            let n = from.pin(pages, len, hold)?;
            seen(pages, from.ranges(n));
            Ok(n)
        })
    }

    /// Copies the bytes to kernel memory and moves the charge to the copy. The caller has the only
    /// reference. Context: process, may sleep, no locks.
    pub(crate) fn copied(&mut self) -> Result<Pinned> {
        let mut copy = Pinning::new(self.mapper().cloned()).make()?;
        copy.copy_from(self)?;
        // without a memory region the copy is sent in messages
        copy.map_for(Use::Send, true)
            .or_else(|_| copy.map_for(Use::Send, false))?;
        copy.data.charge = self.data.charge.take();
        copy.data.held.xchg(true, Full);
        Ok(copy)
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Memory of a program that one end of a connection has lent to its transport.

use crate::memory::pinned::Pinned;
use crate::sys::pin::Pages;
use crate::sys::random::random_below;
use crate::transport::{Access, BlockId, BlockSpan, Key, Transfer};
use kernel::prelude::*;
use kernel::sync::Arc;

/// Pieces of memory that may be lent at a time.
const LOANS: usize = 16;

/// Memory that is lent.
struct BlockEntry {
    loan: BlockId,
    memory: Pinned,
    /// Transfers and messages of ours that are not complete.
    users: u16,
    /// How the peer names it, and what it may do with it.
    key: Option<(Key, Access)>,
    /// Pieces of it that are being copied for the peer.
    accesses: u16,
    /// The end of that is posted.
    ending: bool,
}

/// A piece of memory that is being copied for the peer.
pub(super) struct Accessed {
    loan: BlockId,
    pub(super) pages: Arc<Pages>,
    /// Where in those it begins.
    pub(super) at: usize,
}

/// What is lent. Has no memory of its own before the first loan: most connections never lend
/// anything.
pub(super) struct Loans {
    lent: KVec<Option<BlockEntry>>,
    next: u32,
}

impl Loans {
    /// Nothing lent.
    pub(super) const fn new() -> Self {
        Loans {
            lent: KVec::new(),
            next: 0,
        }
    }

    fn prepare(&mut self) -> Result {
        if self.lent.is_empty() {
            self.lent.reserve(LOANS, GFP_ATOMIC)?;
            for _ in 0..LOANS {
                let _ = self.lent.push_within_capacity(None);
            }
        }
        Ok(())
    }

    fn find(&mut self, loan: BlockId) -> Result<&mut BlockEntry> {
        self.lent
            .get_mut(loan.index())
            .and_then(Option::as_mut)
            .filter(|l| l.loan == loan)
            .ok_or(ENOENT)
    }

    /// Takes memory over.
    ///
    /// # Errors
    ///
    /// Gives it back if it was made for a device or nothing is pinned, if as much is lent as can
    /// be, or if there is no memory for that.
    pub(super) fn lend(&mut self, memory: Pinned) -> Result<BlockId, Pinned> {
        let fits = memory.len() != 0 && memory.pages().is_some();
        if !fits || self.prepare().is_err() {
            return Err(memory);
        }
        let free = self.lent.iter().position(Option::is_none);
        let Some((index, place)) = free.and_then(|i| Some((i, self.lent.get_mut(i)?))) else {
            return Err(memory);
        };
        let loan = BlockId::new(index as u8, self.next);
        self.next = self.next.wrapping_add(1);
        *place = Some(BlockEntry {
            loan,
            memory,
            users: 0,
            key: None,
            accesses: 0,
            ending: false,
        });
        Ok(loan)
    }

    /// Gives memory back that nothing can access any more.
    pub(super) fn reclaim(&mut self, loan: BlockId) -> Result<Pinned> {
        let lent = self.find(loan)?;
        if lent.users != 0 || lent.key.is_some() {
            return Err(EBUSY);
        }
        let lent = self.lent.get_mut(loan.index()).and_then(Option::take);
        Ok(lent.ok_or(ENOENT)?.memory)
    }

    /// Gives the peer access, and tells how it names the memory.
    pub(super) fn register(&mut self, loan: BlockId, access: Access) -> Result<Key> {
        // 2^31 places for 2^31 bytes each, of which memory uses the first few.
        let address = u64::from(random_below(1 << 31) + 1) << 31;
        let lent = self.find(loan)?;
        if lent.key.is_some() || lent.users != 0 {
            return Err(EBUSY);
        }
        let pages = lent.memory.pages().ok_or(EINVAL)?;
        if access == Access::Write && !pages.writable() {
            return Err(EINVAL);
        }
        let key = Key {
            rkey: random_below(u32::MAX),
            address: address + u64::from(pages.offset()),
            len: u32::try_from(pages.len())?,
        };
        lent.key = Some((key, access));
        Ok(key)
    }

    /// The end of the peer's access is posted.
    pub(super) fn stop_access(&mut self, loan: BlockId) -> Result {
        let lent = self.find(loan)?;
        if lent.key.is_none() {
            return Err(EINVAL);
        }
        match core::mem::replace(&mut lent.ending, true) {
            true => Err(crate::sys::errno::EALREADY.into()),
            false => Ok(()),
        }
    }

    /// The peer's access has ended.
    pub(super) fn access_ended(&mut self, loan: BlockId) {
        if let Ok(lent) = self.find(loan) {
            (lent.key, lent.ending) = (None, false);
        }
    }

    /// A message sends these bytes from now on.
    pub(super) fn begin_message(&mut self, part: &BlockSpan) -> Result {
        self.begin_part(part.loan, part.offset, part.len, false)
    }

    /// A transfer uses this memory from now on.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the peer has access; `EINVAL` for what is beyond the memory, nothing at all, or
    /// memory that is not to be written; `ENOENT`.
    pub(super) fn begin(&mut self, loan: BlockId, t: &Transfer) -> Result {
        self.begin_part(loan, t.offset, t.len, t.read)
    }

    fn begin_part(&mut self, loan: BlockId, offset: u32, len: u32, written: bool) -> Result {
        let lent = self.find(loan)?;
        let pages = lent.memory.pages().ok_or(EINVAL)?;
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if len == 0 || end as usize > pages.len() || (written && !pages.writable()) {
            return Err(EINVAL);
        }
        if lent.key.is_some() {
            return Err(EBUSY);
        }
        lent.users += 1;
        Ok(())
    }

    /// A transfer or message is complete.
    pub(super) fn over(&mut self, loan: BlockId) {
        if let Ok(lent) = self.find(loan) {
            lent.users = lent.users.saturating_sub(1);
        }
    }

    /// The pages of memory.
    pub(super) fn pages(&mut self, loan: BlockId) -> Result<Arc<Pages>> {
        self.find(loan)?.memory.pages().cloned().ok_or(ENOENT)
    }

    /// A transfer of the peer is being carried out from its `begun`-th byte on.
    pub(super) fn begin_access(&mut self, t: &Transfer, begun: u32) -> Result<Accessed> {
        let wanted = match t.read {
            true => Access::Read,
            false => Access::Write,
        };
        let is_meant = |(key, access): (Key, Access)| key.rkey == t.rkey && access == wanted;
        let mut lent = self.lent.iter_mut().flatten();
        let lent = lent.find(|l| l.key.is_some_and(is_meant));
        let lent = lent.ok_or(EACCES)?;
        let (key, _) = lent.key.ok_or(EACCES)?;
        let at = t.address.checked_sub(key.address).ok_or(EACCES)?;
        let end = at.checked_add(u64::from(t.len)).ok_or(EACCES)?;
        if end > u64::from(key.len) {
            return Err(EACCES);
        }
        let pages = lent.memory.pages().cloned().ok_or(EACCES)?;
        let at = usize::try_from(at)?.checked_add(begun as usize);
        let at = at.ok_or(EACCES)?;
        lent.accesses += 1;
        Ok(Accessed {
            loan: lent.loan,
            pages,
            at,
        })
    }

    /// That piece was copied.
    pub(super) fn end_access(&mut self, a: &Accessed) {
        if let Ok(lent) = self.find(a.loan) {
            lent.accesses = lent.accesses.saturating_sub(1);
        }
    }

    /// Whether something of it is being copied for the peer.
    pub(super) fn is_accessed(&mut self, loan: BlockId) -> bool {
        self.find(loan).is_ok_and(|l| l.accesses > 0)
    }

    /// Drops everything that is lent; whether anything was. Process context.
    pub(super) fn destroy(&mut self) -> bool {
        let mut any = false;
        for lent in self.lent.iter_mut().filter_map(Option::take) {
            lent.memory.destroy();
            any = true;
        }
        any
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Memory of a program that a zero-copy transfer reads or writes.
//!
//! A [`Pinned`] is one allocation that holds at most one pinned block at a time, with its charge.
//! The connection keeps unused allocations for reuse, so a transfer usually allocates nothing.
//! [`crate::transport`] describes the order of steps.
//!
//! **Owner.** While a device or the peer may access the memory, the transport owns the `Pinned`.
//! Therefore the memory cannot be unpinned, even if the caller or the connection ends. While the
//! caller owns the memory, only the program accesses it.
//!
//! **Cache.** With the parameter `pin_cache`, `Pinned::into_spare` leaves the memory pinned and
//! mapped, without access by others. The next transfer of exactly the same memory by the same
//! process needs only a new key. [`crate::sys::watch`] releases cached memory if the mapping
//! changes, if memory is short, or if another block needs the space. Cached memory stays charged to
//! its user; a request beyond the limit releases cached memory.
//!
//! **Notification.** A block may have a [`Notify`], which notifies at the block's release.
//!
//! **Release.** Unpinning sleeps. `Pinned::into_spare` unpins the memory at once, in process
//! context. The drop of a `Pinned`, in any context, queues the unpinning to a workqueue.

use super::budget::{Account, Charge};
use super::protect::InFlight;
use crate::sys::errno::{ENOBUFS, EOPNOTSUPP};
use crate::sys::net::message::{RecvMsg, SendMsg};
use crate::sys::net::notice::ZerocopyPiece;
use crate::sys::net::params;
use crate::sys::pin::{Locked, Pages, PinTerm, PAGE};
use crate::sys::rdma::block::{Block, OwnedBlock};
use crate::sys::rdma::mapper::Mapper;
use crate::sys::watch::{self, Watched};
use kernel::dma::DataDirection::{self as Direction, FromDevice, ToDevice};
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, AtomicFlag, Full};
use kernel::sync::Arc;

/// Maximum number of pages in one block for a local peer: 2 MiB, as with devices.
const MOST_PAGES: usize = (2 << 20) / PAGE;

/// Receiver of the notification that memory is released. The drop, in process context after the
/// release of the pages, sends the notification.
pub(crate) enum Notify {
    /// Notification of a call with `MSG_ZEROCOPY`.
    Call(#[expect(dead_code, reason = "held until it is dropped")] ZerocopyPiece),
    /// Tasks that wait to write to the memory.
    Protected(#[expect(dead_code, reason = "held until it is dropped")] InFlight),
}

/// Accounting of pinned memory against its user's `RLIMIT_MEMLOCK`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accounting {
    /// Charged by the pinning code.
    Here,
    /// Charged by the pinning code, which pins the pages again even if they are already pinned.
    HereAnew,
    /// Charged by the kernel's `MSG_ZEROCOPY` code.
    ByNotice,
}

/// Handle that shows if a block is still in use, without a reference to the block.
#[derive(Clone)]
pub(crate) struct Watch(Arc<AtomicFlag>);

impl Watch {
    /// Returns true from the pinning to the release, after which nothing accesses the memory.
    pub(crate) fn is_held(&self) -> bool {
        self.0.load(Acquire)
    }
}

/// Allocates and pins blocks of one connection. Context: process, without locks.
#[derive(Clone)]
pub(crate) struct Pinning {
    /// Mapper of the device; `None` for a local peer.
    mapper: Option<Arc<Mapper>>,
}

impl Pinning {
    /// Creates a [`Pinning`] for a device, or with `None` for a local peer.
    pub(crate) fn new(mapper: Option<Arc<Mapper>>) -> Self {
        Pinning { mapper }
    }

    /// Allocates an empty block. Sleeps. After a failure (`ENOMEM`, or an error of the device), the
    /// caller has to copy.
    pub(crate) fn make(&self) -> Result<Pinned> {
        let most = most_pages(self.mapper.as_ref());
        if most == 0 {
            return Err(ENODEV);
        }
        let data = Charged {
            charge: None,
            locked: None,
            held: Arc::new(AtomicFlag::new(false), GFP_KERNEL)?,
            notify: None,
            watched: None,
        };
        Pinned::new(|| Block::new(self.mapper.clone(), most, data))
    }

    /// Allocates a block with copies of `pages` in kernel memory. Context: process, sleeps.
    pub(crate) fn copy_of(&self, pages: &Pages) -> Result<Pinned> {
        let mut copy = self.make()?;
        copy.copy_pages(pages)?;
        copy.map_source(true)?;
        copy.data.held.xchg(true, Full);
        Ok(copy)
    }

    /// Returns the beginning of a range, limited to the maximum size of a block.
    pub(super) fn cut(&self, range: (usize, usize)) -> (usize, usize) {
        cut(self.mapper.as_ref(), range)
    }
}

/// Returns the maximum number of pages in one block, 0 without zero copy.
fn most_pages(mapper: Option<&Arc<Mapper>>) -> usize {
    mapper.map_or(MOST_PAGES, |m| m.most_pages())
}

fn cut(mapper: Option<&Arc<Mapper>>, (address, len): (usize, usize)) -> (usize, usize) {
    let most = most_pages(mapper).saturating_mul(PAGE);
    (address, len.min(most.saturating_sub(address % PAGE)))
}

/// Charges and state of a block.
pub(crate) struct Charged {
    charge: Option<Charge>,
    locked: Option<Locked>,
    /// True while the block is in use.
    held: Arc<AtomicFlag>,
    /// Notification sent when the block is released.
    notify: Option<Notify>,
    /// Watch of the pages' mapping, if the pages may stay pinned.
    watched: Option<Watched<Pinned>>,
}

impl Charged {
    fn clear(&mut self) {
        self.charge = None;
        self.locked = None;
        self.held.xchg(false, Full);
        self.notify = None;
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A block of program memory, or an empty block. May be dropped in any context: a worker unpins the
/// pages and destroys the memory region, which sleeps.
pub(crate) type Pinned = OwnedBlock<Charged>;

impl Pinned {
    /// Releases the memory, or leaves it pinned if the cache may keep it. Context: process, sleeps.
    pub(crate) fn into_spare(mut self) -> Spare {
        let watched = self.data.watched.take();
        let stays = self.caches() && self.data.locked.is_some() && self.may_stay();
        if let Some(mut watched) = watched.filter(|_| stays) {
            self.sync(true);
            self.data.held.xchg(false, Full);
            self.data.notify = None;
            let pages = self.count();
            match watched.park(self, pages) {
                Ok(()) => return Spare::Parked(watched),
                Err(changed) => self = changed,
            }
        }
        self.clear();
        Spare::Empty(self)
    }

    /// Copies the bytes to kernel memory and moves the charge to the copy. The caller has the only
    /// reference. Context: process, may sleep, no locks.
    pub(crate) fn copied(&mut self) -> Result<Pinned> {
        let pages = self.pages().ok_or(EINVAL)?;
        let mut copy = Pinning::new(self.mapper().cloned()).copy_of(pages)?;
        copy.data.charge = self.data.charge.take();
        Ok(copy)
    }

    /// Replaces the block by a kernel copy, which takes over the charge. Returns the old block.
    pub(crate) fn replace_by(&mut self, mut copy: Pinned) -> Pinned {
        copy.data.charge = self.data.charge.take();
        core::mem::replace(self, copy)
    }
}

/// A block that is not in use.
pub(crate) enum Spare {
    Empty(Pinned),
    /// The block's memory stays pinned until the mapping changes or memory is short.
    Parked(Watched<Pinned>),
}

impl Spare {
    pub(super) fn is_parked(&self) -> bool {
        matches!(self, Spare::Parked(watched) if watched.is_parked())
    }

    /// Returns the block; `None` if the block was freed while it was parked.
    pub(super) fn into_block(self) -> Option<Pinned> {
        match self {
            Spare::Empty(block) => Some(block),
            Spare::Parked(mut watched) => {
                let mut block = watched.take()?;
                block.data.watched = Some(watched);
                Some(block)
            }
        }
    }
}

impl Block<Charged> {
    /// Returns true if the block's memory stays pinned between transfers.
    fn caches(&self) -> bool {
        match params::pin_cache() {
            0 => false,
            1.. => true,
            // pinning takes longer than a copy, but less time than the transfer by a device
            _ => self.mapper().is_none(),
        }
    }

    fn clear(&mut self) {
        self.release();
        self.data.clear();
    }

    /// Pins the next bytes of a program's send call, at most `most`, without consuming them.
    /// Returns the number of bytes. The bytes are part of one [run](SendMsg::run), or of one block
    /// that may stay pinned, so more bytes may follow. The peer can get access. Context:
    /// process, sleeps, may fault. After the call the device is held: the caller must not fault
    /// before it posts or releases the block.
    ///
    /// # Errors
    ///
    /// After each error the caller has to copy. `EOPNOTSUPP`: the bytes are not memory of a
    /// program, as in splice(2), or no bytes are left. `EFAULT`: the memory cannot be pinned, or
    /// not even copied. `ENOBUFS`: the limit of this direction is reached. `EPERM`: the user's
    /// `RLIMIT_MEMLOCK` is reached. `ENOMEM`.
    pub(crate) fn pin_source(
        &mut self,
        from: &mut SendMsg<'_>,
        most: usize,
        account: &Arc<Account>,
    ) -> Result<usize> {
        let piece = from.piece(most);
        let piece = match self.caches() {
            true => piece,
            false => piece.and_then(|_| from.run(most)),
        };
        let how = (PinTerm::Long, Accounting::Here);
        self.pin_range(account, ToDevice, piece, how, |pages, len, hold| {
            from.pin(pages, len, hold)
        })
    }

    /// Pins bytes of one run like [`Self::pin_source`], including memory that the call gives as
    /// pages. Calls `seen` with the pages before the device is held, since `seen` may fault. Calls
    /// `seen` again if the pages have to be pinned again.
    pub(crate) fn pin_counted(
        &mut self,
        from: &mut SendMsg<'_>,
        most: usize,
        counted: Accounting,
        account: &Arc<Account>,
        seen: &mut dyn FnMut(&Pages),
    ) -> Result<usize> {
        let piece = from.run(most);
        let how = (PinTerm::Long, counted);
        self.pin_range(account, ToDevice, piece, how, |pages, len, hold| {
            let n = from.pin(pages, len, hold)?;
            seen(pages);
            Ok(n)
        })
    }

    /// Sets the receiver of the notification that the memory is released.
    pub(crate) fn notify(&mut self, notify: Notify) {
        self.data.notify = Some(notify);
    }

    /// Pins memory for up to `most` bytes of a receive call, like [`Self::pin_source`].
    pub(crate) fn pin_destination(
        &mut self,
        to: &mut RecvMsg<'_>,
        most: usize,
        hold: PinTerm,
        account: &Arc<Account>,
    ) -> Result<usize> {
        let piece = to.piece(most);
        let how = (hold, Accounting::Here);
        self.pin_range(account, FromDevice, piece, how, |pages, len, hold| {
            to.pin(pages, len, hold)
        })
    }

    fn pin_range(
        &mut self,
        account: &Arc<Account>,
        direction: Direction,
        range: Option<(usize, usize)>,
        (hold, counted): (PinTerm, Accounting),
        mut pin: impl FnMut(&mut Pages, usize, PinTerm) -> Result<usize>,
    ) -> Result<usize> {
        let (address, len) = cut(self.mapper(), range.ok_or(EOPNOTSUPP)?);
        // without a user address, `address` is the offset in the first page
        let cache = counted != Accounting::HereAnew && self.caches() && address >= PAGE;
        let for_peer = hold == PinTerm::Long;
        if let Some(watched) = self.data.watched.take().filter(|_| cache) {
            let same = self.data.charge.as_ref().map(Charge::direction) == Some(direction);
            if same && watched.is(address, len) && self.map(direction, for_peer).is_ok() {
                self.sync(false);
                self.data.held.xchg(true, Full);
                self.data.watched = Some(watched);
                account.hits.add(1);
                return Ok(len);
            }
        }
        self.clear();
        // the peer determines the duration of a device's transfer
        let hold = match self.mapper() {
            Some(_) => PinTerm::Long,
            None => hold,
        };
        let pages = (address % PAGE).saturating_add(len).div_ceil(PAGE);
        let how = (pages, counted, for_peer);
        if let Some(watched) = cache.then(|| Watched::new(address, len).ok()).flatten() {
            let n = self.pin_charged(account, direction, how, |m| pin(m, len, PinTerm::Long));
            if n == Ok(len) {
                self.data.watched = Some(watched);
            }
            // memory that must not stay pinned may be pinned for a short time
            if n != Err(EFAULT) || hold == PinTerm::Long {
                return n;
            }
        }
        self.pin_charged(account, direction, how, |m| pin(m, len, hold))
    }

    /// Charges `pages`, pins them by `pin`, maps them, and corrects the charge.
    fn pin_charged(
        &mut self,
        account: &Arc<Account>,
        direction: Direction,
        (pages, counted, for_peer): (usize, Accounting, bool),
        pin: impl FnOnce(&mut Pages) -> Result<usize>,
    ) -> Result<usize> {
        if pages == 0 {
            return Err(EOPNOTSUPP.into());
        }
        // releases idle memory for a later attempt, since the release takes some time
        let mut charge = account.charge(direction, pages).ok_or_else(|| {
            watch::shrink(pages);
            ENOBUFS
        })?;
        let locked = match counted {
            Accounting::ByNotice => None,
            _ => Some(Locked::new(pages).ok_or_else(|| {
                account.unlockable.add(1);
                watch::shrink(pages);
                EPERM
            })?),
        };
        let n = self.pin(pin)?;
        if self.map(direction, for_peer).is_err() {
            self.release();
            return Err(ENOMEM);
        }
        charge.shrink(self.count());
        (self.data.charge, self.data.locked) = (Some(charge), locked);
        self.data.held.xchg(true, Full);
        Ok(n)
    }

    /// Prepares an empty block for [`Self::add_pages`]. Context: process, may sleep.
    pub(crate) fn collect(&mut self) -> Result {
        self.data.watched = None;
        self.clear();
        self.pin(|pages| pages.reserve(usize::MAX).map(|()| 0))?;
        self.data.held.xchg(true, Full);
        Ok(())
    }

    /// Adds up to `most` bytes of the pages that a call sends next, if these continue the collected
    /// pages. Does not advance the call. Returns the number of bytes. Context: any.
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

    /// Maps the pages for sending. Returns true if the peer may get access (`for_peer`); otherwise
    /// the bytes are sent in messages. After an error of the device, the caller can retry. May
    /// sleep.
    pub(crate) fn map_source(&mut self, for_peer: bool) -> Result<bool> {
        if for_peer && self.map(ToDevice, true).is_ok() {
            return Ok(true);
        }
        self.map(ToDevice, false).map(|()| false)
    }

    /// Returns an object that shows if the memory is still in use.
    pub(crate) fn watch(&self) -> Watch {
        Watch(self.data.held.clone())
    }
}

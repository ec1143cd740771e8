// SPDX-License-Identifier: GPL-2.0-only

//! Memory of a program that a transfer reads or writes directly.
//!
//! A [`Pinned`] can hold one block of such memory at a time, with its charge. The connection's
//! [`Pinning`] makes it once, and it is used repeatedly: usually a transfer allocates nothing.
//! [`crate::transport`] has the order of steps.
//!
//! **Owner.** While a device or the peer may access the memory, the transport owns the `Pinned`.
//! So it cannot be unpinned, whatever happens to the caller or the connection. While the caller
//! owns it, only the program accesses the memory.
//!
//! **Cache.** With the parameter `pin_cache`, [`Pinned::release`] leaves the memory pinned and
//! mapped, without access by others. The next transfer of exactly that memory by the same process
//! reuses it, with a new key. Meanwhile [`crate::sys::watch`] releases it when the mapping
//! changes, when memory is short, or for another block. The memory stays charged to its user; a
//! request beyond the budget releases it.
//!
//! **Notification.** A block may have a [`Notify`], which is dropped whenever the block is
//! released.
//!
//! **Release.** Unpinning sleeps. [`Pinned::release`] does it at once, in process context. The drop
//! of a `Pinned` leaves it to the module's workqueue, so it may happen in any context.

mod protected;
mod spliced;

use super::budget::{Account, Charge, Use};
use super::notify::{Accounting, Notify, Watch};
use crate::sys::deferred::DropInWorker;
use crate::sys::net::message::{RecvMsg, SendMsg};
use crate::sys::net::params;
use crate::sys::pin::{Locked, Pages, PinTerm, Unpinnable, PAGE};
use crate::sys::rdma::mapper::Mapper;
use crate::sys::rdma::send::blocks::BlockMemory;
use crate::sys::rdma::user_memory::UserMemory;
use crate::sys::watch::{self, Watched};
use kernel::prelude::*;
use kernel::sync::atomic::{AtomicFlag, Full};
use kernel::sync::Arc;

/// Maximum number of pages in one block for a local peer: 2 MiB, as with devices.
const MOST_PAGES: usize = (2 << 20) / PAGE;

/// Reason that memory was not pinned: the bytes are copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// It is not memory of a program, as in splice(2), or nothing is left of it.
    NotUser,
    /// It cannot be pinned, or not be accessed. A copy shows which.
    Fault,
    /// The budget of this direction is used up.
    Budget,
    /// The user's `RLIMIT_MEMLOCK` is.
    MemoryLock,
    /// Out of memory.
    NoMemory,
}

impl From<Unpinnable> for Refusal {
    fn from(why: Unpinnable) -> Self {
        match why {
            Unpinnable::NotUser => Refusal::NotUser,
            Unpinnable::Fault => Refusal::Fault,
        }
    }
}

/// Maker of pinned memory of one connection. Context: process, without locks.
#[derive(Clone)]
pub(crate) struct Pinning {
    mapper: Option<Arc<Mapper>>,
}

impl Pinning {
    /// Makes one for a device, or (`None`) for a local peer.
    pub(crate) fn new(mapper: Option<Arc<Mapper>>) -> Self {
        Pinning { mapper }
    }

    /// Returns true if its memory stays pinned between transfers.
    fn caches(&self) -> bool {
        match params::pin_cache() {
            0 => false,
            1.. => true,
            // beside one copy, pinning takes much of the time; beside a device's work it does not
            _ => self.mapper.is_none(),
        }
    }

    /// Returns the minimum time to pin for: a device's transfer lasts as long as the peer likes.
    fn term(&self, wanted: PinTerm) -> PinTerm {
        match self.mapper {
            Some(_) => PinTerm::Long,
            None => wanted,
        }
    }

    /// Returns the maximum number of pages in one block, 0 if the device cannot do this.
    pub(crate) fn most_pages(&self) -> usize {
        self.mapper.as_ref().map_or(MOST_PAGES, |m| m.most_pages())
    }

    /// Allocates memory for one block. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or the device's error: copy then.
    pub(crate) fn make(&self) -> Result<Pinned> {
        Ok(Pinned {
            pinning: self.clone(),
            piece: Some(self.piece()?),
            watched: None,
        })
    }

    fn piece(&self) -> Result<DropInWorker<PinnedBlock>> {
        if self.most_pages() == 0 {
            return Err(ENODEV);
        }
        DropInWorker::new(PinnedBlock {
            memory: UserMemory::new(self.mapper.as_ref(), self.most_pages())?,
            charge: None,
            locked: None,
            held: Arc::new(AtomicFlag::new(false), GFP_KERNEL)?,
            notify: None,
        })
    }
}

/// Pinned block with its charge.
struct PinnedBlock {
    memory: UserMemory,
    charge: Option<Charge>,
    locked: Option<Locked>,
    /// True while it is in use.
    held: Arc<AtomicFlag>,
    /// Notified when it is not in use any more.
    notify: Option<Notify>,
}

impl PinnedBlock {
    fn release(&mut self) {
        self.memory.release();
        self.charge = None;
        self.locked = None;
        self.held.xchg(false, Full);
        self.notify = None;
    }

    /// Charges `pages`, pins them by `pin`, maps them, and corrects the charge.
    fn pin(
        &mut self,
        account: &Arc<Account>,
        purpose: Use,
        (pages, counted): (usize, Accounting),
        for_peer: bool,
        pin: impl FnOnce(&mut Pages) -> Result<usize, Unpinnable>,
    ) -> Result<usize, Refusal> {
        self.release();
        if pages == 0 {
            return Err(Refusal::NotUser);
        }
        // idle memory is released for the next attempt: that takes a moment
        let mut charge = account.charge(purpose, pages).ok_or_else(|| {
            watch::shrink(pages);
            Refusal::Budget
        })?;
        let locked = match counted {
            Accounting::ByNotice => None,
            _ => Some(Locked::new(pages).ok_or_else(|| {
                account.count_unlockable();
                watch::shrink(pages);
                Refusal::MemoryLock
            })?),
        };
        let n = self.memory.pin(pin)?;
        if self.map(purpose, for_peer).is_err() {
            self.memory.release();
            return Err(Refusal::NoMemory);
        }
        charge.shrink(self.memory.count());
        (self.charge, self.locked) = (Some(charge), locked);
        self.held.xchg(true, Full);
        Ok(n)
    }

    /// Maps the pages for the device, in the direction they were pinned for.
    fn map(&mut self, purpose: Use, for_peer: bool) -> Result {
        self.memory.map(purpose == Use::Receive, for_peer)
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        self.release();
    }
}

/// One block of a program's memory, or none. May be dropped in any context.
pub(crate) struct Pinned {
    pinning: Pinning,
    /// `None` while it is idle. Its drop unpins, and destroys the region, which sleeps.
    piece: Option<DropInWorker<PinnedBlock>>,
    /// Watches the pages, if they may stay pinned, and owns them while idle.
    watched: Option<Watched<DropInWorker<PinnedBlock>>>,
}

impl Pinned {
    fn piece(&mut self) -> Option<&mut PinnedBlock> {
        self.piece.as_deref_mut()
    }

    /// Pins the next bytes of a program's send call, at most `most`, without taking them. Returns
    /// their number. They are in one [run](SendMsg::run), or in one block if that may stay pinned,
    /// so there may be more. With `PinTerm::Long` the peer can be given access. Context: process,
    /// sleeps, may fault. Afterwards the device is held: the caller must not fault before it posts
    /// or releases this.
    ///
    /// # Errors
    ///
    /// The reason; the caller has to copy then.
    pub(crate) fn pin_source(
        &mut self,
        from: &mut SendMsg<'_>,
        most: usize,
        hold: PinTerm,
        account: &Arc<Account>,
    ) -> Result<usize, Refusal> {
        let piece = from.piece(most);
        let piece = match self.pinning.caches() {
            true => piece,
            false => piece.and_then(|_| from.run(most)),
        };
        let how = (hold, Accounting::Here);
        self.pin(account, Use::Send, piece, how, |pages, len, hold| {
            from.pin(pages, len, hold)
        })
    }

    /// Like [`Pinned::pin_source`], always of one run, also of memory given as pages. `how.1`:
    /// accounting against the user's `RLIMIT_MEMLOCK`.
    pub(crate) fn pin_counted(
        &mut self,
        from: &mut SendMsg<'_>,
        most: usize,
        how: (PinTerm, Accounting),
        account: &Arc<Account>,
    ) -> Result<usize, Refusal> {
        self.pin_seen(from, most, how, account, &mut |_, _| ())
    }

    /// Sets the receiver of the notification that the memory is released.
    pub(crate) fn notify(&mut self, notify: Notify) {
        if let Some(piece) = self.piece() {
            piece.notify = Some(notify);
        }
    }

    /// Records that the kernel has copied some of it, for the completion of `MSG_ZEROCOPY`.
    pub(crate) fn was_copied(&mut self) {
        if let Some(Notify::Call(call)) = self.piece().and_then(|p| p.notify.as_mut()) {
            call.was_copied();
        }
    }

    /// Pins where a receive call wants its next bytes, for `most` bytes or fewer; else like
    /// [`Pinned::pin_source`].
    pub(crate) fn pin_destination(
        &mut self,
        to: &mut RecvMsg<'_>,
        most: usize,
        hold: PinTerm,
        account: &Arc<Account>,
    ) -> Result<usize, Refusal> {
        let piece = to.piece(most);
        let how = (hold, Accounting::Here);
        self.pin(account, Use::Receive, piece, how, |pages, len, hold| {
            to.pin(pages, len, hold)
        })
    }

    /// Returns the beginning of a range, at most the maximum size of a block.
    fn cut(&self, (address, len): (usize, usize)) -> (usize, usize) {
        let most = self.pinning.most_pages().saturating_mul(PAGE);
        (address, len.min(most.saturating_sub(address % PAGE)))
    }

    fn pin(
        &mut self,
        account: &Arc<Account>,
        purpose: Use,
        piece: Option<(usize, usize)>,
        (hold, counted): (PinTerm, Accounting),
        mut pin: impl FnMut(&mut Pages, usize, PinTerm) -> Result<usize, Unpinnable>,
    ) -> Result<usize, Refusal> {
        let (address, len) = self.cut(piece.ok_or(Refusal::NotUser)?);
        // memory without an address in the program has the offset in its first page as address
        let cache = counted != Accounting::HereAnew && self.pinning.caches() && address >= PAGE;
        let for_peer = hold == PinTerm::Long;
        let hold = self.pinning.term(hold);
        if let Some(watched) = self.watched.take() {
            if self.piece.is_none() {
                self.piece = watched.take();
                if let Some(piece) = self.piece().filter(|_| cache && watched.is(address, len)) {
                    let same = piece.charge.as_ref().map(|c| c.purpose()) == Some(purpose);
                    if same && piece.map(purpose, for_peer).is_ok() {
                        piece.memory.sync(false);
                        piece.held.xchg(true, Full);
                        self.watched = Some(watched);
                        account.count_hit();
                        return Ok(len);
                    }
                }
            }
        }
        if self.piece.is_none() {
            // released while it was idle
            self.piece = Some(self.pinning.piece().map_err(|_| Refusal::NoMemory)?);
        }
        let pages = (address % PAGE).saturating_add(len).div_ceil(PAGE);
        let piece = self.piece.as_deref_mut().ok_or(Refusal::NoMemory)?;
        if cache {
            piece.release();
            if let Ok(watched) = Watched::new(address, len) {
                let moment = watched.begin();
                let n = piece.pin(account, purpose, (pages, counted), for_peer, |m| {
                    pin(m, len, PinTerm::Long)
                });
                if n == Ok(len) && watched.is_valid(moment) {
                    self.watched = Some(watched);
                }
                // memory that must not stay pinned may be pinned for a moment
                if n != Err(Refusal::Fault) || hold == PinTerm::Long {
                    return n;
                }
            }
        }
        piece.pin(account, purpose, (pages, counted), for_peer, |m| {
            pin(m, len, hold)
        })
    }

    /// Returns true if it is pinned for this range of the calling process's memory.
    pub(crate) fn is_for(&self, piece: (usize, usize)) -> bool {
        let (address, len) = self.cut(piece);
        self.piece.is_none() && self.watched.as_ref().is_some_and(|w| w.is(address, len))
    }

    /// Returns true if its memory has stayed pinned.
    pub(crate) fn is_idle(&self) -> bool {
        self.watched.as_ref().is_some_and(Watched::is_parked)
    }

    pub(crate) fn len(&self) -> usize {
        self.piece.as_ref().map_or(0, |p| p.memory.len())
    }

    /// Releases the memory. Context: process, sleeps.
    pub(crate) fn release(&mut self) {
        let Some(mut piece) = self.piece.take() else {
            return;
        };
        let bounces = piece.memory.bounces();
        let keeps = self.pinning.caches() && !bounces;
        if let Some(watched) = self.watched.take().filter(|_| keeps) {
            let (counted, pages) = (piece.locked.is_some(), piece.memory.count());
            if counted && pages != 0 && !piece.memory.is_registered() {
                piece.memory.sync(true);
                piece.held.xchg(false, Full);
                piece.notify = None;
                match watched.park(piece, pages) {
                    Ok(()) => self.watched = Some(watched),
                    Err(p) => {
                        self.piece = Some(p);
                        self.release();
                    }
                }
                return;
            }
        }
        piece.release();
        self.piece = Some(piece);
    }

    /// Drops it at once. Context: process, sleeps.
    pub(crate) fn destroy(mut self) {
        if let Some(watched) = self.watched.take() {
            self.piece = watched.take().or(self.piece.take());
        }
        if let Some(piece) = self.piece.take() {
            piece.destroy();
        }
    }

    /// Returns an object that reports if the memory is still in use.
    pub(crate) fn watch(&self) -> Option<Watch> {
        self.piece.as_ref().map(|p| Watch(p.held.clone()))
    }

    /// The pages, if it was made for a peer on this machine.
    pub(crate) fn pages(&self) -> Option<&Arc<Pages>> {
        self.piece.as_ref()?.memory.shared()
    }
}

impl BlockMemory for Pinned {
    fn take_memory(&mut self) -> Option<UserMemory> {
        self.piece.as_mut()?.memory.take_for_device()
    }

    fn put_back(&mut self, memory: UserMemory) {
        if let Some(piece) = self.piece.as_mut() {
            piece.memory = memory;
        }
    }

    fn destroy(self) {
        self.destroy();
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Memory of a program that a transfer reads or writes directly.
//!
//! A [`Pinned`] is room for one piece of such memory at a time, and what that piece counts for. It
//! is made once by the connection's [`Pinning`] and used again and again: in the steady state
//! nothing is allocated for a transfer. The order of steps is in [`crate::transport`].
//!
//! **Who owns it.** As long as a device or the peer may access the memory, the transport owns the
//! `Pinned`: nobody else can unpin it, whatever becomes of the caller or of the connection. While
//! its caller owns it, nobody accesses the memory but the program.
//!
//! **What stays pinned.** Where the parameter `pin_cache` says so, [`Pinned::release`] leaves the memory
//! pinned and mapped, without access for anybody, and the next transfer of just that memory by the
//! same process finds it so; the key is another one all the same. It is let go of when the mapping
//! changes, when memory is short, or when its room is needed: by [`crate::sys::watch`], which holds
//! the piece meanwhile. It counts for its user, who gets it back by asking for more than the budget has.
//!
//! **Where it is let go of.** Unpinning sleeps. [`Pinned::release`] does it on the spot, in process
//! context; a `Pinned` that is dropped leaves it to the module's workqueue, so that may be done
//! anywhere.

use super::access::{Access, Origin};
use super::budget::{Account, Charge, Use};
use crate::sys::net::message::{Destination, Source};
use crate::sys::net::params;
use crate::sys::pin::{Hold, Locked, Pages, Unpinnable, PAGE};
use crate::sys::rdma::mapper::Mapper;
use crate::sys::rdma::send::blocks::Lendable;
use crate::sys::rdma::user_memory::UserMemory;
use crate::sys::rdma::work;
use crate::sys::watch::{self, Idle, Watched};
use kernel::prelude::*;
use kernel::sync::atomic::{AtomicFlag, Full};
use kernel::sync::Arc;
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};

/// Why memory was not pinned: the bytes are to be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// It is not memory of a program, as in splice(2), or nothing is left of it.
    NotUser,
    /// It cannot be pinned or not be accessed. A copy will tell which.
    Fault,
    /// The budget of this direction is used up.
    Budget,
    /// The user's `RLIMIT_MEMLOCK` is.
    MemoryLock,
    /// There is no memory to do it with.
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

/// What pinned memory of one connection is made from. Used in process context, without locks.
#[derive(Clone)]
pub(crate) struct Pinning {
    origin: Origin,
}

impl Pinning {
    /// What memory for a device or its peer is made from.
    pub(crate) fn new(mapper: Arc<Mapper>) -> Self {
        Pinning {
            origin: Origin::Device(mapper),
        }
    }

    /// What memory for a peer on this machine is made from.
    pub(crate) fn here() -> Self {
        Pinning {
            origin: Origin::Here,
        }
    }

    /// Whether its memory stays pinned between transfers.
    fn caches(&self) -> bool {
        match params::pin_cache() {
            0 => false,
            1.. => true,
            // beside one copy, pinning takes much of the time; beside a device's work it does not
            _ => matches!(self.origin, Origin::Here),
        }
    }

    /// Whether the device is being removed.
    #[cfg_attr(not(sdp_selftest), expect(dead_code, reason = "for the self-test"))]
    pub(crate) fn device_goes(&self) -> bool {
        self.origin.device_goes()
    }

    /// Most pages in one piece, 0 if the device cannot do this.
    pub(crate) fn most_pages(&self) -> usize {
        self.origin.most_pages()
    }

    /// Makes room for one piece. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device says: copy then.
    pub(crate) fn make(&self) -> Result<Pinned> {
        Ok(Pinned {
            parts: Some(self.parts()?),
            watched: None,
        })
    }

    fn parts(&self) -> Result<Pin<KBox<Parts>>> {
        if self.most_pages() == 0 {
            return Err(ENODEV);
        }
        let memory = Access::new(&self.origin)?;
        let held = Arc::new(AtomicFlag::new(false), GFP_KERNEL)?;
        KBox::pin_init(
            pin_init!(Parts {
                piece: Piece {
                    memory,
                    charge: None,
                    locked: None,
                    held,
                },
                work <- new_work!("ib_sdp_pinned"),
            }),
            GFP_KERNEL,
        )
    }
}

/// Tells whether a piece of memory is still in use, without owning it.
#[derive(Clone)]
pub(crate) struct Watch(Arc<AtomicFlag>);

impl Watch {
    /// Whether it is: from the pinning to the release. Afterwards nothing accesses it.
    pub(crate) fn is_held(&self) -> bool {
        self.0.load(kernel::sync::atomic::Acquire)
    }
}

/// The piece, and what it counts for.
struct Piece {
    memory: Access,
    charge: Option<Charge>,
    locked: Option<Locked>,
    /// Whether it is in use.
    held: Arc<AtomicFlag>,
}

impl Piece {
    fn release(&mut self) {
        self.memory.release();
        self.charge = None;
        self.locked = None;
        self.held.xchg(false, Full);
    }

    /// Counts for `pages`, has `pin` pin them, maps them, and corrects the count.
    fn pin(
        &mut self,
        account: &Arc<Account>,
        purpose: Use,
        pages: usize,
        for_peer: bool,
        pin: impl FnOnce(&mut Access) -> Result<usize, Unpinnable>,
    ) -> Result<usize, Refusal> {
        self.release();
        if pages == 0 {
            return Err(Refusal::NotUser);
        }
        // What is idle is given up for the next one: that takes a moment.
        let mut charge = account.charge(purpose, pages).ok_or_else(|| {
            watch::shrink(pages);
            Refusal::Budget
        })?;
        let locked = Locked::new(pages * PAGE).ok_or_else(|| {
            account.count_unlockable();
            watch::shrink(pages);
            Refusal::MemoryLock
        })?;
        let n = pin(&mut self.memory)?;
        if self.map(purpose, for_peer).is_err() {
            self.memory.release();
            return Err(Refusal::NoMemory);
        }
        charge.shrink(self.memory.count());
        (self.charge, self.locked) = (Some(charge), Some(locked));
        self.held.xchg(true, Full);
        Ok(n)
    }

    /// Lets the device get at what is pinned, for what it was pinned for.
    fn map(&mut self, purpose: Use, for_peer: bool) -> Result {
        self.memory.map(purpose == Use::Receive, for_peer)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.release();
    }
}

/// A piece with the means to have it dropped elsewhere.
#[pin_data]
struct Parts {
    piece: Piece,
    #[pin]
    work: Work<Parts>,
}

impl_has_work! {
    impl HasWork<Parts> for Parts { self.work }
}

impl WorkItem for Parts {
    type Pointer = Pin<KBox<Parts>>;

    fn run(this: Self::Pointer) {
        // Unpins and destroys the region, which sleeps.
        drop(this);
    }
}

impl Idle for Pin<KBox<Parts>> {
    type Origin = Pinning;

    fn pages(&self) -> usize {
        self.piece.memory.count()
    }

    fn give_up(self) {
        work::defer(self);
    }
}

/// Room for one piece of a program's memory, and that piece. May be dropped in any context.
pub(crate) struct Pinned {
    /// `None` while they are idle, and while it is dropped.
    parts: Option<Pin<KBox<Parts>>>,
    /// Watches what is pinned, if it may stay so; has it while it is idle.
    watched: Option<Watched<Pin<KBox<Parts>>>>,
}

impl Pinned {
    fn piece(&mut self) -> Option<&mut Piece> {
        self.parts.as_mut().map(|p| p.as_mut().project().piece)
    }

    /// Pins what a send call sends next, `most` bytes or fewer, without taking it: how many bytes
    /// that are. They are in one piece, so there may be more to come. With `Hold::Long` the peer can be
    /// given access. Process context; sleeps, and may fault. Afterwards the device is held: whoever has
    /// this does nothing more that may fault before it lends or releases it.
    ///
    /// # Errors
    ///
    /// Says why not; the bytes are to be copied then.
    pub(crate) fn pin_source(
        &mut self,
        from: &mut Source<'_>,
        most: usize,
        hold: Hold,
        account: &Arc<Account>,
    ) -> Result<usize, Refusal> {
        let piece = from.piece(most);
        self.pin(account, Use::Send, piece, hold, |m, len, hold| {
            m.pin(|pages| from.pin(pages, len, hold))
        })
    }

    /// Pins where a receive call wants its next bytes, for `most` bytes or fewer; else like
    /// [`Pinned::pin_source`].
    ///
    /// # Errors
    ///
    /// As there.
    pub(crate) fn pin_destination(
        &mut self,
        to: &mut Destination<'_>,
        most: usize,
        hold: Hold,
        account: &Arc<Account>,
    ) -> Result<usize, Refusal> {
        let piece = to.piece(most);
        self.pin(account, Use::Receive, piece, hold, |m, len, hold| {
            m.pin(|pages| to.pin(pages, len, hold))
        })
    }

    /// As much of a piece as there is room for.
    fn cut(&self, (address, len): (usize, usize)) -> (usize, usize) {
        let pages = match (&self.parts, &self.watched) {
            (Some(p), _) => p.piece.memory.room(),
            (None, Some(w)) => w.origin().most_pages(),
            (None, None) => 0,
        };
        let most = (pages * PAGE).saturating_sub(address % PAGE);
        (address, len.min(most))
    }

    /// What it was made from.
    fn pinning(&self) -> Option<Pinning> {
        match &self.parts {
            Some(p) => Some(Pinning {
                origin: p.piece.memory.origin(),
            }),
            None => self.watched.as_ref().map(|w| w.origin().clone()),
        }
    }

    fn pin(
        &mut self,
        account: &Arc<Account>,
        purpose: Use,
        piece: Option<(usize, usize)>,
        hold: Hold,
        mut pin: impl FnMut(&mut Access, usize, Hold) -> Result<usize, Unpinnable>,
    ) -> Result<usize, Refusal> {
        let (address, len) = self.cut(piece.ok_or(Refusal::NotUser)?);
        let pinning = self.pinning().ok_or(Refusal::NoMemory)?;
        let cache = pinning.caches();
        let for_peer = hold == Hold::Long;
        let hold = pinning.origin.hold(hold);
        if let Some(watched) = self.watched.take() {
            if self.parts.is_none() {
                self.parts = watched.take();
                if let Some(piece) = self.piece().filter(|_| cache && watched.is(address, len)) {
                    let same = piece.charge.as_ref().map(|c| c.purpose()) == Some(purpose);
                    if same && piece.map(purpose, for_peer).is_ok() {
                        piece.memory.sync_for_device();
                        piece.held.xchg(true, Full);
                        self.watched = Some(watched);
                        account.count_hit();
                        return Ok(len);
                    }
                }
            }
        }
        if self.parts.is_none() {
            // It was given up while it was idle.
            self.parts = Some(pinning.parts().map_err(|_| Refusal::NoMemory)?);
        }
        let pages = (address % PAGE + len).div_ceil(PAGE);
        let parts = self.parts.as_mut().ok_or(Refusal::NoMemory)?;
        let piece = parts.as_mut().project().piece;
        if cache {
            piece.release();
            if let Ok(watched) = Watched::new(address, len, pinning) {
                let moment = watched.begin();
                let n = piece.pin(account, purpose, pages, for_peer, |m| {
                    pin(m, len, Hold::Long)
                });
                if n == Ok(len) && watched.is_valid(moment) {
                    self.watched = Some(watched);
                }
                // What must not stay pinned may do for a moment.
                if n != Err(Refusal::Fault) || hold == Hold::Long {
                    return n;
                }
            }
        }
        piece.pin(account, purpose, pages, for_peer, |m| pin(m, len, hold))
    }

    /// Whether it is pinned for this piece of the calling process's memory.
    pub(crate) fn is_for(&self, piece: (usize, usize)) -> bool {
        let (address, len) = self.cut(piece);
        self.parts.is_none() && self.watched.as_ref().is_some_and(|w| w.is(address, len))
    }

    /// Whether it may be pinned while it is idle.
    pub(crate) fn is_idle(&self) -> bool {
        self.watched.is_some()
    }

    /// How many bytes are pinned.
    pub(crate) fn len(&self) -> usize {
        self.parts.as_ref().map_or(0, |p| p.piece.memory.len())
    }

    /// Lets go of the memory. Process context; sleeps.
    pub(crate) fn release(&mut self) {
        let Some(mut parts) = self.parts.take() else {
            return;
        };
        let piece = parts.as_mut().project().piece;
        let bounces = piece.memory.for_device().is_some_and(UserMemory::bounces);
        if let Some(watched) = self.watched.take_if(|w| w.origin().caches() && !bounces) {
            if piece.memory.count() != 0 && !piece.memory.is_registered() {
                piece.memory.sync_for_cpu();
                piece.held.xchg(false, Full);
                match watched.park(parts) {
                    Ok(()) => self.watched = Some(watched),
                    Err(p) => {
                        self.parts = Some(p);
                        self.release();
                    }
                }
                return;
            }
        }
        self.watched = None;
        piece.release();
        self.parts = Some(parts);
    }

    /// Drops it on the spot. Process context; sleeps.
    pub(crate) fn destroy(mut self) {
        if let Some(watched) = self.watched.take() {
            self.parts = watched.take().or(self.parts.take());
        }
        drop(self.parts.take());
    }

    /// A way to know when the memory is let go of.
    pub(crate) fn watch(&self) -> Option<Watch> {
        self.parts.as_ref().map(|p| Watch(p.piece.held.clone()))
    }

    /// The pages, if it was made for a peer on this machine.
    pub(crate) fn pages(&self) -> Option<&Arc<Pages>> {
        self.parts.as_ref()?.piece.memory.for_here()
    }
}

impl Lendable for Pinned {
    fn memory(&self) -> Option<&UserMemory> {
        self.parts.as_ref()?.piece.memory.for_device()
    }

    fn memory_mut(&mut self) -> Option<&mut UserMemory> {
        self.piece()?.memory.for_device_mut()
    }

    fn destroy(self) {
        self.destroy();
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            work::defer(parts);
        }
    }
}

/// Pieces of pinned memory that are kept for the next time.
const SPARE: usize = 8;

/// Room for pinned memory that is not in use, the oldest first. May be dropped in any context.
pub(crate) struct Spares(KVec<Pinned>);

impl Spares {
    /// None.
    pub(crate) const fn new() -> Self {
        Spares(KVec::new())
    }

    /// The oldest, so that a region is not used again at once.
    pub(crate) fn oldest(&mut self) -> Option<Pinned> {
        self.0.remove(0).ok()
    }

    /// Room in which a piece is still pinned; else one with nothing in it, or none if there is room
    /// for more, or the oldest.
    pub(crate) fn best_for(&mut self, piece: (usize, usize)) -> Option<Pinned> {
        let hit = self.0.iter().position(|p| p.is_for(piece));
        let at = hit.or_else(|| self.0.iter().position(|p| !p.is_idle()));
        match at {
            Some(at) => self.0.remove(at).ok(),
            None if self.0.len() < SPARE => None,
            None => self.oldest(),
        }
    }

    /// Keeps room until it is needed again; in any context. If there is enough of it, or no memory
    /// for that, it is dropped.
    pub(crate) fn keep(&mut self, p: Pinned) {
        if p.len() == 0 && self.0.len() < SPARE {
            let _ = self.0.push(p, GFP_ATOMIC);
        }
    }
}

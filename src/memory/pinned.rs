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
//! **Where it is let go of.** Unpinning sleeps. [`Pinned::release`] does it on the spot, in process
//! context; a `Pinned` that is dropped leaves it to the module's workqueue, so that may be done
//! anywhere.

use super::budget::{Account, Charge, Use};
use crate::sys::net::message::{Destination, Source};
use crate::sys::pin::{Hold, Locked, Unpinnable, PAGE};
use crate::sys::rdma::pd::Pd;
use crate::sys::rdma::user_memory::UserMemory;
use crate::sys::rdma::work;
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
    pd: Arc<Pd>,
}

impl Pinning {
    /// What memory for the peer or device of that PD is made from.
    pub(crate) fn new(pd: Arc<Pd>) -> Self {
        Pinning { pd }
    }

    /// Whether the device is being removed.
    pub(crate) fn device_goes(&self) -> bool {
        self.pd.device().is_going()
    }

    /// Most pages in one piece, 0 if the device cannot do this.
    pub(crate) fn most_pages(&self) -> usize {
        UserMemory::most_pages(&self.pd) as usize
    }

    /// Makes room for one piece. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device says: copy then.
    pub(crate) fn make(&self) -> Result<Pinned> {
        let pages = self.most_pages();
        if pages == 0 {
            return Err(ENODEV);
        }
        let memory = UserMemory::new(&self.pd, pages)?;
        let held = Arc::new(AtomicFlag::new(false), GFP_KERNEL)?;
        let parts = KBox::pin_init(
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
        )?;
        Ok(Pinned { parts: Some(parts) })
    }
}

/// Tells whether a piece of memory is still pinned, without owning it.
#[derive(Clone)]
pub(crate) struct Watch(Arc<AtomicFlag>);

impl Watch {
    /// Whether it is still pinned.
    pub(crate) fn is_held(&self) -> bool {
        self.0.load(kernel::sync::atomic::Acquire)
    }
}

/// The piece, and what it counts for.
struct Piece {
    memory: UserMemory,
    charge: Option<Charge>,
    locked: Option<Locked>,
    /// Whether anything is pinned.
    held: Arc<AtomicFlag>,
}

impl Piece {
    fn release(&mut self) {
        self.memory.release();
        self.charge = None;
        self.locked = None;
        self.held.xchg(false, Full);
    }

    /// Counts for `pages`, has `pin` pin them, and corrects the count.
    fn pin(
        &mut self,
        account: &Arc<Account>,
        purpose: Use,
        pages: usize,
        pin: impl FnOnce(&mut UserMemory) -> Result<usize, Unpinnable>,
    ) -> Result<usize, Refusal> {
        self.release();
        if pages == 0 {
            return Err(Refusal::NotUser);
        }
        let mut charge = account.charge(purpose, pages).ok_or(Refusal::Budget)?;
        let locked = Locked::new(pages * PAGE).ok_or_else(|| {
            account.count_unlockable();
            Refusal::MemoryLock
        })?;
        let n = pin(&mut self.memory)?;
        charge.shrink(self.memory.count());
        (self.charge, self.locked) = (Some(charge), Some(locked));
        self.held.xchg(true, Full);
        Ok(n)
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

/// Room for one piece of a program's memory, and that piece. May be dropped in any context.
pub(crate) struct Pinned {
    /// `None` only while it is dropped.
    parts: Option<Pin<KBox<Parts>>>,
}

impl Pinned {
    fn piece(&mut self) -> Option<&mut Piece> {
        self.parts.as_mut().map(|p| p.as_mut().project().piece)
    }

    /// Pins what a send call sends next, `most` bytes or fewer, without taking it: how many bytes
    /// that are. They are in one piece, so there may be more to come. Process context; sleeps, and
    /// may fault.
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
        let piece = self.piece().ok_or(Refusal::NotUser)?;
        let room = piece.memory.pages().room();
        let pages = from.pages(most).min(room);
        piece.pin(account, Use::Send, pages, |m| {
            from.pin(m.pages(), most, hold)
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
        let piece = self.piece().ok_or(Refusal::NotUser)?;
        let room = piece.memory.pages().room();
        let pages = to.pages(most).min(room);
        piece.pin(account, Use::Receive, pages, |m| {
            to.pin(m.pages(), most, hold)
        })
    }

    /// Makes it fit for being advertised, once. Process context; sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device says: copy then.
    pub(crate) fn make_registrable(&mut self) -> Result {
        self.piece().ok_or(ENODEV)?.memory.make_region()
    }

    /// How many bytes are pinned.
    pub(crate) fn len(&self) -> usize {
        self.parts.as_ref().map_or(0, |p| p.piece.memory.len())
    }

    /// Lets go of the memory. Process context; sleeps.
    pub(crate) fn release(&mut self) {
        if let Some(piece) = self.piece() {
            piece.release();
        }
    }

    /// Drops it on the spot. Process context; sleeps.
    pub(crate) fn destroy(mut self) {
        drop(self.parts.take());
    }

    /// A way to know when the memory is let go of.
    pub(crate) fn watch(&self) -> Option<Watch> {
        self.parts.as_ref().map(|p| Watch(p.piece.held.clone()))
    }

    /// The memory.
    pub(crate) fn memory(&self) -> Option<&UserMemory> {
        self.parts.as_ref().map(|p| &p.piece.memory)
    }

    /// The memory.
    pub(crate) fn memory_mut(&mut self) -> Option<&mut UserMemory> {
        self.piece().map(|p| &mut p.memory)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            work::defer(parts);
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Memory that a program cannot write to until the peer has received the bytes (AZ-SDP).
//!
//! A send call that returns at once leaves its block in flight: the pages are pinned, and
//! write-protected by [`crate::sys::protect`]. A [`ProtectedMm`] is one address space with a record
//! of its blocks in flight ([`record`]). A block is first recorded, then protected, and then
//! advertised, so that each write fault finds its block.
//!
//! * A task that writes to a block waits. The worker notifies the block's owner, which makes the
//!   peer finish or return the block. Tasks that read the memory never wait.
//! * An [`InFlight`] is a block in flight. After the drop, the address space's worker makes the
//!   block's pages writable, except pages of other blocks. The worker waits only for tasks that
//!   change mappings.
//! * fork(2) gives the child copies without protection. exec(2) and the end of the process destroy
//!   the protected mapping, but the block keeps its pages. Memory moved by mremap(2) stays
//!   protected; unmapped memory is no longer protected.
//! * Protection never ends while a block is in flight. If single blocks cannot be unprotected, for
//!   example after mremap(2), all blocks are taken back first. Then the userfaultfd is closed,
//!   which makes all memory writable. The next block opens another userfaultfd.
//! * Write-protected page tables do not stop writes by earlier pins, such as direct I/O or a buffer
//!   registered with io_uring. A block with other pins is refused. This module's own pins for
//!   sending are harmless ([`Pages::are_ours`]).
//!
//! An address space without blocks is dropped after a while ([`REST`]).

mod record;

use self::record::{BlockId, Part, Range, Record, LOOSE_PAGES};
use crate::sys::net::sock::SockCore;
use crate::sys::pin::Pages;
pub(crate) use crate::sys::protect::Refusal;
use crate::sys::protect::{Handler, Protector, UffdEvent, Worker};
use crate::sys::sync::late_mutex;
use crate::sys::vec;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{new_spinlock, Arc, SpinLock};
use kernel::time::{delay::fsleep, Delta};

/// Time that an address space without blocks is kept (ms).
const REST: u32 = 1000;
/// Maximum number of memory ranges in a block, and in all blocks of an address space.
pub(crate) const MOST_RANGES: usize = 16;
const MOST_PARTS: usize = 256;
/// Maximum number of address spaces.
const MOST_MMS: usize = 1 << 16;

late_mutex! {
    /// Address spaces that have, or recently had, protected memory.
    mod table, TABLE: KVec<Arc<Protector<ProtectedMm>>> = KVec::new()
}

/// Owner of a block in flight, whose `jobs` a write fault [schedules](SockCore::schedule).
#[derive(Clone)]
pub(crate) struct Holder {
    pub(crate) sk: ARef<SockCore>,
    pub(crate) jobs: u32,
}

/// Blocks in flight in one address space.
struct Protection {
    record: Record<KVec<Option<Part<Holder>>>>,
    /// Set when the program has moved recorded memory or changed the argument page, and after a
    /// long rest. While set, no block may begin; all blocks are taken back, and the last one closes
    /// the userfaultfd.
    closing: bool,
}

#[pin_data]
pub(crate) struct ProtectedMm {
    #[pin]
    state: SpinLock<Protection>,
}

/// A block with write-protected pages. May be dropped in any context.
pub(crate) struct InFlight {
    mm: Arc<Protector<ProtectedMm>>,
    id: BlockId,
}

impl InFlight {
    /// Returns a function that returns true once the owner was notified of a write fault. The
    /// function stays valid after a move of this object.
    pub(crate) fn touch(&self) -> impl Fn() -> bool {
        let (mm, id) = (self.mm.clone(), self.id);
        move || mm.handler.state.lock().record.has_fault(id)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        loop {
            let owner = self.mm.handler.state.lock().record.end(self.id);
            // the owner must not be dropped under the lock
            if owner.is_none() {
                break;
            }
        }
        // the time is set before `poke`, since the worker may shorten it
        self.mm.rest(REST);
        self.mm.poke();
    }
}

/// Returns the protection state of the calling process, and creates a missing one. Context:
/// process, may sleep. A fatal signal ends the wait.
///
/// # Errors
///
/// `ENOMEM`, `EINTR`. Other errors: memory of the process cannot be protected.
pub(crate) fn current() -> Result<Arc<Protector<ProtectedMm>>> {
    let mut table = table::lock()?;
    let known = table.iter().find(|p| p.is_mine() && !p.handler.is_closed());
    let mm = match known {
        Some(mm) => mm.clone(),
        None => {
            let mm = Protector::open(ProtectedMm::new()?)?;
            mm.rest(REST);
            if let Err(mm) = vec::push(&mut table, MOST_MMS, mm.clone(), GFP_KERNEL) {
                mm.rest(0);
                return Err(ENOMEM);
            }
            mm
        }
    };
    drop(table);
    mm.wait()?;
    Ok(mm)
}

/// Protects pinned pages at all their addresses in the calling process, whose address space `mm`
/// [is](Protector::is_mine). Context: process, may sleep and fault.
///
/// # Errors
///
/// Returns the reason of a failure, after which the pages are unprotected now or soon.
pub(crate) fn protect(
    mm: &Arc<Protector<ProtectedMm>>,
    pages: &Pages,
    owner: Holder,
) -> Result<InFlight, Refusal> {
    let ranges = pages.ranges().map(|(start, end)| Range { start, end });
    let mut state = mm.handler.state.lock();
    if state.closing {
        return Err(Refusal::Busy);
    }
    let id = state.record.begin(ranges.clone(), &owner);
    drop(state);
    let id = id.ok_or(Refusal::Busy)?;
    // from now on the drop of `flight` undoes all steps
    let flight = InFlight { mm: mm.clone(), id };
    for range in ranges {
        let set = mm.set(range.start, range.end);
        if set == Err(Refusal::Misused) {
            mm.handler.state.lock().closing = true;
            mm.poke();
        }
        set?;
    }
    match pages.are_ours() {
        Ok(()) => Ok(flight),
        Err(EAGAIN) => Err(Refusal::Busy),
        Err(EBUSY) => Err(Refusal::Pinned),
        Err(_) => Err(Refusal::Changing),
    }
}

impl Handler for ProtectedMm {
    fn run(this: &Protector<Self>, worker: &mut Worker<'_>) {
        loop {
            let event = worker.read_event();
            if let Some(event) = &event {
                this.handler.handle(event);
            }
            let cleared = this.handler.clear(worker);
            if this.handler.is_closed() {
                // memory stays protected until the last block has ended
                let (start, end) = (0, usize::MAX);
                this.handler.notify_owners(Range { start, end });
                if this.handler.state.lock().record.is_idle() {
                    this.rest(0);
                }
            }
            match event {
                Some(_) => {}
                None if cleared => return,
                // polls, since the end of a mapping change is reported only if memory has moved
                None => fsleep(Delta::from_millis(1)),
            }
        }
    }

    fn rest(this: &Protector<Self>) -> bool {
        let mut state = this.handler.state.lock();
        if !state.record.is_idle() {
            return false;
        }
        state.closing = true;
        drop(state);
        if let Ok(mut table) = table::lock() {
            table.retain(|p| !core::ptr::eq(&raw const **p, this));
            if table.is_empty() {
                // a static is never dropped, so the empty table is freed here
                *table = KVec::new();
            }
        }
        true
    }
}

impl ProtectedMm {
    fn new() -> Result<impl PinInit<Self>> {
        let slots = vec::filled(MOST_PARTS + LOOSE_PAGES, GFP_KERNEL, || None)?;
        let state = Protection {
            record: Record::new(slots),
            closing: false,
        };
        Ok(pin_init!(ProtectedMm {
            state <- new_spinlock!(state, "ib_sdp_protected_mm"),
        }))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closing
    }

    /// Handles an event. A write fault outside all blocks [clears](Self::clear) the page.
    ///
    /// mremap(2) returns once its event is read, perhaps before this call has handled the event. If
    /// the program has meanwhile sent other memory at the old address, the new block is taken back,
    /// too.
    fn handle(&self, event: &UffdEvent) {
        let (start, end) = (event.from, event.from.saturating_add(event.len));
        let range = Range { start, end };
        let mut state = self.state.lock();
        let known = state.record.contains_any_of(range);
        if event.moved {
            state.closing |= known;
        } else if !known && !state.closing {
            // after mremap(2), the page may belong to any block
            state.closing = !state.record.add_loose(range);
        }
        drop(state);
        if !event.moved {
            self.notify_owners(range);
        }
    }

    /// Notifies each owner of blocks in a range of a write fault, once for each block.
    fn notify_owners(&self, range: Range) {
        loop {
            let next = self.state.lock().record.next_fault(range);
            match next {
                Some(owner) => owner.sk.schedule(owner.jobs),
                None => return,
            }
        }
    }

    /// Makes recorded memory writable that no block needs. Returns false to request a retry.
    fn clear(&self, worker: &mut Worker<'_>) -> bool {
        loop {
            let mut state = self.state.lock();
            if state.closing {
                return true;
            }
            let Some(range) = state.record.next_loose() else {
                return true;
            };
            drop(state);
            let result = worker.clear(range.start, range.end);
            let mut state = self.state.lock();
            match result {
                Ok(()) => state.record.cleared(range),
                Err(EAGAIN) => return false,
                Err(_) => state.closing = true,
            }
        }
    }
}

/// Service that protects memory while the module is loaded. Dropped once no block is in flight.
pub(crate) struct Service(());

impl Service {
    /// Starts the service when the module is loaded.
    pub(crate) fn start() -> Self {
        table::start();
        Service(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Ok(table) = table::lock() {
            for mm in table.iter() {
                mm.handler.state.lock().closing = true;
                // the worker of `mm` takes the lock
                mm.rest(0);
            }
        }
    }
}

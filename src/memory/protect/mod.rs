// SPDX-License-Identifier: GPL-2.0-only

//! Memory that its program cannot write to until the peer has received it (AZ-SDP).
//!
//! A send call that returns at once leaves its block in flight: the pages are pinned, and
//! write-protected by [`crate::sys::protect`]. A [`ProtectedMm`] is one address space with a record
//! of its blocks in flight ([`record`]). A block is recorded first, then protected, then
//! advertised, so that each write fault finds its block.
//!
//! * A task that writes to a block waits. The worker notifies the block's owner, which makes the
//!   peer finish or return the block. Readers never wait.
//! * An [`InFlight`] is a block in flight. Its drop makes its pages writable, except those of other
//!   blocks. The address space's worker does this; it waits only for tasks that change mappings.
//! * fork(2) gives the child copies without protection. exec(2) and the end of the process end the
//!   protection with the memory; the pages stay the block's. Memory moved by mremap(2) stays
//!   protected; unmapped memory is no longer protected.
//! * Protection never ends while a block is in flight. If single blocks cannot be unprotected, all
//!   blocks are taken back first.
//! * Page tables do not protect from earlier pins, such as a read by direct I/O or a buffer
//!   registered with io_uring or a device. A block with such pins is refused. This module's own
//!   pins for sending write nothing ([`Pages::are_ours`]).
//!
//! An address space that has had no blocks for a while is dropped.

mod record;
mod table;

pub(crate) use table::{current, Service};

use self::record::{BlockId, Part, ProtectedBlock, Range, Record};
use crate::sys::net::message::Ranges;
use crate::sys::net::sock::SockCore;
use crate::sys::pin::{Pages, PAGE};
pub(crate) use crate::sys::protect::Refusal;
use crate::sys::protect::{Handler, Open, Protector, UffdEvent, Worker};
use crate::sys::time::{jiffies, milliseconds, Jiffies};
use crate::sys::vec::filled;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{new_spinlock, Arc, SpinLock};
use kernel::time::{delay::fsleep, Delta};

/// Time that an address space without blocks is kept (ms).
const REST: u32 = 1000;
/// Maximum number of consecutive attempts, a millisecond apart, to read the page of ioctl
/// arguments. The page is unreadable for microseconds while the kernel tries to migrate it.
const MOST_FAULTS: u32 = 1000;
/// Maximum number of blocks in flight in one address space.
const MOST_BLOCKS: usize = 128;
/// Maximum number of memory ranges in a block, and in all blocks together.
pub(crate) const MOST_RANGES: usize = 16;
const MOST_PARTS: usize = 256;

/// Owner of a block in flight: a write fault schedules these jobs of this socket
/// ([`SockCore::schedule`]).
#[derive(Clone)]
pub(crate) struct Holder {
    pub(crate) sk: ARef<SockCore>,
    pub(crate) jobs: u32,
}

/// Blocks in flight in one address space.
struct Protection {
    record: Record<KVec<Option<Part>>, KVec<Option<ProtectedBlock<Holder>>>>,
    /// Set while the state is being closed: no block may begin.
    closed: bool,
    /// Set if the program has unmapped or changed the page of ioctl arguments, or parts of the
    /// record were lost. No block may begin, all are taken back, and the last one closes the
    /// userfaultfd.
    broken: bool,
    /// Consecutive failures to read the page of ioctl arguments.
    faults: u32,
    /// Time at which a block last began or ended.
    last: Jiffies,
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
    /// Returns a function that returns true once the owner was notified of a write fault, also
    /// after this object was moved.
    pub(crate) fn touch(&self) -> impl Fn() -> bool {
        let (mm, id) = (self.mm.clone(), self.id);
        move || mm.handler.state.lock().record.has_fault(id)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let owner = {
            let mut state = self.mm.handler.state.lock();
            state.last = jiffies();
            state.record.end(self.id)
        };
        self.mm.poke();
        self.mm.rest(REST);
        drop(owner);
    }
}

impl ProtectedMm {
    /// Makes the state for the calling process. Sleeps.
    fn open() -> Result<Open<Self>> {
        let parts = filled(2 * MOST_PARTS, GFP_KERNEL, || None)?;
        let record = Record::new(parts, filled(MOST_BLOCKS, GFP_KERNEL, || None)?);
        let open = Protector::open(pin_init!(ProtectedMm {
            state <- new_spinlock!(
                Protection {
                    record,
                    closed: false,
                    broken: false,
                    faults: 0,
                    last: jiffies(),
                },
                "ib_sdp_room"
            ),
        }))?;
        open.protector().rest(REST);
        Ok(open)
    }

    pub(crate) fn is_closed(&self) -> bool {
        let state = self.state.lock();
        state.closed || state.broken
    }

    fn begin(
        &self,
        ranges: impl Iterator<Item = Range> + Clone,
        owner: Holder,
    ) -> Result<BlockId, Refusal> {
        let mut state = self.state.lock();
        if state.closed || state.broken {
            return Err(Refusal::Busy);
        }
        state.last = jiffies();
        state.record.begin(ranges, owner).ok_or(Refusal::Busy)
    }

    /// Returns true if a block is recorded under its own addresses, now that it is protected.
    /// Sleeps.
    fn is_settled(&self, id: BlockId) -> bool {
        loop {
            let settled = self.state.lock().record.is_settled(id);
            match settled {
                Some(settled) => return settled,
                // the worker does not block while it reads
                None => fsleep(Delta::from_micros(50)),
            }
        }
    }
}

/// Protects pages of the calling process, whose address space it [is](Protector::is_mine): ranges
/// of whole pages, which are pinned. Context: process, may sleep and fault.
///
/// # Errors
///
/// Returns the reason on failure; the pages are unprotected then, or will be soon.
pub(crate) fn protect(
    mm: &Arc<Protector<ProtectedMm>>,
    ranges: Ranges<'_>,
    pages: &Pages,
    owner: Holder,
) -> Result<InFlight, Refusal> {
    let ranges = ranges.map(|(start, len)| Range::whole_pages(start, len, PAGE));
    if ranges.clone().any(|range| range.is_none()) {
        return Err(Refusal::Busy);
    }
    let ranges = ranges.flatten();
    let id = mm.handler.begin(ranges.clone(), owner)?;
    // from now on its drop undoes all steps
    let flight = InFlight { mm: mm.clone(), id };
    for range in ranges {
        let set = mm.set(range.start, range.end);
        if set == Err(Refusal::Misused) {
            mm.handler.state.lock().broken = true;
            mm.poke();
        }
        set?;
    }
    if !mm.handler.is_settled(id) {
        return Err(Refusal::Changing);
    }
    match pages.are_ours() {
        Ok(()) => Ok(flight),
        Err(EAGAIN) => Err(Refusal::Busy),
        Err(EBUSY) => Err(Refusal::Pinned),
        Err(_) => Err(Refusal::Changing),
    }
}

impl Handler for ProtectedMm {
    fn run(&self, worker: Option<&mut Worker<'_>>) {
        let Some(worker) = worker else {
            return;
        };
        let mut events = [UffdEvent::default(); 16];
        loop {
            self.state.lock().record.reading = true;
            let n = worker.read_events(&mut events);
            let events = events.get(..n).unwrap_or_default();
            self.follow(events);
            self.touched(worker, events);
            let cleared = self.clear(worker);
            if self.state.lock().broken {
                // memory stays protected until the last block has ended
                let (start, end) = (0, usize::MAX);
                self.notify_owners(Range { start, end });
                if self.state.lock().record.is_idle() {
                    worker.rest();
                }
                if n == 0 {
                    return;
                }
            } else if !cleared {
                // a task that changes mappings is notified of the end only if memory has moved
                fsleep(Delta::from_millis(1));
            } else if n == 0 {
                return;
            }
        }
    }

    fn rest(this: &Protector<Self>) -> Option<Open<Self>> {
        {
            let mut state = this.handler.state.lock();
            let idle = state.record.is_idle();
            let recent = jiffies().wrapping_sub(state.last) < milliseconds(REST);
            if !idle || (recent && !state.broken) {
                drop(state);
                if idle {
                    this.rest(REST);
                }
                return None;
            }
            state.closed = true;
        }
        table::forget(this)
    }
}

impl ProtectedMm {
    /// Records moved memory.
    fn follow(&self, events: &[UffdEvent]) {
        let mut state = self.state.lock();
        for event in events.iter().filter(|h| h.moved) {
            let (start, end) = (event.from, event.from.saturating_add(event.len));
            state.record.moved(Range { start, end }, event.to);
        }
        state.record.reading = false;
        state.broken |= state.record.overflown;
    }

    /// Notifies the owners of blocks in a range of a write fault, each once.
    fn notify_owners(&self, range: Range) {
        loop {
            let next = self.state.lock().record.next_touched(range);
            match next {
                Some((_, owner)) => owner.sk.schedule(owner.jobs),
                None => return,
            }
        }
    }

    /// Handles write faults: notifies the owners of blocks, and makes memory without a block
    /// writable.
    fn touched(&self, worker: &mut Worker<'_>, events: &[UffdEvent]) {
        for event in events.iter().filter(|h| !h.moved) {
            let (start, end) = (event.from, event.from.saturating_add(PAGE));
            let page = Range { start, end };
            // first: a block that begins meanwhile must be found
            if self.state.lock().record.take_stray(page) {
                self.cleared(worker.clear(page.start, page.end));
            }
            self.notify_owners(page);
        }
    }

    /// Makes memory writable that no block needs. Returns true when done.
    fn clear(&self, worker: &mut Worker<'_>) -> bool {
        while !self.state.lock().broken {
            let loose = self.state.lock().record.next_loose();
            let Some(range) = loose else {
                return true;
            };
            if !self.cleared(worker.clear(range.start, range.end)) {
                return false;
            }
        }
        false
    }

    /// Records the result for the range that the worker has processed. Returns false if the range
    /// has to be repeated, or cannot be unprotected.
    fn cleared(&self, result: Result) -> bool {
        let mut state = self.state.lock();
        let fault = result == Err(EFAULT);
        let faults = state.faults.saturating_add(1);
        state.faults = if fault { faults } else { 0 };
        let again = result == Err(EAGAIN) || (fault && state.faults < MOST_FAULTS);
        state.record.cleared(!again);
        state.broken |= result.is_err() && !again;
        result.is_ok()
    }
}

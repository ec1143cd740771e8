// SPDX-License-Identifier: GPL-2.0-only

//! Memory that a program cannot write to until the peer has it (AZ-SDP).
//!
//! A send call that returns at once leaves its block in flight: the pages are pinned, and write-protected by
//! [`crate::sys::protect`]. A [`Room`] is one address space; it knows the blocks in flight there ([`record`]). The
//! order is: recorded, protected, advertised; so that whoever writes meanwhile is found.
//!
//! * Whoever writes to a block waits. Its owner is told by its socket, and has the peer finish or give the block
//!   back; readers never wait.
//! * A [`Flight`] is a block in flight; dropping it makes its pages writable, but for those that another one needs. That
//!   is done by the address space's worker, which waits for nobody but those who change its mappings.
//! * fork(2) gives the child copies that are not protected; exec(2) and the end of the process take the protection away with
//!   the memory, and the pages stay the block's. What mremap(2) moves stays protected; what is unmapped is
//!   the program's no more.
//! * Protection never ends under a block in flight. Where it cannot be ended block by block any more, all are taken back, and it ends
//!   when they have.
//! * Page tables protect from nobody who has pinned the pages before: a read by direct I/O, a buffer that is
//!   registered with io_uring or a device. Such a block is refused. Pins of this module for
//!   sending write nothing ([`Pages::are_ours`]).
//!
//! An address space that has had no block for a while is given up.

mod record;
mod table;

pub(crate) use table::{current, Service};

use self::record::{Block, BlockId, Part, Range, Record};
use crate::sys::net::message::Ranges;
use crate::sys::net::sock::SockCore;
use crate::sys::pin::{Pages, PAGE};
use crate::sys::protect::{Handler, Heard, Moment, Open, Protector, Unprotectable, Worker};
use crate::sys::time::{jiffies, milliseconds, Jiffies};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{new_spinlock, Arc, SpinLock};
use kernel::time::{delay::fsleep, Delta};

/// How long an address space without blocks is kept, in milliseconds.
const REST: u32 = 1000;
/// How long the page of arguments may be unreadable, as it is for microseconds while the kernel tries to migrate it.
const FAULT_TIME: Jiffies = milliseconds(1000);
/// Most blocks in flight in one address space.
const MOST_BLOCKS: usize = 128;
/// Most ranges of memory that a block has, and that all of them have together.
pub(crate) const MOST_RANGES: usize = 16;
const MOST_PARTS: usize = 256;

/// Why a block is not protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The memory is not of the kind.
    Kind(Unprotectable),
    /// Somebody else has pinned it, who may write to it.
    Pinned,
    /// Too many blocks or ranges are in flight, or a part of this one is just being unpinned or made writable, or somebody waits to
    /// write there.
    Busy,
    /// There is no userfaultfd.
    NoUserfaultfd,
}

impl Refusal {
    /// How many there are.
    pub(crate) const COUNT: usize = 9;
    /// What each is called, by [`Refusal::index`].
    pub(crate) const NAMES: [&'static str; Self::COUNT] = [
        "shared",
        "file",
        "hugetlb",
        "stack",
        "userfaultfd",
        "changing",
        "pinned",
        "busy",
        "unsupported",
    ];

    /// Whether the next block may fare no better.
    pub(crate) fn lasts(self) -> bool {
        !matches!(self, Refusal::Busy | Refusal::Kind(Unprotectable::Changing))
    }

    /// Its place in a list.
    pub(crate) fn index(self) -> usize {
        match self {
            Refusal::NoUserfaultfd | Refusal::Kind(Unprotectable::Misused) => 8,
            Refusal::Kind(why) => why as usize,
            Refusal::Pinned => 6,
            Refusal::Busy => 7,
        }
    }
}

/// Who has a block in flight: this socket does these jobs ([`SockCore::schedule`]) when somebody waits to write to it.
#[derive(Clone)]
pub(crate) struct Holder {
    /// The socket.
    pub(crate) sk: ARef<SockCore>,
    /// Its jobs.
    pub(crate) jobs: u32,
}

/// What is in flight in one address space.
struct State {
    record: Record<KVec<Option<Part>>, KVec<Option<Block<Holder>>>>,
    /// It is being closed: nothing begins.
    closed: bool,
    /// Protection cannot be ended range by range any more: the program has taken our page away or written to it, or
    /// parts of the record were lost. Nothing begins, all blocks are taken back, and the last one's end closes the userfaultfd.
    broken: bool,
    /// Since when the page of arguments has been unreadable.
    unreadable: Option<Jiffies>,
    /// When a block began or ended.
    last: Jiffies,
}

/// One address space.
#[pin_data]
pub(crate) struct Room {
    #[pin]
    state: SpinLock<State>,
}

/// A block whose pages cannot be written to. May be dropped in any context.
pub(crate) struct Flight {
    room: Arc<Protector<Room>>,
    id: BlockId,
}

impl Flight {
    /// Tells whether somebody waits to write to it, also after it has been given away.
    pub(crate) fn touch(&self) -> Touch {
        Touch {
            room: self.room.clone(),
            id: self.id,
        }
    }
}

/// See [`Flight::touch`].
pub(crate) struct Touch {
    room: Arc<Protector<Room>>,
    id: BlockId,
}

impl Touch {
    /// Whether somebody has waited yet, which its owner was told.
    pub(crate) fn has_come(&self) -> bool {
        self.room.handler.state.lock().record.is_told(self.id)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let owner = self.room.handler.end(self.id);
        self.room.kick();
        self.room.rest(REST);
        drop(owner);
    }
}

/// So many empty places.
fn places<T>(n: usize) -> Result<KVec<Option<T>>> {
    let mut places = KVec::with_capacity(n, GFP_KERNEL)?;
    for _ in 0..n {
        places.push_within_capacity(None).map_err(|_| ENOMEM)?;
    }
    Ok(places)
}

impl Room {
    /// Begins for the calling process. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`Protector::open`].
    fn open() -> Result<Open<Self>> {
        let record = Record::new(places(2 * MOST_PARTS)?, places(MOST_BLOCKS)?);
        let open = Protector::open(pin_init!(Room {
            state <- new_spinlock!(
                State {
                    record,
                    closed: false,
                    broken: false,
                    unreadable: None,
                    last: jiffies(),
                },
                "ib_sdp_room"
            ),
        }))?;
        open.protector().rest(REST);
        Ok(open)
    }

    /// Whether nothing begins here any more.
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

    /// Returns whether a block is filed under its own addresses, now that it is protected. Sleeps.
    fn is_settled(&self, id: BlockId) -> bool {
        loop {
            let settled = self.state.lock().record.is_settled(id);
            match settled {
                Some(settled) => return settled,
                // the worker waits for nobody while it reads
                None => fsleep(Delta::from_micros(50)),
            }
        }
    }

    fn end(&self, id: BlockId) -> Option<Holder> {
        let mut state = self.state.lock();
        state.last = jiffies();
        state.record.end(id)
    }
}

/// Protects pages of the calling process, whose address space it [is](Protector::is_mine): those of ranges that are whole pages,
/// pinned at a `moment` or later. Sleeps, and may fault.
///
/// # Errors
///
/// Why not: then they are as they were, or will be in a moment.
pub(crate) fn protect(
    room: &Arc<Protector<Room>>,
    ranges: Ranges<'_>,
    pages: &Pages,
    moment: Option<Moment>,
    owner: Holder,
) -> Result<Flight, Refusal> {
    let ranges = ranges.map(|(start, len)| Range::whole_pages(start, len, PAGE));
    if ranges.clone().any(|range| range.is_none()) {
        return Err(Refusal::Busy);
    }
    let ranges = ranges.flatten();
    // each with the number of its first page
    let mut numbered = ranges.clone().scan(0, |next, range| {
        let first = *next;
        *next += range.pages(PAGE);
        Some((range, first))
    });
    let id = room.handler.begin(ranges.clone(), owner)?;
    // from now on dropping it undoes all
    let flight = Flight {
        room: room.clone(),
        id,
    };
    for range in ranges {
        room.set(range.start, range.end).map_err(|why| {
            if why == Unprotectable::Misused {
                room.handler.state.lock().broken = true;
                room.kick();
            }
            Refusal::Kind(why)
        })?;
    }
    // what was mapped anew between the pinning and the protection
    let same = moment.is_some_and(Moment::is_still)
        || numbered.all(|(range, first)| pages.are_mapped(range.start, first, range.pages(PAGE)));
    if !same || !room.handler.is_settled(id) {
        return Err(Refusal::Kind(Unprotectable::Changing));
    }
    match pages.are_ours() {
        Ok(()) => Ok(flight),
        Err(EAGAIN) => Err(Refusal::Busy),
        Err(_) => Err(Refusal::Pinned),
    }
}

impl Handler for Room {
    fn run(&self, worker: Option<&mut Worker<'_>>) {
        let Some(worker) = worker else {
            return;
        };
        let mut heard = [Heard::default(); 16];
        loop {
            self.state.lock().record.set_reading(true);
            let n = worker.hear(&mut heard);
            let heard = heard.get(..n).unwrap_or_default();
            self.follow(heard);
            self.touched(worker, heard);
            let cleared = self.clear(worker);
            if self.state.lock().broken {
                self.take_all_back(worker);
                if n == 0 {
                    return;
                }
            } else if !cleared {
                // whoever changes mappings tells of the end only if something has moved
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

impl Room {
    /// Blocks are where they were moved.
    fn follow(&self, heard: &[Heard]) {
        let mut state = self.state.lock();
        for heard in heard.iter().filter(|h| h.moved) {
            let (start, end) = (heard.from, heard.from.saturating_add(heard.len));
            state.record.moved(Range { start, end }, heard.to);
        }
        state.record.set_reading(false);
        state.broken |= state.record.is_overflown();
    }

    /// Has the owners take all blocks back. Their memory stays protected until the last one has ended.
    fn take_all_back(&self, worker: &mut Worker<'_>) {
        self.notify_owners(Range::ALL);
        if self.state.lock().record.is_idle() {
            worker.rest();
        }
    }

    /// Notifies the owners of blocks in a range, each once, that somebody waits to write there.
    fn notify_owners(&self, range: Range) {
        loop {
            let next = self.state.lock().record.next_touched(range);
            match next {
                Some((_, owner)) => owner.sk.schedule(owner.jobs),
                None => return,
            }
        }
    }

    /// Owners of blocks are told who waits; what is nobody's is made writable.
    fn touched(&self, worker: &mut Worker<'_>, heard: &[Heard]) {
        for heard in heard.iter().filter(|h| !h.moved) {
            let (start, end) = (heard.from, heard.from.saturating_add(PAGE));
            let page = Range { start, end };
            // first: what begins meanwhile is there to be told
            let stray = {
                let mut state = self.state.lock();
                !state.broken && state.record.take_stray(page)
            };
            if stray {
                self.cleared(worker.clear(page.start, page.end));
            }
            self.notify_owners(page);
        }
    }

    /// Makes writable what nobody needs any more. Returns whether that is all.
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

    /// Records what became of the range that was taken out. Returns false if it has to be done again, or cannot be.
    fn cleared(&self, result: Result) -> bool {
        let mut state = self.state.lock();
        let now = jiffies();
        let again = match result {
            Err(EFAULT) => {
                let since = *state.unreadable.get_or_insert(now);
                now.wrapping_sub(since) < FAULT_TIME
            }
            _ => {
                state.unreadable = None;
                result == Err(EAGAIN)
            }
        };
        state.record.cleared(!again);
        state.broken |= result.is_err() && !again;
        result.is_ok()
    }
}

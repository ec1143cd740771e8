// SPDX-License-Identifier: GPL-2.0-only

//! RDMA READ and WRITE, and access for the peer.
//!
//! [`Direct`] is what a send queue has lent to it: memory of programs that its work requests, or
//! the peer, may access. It belongs to the queue until nothing can access it any more, which is
//! known
//!
//! * for READs and WRITEs of ours by their completions, whatever their status;
//! * for the peer's access by the success of the IB_WR_LOCAL_INV; one that is flushed was not done;
//! * else by the destruction of the QP, the only one in its PD.
//!
//! With rxe, IB_WR_LOCAL_INV is no barrier: it makes the region invalid, while a packet of the peer
//! that was let in before may still be copied, 4 KiB at most. A peer that keeps to the protocol has
//! nothing under way when it reports that it is done with an advert, because what it sends on one
//! QP is handled in order. For one that does not, that packet's copy is a race of a few
//! microseconds that rxe leaves open; hardware does not.

use super::super::super::bindings as c;
use super::super::dma::Direction;
use super::super::mr::{Access, Key};
use super::{SendQueue, What, WorkRequest};
use crate::memory::pinned::Pinned;
use kernel::prelude::*;

/// Pieces of memory that may be lent at a time.
const LOANS: usize = 16;
/// RDMA READs and WRITEs that can be queued before they are handed over.
const LISTS: usize = 4;

/// Names memory that was lent to a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Loan {
    index: u8,
    /// Tells it from others of that index, before and after.
    number: u32,
}

impl Loan {
    /// Names memory; `number` tells it from others of that index.
    pub(crate) fn new(index: u8, number: u32) -> Self {
        Loan { index, number }
    }

    /// The index.
    pub(crate) fn index(self) -> usize {
        self.index.into()
    }
}

/// An RDMA READ or WRITE.
#[derive(Clone, Copy)]
pub(crate) struct Transfer {
    /// READ: from the peer into lent memory. Else WRITE.
    pub(crate) read: bool,
    /// Where in the lent memory.
    pub(crate) offset: u32,
    /// How many bytes at most.
    pub(crate) len: u32,
    /// Where at the peer.
    pub(crate) address: u64,
    /// The peer's key.
    pub(crate) rkey: u32,
    /// What to call it when it is complete.
    pub(crate) cookie: u64,
}

/// Memory that is lent.
struct Lent {
    number: u32,
    memory: Pinned,
    /// Work requests that are not complete.
    users: u16,
    /// IB_WR_LOCAL_INV is queued.
    ending: bool,
}

/// What is lent to a queue, and lists for work requests. Has no memory of its own before the first
/// loan: most connections never lend anything.
pub(in super::super) struct Direct {
    loans: KVec<Option<Lent>>,
    next: u32,
    /// Lists of `gather` entries each, for requests that are queued.
    sges: KVec<c::ib_sge>,
    gather: u8,
    used: usize,
    /// READs under way.
    reads: u16,
}

impl Direct {
    /// Nothing lent; a work request can have up to `gather` pieces of memory.
    pub(in super::super) fn new(gather: u8) -> Self {
        Direct {
            loans: KVec::new(),
            next: 0,
            sges: KVec::new(),
            gather,
            used: 0,
            reads: 0,
        }
    }

    /// Makes the tables, if they are not there. Does not sleep.
    fn prepare(&mut self) -> Result {
        if self.loans.is_empty() {
            let n = LISTS * usize::from(self.gather);
            self.sges.resize(n, c::ib_sge::default(), GFP_ATOMIC)?;
            self.loans.reserve(LOANS, GFP_ATOMIC)?;
            for _ in 0..LOANS {
                let _ = self.loans.push_within_capacity(None);
            }
        }
        Ok(())
    }

    fn find(&mut self, loan: Loan) -> Result<&mut Lent> {
        self.loans
            .get_mut(usize::from(loan.index))
            .and_then(Option::as_mut)
            .filter(|l| l.number == loan.number)
            .ok_or(ENOENT)
    }

    fn lent(&mut self, index: u8) -> Option<&mut Lent> {
        self.loans.get_mut(usize::from(index))?.as_mut()
    }

    /// A work request with this memory is complete.
    pub(super) fn unused(&mut self, index: u8) {
        if let Some(l) = self.lent(index) {
            l.users = l.users.saturating_sub(1);
        }
    }

    /// A transfer is complete.
    pub(super) fn moved(&mut self, read: bool) {
        self.reads = self.reads.saturating_sub(read.into());
    }

    /// The peer has no access any more.
    pub(super) fn invalidated(&mut self, index: u8) {
        if let Some(l) = self.lent(index) {
            l.ending = false;
            if let Some(m) = l.memory.memory_mut() {
                m.invalidated();
            }
        }
    }

    /// No work request is queued that uses a list.
    pub(super) fn lists_are_free(&mut self) {
        self.used = 0;
    }
}

impl SendQueue {
    /// Slots that only messages get, so that none waits for a transfer.
    fn reserve(&self) -> u16 {
        (self.slots.len() / 4) as u16
    }

    /// How many transfers and registrations can be queued.
    pub(in super::super) fn direct_room(&self) -> u16 {
        self.room().saturating_sub(self.reserve())
    }

    /// How many RDMA READs can be queued.
    pub(in super::super) fn read_room(&self) -> u16 {
        let most = self.qp.as_ref().map_or(0, |qp| u16::from(qp.reads()));
        most.saturating_sub(self.direct.reads)
            .min(self.direct_room())
    }

    /// Most pieces of memory in one transfer.
    pub(in super::super) fn gather(&self) -> u8 {
        self.direct.gather
    }

    /// Whether anything is lent.
    pub(in super::super) fn has_loans(&self) -> bool {
        self.direct.loans.iter().any(Option::is_some)
    }

    /// Takes memory over.
    ///
    /// # Errors
    ///
    /// Gives it back if it was not made for this QP or nothing is pinned, if as much is lent as can
    /// be, or if there is no memory for that.
    pub(in super::super) fn lend(&mut self, memory: Pinned) -> Result<Loan, Pinned> {
        let fits = |p: &Pinned| p.len() != 0 && p.memory().is_some_and(|m| m.is_of(&self.pd));
        if !fits(&memory) || self.direct.prepare().is_err() {
            return Err(memory);
        }
        let free = self.direct.loans.iter().position(Option::is_none);
        let Some((index, place)) = free.and_then(|i| Some((i, self.direct.loans.get_mut(i)?)))
        else {
            return Err(memory);
        };
        let number = self.direct.next;
        self.direct.next = number.wrapping_add(1);
        *place = Some(Lent {
            number,
            memory,
            users: 0,
            ending: false,
        });
        Ok(Loan {
            index: index as u8,
            number,
        })
    }

    /// Gives memory back that nothing can access any more.
    ///
    /// # Errors
    ///
    /// `EBUSY` if something can, `ENOENT` if it is not lent.
    pub(in super::super) fn reclaim(&mut self, loan: Loan) -> Result<Pinned> {
        let lent = self.direct.find(loan)?;
        let registered = lent.memory.memory().is_some_and(|m| m.is_registered());
        if lent.users != 0 || registered {
            return Err(EBUSY);
        }
        let place = self.direct.loans.get_mut(usize::from(loan.index));
        let lent = place.and_then(Option::take).ok_or(ENOENT)?;
        Ok(lent.memory)
    }

    /// Queues what gives the peer access to all of the memory, and tells how the peer names it.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when there is no room now, `EBUSY` if it has access already, `EINVAL` if the memory
    /// was not made for that or is used otherwise, `ENOENT`, `ENOMEM`, `EIO` when the queue is
    /// broken.
    pub(in super::super) fn register(&mut self, loan: Loan, access: Access) -> Result<Key> {
        if self.broken {
            return Err(EIO);
        }
        if self.direct_room() == 0 {
            return Err(ENOSPC);
        }
        let position = self.slot_of(self.tail);
        let (Some(slot), Some(wr)) = (self.slots.get_mut(position), self.wrs.get_mut(position))
        else {
            return Err(EINVAL);
        };
        let lent = self.direct.find(loan)?;
        let memory = lent.memory.memory_mut().ok_or(EINVAL)?;
        let (request, key) = memory.register(access)?;
        lent.users += 1;
        slot.what = What::Register { index: loan.index };
        *wr = WorkRequest { reg: request };
        self.queue(false, 0);
        Ok(key)
    }

    /// Queues what ends the peer's access. The caller knows that the peer has nothing under way:
    /// else the QP has to be destroyed.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when there is no room now, `EALREADY` the second time, `EINVAL` if the peer has no
    /// access, `ENOENT`, `EIO` when the queue is broken.
    pub(in super::super) fn invalidate(&mut self, loan: Loan, cookie: u64) -> Result {
        if self.broken {
            return Err(EIO);
        }
        // What frees memory may go a little further than what uses it.
        if self.room() <= self.reserve() / 2 {
            return Err(ENOSPC);
        }
        let position = self.slot_of(self.tail);
        let (Some(slot), Some(wr)) = (self.slots.get_mut(position), self.wrs.get_mut(position))
        else {
            return Err(EINVAL);
        };
        let lent = self.direct.find(loan)?;
        if lent.ending {
            return Err(crate::sys::errno::EALREADY.into());
        }
        let rkey = lent.memory.memory().and_then(|m| m.rkey()).ok_or(EINVAL)?;
        lent.ending = true;
        lent.users += 1;
        slot.what = What::Invalidate { index: loan.index };
        slot.cookie = cookie;
        let wr = &mut wr.rdma().wr;
        wr.opcode = c::ib_wr_opcode_IB_WR_LOCAL_INV;
        wr.ex.invalidate_rkey = rkey;
        self.queue(true, 0);
        Ok(())
    }

    /// Queues one RDMA READ or WRITE, and tells how many bytes it moves: fewer than were asked for
    /// if these are in more pieces than one work request can have.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when there is no room now, or as many READs are under way as can be; `EBUSY` if the
    /// peer has access to the memory; `EINVAL` for what is beyond the memory, nothing at all, or
    /// memory that is used otherwise; `ENOENT`, `ENOMEM`, `EIO` when the queue is broken.
    pub(in super::super) fn transfer(&mut self, loan: Loan, t: &Transfer) -> Result<u32> {
        if self.broken {
            return Err(EIO);
        }
        if self.direct_room() == 0 || (t.read && self.read_room() == 0) {
            return Err(ENOSPC);
        }
        let gather = usize::from(self.direct.gather);
        if self.direct.used + gather > self.direct.sges.len() {
            self.flush()?;
        }
        let at = self.direct.used;
        let mut sges = core::mem::take(&mut self.direct.sges);
        let r = self.fill(loan, t, sges.get_mut(at..at + gather).ok_or(EINVAL));
        self.direct.sges = sges;
        let len = r?;
        self.direct.used = at + gather;
        self.direct.reads += u16::from(t.read);
        self.queue(true, 0);
        Ok(len)
    }

    /// Fills in the work request at `tail` for a transfer.
    fn fill(&mut self, loan: Loan, t: &Transfer, sges: Result<&mut [c::ib_sge]>) -> Result<u32> {
        let sges = sges?;
        let position = self.slot_of(self.tail);
        let (Some(slot), Some(wr)) = (self.slots.get_mut(position), self.wrs.get_mut(position))
        else {
            return Err(EINVAL);
        };
        let lent = self.direct.find(loan)?;
        let memory = lent.memory.memory_mut().ok_or(EINVAL)?;
        let end = t.offset.checked_add(t.len).ok_or(EINVAL)?;
        if t.len == 0 || end as usize > memory.len() {
            return Err(EINVAL);
        }
        if memory.is_registered() {
            return Err(EBUSY);
        }
        t.address.checked_add(u64::from(t.len)).ok_or(EINVAL)?;
        if !memory.is_mapped(Direction::of(t.read)) {
            return Err(EINVAL);
        }
        let (found, used) = memory.locate(t.offset as usize, t.len as usize, sges);
        let found = found as u32;
        if found == 0 {
            return Err(EINVAL);
        }
        lent.users += 1;
        slot.what = What::Transfer {
            index: loan.index,
            len: found,
            read: t.read,
        };
        slot.cookie = t.cookie;
        let wr = wr.rdma();
        wr.wr.opcode = match t.read {
            true => c::ib_wr_opcode_IB_WR_RDMA_READ,
            false => c::ib_wr_opcode_IB_WR_RDMA_WRITE,
        };
        wr.wr.sg_list = sges.as_mut_ptr();
        wr.wr.num_sge = used as i32;
        wr.remote_addr = t.address;
        wr.rkey = t.rkey;
        Ok(found)
    }

    /// Lets go of everything that is lent. The QP is destroyed. Process context.
    pub(in super::super) fn let_go(&mut self) {
        for lent in self.direct.loans.iter_mut().filter_map(Option::take) {
            lent.memory.destroy();
        }
    }
}

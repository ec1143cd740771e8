// SPDX-License-Identifier: GPL-2.0-only

//! Work requests with blocks: RDMA READ and WRITE, messages, registrations and invalidations.

use super::super::super::bindings as c;
use super::super::block::OwnedBlock;
use super::super::dma::Direction;
use super::super::mr::{Access, Key};
use super::super::queues::MAX_COPIED;
use super::super::sg::SgMapping;
use super::blocks::{BlockId, BlockSpan, Transfer};
use super::message::SendWr;
use super::queue::{SendQueue, WorkRequest, WrKind};
use kernel::prelude::*;

impl<T: Send + 'static> SendQueue<T> {
    /// Returns the number of slots reserved for messages, so that none waits for a transfer.
    fn reserve(&self) -> u16 {
        (self.parts.slots.len() / 4) as u16
    }

    /// Returns the number of transfers and registrations that can be queued.
    fn rdma_space(&self) -> u16 {
        self.space().saturating_sub(self.reserve())
    }

    /// Returns the maximum number of READs in flight; 0: none can be posted.
    pub(in super::super) fn most_reads(&self) -> u16 {
        self.qp.reads().into()
    }

    fn read_space(&self) -> u16 {
        self.most_reads()
            .saturating_sub(self.blocks.reads)
            .min(self.rdma_space())
    }

    /// Takes over a block.
    ///
    /// # Errors
    ///
    /// Returns the block if it is not mapped for this QP, at the maximum of blocks, or if the
    /// tables cannot be allocated.
    pub(in super::super) fn post_block(
        &mut self,
        block: OwnedBlock<T>,
    ) -> Result<BlockId, OwnedBlock<T>> {
        match block.sg().is_some_and(|sg| sg.is_of(&self.pd)) {
            true => self.blocks.add(block),
            false => Err(block),
        }
    }

    /// Queues the registration of the whole block for the peer, and returns its key.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the queue is full. `EBUSY`: the peer has access. `EINVAL`: not prepared for this,
    /// or in other use. `ENOENT`: the block does not exist. `ENOMEM`. `EIO`: the queue is broken.
    pub(in super::super) fn register(&mut self, block: BlockId, access: Access) -> Result<Key> {
        if self.broken {
            return Err(EIO);
        }
        let alone = self.registers_alone();
        if self.rdma_space() <= u16::from(!alone) {
            return Err(ENOSPC);
        }
        let (request, key, before) = self.blocks.find(block)?.sg()?.register(access)?;
        if !alone {
            let wr = self.registering(block)?.rdma();
            wr.wr.opcode = c::ib_wr_opcode_IB_WR_LOCAL_INV;
            wr.wr.ex.invalidate_rkey = before;
            self.queue(false, 0);
        }
        *self.registering(block)? = WorkRequest { reg: request };
        self.queue(false, 0);
        Ok(key)
    }

    /// Returns true if a registration needs no preceding IB_WR_LOCAL_INV. After a packet loss rxe
    /// repeats an IB_WR_REG_MR, which fails without one (docs/kernel-notes.md).
    fn registers_alone(&self) -> bool {
        self.is_empty() || !self.mapper.mapper().is_rxe()
    }

    /// Returns the work request at `tail`, to be filled in for the registration of a block.
    fn registering(&mut self, block: BlockId) -> Result<&mut WorkRequest> {
        let position = self.slot_of(self.tail);
        let (slot, wr, _) = self.parts.slot(position).ok_or(EINVAL)?;
        self.blocks.find(block)?.add_user()?;
        slot.what = WrKind::Register {
            index: block.index() as u8,
        };
        Ok(wr)
    }

    /// Queues the invalidation of the peer's access. The caller ensures that the peer has no
    /// request in flight; otherwise the QP has to be destroyed.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the queue is full. `EALREADY`: already invalidated. `EINVAL`: the peer has no
    /// access. `ENOENT`: no such block. `EIO`: the queue is broken.
    pub(in super::super) fn invalidate(&mut self, block: BlockId, cookie: u64) -> Result {
        if self.broken {
            return Err(EIO);
        }
        // Requests that release memory may use a few more slots than those that use it.
        if self.space() <= self.reserve() / 2 {
            return Err(ENOSPC);
        }
        let position = self.slot_of(self.tail);
        let (slot, wr, _) = self.parts.slot(position).ok_or(EINVAL)?;
        let entry = self.blocks.find(block)?;
        if entry.ending {
            return Err(crate::sys::errno::EALREADY.into());
        }
        let rkey = entry.sg()?.rkey().ok_or(EINVAL)?;
        entry.add_user()?;
        entry.ending = true;
        slot.what = WrKind::Invalidate {
            index: block.index() as u8,
        };
        slot.cookie = cookie;
        let wr = &mut wr.rdma().wr;
        wr.opcode = c::ib_wr_opcode_IB_WR_LOCAL_INV;
        wr.ex.invalidate_rkey = rkey;
        self.queue(true, 0);
        Ok(())
    }

    /// Queues one RDMA READ or WRITE and returns its number of bytes: fewer than requested if these
    /// have more segments than one work request allows.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the queue is full, or the maximum number of READs is in flight. `EBUSY`: the peer
    /// has access to the memory. `EINVAL`: outside the block, no bytes, or memory in other use.
    /// `ENOENT`: no such block. `ENOMEM`. `EIO`: the queue is broken.
    pub(in super::super) fn transfer(&mut self, block: BlockId, t: &Transfer) -> Result<u32> {
        if self.broken {
            return Err(EIO);
        }
        if self.rdma_space() == 0 || (t.read && self.read_space() == 0) {
            return Err(ENOSPC);
        }
        if t.read && self.pd.device().is_iwarp() && self.blocks.find(block)?.sink.is_none() {
            // the peer writes to the target of a READ, by its key
            let key = self.register(block, Access::Write)?;
            self.blocks.find(block)?.sink = Some(key);
        }
        let gather = usize::from(self.blocks.gather);
        let len = self.with_list(|queue, list| queue.fill(block, t, list.get_mut(..gather)))?;
        self.blocks.reads = self.blocks.reads.saturating_add(t.read.into());
        self.queue(true, 0);
        Ok(len)
    }

    /// Calls `fill` for a free SGE list, which is then in use until the queue is posted.
    fn with_list<R>(
        &mut self,
        fill: impl FnOnce(&mut Self, &mut [c::ib_sge]) -> Result<R>,
    ) -> Result<R> {
        let n = self.blocks.list();
        if self.blocks.used.saturating_add(n) > self.blocks.sges.len() {
            self.flush()?;
        }
        let at = self.blocks.used;
        let mut sges = core::mem::take(&mut self.blocks.sges);
        let r = match sges.get_mut(at..).and_then(|list| list.get_mut(..n)) {
            Some(list) => fill(self, list),
            None => Err(EINVAL),
        };
        self.blocks.sges = sges;
        if r.is_ok() {
            self.blocks.used = at.saturating_add(n);
        }
        r
    }

    /// Queues a message whose payload is part of a block, not of `message`; it completes like a
    /// transfer.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: all slots are in use. `EBUSY`: the peer has access to the block. `EINVAL`: the
    /// header is too large, or more than [`Self::block_payload`]. `ENOENT`: no such block. `EIO`:
    /// the queue is broken.
    pub(in super::super) fn post_block_span(
        &mut self,
        message: &SendWr<'_>,
        payload: &BlockSpan,
    ) -> Result {
        if self.broken {
            return Err(EIO);
        }
        if self.space() == 0 {
            return Err(ENOSPC);
        }
        self.with_list(|queue, list| queue.fill_block_span(message, payload, list))?;
        self.messages = self.messages.saturating_add(1);
        let solicited = match message.solicited {
            true => c::ib_send_flags_IB_SEND_SOLICITED,
            false => 0,
        };
        self.queue(message.signaled, solicited);
        Ok(())
    }

    /// Fills in the work request at `tail` for a message with payload from a block.
    fn fill_block_span(
        &mut self,
        message: &SendWr<'_>,
        payload: &BlockSpan,
        list: &mut [c::ib_sge],
    ) -> Result {
        if message.header.len() > MAX_COPIED || !message.payload.is_empty() {
            return Err(EINVAL);
        }
        let position = self.slot_of(self.tail);
        let header = self.copy_own(position, message, false, false)?;
        let memory = self.readable(payload.block)?;
        let end = payload.offset.checked_add(payload.len).ok_or(EINVAL)?;
        let (own, places) = list.split_first_mut().ok_or(EINVAL)?;
        *own = header;
        if payload.len == 0 || end as usize > memory.len() {
            return Err(EINVAL);
        }
        let (found, used) = memory.locate(payload.offset as usize, payload.len as usize, places);
        let (slot, wr, _) = self.parts.slot(position).ok_or(EINVAL)?;
        if found != payload.len as usize {
            return Err(EINVAL);
        }
        self.blocks.find(payload.block)?.add_user()?;
        slot.what = WrKind::Lent {
            index: payload.block.index() as u8,
            len: payload.len,
        };
        slot.cookie = message.cookie;
        let wr = &mut wr.rdma().wr;
        wr.opcode = c::ib_wr_opcode_IB_WR_SEND;
        wr.sg_list = list.as_mut_ptr();
        wr.num_sge = (used as i32).saturating_add(1);
        Ok(())
    }

    /// Returns the mapping of a block, if the device may read it.
    fn readable(&mut self, block: BlockId) -> Result<&SgMapping> {
        self.blocks.find(block)?.usable(Direction::ToDevice)
    }

    /// Returns how many of these bytes of a block fit in one message; 0: none.
    pub(in super::super) fn block_payload(&mut self, payload: &BlockSpan) -> u32 {
        let places = self.blocks.list().saturating_sub(1);
        let is_full = self.blocks.used.saturating_add(places) > self.blocks.sges.len();
        // earlier lists belong to queued requests
        if is_full && self.flush().is_err() {
            return 0;
        }
        let at = self.blocks.used;
        let mut list = core::mem::take(&mut self.blocks.sges);
        let free = list.get_mut(at..).and_then(|list| list.get_mut(..places));
        let found = match (self.readable(payload.block), free) {
            (Ok(memory), Some(list)) => {
                let (found, _) = memory.locate(payload.offset as usize, payload.len as usize, list);
                found
            }
            _ => 0,
        };
        self.blocks.sges = list;
        u32::try_from(found).unwrap_or(0)
    }

    /// Fills in the work request at `tail` for a transfer.
    fn fill(
        &mut self,
        block: BlockId,
        t: &Transfer,
        sges: Option<&mut [c::ib_sge]>,
    ) -> Result<u32> {
        let sges = sges.ok_or(EINVAL)?;
        let position = self.slot_of(self.tail);
        let (slot, wr, _) = self.parts.slot(position).ok_or(EINVAL)?;
        let entry = self.blocks.find(block)?;
        let sink = entry.sink.filter(|_| t.read);
        let memory = match sink {
            Some(_) => entry.sg()?,
            None => entry.usable(Direction::of(t.read))?,
        };
        let end = t.offset.checked_add(t.len).ok_or(EINVAL)?;
        if t.len == 0 || end as usize > memory.len() {
            return Err(EINVAL);
        }
        t.address.checked_add(u64::from(t.len)).ok_or(EINVAL)?;
        let (found, used) = match (sink, sges.first_mut()) {
            (Some(key), Some(sge)) => {
                (sge.addr, sge.length) = (key.address.wrapping_add(t.offset.into()), t.len);
                sge.lkey = key.rkey;
                (t.len as usize, 1)
            }
            _ => memory.locate(t.offset as usize, t.len as usize, sges),
        };
        let found = found as u32;
        if found == 0 {
            return Err(EINVAL);
        }
        entry.add_user()?;
        slot.what = WrKind::Transfer {
            index: block.index() as u8,
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
}

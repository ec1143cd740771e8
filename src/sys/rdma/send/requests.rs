// SPDX-License-Identifier: GPL-2.0-only

//! Work requests: messages, RDMA READs and WRITEs, registrations and invalidations of blocks.

use super::super::super::bindings as c;
use super::super::block::OwnedBlock;
use super::super::buffer::Sge;
use super::super::mr::Key;
use super::super::queues::{MAX_COPIED, MAX_SGES};
use super::blocks::{BlockId, BlockSpan, Transfer, MAX_LIST};
use super::{SendQueue, WorkRequest, WrKind};
use kernel::dma::DataDirection as Direction;
use kernel::prelude::*;

pub(crate) struct SendWr<'a> {
    /// Header; copied.
    pub(crate) header: &'a [u8],
    /// Payload, from buffers that are mapped if the transport has a mapper.
    pub(crate) payload: [Option<Sge<'a>>; MAX_SGES as usize],
    /// Requests a completion. The transport may also report completions that were not requested.
    pub(crate) signaled: bool,
    /// Notifies the peer even if the peer waits for solicited messages only.
    pub(crate) solicited: bool,
    /// Cookie that the completion returns.
    pub(crate) cookie: u64,
}

impl<T: Send + 'static> SendQueue<T> {
    /// Queues a message: the header, then the payload, whose buffers are mapped for reading by the
    /// device. A message of up to [`MAX_COPIED`] bytes is copied, and its payload needs no mapping.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: all slots are in use. `EINVAL`: the header or number of segments is too large, or
    /// a segment is not mapped or reaches beyond its buffer. `EIO`: the queue is broken.
    pub(in super::super) fn post(&mut self, message: &SendWr<'_>) -> Result {
        self.check_space(0)?;
        let payload = message.payload.iter().flatten();
        if payload.clone().count() > usize::from(self.sizes.max_sge) {
            return Err(EINVAL);
        }
        let mut length = message.header.len();
        for s in payload.clone() {
            length = length.checked_add(s.bytes()?.len()).ok_or(EINVAL)?;
        }
        let copied = length <= MAX_COPIED;
        // Payload that is not copied has DMA addresses, from which a driver cannot copy; many
        // devices accept more inline bytes than requested.
        let inline = copied && length <= usize::from(self.sizes.inline);

        let index = self.slot_of(self.tail);
        let first = self.copy_own(index, message, copied, inline)?;
        let used = match copied {
            true => 1,
            false => self.name_payload(index, payload)?,
        };
        let (_, _, sges) = self.parts.slot(index).ok_or(EINVAL)?;
        *sges.first_mut().ok_or(EINVAL)? = first;
        let list = (sges.as_mut_ptr(), used);
        let flags = match inline {
            true => c::ib_send_flags_IB_SEND_INLINE,
            false => 0,
        };
        self.queue_send(message, list, flags, WrKind::Message, None)
    }

    /// Queues a message with payload from a block, which completes like a transfer.
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
        self.check_space(0)?;
        let mut list = [c::ib_sge::default(); MAX_LIST];
        let (own, places) = list.split_first_mut().ok_or(EINVAL)?;
        *own = self.copy_own(self.slot_of(self.tail), message, false, false)?;
        let (found, used) = self.locate(payload, Direction::ToDevice, 1, places)?;
        if found != payload.len {
            return Err(EINVAL);
        }
        let list = self.keep_list(list.get(..=used).ok_or(EINVAL)?)?;
        let kind = WrKind::BlockMessage(payload.len);
        self.queue_send(message, list, 0, kind, Some(payload.block))
    }

    /// Queues a SEND with the given SGEs.
    fn queue_send(
        &mut self,
        message: &SendWr<'_>,
        (sg_list, num_sge): (*mut c::ib_sge, i32),
        mut flags: c::ib_send_flags,
        kind: WrKind,
        block: Option<BlockId>,
    ) -> Result {
        let wr = &mut self.next_wr()?.wr;
        wr.opcode = c::ib_wr_opcode_IB_WR_SEND;
        (wr.sg_list, wr.num_sge) = (sg_list, num_sge);
        if message.solicited {
            flags |= c::ib_send_flags_IB_SEND_SOLICITED;
        }
        self.queue(kind, block, message.cookie, message.signaled, flags);
        Ok(())
    }

    /// Copies the header and any payload that is to be copied to the slot; fills in their SGE.
    fn copy_own(
        &mut self,
        index: usize,
        message: &SendWr<'_>,
        copied: bool,
        inline: bool,
    ) -> Result<c::ib_sge> {
        let at = index.saturating_mul(MAX_COPIED);
        let own = self.headers.bytes_mut().get_mut(at..).ok_or(EINVAL)?;
        let (own, _) = own.split_at_mut_checked(MAX_COPIED).ok_or(EINVAL)?;
        let mut len = message.header.len();
        own.get_mut(..len)
            .ok_or(EINVAL)?
            .copy_from_slice(message.header);
        if copied {
            for s in message.payload.iter().flatten() {
                let bytes = s.bytes()?;
                let to = own.get_mut(len..).and_then(|to| to.get_mut(..bytes.len()));
                to.ok_or(EINVAL)?.copy_from_slice(bytes);
                len = len.saturating_add(bytes.len());
            }
        }
        // An inline request contains the CPU address of the bytes.
        let addr = match inline {
            true => own.as_ptr() as u64,
            false => self
                .headers_mapping
                .for_device(&self.mapper, at as u32, len),
        };
        Ok(c::ib_sge {
            addr,
            length: len as u32,
            lkey: self.lkey,
        })
    }

    /// Fills in the SGEs of the payload and keeps its memory mapped. Returns the number of SGEs,
    /// including the header's.
    fn name_payload<'a>(
        &mut self,
        index: usize,
        payload: impl Iterator<Item = &'a Sge<'a>>,
    ) -> Result<i32> {
        let (slot, _, sges) = self.parts.slot(index).ok_or(EINVAL)?;
        let mut used = 1;
        // The buffers of an earlier message in this slot were dropped at its completion.
        let places = sges.iter_mut().skip(1).zip(&mut slot.kept);
        let payload = payload.filter(|s| s.len != 0);
        for (n, (s, (sge, kept))) in (2..).zip(payload.zip(places)) {
            let mapper = self.mapper.mapper();
            let Some(mapping) = s.buffer.mapping(mapper, Direction::ToDevice) else {
                slot.kept = Default::default();
                return Err(EINVAL);
            };
            *sge = c::ib_sge {
                addr: mapping.for_device(&self.mapper, s.offset, s.len as usize),
                length: s.len,
                lkey: self.lkey,
            };
            *kept = Some(mapping.clone());
            used = n;
        }
        Ok(used)
    }

    /// Queues a probe: an RDMA WRITE of no bytes, whose completion shows that the peer is alive.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: all slots are in use. `EIO`: the queue is broken.
    pub(in super::super) fn probe(&mut self) -> Result {
        self.check_space(0)?;
        self.next_wr()?.wr.opcode = c::ib_wr_opcode_IB_WR_RDMA_WRITE;
        self.queue(WrKind::Probe, None, 0, true, 0);
        Ok(())
    }

    /// Returns the number of slots reserved for messages, so that no message waits for a transfer.
    fn reserve(&self) -> u16 {
        (self.parts.slots.len() / 4) as u16
    }

    /// Returns the maximum number of READs in flight; 0: no READ can be posted.
    pub(in super::super) fn most_reads(&self) -> u16 {
        self.qp.reads().into()
    }

    /// Takes over a block.
    ///
    /// # Errors
    ///
    /// Returns the block to the caller if it is not mapped for this QP, if the maximum of blocks is
    /// posted, or if the tables cannot be allocated.
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
    /// `ENOSPC`: the queue is full. `EBUSY`: the peer has access. `EINVAL`: the block is not
    /// prepared for a registration. `ENOENT`: the block does not exist. `EIO`: the queue is broken.
    pub(in super::super) fn register(&mut self, block: BlockId) -> Result<Key> {
        // After a packet loss rxe repeats an IB_WR_REG_MR, which fails without a preceding
        // IB_WR_LOCAL_INV (docs/kernel-notes.md).
        let alone = self.is_empty() || !self.pd.device().is_rxe();
        self.check_space(self.reserve().saturating_add(u16::from(!alone)))?;
        let (request, key, before) = self.blocks.find(block)?.sg()?.register()?;
        if !alone {
            self.next_is_invalidation(before)?;
            self.queue(WrKind::Register, Some(block), 0, false, 0);
        }
        let index = self.slot_of(self.tail);
        *self.parts.wrs.get_mut(index).ok_or(EINVAL)? = WorkRequest { reg: request };
        self.queue(WrKind::Register, Some(block), 0, false, 0);
        Ok(key)
    }

    /// Queues the invalidation of the peer's access. The caller ensures that the peer has no
    /// request in flight for the block; otherwise the QP has to be destroyed.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the queue is full. `EALREADY`: already invalidated. `EINVAL`: the peer has no
    /// access. `ENOENT`: no such block. `EIO`: the queue is broken.
    pub(in super::super) fn invalidate(&mut self, block: BlockId, cookie: u64) -> Result {
        // Requests that release memory may use a few more slots than requests that use memory.
        self.check_space(self.reserve() / 2)?;
        let entry = self.blocks.find(block)?;
        if entry.ending {
            return Err(crate::sys::errno::EALREADY.into());
        }
        let rkey = entry.sg()?.key().ok_or(EINVAL)?.rkey;
        entry.ending = true;
        self.next_is_invalidation(rkey)?;
        self.queue(WrKind::Invalidate, Some(block), cookie, true, 0);
        Ok(())
    }

    fn next_is_invalidation(&mut self, rkey: u32) -> Result {
        let wr = &mut self.next_wr()?.wr;
        wr.opcode = c::ib_wr_opcode_IB_WR_LOCAL_INV;
        wr.ex.invalidate_rkey = rkey;
        Ok(())
    }

    /// Queues one RDMA READ or WRITE and returns its number of bytes: fewer than requested if the
    /// range has more segments than one work request allows.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the queue is full, or the maximum number of READs is in flight. `EBUSY`: the peer
    /// has access to the memory. `EINVAL`: the range is empty or outside the block, or the memory
    /// is in other use. `ENOENT`: no such block. `EIO`: the queue is broken.
    pub(in super::super) fn transfer(&mut self, block: BlockId, t: &Transfer) -> Result<u32> {
        self.check_space(self.reserve())?;
        if t.read && self.blocks.reads >= self.most_reads() {
            return Err(ENOSPC);
        }
        t.address.checked_add(u64::from(t.len)).ok_or(EINVAL)?;
        let span = BlockSpan {
            block,
            offset: t.offset,
            len: t.len,
        };
        let mut list = [c::ib_sge::default(); MAX_LIST];
        let (len, used) = match t.read {
            true if self.pd.device().is_iwarp() => {
                let [sge, ..] = &mut list;
                *sge = self.sink(&span)?;
                (t.len, 1)
            }
            true => self.locate(&span, Direction::FromDevice, 0, &mut list)?,
            false => self.locate(&span, Direction::ToDevice, 0, &mut list)?,
        };
        let (sg_list, num_sge) = self.keep_list(list.get(..used).ok_or(EINVAL)?)?;
        let wr = self.next_wr()?;
        wr.wr.opcode = match t.read {
            true => c::ib_wr_opcode_IB_WR_RDMA_READ,
            false => c::ib_wr_opcode_IB_WR_RDMA_WRITE,
        };
        (wr.wr.sg_list, wr.wr.num_sge) = (sg_list, num_sge);
        (wr.remote_addr, wr.rkey) = (t.address, t.rkey);
        let kind = WrKind::Transfer { len, read: t.read };
        self.queue(kind, Some(block), t.cookie, true, 0);
        Ok(len)
    }

    /// Returns the SGE of a READ on iWARP: the peer writes to the SGE's memory, by a key.
    fn sink(&mut self, span: &BlockSpan) -> Result<c::ib_sge> {
        let entry = self.blocks.find(span.block)?;
        let key = match entry.usable(Direction::FromDevice)? {
            (_, Some(key)) => key,
            (_, None) => {
                let key = self.register(span.block)?;
                self.blocks.find(span.block)?.is_sink = true;
                key
            }
        };
        let end = span.offset.checked_add(span.len).ok_or(EINVAL)?;
        if span.len == 0 || end > key.len {
            return Err(EINVAL);
        }
        Ok(c::ib_sge {
            addr: key.address.wrapping_add(span.offset.into()),
            length: span.len,
            lkey: key.rkey,
        })
    }

    /// Fills `list` with the beginning of a span that the device may access in this direction.
    /// Leaves space for the request's `own` SGEs. Returns the number of bytes and of SGEs.
    fn locate(
        &mut self,
        span: &BlockSpan,
        direction: Direction,
        own: u8,
        list: &mut [c::ib_sge],
    ) -> Result<(u32, usize)> {
        let most = self
            .sizes
            .gather
            .max(own.saturating_add(1))
            .saturating_sub(own);
        let (memory, _) = self.blocks.find(span.block)?.usable(direction)?;
        let end = span.offset.checked_add(span.len).ok_or(EINVAL)?;
        if span.len == 0 || end as usize > memory.len() {
            return Err(EINVAL);
        }
        let list = list.get_mut(..most.into()).ok_or(EINVAL)?;
        match memory.locate(span.offset as usize, span.len as usize, list) {
            (0, _) => Err(EINVAL),
            (found, used) => Ok((found as u32, used)),
        }
    }

    /// Copies the SGEs of the next request to a place where they stay until the request is posted.
    fn keep_list(&mut self, list: &[c::ib_sge]) -> Result<(*mut c::ib_sge, i32)> {
        let kept = match self.blocks.keep_list(list) {
            Some(kept) => kept,
            None => {
                self.flush()?;
                self.blocks.keep_list(list).ok_or(EINVAL)?
            }
        };
        Ok((kept, list.len() as i32))
    }

    /// Returns how many of the given bytes of a block fit in one message; 0: none.
    pub(in super::super) fn block_payload(&mut self, payload: &BlockSpan) -> u32 {
        let mut places = [c::ib_sge::default(); MAX_LIST];
        let found = self.locate(payload, Direction::ToDevice, 1, &mut places);
        found.map_or(0, |(found, _)| found)
    }
}

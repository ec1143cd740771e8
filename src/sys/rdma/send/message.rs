// SPDX-License-Identifier: GPL-2.0-only

//! Messages.

use super::super::super::bindings as c;
use super::super::buffer::Sge;
use super::super::dma::Direction;
use super::super::queues::MAX_COPIED;
use super::queue::{SendQueue, WrKind};
use kernel::prelude::*;

pub(crate) struct SendWr<'a> {
    /// Header; copied.
    pub(crate) header: &'a [u8],
    /// Payload, from buffers that are mapped if the transport has a mapper.
    pub(crate) payload: &'a [Sge<'a>],
    /// Requests a completion. The transport may report other completions as well.
    pub(crate) signaled: bool,
    /// Notifies the peer even if it waits for solicited messages only.
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
        if self.broken {
            return Err(EIO);
        }
        if message.payload.len() > usize::from(self.max_sge) {
            return Err(EINVAL);
        }
        if self.space() == 0 {
            return Err(ENOSPC);
        }
        let mut length = message.header.len();
        for s in message.payload {
            length = length.checked_add(s.bytes()?.len()).ok_or(EINVAL)?;
        }
        let copied = length <= MAX_COPIED;
        // Payload that is not copied has DMA addresses, from which a driver cannot copy; many
        // devices accept more inline bytes than requested.
        let inline = copied && length <= usize::from(self.inline);

        let index = self.slot_of(self.tail);
        let first = self.copy_own(index, message, copied, inline)?;
        let used = match copied {
            true => 1,
            false => self.name_payload(index, message.payload)?,
        };
        let (slot, wr, sges) = self.parts.slot(index).ok_or(EINVAL)?;
        *sges.first_mut().ok_or(EINVAL)? = first;
        slot.cookie = message.cookie;
        slot.what = WrKind::Message;
        let wr = &mut wr.rdma().wr;
        wr.opcode = c::ib_wr_opcode_IB_WR_SEND;
        wr.sg_list = sges.as_mut_ptr();
        wr.num_sge = used;
        let mut flags = 0;
        if message.solicited {
            flags |= c::ib_send_flags_IB_SEND_SOLICITED;
        }
        if inline {
            flags |= c::ib_send_flags_IB_SEND_INLINE;
        }
        self.messages = self.messages.saturating_add(1);
        self.queue(message.signaled, flags);
        Ok(())
    }

    /// Copies the header, and payload that is to be copied, to the slot; fills in their SGE.
    pub(super) fn copy_own(
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
            for s in message.payload {
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
    fn name_payload(&mut self, index: usize, payload: &[Sge<'_>]) -> Result<i32> {
        let (slot, _, sges) = self.parts.slot(index).ok_or(EINVAL)?;
        let mut used = 1;
        // The buffers of an earlier message in this slot were dropped at its completion.
        let places = sges.iter_mut().skip(1).zip(&mut slot.kept);
        let payload = payload.iter().filter(|s| s.len != 0);
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
        if self.broken {
            return Err(EIO);
        }
        if self.space() == 0 {
            return Err(ENOSPC);
        }
        let index = self.slot_of(self.tail);
        let (slot, wr, _) = self.parts.slot(index).ok_or(EINVAL)?;
        slot.what = WrKind::Probe;
        wr.rdma().wr.opcode = c::ib_wr_opcode_IB_WR_RDMA_WRITE;
        self.probes = self.probes.saturating_add(1);
        self.queue(true, 0);
        Ok(())
    }
}

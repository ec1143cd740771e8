// SPDX-License-Identifier: GPL-2.0-only

//! Messages that go out.
//!
//! A [`SendQueue`] is the send queue of a QP: a ring of work requests that are under way. They are
//! messages for the most part; RDMA READs and WRITEs and what gives the peer access to memory are
//! in [`direct`], in one order with the messages.

pub(crate) mod direct;

use super::super::bindings as c;
use super::super::pages::{Memory, MIN_BLOCK};
use super::cq::{Arming, Cq};
use super::dma::Direction;
use super::mapper::{MapperOwner, Mapping};
use super::pd::Pd;
use super::qp::QueuePair;
use super::queues::{filled, WorkStatus, MAX_HEADER, MAX_SPANS};
use crate::sys::rdma::buffer::Span;
use direct::Direct;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A completion: this work request and all before it are done with.
pub(crate) struct Sent {
    /// What the poster called it.
    pub(crate) cookie: u64,
    /// How it ended.
    pub(crate) status: WorkStatus,
    /// What it was.
    pub(crate) done: Done,
}

/// What has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// A message, or something that is told of only when it fails.
    Message,
    /// An RDMA READ or WRITE of so many bytes.
    Transfer(u32),
    /// The peer's access to memory.
    Access,
}

/// How a message is to be sent.
pub(crate) struct How {
    /// Tell when it is complete.
    pub(crate) signaled: bool,
    /// Have the peer woken even if it waits for solicited messages only.
    pub(crate) solicited: bool,
    /// What to call it then.
    pub(crate) cookie: u64,
}

/// What can be sent.
#[derive(Default)]
pub(crate) struct SendLimits {
    /// Messages on their way.
    pub(crate) slots: u16,
    /// Pieces of payload per message.
    pub(crate) spans: u8,
}

/// What a work request is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum What {
    #[default]
    Message,
    /// A probe, of which nobody is told.
    Probe,
    /// An RDMA READ or WRITE with lent memory.
    Transfer { index: u8, len: u32, read: bool },
    /// The peer gets access to lent memory. Nobody is told.
    Register { index: u8 },
    /// The peer's access ends.
    Invalidate { index: u8 },
}

/// A work request under way.
#[derive(Default)]
struct SendSlot {
    cookie: u64,
    what: What,
    /// What the device reads for a message.
    kept: [Option<Arc<Mapping>>; MAX_SPANS as usize],
}

/// A work request of one kind or the other.
#[repr(C)]
#[derive(Clone, Copy)]
union WorkRequest {
    rdma: c::ib_rdma_wr,
    reg: c::ib_reg_wr,
}

impl WorkRequest {
    fn new() -> Self {
        WorkRequest {
            rdma: Default::default(),
        }
    }

    /// What all kinds begin with.
    fn head(&mut self) -> &mut c::ib_send_wr {
        // SAFETY: All kinds begin with one, and are plain data that is valid in any state.
        unsafe { &mut self.rdma.wr }
    }

    /// As one that names memory of the peer.
    fn rdma(&mut self) -> &mut c::ib_rdma_wr {
        *self = Self::new();
        // SAFETY: It was just written as such.
        unsafe { &mut self.rdma }
    }
}

/// Work requests under way, as a ring. Positions count on for ever; a slot is its position modulo
/// the number of slots.
///
/// # Invariants
///
/// Positions from `head` to `tail` are taken; those from `flushed` on are not handed over yet, and
/// those before `done` are complete. What the device may access for a position is kept by its slot,
/// is the headers' block, or is lent memory that the slot counts for as a user.
pub(super) struct SendQueue {
    qp: Option<Arc<QueuePair>>,
    cq: Cq,
    mapper: Arc<MapperOwner>,
    pd: Arc<Pd>,
    lkey: u32,
    spans: u8,
    inline: u16,
    headers: Memory,
    headers_mapping: Arc<Mapping>,
    slots: KVec<SendSlot>,
    wrs: KVec<WorkRequest>,
    /// `1 + spans` for each slot.
    sges: KVec<c::ib_sge>,
    direct: Direct,
    head: u64,
    done: u64,
    /// How the one before `done` ended; those before it have ended well.
    status: WorkStatus,
    flushed: u64,
    tail: u64,
    unsignaled: usize,
    messages: u16,
    probes: u16,
    broken: bool,
}

impl SendQueue {
    pub(super) fn new(
        cq: Cq,
        mapper: &Arc<MapperOwner>,
        slots: u16,
        spans: u8,
        pd: &Arc<Pd>,
        direct: Direct,
    ) -> Result<Self> {
        let n = usize::from(slots.max(2));
        let size = (n * MAX_HEADER).next_power_of_two().max(MIN_BLOCK);
        let headers = Memory::new(size, GFP_KERNEL)?;
        let headers_mapping = mapper.map(&headers, Direction::ToDevice)?;
        Ok(SendQueue {
            qp: None,
            cq,
            mapper: mapper.clone(),
            pd: pd.clone(),
            lkey: pd.lkey(),
            spans,
            inline: 0,
            headers,
            headers_mapping,
            slots: filled(n, SendSlot::default)?,
            wrs: filled(n, WorkRequest::new)?,
            sges: filled(n * (usize::from(spans) + 1), c::ib_sge::default)?,
            direct,
            head: 0,
            done: 0,
            status: WorkStatus(c::ib_wc_status_IB_WC_SUCCESS),
            flushed: 0,
            tail: 0,
            unsignaled: 0,
            messages: 0,
            probes: 0,
            broken: false,
        })
    }

    pub(super) fn attach(&mut self, qp: &Arc<QueuePair>, inline: u16) {
        self.qp = Some(qp.clone());
        self.inline = inline;
    }

    pub(super) fn cq(&self) -> &Cq {
        &self.cq
    }

    pub(super) fn limits(&self) -> SendLimits {
        SendLimits {
            slots: self.slots.len() as u16,
            spans: self.spans,
        }
    }

    fn taken(&self) -> usize {
        self.tail.wrapping_sub(self.head) as usize
    }

    pub(super) fn room(&self) -> u16 {
        self.slots.len().saturating_sub(self.taken()) as u16
    }

    pub(super) fn in_flight(&self) -> u16 {
        self.messages
    }

    /// Probes that were posted and have not come to an end.
    pub(super) fn probes(&self) -> u16 {
        self.probes
    }

    /// Whether the next message has to be signaled for the queue not to fill up unnoticed.
    fn must_signal(&self) -> bool {
        self.unsignaled + 1 >= self.slots.len() / 2
    }

    fn slot_of(&self, position: u64) -> usize {
        // There are slots, but the compiler cannot know.
        position.checked_rem(self.slots.len() as u64).unwrap_or(0) as usize
    }

    /// Queues a message: `header`, then the spans, whose buffers are mapped for the device to read.
    /// A message of up to [`MAX_HEADER`] bytes is copied, and its spans need no mapping.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when all slots are taken, `EINVAL` for a header or a number of spans that is too
    /// large and for a span that is not mapped or reaches beyond its buffer, `EIO` when the queue
    /// is broken.
    pub(super) fn post(&mut self, header: &[u8], spans: &[Span<'_>], how: &How) -> Result {
        if self.broken {
            return Err(EIO);
        }
        if spans.len() > usize::from(self.spans) {
            return Err(EINVAL);
        }
        if self.room() == 0 {
            return Err(ENOSPC);
        }
        let mut length = header.len();
        for s in spans {
            length = length.checked_add(s.bytes()?.len()).ok_or(EINVAL)?;
        }
        let copied = length <= MAX_HEADER;
        // What is not copied is named by addresses for the device, from which a driver cannot copy; and
        // many a device takes more than was asked for.
        let inline = copied && length <= usize::from(self.inline);

        let index = self.slot_of(self.tail);
        let per_slot = usize::from(self.spans) + 1;
        let own_at = index * MAX_HEADER;
        let own_len = if copied { length } else { header.len() };
        let own = self.headers.bytes_mut().get_mut(own_at..).ok_or(EINVAL)?;
        let (own, _) = own.split_at_mut_checked(MAX_HEADER).ok_or(EINVAL)?;
        own.get_mut(..header.len())
            .ok_or(EINVAL)?
            .copy_from_slice(header);
        if copied {
            let mut at = header.len();
            for s in spans {
                let bytes = s.bytes()?;
                let to = own.get_mut(at..at + bytes.len()).ok_or(EINVAL)?;
                to.copy_from_slice(bytes);
                at += bytes.len();
            }
        }
        // An inline request names the CPU's address of what is copied into it.
        let own_address = if inline {
            own.as_ptr() as u64
        } else {
            let mapping = &self.headers_mapping;
            mapping.for_device(&self.mapper, own_at as u32, own_len)
        };

        let (Some(slot), Some(sges), Some(wr)) = (
            self.slots.get_mut(index),
            self.sges.get_mut(index * per_slot..(index + 1) * per_slot),
            self.wrs.get_mut(index),
        ) else {
            return Err(EINVAL);
        };
        let (first, rest) = sges.split_first_mut().ok_or(EINVAL)?;
        *first = c::ib_sge {
            addr: own_address,
            length: own_len as u32,
            lkey: self.lkey,
        };
        let mut used = 1;
        if !copied {
            // What a former message of this slot kept was dropped at its completion.
            let places = rest.iter_mut().zip(&mut slot.kept);
            for (s, (sge, kept)) in spans.iter().filter(|s| s.len != 0).zip(places) {
                let mapper = self.mapper.mapper();
                let fits =
                    |m: &&Arc<Mapping>| m.fits(mapper, s.buffer.memory(), Direction::ToDevice);
                let Some(mapping) = s.buffer.mapping().filter(fits) else {
                    slot.kept = Default::default();
                    return Err(EINVAL);
                };
                *sge = c::ib_sge {
                    addr: mapping.for_device(&self.mapper, s.offset, s.len as usize),
                    length: s.len,
                    lkey: self.lkey,
                };
                *kept = Some(mapping.clone());
                used += 1;
            }
        }
        slot.cookie = how.cookie;
        slot.what = What::Message;
        let wr = &mut wr.rdma().wr;
        wr.opcode = c::ib_wr_opcode_IB_WR_SEND;
        wr.sg_list = first;
        wr.num_sge = used;
        let mut flags = 0;
        if how.solicited {
            flags |= c::ib_send_flags_IB_SEND_SOLICITED;
        }
        if inline {
            flags |= c::ib_send_flags_IB_SEND_INLINE;
        }
        self.messages += 1;
        self.queue(how.signaled, flags);
        Ok(())
    }

    /// Queues a probe: an RDMA WRITE of no bytes, which only shows whether the peer is there.
    ///
    /// # Errors
    ///
    /// `ENOSPC`, `EIO`.
    pub(super) fn probe(&mut self) -> Result {
        if self.broken {
            return Err(EIO);
        }
        if self.room() == 0 {
            return Err(ENOSPC);
        }
        let index = self.slot_of(self.tail);
        let (Some(slot), Some(wr)) = (self.slots.get_mut(index), self.wrs.get_mut(index)) else {
            return Err(EINVAL);
        };
        slot.what = What::Probe;
        wr.rdma().wr.opcode = c::ib_wr_opcode_IB_WR_RDMA_WRITE;
        self.probes += 1;
        self.queue(true, 0);
        Ok(())
    }

    /// Counts the work request at `tail`, which is filled in but for its flags and its number.
    fn queue(&mut self, signaled: bool, mut flags: c::ib_send_flags) {
        if signaled || self.must_signal() {
            flags |= c::ib_send_flags_IB_SEND_SIGNALED;
            self.unsignaled = 0;
        } else {
            self.unsignaled += 1;
        }
        let index = self.slot_of(self.tail);
        if let Some(wr) = self.wrs.get_mut(index) {
            let wr = wr.head();
            wr.send_flags = flags;
            wr.__bindgen_anon_1.wr_id = self.tail;
        }
        // INVARIANT: The slot keeps what the request accesses, or is counted as a user of it.
        self.tail = self.tail.wrapping_add(1);
    }

    /// Hands what is queued to the device.
    pub(super) fn flush(&mut self) -> Result {
        if self.broken {
            return Err(EIO);
        }
        if self.flushed == self.tail {
            return Ok(());
        }
        let Some(qp) = self.qp.as_ref() else {
            return Err(EINVAL);
        };
        let wrs = self.wrs.as_mut_ptr();
        let first = self.slot_of(self.flushed);
        let mut position = self.flushed;
        while position != self.tail {
            let following = position.wrapping_add(1);
            let next = if following == self.tail {
                core::ptr::null_mut()
            } else {
                // SAFETY: A slot's index is below the length of the vector, and every kind of work
                // request begins with the same fields.
                unsafe { wrs.add(self.slot_of(following)).cast::<c::ib_send_wr>() }
            };
            // SAFETY: As above; nobody else refers to the elements.
            unsafe {
                (*wrs.add(self.slot_of(position)).cast::<c::ib_send_wr>()).next = next;
            }
            position = following;
        }
        // INVARIANT: All is handed over. What the device has not taken stays in its slot.
        self.flushed = self.tail;
        // The driver has copied the lists of memory when it returns.
        self.direct.lists_are_free();
        // SAFETY: The QP is alive: only the endpoint that owns `self` destroys it, when it is
        // dropped. The list is well-formed and the driver copies it. What each request makes the
        // device access is kept by its slot until the completion or until the QP is destroyed, or
        // is in the headers' block or in `direct`, which are kept as long.
        let ret = to_result(unsafe {
            c::sdp_h_ib_post_send(qp.raw(), wrs.add(first).cast::<c::ib_send_wr>())
        });
        self.broken = ret.is_err();
        ret
    }

    pub(super) fn look(&mut self) -> bool {
        self.head != self.flushed && self.cq.look()
    }

    /// The next completion.
    pub(super) fn poll(&mut self) -> Option<Sent> {
        if self.head == self.flushed && !self.cq.is_pending() {
            return None;
        }
        loop {
            while self.head != self.done {
                if let Some(sent) = self.retire() {
                    return Some(sent);
                }
            }
            let wc = self.cq.take()?;
            // SAFETY: Sends carry a number, not a pointer; both are plain bits anyhow.
            let position = unsafe { wc.__bindgen_anon_1.wr_id };
            if position.wrapping_sub(self.head) >= self.flushed.wrapping_sub(self.head) {
                // Not one of ours, or told twice. Nothing is known to be complete by this.
                return Some(Sent {
                    cookie: 0,
                    status: WorkStatus(c::ib_wc_status_IB_WC_GENERAL_ERR),
                    done: Done::Message,
                });
            }
            // INVARIANT: A send queue completes in order.
            self.done = position.wrapping_add(1);
            self.status = WorkStatus(wc.status);
        }
    }

    /// Takes the request at `head`, which is complete, out of the ring; tells if somebody wants to
    /// know.
    fn retire(&mut self) -> Option<Sent> {
        let last = self.head.wrapping_add(1) == self.done;
        let status = match last {
            true => self.status,
            false => WorkStatus(c::ib_wc_status_IB_WC_SUCCESS),
        };
        let index = self.slot_of(self.head);
        let following = self.slot_of(self.head.wrapping_add(1));
        let following = self.slots.get(following).map_or(What::Message, |s| s.what);
        let slot = self.slots.get_mut(index)?;
        // INVARIANT: It is complete, so the device accesses nothing for it any more.
        slot.kept = Default::default();
        let (cookie, what) = (slot.cookie, slot.what);
        self.head = self.head.wrapping_add(1);
        let ok = status.is_success();
        let done = match what {
            What::Message => {
                self.messages = self.messages.saturating_sub(1);
                // One message speaks for those before it.
                if !last && following == What::Message {
                    return None;
                }
                Done::Message
            }
            What::Probe => {
                self.probes = self.probes.saturating_sub(1);
                if ok {
                    return None;
                }
                Done::Message
            }
            What::Register { index } => {
                self.direct.unused(index);
                if ok {
                    return None;
                }
                Done::Message
            }
            What::Transfer { index, len, read } => {
                self.direct.unused(index);
                self.direct.moved(read);
                Done::Transfer(len)
            }
            What::Invalidate { index } => {
                self.direct.unused(index);
                if ok {
                    self.direct.invalidated(index);
                }
                Done::Access
            }
        };
        Some(Sent {
            cookie,
            status,
            done,
        })
    }

    /// See [`Cq::arm`].
    pub(super) fn arm(&mut self) -> Arming {
        self.cq.arm()
    }
}

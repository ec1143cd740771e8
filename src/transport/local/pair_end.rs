// SPDX-License-Identifier: GPL-2.0-only

//! One end of a local connection.
//!
//! A [`PairEnd`] has the owner's posted buffers, the messages received in them, and requests that
//! are not carried out yet. The lock of the [`Pair`](super::pair::Pair) protects it while attached.

use super::blocks::BlockList;
use super::ready::{News, OrphanedPeer, Ready};
use super::received::Received;
use super::tally::Counts;
use super::waiting::{copy_sges, PartialTransfer, Waiting, WaitingMessage, SGES};
use crate::memory::ring::Ring;
use crate::sys::deferred::DropInWorker;
use crate::sys::rdma::buffer::Buffer;
use crate::sys::work::ModuleRef;
use crate::transport::{
    Access, BlockId, Head, Key, NotifyOn, SendCompletion, SendWr, Status, Transfer, HEAD,
};
use kernel::prelude::*;
use kernel::sync::Arc;

/// Maximum number of READs in flight.
const READS: u16 = 4;
/// Initial capacity of the queue of waiting requests.
const FIRST_WAITING: usize = 4;

/// Copies in progress to or from blocks of an end.
pub(super) trait Copying: Send + Sync {
    /// Waits until no copy of a detached end is in progress. Context: process, may sleep. Short:
    /// no copy begins without both ends.
    fn wait_for_copies(&self);
}

pub(super) type OptionalEnd = Option<DropInWorker<PairEnd>>;

/// One end, while its endpoint exists.
pub(super) struct PairEnd {
    owner: Arc<dyn Ready>,
    /// Copiers that may still run, once it is detached.
    copying: Option<Arc<dyn Copying>>,
    /// Peer that was to be drained, once it is detached.
    unattended: Option<OrphanedPeer>,
    /// The workqueue may drop the end last.
    _module: ModuleRef,
    /// Maximum number of messages posted and not completed.
    send_slots: u16,
    /// Received messages, and posted buffers.
    pub(super) received: Received,
    /// Requests posted and not carried out, in order of posting.
    waiting: Ring<Waiting>,
    /// Number of READs among them.
    reads: u16,
    /// Set while a task of the owner carries out transfers.
    pub(super) carries: bool,
    /// Set while a task of the other end's owner carries out transfers of this end.
    pub(super) is_helped: bool,
    /// Memory of the program.
    pub(super) blocks: BlockList,
    /// Completions to be polled.
    done: Ring<SendCompletion>,
    /// Kind of message to notify the owner of next, if armed.
    pub(super) receive_armed: Option<NotifyOn>,
    /// Set if the next send completion notifies the owner.
    pub(super) send_armed: bool,
    /// Set if the owner has more to send once the other end has drained its messages.
    pub(super) awaits_drain: bool,
    /// Set if messages have arrived since the other end's last flush: solicited ones, or any.
    news: Option<NotifyOn>,
    /// Size of the other end's buffer, if the first waiting message lacks its memory.
    pub(super) lacks_memory: Option<usize>,
    /// Set once a request could not be carried out.
    broken: bool,
}

impl PairEnd {
    pub(super) fn new(
        send_slots: u16,
        receive_slots: u16,
        owner: Arc<dyn Ready>,
    ) -> Result<DropInWorker<Self>> {
        let mut end = DropInWorker::new(PairEnd {
            owner,
            copying: None,
            unattended: None,
            _module: ModuleRef::new(),
            send_slots,
            received: Received::new(receive_slots)?,
            waiting: Ring::new(),
            reads: 0,
            carries: false,
            is_helped: false,
            blocks: BlockList::new(),
            done: Ring::new(),
            receive_armed: None,
            send_armed: false,
            awaits_drain: false,
            news: None,
            lacks_memory: None,
            broken: false,
        })?;
        end.waiting.reserve(FIRST_WAITING, GFP_KERNEL)?;
        end.done.reserve(send_slots.into(), GFP_KERNEL)?;
        Ok(end)
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            arrived: self.received.arrived(),
            posted: self.received.posted(),
            done: self.done.len() as u16,
            used: self.used(),
        }
    }

    /// Returns the used slots of the send queue: all if there is no memory to queue more.
    fn used(&self) -> u16 {
        match self.waiting.is_full() {
            true => self.send_slots,
            false => self.waiting.len().saturating_add(self.done.len()) as u16,
        }
    }

    pub(super) fn in_flight(&self) -> u16 {
        self.waiting.len() as u16
    }

    pub(super) fn send_space(&self) -> u16 {
        self.send_slots.saturating_sub(self.used())
    }

    pub(super) fn has_arrived(&self) -> bool {
        self.received.arrived() != 0
    }

    pub(super) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    pub(super) fn next_done(&mut self) -> Option<SendCompletion> {
        self.done.pop_front()
    }

    /// Stores the objects that the drop needs.
    pub(super) fn detached(&mut self, copying: Arc<dyn Copying>, unattended: Option<OrphanedPeer>) {
        (self.copying, self.unattended) = (Some(copying), unattended);
    }

    /// Queues a request. `ENOSPC`: the queue is full.
    pub(super) fn wait(&mut self, w: Waiting) -> Result {
        self.waiting.push_back(w).map_err(|_| ENOSPC)?;
        if !self.waiting.grow(self.send_slots.into(), GFP_NOWAIT) {
            // the completion of this one reports that there is space again
            if let Some(Waiting::Message(last)) = self.waiting.back_mut() {
                last.signaled = true;
            }
        }
        Ok(())
    }

    /// Returns the number of transfers that can be posted. A quarter of the slots is reserved for
    /// messages.
    fn rdma_space(&self) -> u16 {
        self.send_space().saturating_sub(self.send_slots / 4)
    }

    /// Returns the number of READs that can be posted.
    fn read_space(&self) -> u16 {
        READS.saturating_sub(self.reads).min(self.rdma_space())
    }

    /// Returns true once a request has failed; no other is carried out after that.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(super) fn register(&mut self, block: BlockId, access: Access) -> Result<Key> {
        if self.broken {
            return Err(EIO);
        }
        self.blocks.register(block, access)
    }

    /// Queues the end of the peer's access.
    pub(super) fn invalidate(&mut self, block: BlockId, cookie: u64) -> Result {
        if self.broken {
            return Err(EIO);
        }
        if self.rdma_space() == 0 {
            return Err(ENOSPC);
        }
        self.blocks.stop_access(block)?;
        self.wait(Waiting::Invalidate { block, cookie })
    }

    /// Queues a transfer.
    pub(super) fn transfer(&mut self, block: BlockId, t: &Transfer) -> Result<u32> {
        if self.broken {
            return Err(EIO);
        }
        if self.rdma_space() == 0 || (t.read && self.read_space() == 0) {
            return Err(ENOSPC);
        }
        t.address.checked_add(u64::from(t.len)).ok_or(EINVAL)?;
        self.blocks.begin(block, t)?;
        self.wait(Waiting::Transfer(PartialTransfer::new(block, t)))?;
        self.reads = self.reads.saturating_add(t.read.into());
        Ok(t.len)
    }

    /// Returns the transfer at the front of the queue, if there is one.
    pub(super) fn next_transfer(&mut self) -> Option<&mut PartialTransfer> {
        match self.waiting.front_mut() {
            Some(Waiting::Transfer(t)) if !self.broken => Some(t),
            _ => None,
        }
    }

    /// Completes the transfer at the front of the queue.
    pub(super) fn moved(&mut self) {
        let Some(Waiting::Transfer(done)) = self.waiting.pop_front() else {
            return;
        };
        let t = done.transfer;
        self.blocks.over(done.block);
        self.reads = self.reads.saturating_sub(t.read.into());
        self.notify_done(SendCompletion::Moved {
            cookie: t.cookie,
            len: t.len,
        });
    }

    pub(super) fn notify_done(&mut self, c: SendCompletion) {
        // `send_space` reserves the slot.
        let _ = self.done.push_back(c);
    }

    pub(super) fn owner(&self) -> Arc<dyn Ready> {
        self.owner.clone()
    }

    /// Returns the notification of received messages, if the owner has armed it.
    pub(super) fn take_event(&mut self) -> Option<News> {
        self.take_pending().map(News::Received)
    }

    /// Returns the owner if it has to be notified of received messages.
    pub(super) fn take_pending(&mut self) -> Option<Arc<dyn Ready>> {
        let news = self.news.take()?;
        let owner = &self.owner;
        self.receive_armed
            .take_if(|armed| *armed >= news || owner.is_watched())?;
        Some(self.owner())
    }

    /// Returns the notification of send completions, if the owner has armed it.
    pub(super) fn take_done(&mut self) -> Option<News> {
        let told = self.send_armed && !self.done.is_empty();
        self.send_armed &= !told;
        told.then(|| News::Sent(self.owner()))
    }

    /// Records that the next buffer has a message.
    fn has_come(&mut self, solicited: bool) {
        self.received.has_come();
        self.has_event(solicited);
    }

    /// Requests notification of the owner.
    pub(super) fn has_event(&mut self, solicited: bool) {
        if solicited {
            self.news = Some(NotifyOn::Solicited);
        } else {
            self.news.get_or_insert(NotifyOn::Next);
        }
    }

    /// Posts a message. Returns true if it was delivered at once and is signaled.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: no free slot. `EINVAL`: beyond the limits. `EIO`: the end is broken.
    pub(super) fn post_send(&mut self, other: &mut OptionalEnd, s: &SendWr<'_>) -> Result<bool> {
        self.check_space()?;
        if s.payload.len() > SGES || s.header.len() > HEAD {
            return Err(EINVAL);
        }
        let payload = s.payload.iter().map(|p| p.len as usize).sum();
        let receiver = match self.waiting.is_empty() {
            true => self.receiver(other, payload),
            false => None,
        };
        match receiver {
            Some(other) => {
                let sent = other.deliver(s.header, payload, s.solicited, |to| {
                    copy_sges(s.payload, to)
                });
                Ok(self.is_carried_out(sent) && s.signaled)
            }
            None => {
                self.wait(Waiting::Message(WaitingMessage::new(s)?))?;
                Ok(false)
            }
        }
    }

    /// Posts a message by swapping its buffer with one posted at the other end. Returns `None` if
    /// that is not possible, else as [`PairEnd::post_send`].
    pub(super) fn exchange(
        &mut self,
        other: &mut OptionalEnd,
        s: &SendWr<'_>,
        buffer: &mut Buffer,
        len: u32,
    ) -> Result<Option<bool>> {
        let head = Head::new(s.header)?;
        self.check_space()?;
        let len = len.checked_add(s.header.len() as u32).ok_or(EINVAL)?;
        let other = other.as_mut().filter(|_| self.waiting.is_empty());
        let Some(other) = other else {
            return Ok(None);
        };
        let next = other.received.next();
        let Some(to) = next.filter(|m| m.buffer.capacity() == buffer.capacity()) else {
            return Ok(None);
        };
        core::mem::swap(&mut to.buffer, buffer);
        (to.len, to.head) = (len, head);
        other.has_come(s.solicited);
        Ok(Some(s.signaled))
    }

    /// Returns the other end if it can receive `payload` bytes now.
    fn receiver<'a>(
        &mut self,
        other: &'a mut OptionalEnd,
        payload: usize,
    ) -> Option<&'a mut PairEnd> {
        self.lacks_memory = None;
        let other = other.as_mut()?;
        match other.received.accepts(payload) {
            Ok(accepts) => accepts.then_some(other),
            Err(size) => {
                self.lacks_memory = Some(size);
                None
            }
        }
    }

    /// Retries a message that waits for memory. Returns the size of the buffer that still lacks it.
    pub(super) fn wants_memory(&mut self, other: &mut OptionalEnd) -> Option<usize> {
        if self.lacks_memory.is_some() {
            self.carry_on(other);
        }
        self.lacks_memory
    }

    /// Checks that a request can be posted.
    pub(super) fn check_space(&self) -> Result {
        match (self.broken, self.send_space()) {
            (true, _) => Err(EIO),
            (_, 0) => Err(ENOSPC),
            _ => Ok(()),
        }
    }

    /// Delivers a message into the next buffer, which the caller has checked. `fill` writes
    /// `payload` bytes.
    pub(super) fn deliver(
        &mut self,
        head: &[u8],
        payload: usize,
        solicited: bool,
        fill: impl FnOnce(&mut [u8]) -> Result,
    ) -> Result {
        let to = self.received.next().ok_or(ENOSPC)?;
        let len = u32::try_from(head.len().saturating_add(payload))?;
        let bytes = to.buffer.bytes_mut().get_mut(..payload);
        fill(bytes.ok_or(EMSGSIZE)?)?;
        (to.len, to.head) = (len, Head::new(head)?);
        self.has_come(solicited);
        Ok(())
    }

    fn deliver_waiting(&mut self, w: &WaitingMessage) -> Result {
        self.deliver(w.head.bytes(), w.payload(), w.solicited, |mut to| {
            for p in w.pieces.iter().flatten() {
                let (now, rest) = to.split_at_mut_checked(p.len as usize).ok_or(EMSGSIZE)?;
                p.block.copy_to(p.offset as usize, now)?;
                to = rest;
            }
            Ok(())
        })
    }

    /// Records the result of a delivery.
    fn is_carried_out(&mut self, sent: Result) -> bool {
        if sent.is_err() {
            self.broke();
        }
        sent.is_ok()
    }

    /// Fails the end: the peer does not allow the request.
    pub(super) fn broke(&mut self) {
        self.broken = true;
        let status = Status::Remote;
        self.notify_done(SendCompletion::Failed { status });
    }

    /// Carries out waiting requests as far as possible now, except transfers.
    pub(super) fn carry_on(&mut self, other: &mut OptionalEnd) {
        while !self.broken {
            match self.waiting.front() {
                Some(w @ (Waiting::Message(_) | Waiting::Lent(_))) => {
                    let payload = w.payload();
                    let Some(other) = self.receiver(other, payload) else {
                        return;
                    };
                    match self.waiting.pop_front() {
                        Some(Waiting::Message(m)) => {
                            let (sent, cookie) = (other.deliver_waiting(&m), m.cookie);
                            if self.is_carried_out(sent) && m.signaled {
                                self.notify_done(SendCompletion::Sent { cookie });
                            }
                        }
                        Some(Waiting::Lent(m)) => self.deliver_block_span(other, &m),
                        _ => return,
                    }
                }
                Some(Waiting::Invalidate { block, cookie }) => {
                    let (block, cookie) = (*block, *cookie);
                    if self.blocks.is_accessed(block) {
                        return;
                    }
                    self.waiting.pop_front();
                    self.blocks.access_ended(block);
                    self.notify_done(SendCompletion::Ended { cookie });
                }
                Some(Waiting::Transfer(_)) | None => return,
            }
        }
    }
}

impl Drop for PairEnd {
    /// Context: process.
    fn drop(&mut self) {
        if let Some(copying) = self.copying.take() {
            copying.wait_for_copies();
        }
        if self.blocks.destroy() {
            self.owner.sent();
        }
    }
}

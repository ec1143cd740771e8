// SPDX-License-Identifier: GPL-2.0-only

//! One end of a local connection.
//!
//! A [`PairEnd`] has the buffers that its owner has posted, the messages that have come into them, and what
//! the owner has posted that is not carried out yet. All of it is under the lock of the
//! [`Pair`](super::pair::Pair) that it is attached to.

use super::loans::Loans;
use super::ready::{News, OrphanedPeer, Ready};
use super::received::Received;
use super::tally::Counts;
use super::waiting::{copy_sges, PartialTransfer, Waiting, WaitingMessage, SGES};
use crate::memory::pinned::Pinned;
use crate::memory::ring::Ring;
use crate::sys::deferred::DropInWorker;
use crate::sys::rdma::buffer::Buffer;
use crate::sys::work::ModuleRef;
use crate::transport::{
    Access, BlockId, Head, Key, NotifyOn, SendCompletion, SendWr, Status, Transfer, HEAD,
};
use kernel::prelude::*;
use kernel::sync::Arc;

/// Most READs under way.
const READS: u16 = 4;
/// What may wait at first.
const FIRST_WAITING: usize = 4;

/// Who copies to or from memory that an end has lent.
pub(super) trait Copying: Send + Sync {
    /// Waits until nobody does, for an end that was detached. Sleeps; nobody begins to without both ends, and a
    /// piece is not large.
    fn wait_for_copies(&self);
}

/// An end where there is one.
pub(super) type OptionalEnd = Option<DropInWorker<PairEnd>>;

/// One end, as long as its endpoint is there.
pub(super) struct PairEnd {
    owner: Arc<dyn Ready>,
    /// Copiers that may still run, once it is detached.
    copying: Option<Arc<dyn Copying>>,
    /// Peer that was to be drained, once it is detached.
    unattended: Option<OrphanedPeer>,
    /// It may be dropped when nothing else of the connection is left.
    _module: ModuleRef,
    /// Most messages posted and not carried out or not yet told of.
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
    pub(super) loans: Loans,
    /// Completions to be polled.
    done: Ring<SendCompletion>,
    /// Kind of message of which the owner is to be notified next, if armed.
    pub(super) receive_armed: Option<NotifyOn>,
    /// Set if the owner is to be notified of the next send completion.
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
            loans: Loans::new(),
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

    /// What there is.
    pub(super) fn counts(&self) -> Counts {
        Counts {
            arrived: self.received.arrived(),
            posted: self.received.posted(),
            done: self.done.len() as u16,
            used: self.used(),
        }
    }

    /// Slots of the send queue in use: all of them if there is no memory for more that waits.
    fn used(&self) -> u16 {
        match self.waiting.is_full() {
            true => self.send_slots,
            false => (self.waiting.len() + self.done.len()) as u16,
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

    /// It was detached, and is to be dropped.
    pub(super) fn detached(&mut self, copying: Arc<dyn Copying>, unattended: Option<OrphanedPeer>) {
        (self.copying, self.unattended) = (Some(copying), unattended);
    }

    /// Has something wait.
    pub(super) fn wait(&mut self, w: Waiting) -> Result {
        self.waiting.push_back(w).map_err(|_| ENOSPC)?;
        if !self.waiting.grow(self.send_slots.into(), GFP_NOWAIT) {
            // there is room again when this one was carried out, which is to be told
            if let Some(Waiting::Message(last)) = self.waiting.back_mut() {
                last.signaled = true;
            }
        }
        Ok(())
    }

    /// How many transfers can be posted: a quarter of the slots is for messages only.
    fn rdma_space(&self) -> u16 {
        self.send_space().saturating_sub(self.send_slots / 4)
    }

    /// How many READs can be posted.
    fn read_space(&self) -> u16 {
        READS.saturating_sub(self.reads).min(self.rdma_space())
    }

    /// Something was posted that could not be carried out, and nothing is any more.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// See [`crate::transport::Transport::lend`].
    pub(super) fn lend(&mut self, p: Pinned) -> Result<BlockId, Pinned> {
        self.loans.lend(p)
    }

    /// See [`crate::transport::Transport::reclaim`].
    pub(super) fn reclaim(&mut self, loan: BlockId) -> Result<Pinned> {
        self.loans.reclaim(loan)
    }

    /// See [`crate::transport::Transport::register`].
    pub(super) fn register(&mut self, loan: BlockId, access: Access) -> Result<Key> {
        if self.broken {
            return Err(EIO);
        }
        self.loans.register(loan, access)
    }

    /// Queues the end of the peer's access.
    pub(super) fn invalidate(&mut self, loan: BlockId, cookie: u64) -> Result {
        if self.broken {
            return Err(EIO);
        }
        if self.rdma_space() == 0 {
            return Err(ENOSPC);
        }
        self.loans.stop_access(loan)?;
        self.wait(Waiting::Invalidate { loan, cookie })
    }

    /// Queues a transfer.
    pub(super) fn transfer(&mut self, loan: BlockId, t: &Transfer) -> Result<u32> {
        if self.broken {
            return Err(EIO);
        }
        if self.rdma_space() == 0 || (t.read && self.read_space() == 0) {
            return Err(ENOSPC);
        }
        t.address.checked_add(u64::from(t.len)).ok_or(EINVAL)?;
        self.loans.begin(loan, t)?;
        self.wait(Waiting::Transfer(PartialTransfer::new(loan, t)))?;
        self.reads += u16::from(t.read);
        Ok(t.len)
    }

    /// The transfer that is next, if one is.
    pub(super) fn next_transfer(&mut self) -> Option<&mut PartialTransfer> {
        match self.waiting.front_mut() {
            Some(Waiting::Transfer(t)) if !self.broken => Some(t),
            _ => None,
        }
    }

    /// That transfer is complete.
    pub(super) fn moved(&mut self) {
        let Some(Waiting::Transfer(done)) = self.waiting.pop_front() else {
            return;
        };
        let t = done.transfer;
        self.loans.over(done.loan);
        self.reads -= u16::from(t.read);
        self.notify_done(SendCompletion::Moved {
            cookie: t.cookie,
            len: t.len,
        });
    }

    pub(super) fn notify_done(&mut self, c: SendCompletion) {
        // `send_space` counts what is here.
        let _ = self.done.push_back(c);
    }

    /// Whose it is.
    pub(super) fn owner(&self) -> Arc<dyn Ready> {
        self.owner.clone()
    }

    /// What has come is to be told, if anybody wants to know.
    pub(super) fn take_event(&mut self) -> Option<News> {
        self.take_pending().map(News::Received)
    }

    /// Who is to be told of what has come, if he wants to know.
    pub(super) fn take_pending(&mut self) -> Option<Arc<dyn Ready>> {
        let news = self.news.take()?;
        let owner = &self.owner;
        self.receive_armed
            .take_if(|armed| *armed >= news || owner.is_watched())?;
        Some(self.owner())
    }

    /// What was carried out is to be told, if anybody wants to know.
    pub(super) fn take_done(&mut self) -> Option<News> {
        let told = self.send_armed && !self.done.is_empty();
        self.send_armed &= !told;
        told.then(|| News::Sent(self.owner()))
    }

    /// A message lies in the buffer that was the next.
    fn has_come(&mut self, solicited: bool) {
        self.received.has_come();
        self.has_event(solicited);
    }

    /// A message has come.
    pub(super) fn has_event(&mut self, solicited: bool) {
        if solicited {
            self.news = Some(NotifyOn::Solicited);
        } else {
            self.news.get_or_insert(NotifyOn::Next);
        }
    }

    /// Posts a message. Whether it was carried out at once, and its end is to be told.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is no room, `EINVAL` for what the limits do not allow, `EIO` if the end is
    /// broken.
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

    /// Posts a message by giving its buffer to the other end, for one of those that are posted there. `None` if that
    /// is not possible, else as [`PairEnd::post_send`].
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

    /// The other end, if it takes a message with so much payload.
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

    /// Goes on with what waits for memory, and tells what it still waits for.
    pub(super) fn wants_memory(&mut self, other: &mut OptionalEnd) -> Option<usize> {
        if self.lacks_memory.is_some() {
            self.carry_on(other);
        }
        self.lacks_memory
    }

    /// Whether something can be posted.
    pub(super) fn check_space(&self) -> Result {
        match (self.broken, self.send_space()) {
            (true, _) => Err(EIO),
            (_, 0) => Err(ENOSPC),
            _ => Ok(()),
        }
    }

    /// Puts a message into the next buffer. `fill` puts the payload there, as many bytes as it says.
    /// The caller has made sure that there is a buffer.
    pub(super) fn deliver(
        &mut self,
        head: &[u8],
        payload: usize,
        solicited: bool,
        fill: impl FnOnce(&mut [u8]) -> Result,
    ) -> Result {
        let to = self.received.next().ok_or(ENOSPC)?;
        let len = u32::try_from(head.len() + payload)?;
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

    /// A message was delivered, or was not.
    fn is_carried_out(&mut self, sent: Result) -> bool {
        if sent.is_err() {
            self.broke();
        }
        sent.is_ok()
    }

    /// The peer does not allow what was posted.
    pub(super) fn broke(&mut self) {
        self.broken = true;
        let status = Status::Remote;
        self.notify_done(SendCompletion::Failed { status });
    }

    /// Carries out what waits here, as far as that is possible now and needs no copy job.
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
                        Some(Waiting::Lent(m)) => self.deliver_lent(other, &m),
                        _ => return,
                    }
                }
                Some(Waiting::Invalidate { loan, cookie }) => {
                    let (loan, cookie) = (*loan, *cookie);
                    if self.loans.is_accessed(loan) {
                        return;
                    }
                    self.waiting.pop_front();
                    self.loans.access_ended(loan);
                    self.notify_done(SendCompletion::Ended { cookie });
                }
                Some(Waiting::Transfer(_)) | None => return,
            }
        }
    }
}

impl Drop for PairEnd {
    /// Process context.
    fn drop(&mut self) {
        if let Some(copying) = self.copying.take() {
            copying.wait_for_copies();
        }
        if self.loans.destroy() {
            self.owner.sent();
        }
    }
}

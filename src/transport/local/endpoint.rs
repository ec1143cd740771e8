// SPDX-License-Identifier: GPL-2.0-only

//! Sending and receiving at one end of a local connection.

use super::copy_job::CopyJob;
use super::pair::{Pair, Side};
use super::pair_end::{OptionalEnd, PairEnd};
use super::ready::{OrphanedPeer, Ready};
use super::received::Message;
use super::tally::Tally;
use super::waiting::SGES;
use super::{Config, Upcalls};
use crate::memory::pinned::{Pinned, Pinning};
use crate::sys::deferred::DropInWorker;
use crate::sys::rdma::buffer::Buffer;
use crate::sys::rdma::mapper::Mapper;
use crate::transport::{
    Access, Arming, BlockId, BlockSpan, Completion, Key, Limits, NotifyOn, SendCompletion, SendWr,
    Transfer, BSDH,
};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

/// One end of a local connection for sending and receiving. Its methods are described at those of
/// [`crate::transport::Endpoint`] with the same names.
pub(crate) struct Endpoint {
    pair: Arc<Pair>,
    side: Side,
    send_slots: u16,
    receive_slots: u16,
    /// Set if the flush has to notify the other end or to carry out waiting requests.
    unflushed: bool,
    /// Owner to notify of delivered messages.
    told: Option<Arc<dyn Ready>>,
    /// Cookie of the last signaled message that was delivered at once; completes those before it,
    /// too.
    ended: Option<u64>,
    /// Size of the peer's buffer that lacked memory at the last post.
    lacks_memory: Option<usize>,
    /// Peer to drain.
    unattended: Option<OrphanedPeer>,
}

/// Passes events of the pair to the owner's upcalls.
struct Told<O: Upcalls>(ARef<O>);

impl<O: Upcalls> Ready for Told<O> {
    fn received(&self) {
        self.0.receive_ready();
    }

    fn received_by_task(&self) -> bool {
        self.0.receive_ready_by_task()
    }

    fn drain(&self) {
        self.0.drain();
    }

    fn taken(&self) {
        self.0.taken();
    }

    fn sent(&self) {
        self.0.send_ready();
    }

    fn is_watched(&self) -> bool {
        self.0.is_watched()
    }

    fn help(&self) {
        self.0.help();
    }
}

impl Endpoint {
    /// Creates the end of a pair.
    ///
    /// # Errors
    ///
    /// `EBUSY`: the pair has this end. `ENOMEM`: out of memory.
    pub(super) fn new<O: Upcalls>(
        pair: &Arc<Pair>,
        side: Side,
        config: &Config,
        owner: &ARef<O>,
    ) -> Result<Self> {
        let owner: Arc<dyn Ready> = Arc::new(Told(owner.clone()), GFP_KERNEL)?;
        let end = PairEnd::new(config.send_slots, config.receive_slots, owner)?;
        pair.attach(side, end).map_err(|_| EBUSY)?;
        Ok(Endpoint {
            pair: pair.clone(),
            side,
            send_slots: config.send_slots,
            receive_slots: config.receive_slots,
            unflushed: false,
            told: None,
            ended: None,
            lacks_memory: None,
            unattended: None,
        })
    }

    /// Destroys the end at once; the drop leaves it to the workqueue.
    ///
    /// Context: process, may sleep, no locks.
    pub(crate) fn destroy(mut self) {
        let end = self.detach();
        // Left to the workqueue while a copy is in progress: the copying task may have a low
        // priority.
        if let Some(end) = end.filter(|_| !self.pair.is_copying()) {
            end.destroy();
        }
    }

    /// Detaches the end. Context: any; the result is dropped in process context, since it may hold
    /// the last reference to the owner.
    fn detach(&mut self) -> Option<DropInWorker<PairEnd>> {
        let mut end = self.pair.detach(self.side)?;
        end.detached(self.pair.clone(), self.unattended.take());
        Some(end)
    }

    fn tally(&self) -> &Tally {
        self.pair.tally(self.side)
    }

    fn end<R>(&self, f: impl FnOnce(&mut PairEnd) -> R) -> Option<R> {
        self.pair.with(self.side, f)
    }

    /// Swaps the message's buffer with one posted at the other end. Returns false if that is not
    /// possible.
    pub(crate) fn exchange(
        &mut self,
        s: &SendWr<'_>,
        buffer: &mut Buffer,
        len: u32,
    ) -> Result<bool> {
        let ended = self.post(|mine, other| mine.exchange(other, s, buffer, len))?;
        self.has_ended(ended.unwrap_or(false), s.cookie);
        Ok(ended.is_some())
    }

    fn post<R>(
        &mut self,
        post: impl FnOnce(&mut PairEnd, &mut OptionalEnd) -> Result<R>,
    ) -> Result<R> {
        let posted = self.pair.post(self.side, post)?;
        self.unflushed |= posted.is_left;
        self.told = self.told.take().or(posted.told);
        Ok(posted.result)
    }

    /// Records a signaled message that was delivered at once.
    fn has_ended(&mut self, ended: bool, cookie: u64) {
        if ended {
            self.ended = self.ended.max(Some(cookie));
        }
    }

    pub(crate) fn poke(&mut self) {
        self.pair.poke(self.side)
    }

    pub(crate) fn has_copy_job(&self) -> bool {
        self.pair.has_copy_job(self.side)
    }

    pub(crate) fn copy_job(&mut self) -> Option<CopyJob> {
        self.pair.copy_job(self.side)
    }

    pub(crate) fn lacks_memory(&self) -> Option<usize> {
        self.lacks_memory
    }

    pub(crate) fn refill(&mut self, buffer: Buffer) {
        self.unflushed = true;
        self.lacks_memory = self.pair.refill(self.side, buffer);
    }

    pub(crate) fn post_without_memory(&mut self, size: usize, n: u16) -> u16 {
        let post = |e: &mut PairEnd| {
            let mut post = || e.received.post(Buffer::without_memory(size));
            (0..n).take_while(|_| post().is_ok()).count() as u16
        };
        self.end(post).unwrap_or(0)
    }

    pub(crate) fn has_orphaned_peer(&self) -> bool {
        self.unattended.is_some()
    }

    pub(crate) fn take_orphaned_peer(&mut self) -> Option<OrphanedPeer> {
        self.unattended.take()
    }

    pub(crate) fn has_ended_sends(&self) -> bool {
        self.ended.is_some() || self.tally().has_done()
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.pair.tally(self.side.other()).has_arrived()
    }

    pub(crate) fn arm_drain(&mut self) -> Arming {
        Arming::pending_if(!self.pair.await_drain(self.side))
    }

    pub(crate) fn unpolled(&self) -> usize {
        match self.tally().has_arrived() {
            true => self.end(|e| e.received.payload()).unwrap_or(0),
            false => 0,
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.detach());
    }
}

impl Endpoint {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            receive_slots: self.receive_slots,
            max_sge: SGES as u8,
            header_aside: BSDH,
            pinned_pages: Pinning::new(None).most_pages() as u16,
            connector_first: false,
        }
    }

    pub(crate) fn mapper(&self) -> Option<&Arc<Mapper>> {
        None
    }

    pub(crate) fn post_receive(&mut self, b: Buffer) -> Result<(), Buffer> {
        self.pair.post_receive(self.side, b)
    }

    pub(crate) fn post_send(&mut self, s: &SendWr<'_>) -> Result {
        let ended = self.post(|mine, other| mine.post_send(other, s))?;
        self.has_ended(ended, s.cookie);
        Ok(())
    }

    pub(crate) fn post_block_span(&mut self, s: &SendWr<'_>, payload: &BlockSpan) -> Result {
        self.post(|mine, other| mine.post_block_span(other, s, payload))
    }

    pub(crate) fn block_payload(&mut self, payload: &BlockSpan) -> u32 {
        // pages are copied one by one, wherever they lie
        payload.len
    }

    pub(crate) fn flush(&mut self) -> Result {
        let mut told = self.told.take();
        let left = match core::mem::take(&mut self.unflushed) {
            true => self.pair.carry_on(self.side).map(|left| {
                told = told.take().or(left.told);
                (self.unflushed, self.lacks_memory) = (left.is_left, left.result);
            }),
            false => Ok(()),
        };
        if let Some(owner) = told.filter(|o| o.received_by_task()) {
            self.unattended
                .get_or_insert(OrphanedPeer::new(owner, false));
        }
        left
    }

    pub(crate) fn poll_receive(&mut self) -> Option<Completion> {
        if !self.tally().has_arrived() {
            return None;
        }
        let (message, peer) = self.pair.take(self.side)?;
        if let Some(peer) = peer {
            self.unattended.get_or_insert(peer);
        }
        let Message { buffer, len, head } = message;
        Some(Completion::Received {
            buffer,
            len,
            head: Some(head),
        })
    }

    pub(crate) fn poll_send(&mut self) -> Option<SendCompletion> {
        if let Some(cookie) = self.ended.take() {
            return Some(SendCompletion::Sent { cookie });
        }
        match self.tally().has_done() {
            true => self.end(PairEnd::next_done)?,
            false => None,
        }
    }

    pub(crate) fn arm_receive(&mut self, of: NotifyOn) -> Arming {
        let pending = self.end(|e| {
            e.receive_armed = Some(of);
            e.has_arrived()
        });
        Arming::pending_if(pending.unwrap_or(false))
    }

    pub(crate) fn arm_send(&mut self) -> Arming {
        let pending = self.end(|e| {
            e.send_armed = true;
            e.has_done()
        });
        Arming::pending_if(pending.unwrap_or(false) || self.ended.is_some())
    }

    pub(crate) fn posted_receives(&self) -> u16 {
        self.tally().posted()
    }

    pub(crate) fn send_space(&self) -> u16 {
        self.tally().room(self.send_slots)
    }

    pub(crate) fn in_flight(&self) -> u16 {
        self.end(|e| e.in_flight()).unwrap_or(0)
    }

    pub(crate) fn post_block(&mut self, p: Pinned) -> Result<BlockId, Pinned> {
        self.pair.post_block(self.side, p)
    }

    pub(crate) fn take_back(&mut self, block: BlockId) -> Result<Pinned> {
        self.end(|e| e.blocks.take_back(block)).ok_or(EIO)?
    }

    pub(crate) fn register(&mut self, block: BlockId, access: Access) -> Result<Key> {
        self.end(|e| e.register(block, access)).ok_or(EIO)?
    }

    pub(crate) fn invalidate(&mut self, block: BlockId, cookie: u64) -> Result {
        self.unflushed = true;
        self.pair.invalidate(self.side, block, cookie)
    }

    pub(crate) fn transfer(&mut self, block: BlockId, t: &Transfer) -> Result<u32> {
        self.end(|e| e.transfer(block, t)).ok_or(EIO)?
    }
}

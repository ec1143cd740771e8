// SPDX-License-Identifier: GPL-2.0-only

//! Memory of a call: pinning, transfer to the transport, and return.

use super::super::timers::Timer;
use super::super::{Connection, SdpSock};
use super::advert::Advert;
use super::Posted;
use crate::memory::budget::Account;
use crate::memory::pinned::Notify;
use crate::memory::spares::BlockPool;
use crate::sys::net::message::SendMsg;
use crate::sys::net::sock::Locked;
use crate::sys::time::{milliseconds, Jiffies};
use crate::transport::{Endpoint, Pinned, Watch};
use kernel::prelude::*;
use kernel::sync::Arc;

/// Time without a transfer after which a connection frees spare blocks.
const IDLE: Jiffies = milliseconds(1000);

/// Minimum size of a block in bytes.
pub(crate) const LEAST: usize = 16384;

/// Result of an attempt to add a block.
#[derive(PartialEq, Eq)]
pub(crate) enum Added {
    /// Bytes of the call were added.
    Block,
    /// The maximum number of blocks is in flight.
    Full,
    /// The caller should copy the next bytes, this many.
    Copy(usize),
}

/// Pinned memory of a call that the transport does not own. The drop releases the memory and
/// returns the block to the connection. Context of the drop: process, without the connection's
/// lock.
pub(super) struct PinnedCall<'a> {
    sk: &'a SdpSock,
    memory: Option<Pinned>,
    /// First byte of a send, for a SrcAvail.
    pub(super) first: u8,
}

impl<'a> PinnedCall<'a> {
    /// Pins a block of at least `least` bytes of the call's memory by `pin` (see
    /// `Pinned::pin_source`). `None`: the caller has to copy. Context: process, without the
    /// connection's lock.
    pub(super) fn pin(
        sk: &'a SdpSock,
        piece: Option<(usize, usize)>,
        least: usize,
        pin: impl FnOnce(&mut Pinned, &Arc<Account>) -> Result<usize>,
    ) -> Option<Self> {
        let mut block = sk.space_for(piece?)?;
        let len = match sk.account() {
            Some(account) => pin(&mut block, account).unwrap_or(0),
            None => 0,
        };
        if len < least.max(1) {
            sk.connection().stats.unpinnable += 1;
            sk.keep(block);
            return None;
        }
        Some(PinnedCall {
            sk,
            memory: Some(block),
            first: 0,
        })
    }

    /// As [`Self::pin`], for the next bytes of a send call.
    pub(super) fn pin_next(
        sk: &'a SdpSock,
        message: &mut SendMsg<'_>,
        piece: Option<(usize, usize)>,
        least: usize,
        pin: impl FnOnce(&mut Pinned, &mut SendMsg<'_>, &Arc<Account>) -> Result<usize>,
    ) -> Option<Self> {
        // before pinning: a pinned block holds the device, and page faults are no longer allowed
        let mut first = [0];
        if message.take(&mut first) != 1 {
            return None;
        }
        message.give_back(1);
        let pin = |block: &mut Pinned, account: &_| pin(block, message, account);
        let mut pinned = Self::pin(sk, piece, least, pin)?;
        [pinned.first] = first;
        Some(pinned)
    }

    /// As [`Self::pin_next`], for up to `most` bytes of the pages that a call gives away, to which
    /// later calls may add pages.
    pub(super) fn collect(
        sk: &'a SdpSock,
        message: &mut SendMsg<'_>,
        piece: (usize, usize),
        most: usize,
    ) -> Option<Self> {
        Self::pin_next(sk, message, Some(piece), 1, |block, message, account| {
            block.collect()?;
            block.add_pages(message, most, account)
        })
    }

    /// Sets the receiver of the release notification.
    pub(super) fn notify(&mut self, notify: Notify) {
        if let Some(memory) = &mut self.memory {
            memory.notify(notify);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, |m| m.len())
    }

    /// Returns the memory, which the caller then releases.
    pub(super) fn into_memory(mut self) -> Option<Pinned> {
        self.memory.take()
    }

    /// Posts the block to the transport, if possible.
    pub(super) fn post(&mut self, endpoint: &mut Endpoint) -> Option<Posted> {
        let memory = self.memory.take()?;
        let watch = memory.watch();
        match endpoint.post_block(memory) {
            Ok(id) => Some(Posted { id, watch }),
            Err(memory) => {
                self.memory = Some(memory);
                None
            }
        }
    }

    /// Posts the block to the transport and registers it for the peer, if possible. `cookie`:
    /// identifies the completion of the invalidation.
    pub(super) fn advertise(
        &mut self,
        endpoint: &mut Endpoint,
        cookie: u64,
    ) -> Option<Advert<Posted>> {
        let memory = self.post(endpoint)?;
        match endpoint.register(memory.id) {
            Ok(key) => Some(Advert::new(memory, key.into(), cookie)),
            Err(_) => {
                self.memory = endpoint.take_back(memory.id).ok();
                None
            }
        }
    }
}

impl Drop for PinnedCall<'_> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.sk.keep(memory);
        }
    }
}

impl Connection {
    /// Runs `f` on the spare blocks, if the socket has a connection.
    fn with_spares<R>(&mut self, f: impl FnOnce(&mut BlockPool) -> R) -> Option<R> {
        match (&mut self.endpoint, &self.local) {
            (Some(endpoint), _) => Some(f(endpoint.spares())),
            (None, Some(local)) => local.link.with_spares(f),
            (None, None) => None,
        }
    }

    /// Sets the time to free spare blocks.
    pub(super) fn trims_later(&mut self, sk: &SdpSock) {
        if !self.timers.is_set(Timer::Trim) {
            self.set_timer(sk, Timer::Trim, IDLE);
        }
    }

    /// Returns true if another block may be added.
    pub(crate) fn has_block_space(&self) -> bool {
        match &self.local {
            Some(local) => local.link.has_block_space(),
            None => self.zcopy.blocks.has_space(),
        }
    }

    /// Takes memory back from the transport, or returns a watch for its release at the transport's
    /// destruction: if the connection was `lost`, the endpoint is `None` or another connection's.
    pub(super) fn take_back(&mut self, memory: Posted, lost: bool) -> Result<Pinned, Watch> {
        let endpoint = self.endpoint.as_mut().filter(|_| !lost);
        let taken = endpoint.map(|c| c.take_back(memory.id));
        taken.and_then(Result::ok).ok_or(memory.watch)
    }
}

/// Releases the memory of completed blocks that no call waits for. Context: process, without the
/// connection's lock.
pub(crate) fn release_blocks(sk: &SdpSock) {
    loop {
        let mut c = sk.connection();
        let z = c.zcopy.get_mut();
        let next = z.and_then(|z| z.released.iter_mut().find_map(Option::take));
        drop(c);
        match next {
            Some(memory) => sk.keep(memory),
            None => return,
        }
    }
}

impl SdpSock {
    /// Returns a block for a range of program memory, preferably the last used for the range.
    pub(super) fn space_for(&self, piece: (usize, usize)) -> Option<Pinned> {
        let pinning = {
            let mut c = self.connection();
            let found = c.with_spares(|s| s.best_for(piece).ok_or_else(|| s.pinning().clone()))?;
            match found {
                Ok(block) => return Some(block),
                Err(pinning) => pinning,
            }
        };
        pinning.make().ok()
    }

    /// Releases memory, and keeps the block.
    pub(super) fn keep(&self, memory: Pinned) {
        let spare = memory.into_spare();
        let mut c = self.connection();
        if c.with_spares(|s| s.keep(spare)).is_some() {
            c.trims_later(self);
        }
    }

    /// Frees all spare blocks except one if no block was used recently, else sets the timer again.
    /// Context: process, may sleep.
    pub(crate) fn trim_if_idle(&self) {
        let mut c = self.connection();
        match c.with_spares(BlockPool::was_used) {
            Some(true) => c.set_timer(self, Timer::Trim, IDLE),
            Some(false) => {
                drop(c);
                self.trim(1);
            }
            None => {}
        }
    }

    /// Frees all spare blocks except `keep`, and their SG lists. Memory regions are not charged to
    /// a user, so an idle connection keeps none. Context: process, may sleep.
    pub(crate) fn trim(&self, keep: usize) {
        let mut c = self.connection();
        c.with_spares(|s| s.trim(keep));
        let mapper = c.endpoint.as_ref().map(|e| e.mapper().clone());
        drop(c);
        if let Some(mapper) = mapper {
            mapper.trim();
        }
    }

    /// Returns memory to its call. May wait, but for neither a program nor the peer.
    pub(super) fn taken_back(&self, lock: &mut Locked<'_>, memory: Result<Pinned, Watch>) {
        match memory {
            Ok(memory) => self.keep(memory),
            Err(watch) => lock.unlocked(|| loop {
                let seq = self.event_seq();
                if !watch.is_held() {
                    return;
                }
                self.sleep_through(seq, milliseconds(100));
            }),
        }
    }
}

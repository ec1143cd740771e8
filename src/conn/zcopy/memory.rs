// SPDX-License-Identifier: GPL-2.0-only

//! Pins the memory of a call, passes it to the transport, and takes it back.

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

/// Time after which a connection without transfers frees its spare blocks.
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
    /// The caller should copy this number of next bytes.
    Copy(usize),
}

/// Pinned memory of a call that the transport does not own. The drop releases the memory and
/// returns the block to the connection. Context of the drop: process, connection's lock not held.
pub(super) struct PinnedCall<'a> {
    sk: &'a SdpSock,
    memory: Option<Pinned>,
    /// First byte of a send, which the SrcAvail carries.
    pub(super) first: u8,
}

impl<'a> PinnedCall<'a> {
    /// Pins a block of at least `least` bytes of the call's memory by `pin` (see
    /// `Pinned::pin_source`). Returns `None` if the caller has to copy. Context: process,
    /// connection's lock not held.
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

    /// Pins the next bytes of a send call as [`Self::pin`] does.
    pub(super) fn pin_next(
        sk: &'a SdpSock,
        message: &mut SendMsg<'_>,
        piece: Option<(usize, usize)>,
        least: usize,
        pin: impl FnOnce(&mut Pinned, &mut SendMsg<'_>, &Arc<Account>) -> Result<usize>,
    ) -> Option<Self> {
        // read before pinning: a pinned block holds the device, so page faults are not allowed
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

    /// Collects up to `most` bytes of the pages that a call gives away, as [`Self::pin_next`] does.
    /// Later calls may add pages.
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

    /// Sets the action that the release of the memory causes.
    pub(super) fn notify(&mut self, notify: Notify) {
        if let Some(memory) = &mut self.memory {
            memory.notify(notify);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, |m| m.len())
    }

    /// Returns the memory, for the caller to release.
    pub(super) fn into_memory(mut self) -> Option<Pinned> {
        self.memory.take()
    }

    /// Passes the block to the transport, if possible.
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

    /// Passes the block to the transport and registers it for the peer, if possible. `cookie`
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

    /// Starts the timer that frees spare blocks, unless it is set.
    pub(super) fn trims_later(&mut self, sk: &SdpSock) {
        if !self.timers.is_set(Timer::Trim) {
            self.set_timer(sk, Timer::Trim, IDLE);
        }
    }

    /// Returns true if the connection accepts another block.
    pub(crate) fn has_block_space(&self) -> bool {
        match &self.local {
            Some(local) => local.link.has_block_space(),
            None => self.zcopy.blocks.has_space(),
        }
    }

    /// Takes memory back from the transport. If the connection was `lost`, the endpoint is `None`
    /// or belongs to another connection: returns a watch for the release when the transport is
    /// destroyed.
    pub(super) fn take_back(&mut self, memory: Posted, lost: bool) -> Result<Pinned, Watch> {
        let endpoint = self.endpoint.as_mut().filter(|_| !lost);
        let taken = endpoint.map(|c| c.take_back(memory.id));
        taken.and_then(Result::ok).ok_or(memory.watch)
    }
}

/// Releases memory of completed detached blocks. Context: process, connection's lock not held.
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
    /// Returns an unused block for a range of memory, preferably the last one used for the range.
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

    /// Releases memory of a block, and keeps the unused block.
    pub(super) fn keep(&self, memory: Pinned) {
        let spare = memory.into_spare();
        let mut c = self.connection();
        if c.with_spares(|s| s.keep(spare)).is_some() {
            c.trims_later(self);
        }
    }

    /// Frees all spare blocks except one if no block was used recently. Otherwise sets the timer
    /// again. Context: process, may sleep.
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

    /// Frees all spare blocks except `keep` of them, and their SG lists. Memory regions are not
    /// charged to a user, so an idle connection keeps none. Context: process, may sleep.
    pub(crate) fn trim(&self, keep: usize) {
        let mut c = self.connection();
        c.with_spares(|s| s.trim(keep));
        let mapper = c.endpoint.as_ref().map(|e| e.mapper().clone());
        drop(c);
        if let Some(mapper) = mapper {
            mapper.trim();
        }
    }

    /// Returns memory to its call. May sleep, but waits neither for a program nor for the peer.
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

// SPDX-License-Identifier: GPL-2.0-only

//! Collects pages that senders give away (`MSG_SPLICE_PAGES`): pages of files and pipes by
//! sendfile(2) and splice(2), and of kernel users.
//!
//! A splice(2) call passes few pages, and announces more by `MSG_MORE`. Pages of several calls are
//! collected into a detached block ([`super::detached`]). The first page fixes the block's stream
//! position. The block is sent when a call announces no more pages, when the block is full, before
//! any later bytes, at the end of the stream, and after the maximum time of `MSG_MORE`. A block too
//! small to be read by RDMA is sent in messages, from the same pages.
//!
//! | collection | |
//! | --- | --- |
//! | none | |
//! | open | takes pages |
//! | closed | takes no more; the call, or else a worker, maps the pages |
//! | flushing | the pages are being mapped, without the connection's lock |
//! | failed | the mapping failed; the next such call retries, or a worker after a while |

use super::super::send_queue::LARGE_CHUNK;
use super::super::timers::Timer;
use super::super::{Connection, SdpSock, CORK_TIME, JOB_MOVE};
use super::advert::Advert;
use super::local;
use super::memory::{Added, PinnedCall};
use super::Posted;
use crate::sys::bindings as c;
use crate::sys::net::message::SendMsg;
use crate::sys::net::sock::Locked;
use crate::sys::pin::PAGE;
use crate::sys::time::jiffies;
use crate::transport::{BlockId, Pinned};
use core::mem::replace;

/// Minimum size of a block to which later calls add nothing: half of a receive buffer, as in
/// `socket/splice.rs`.
const LEAST: usize = LARGE_CHUNK / 2;

/// Block whose pages are being collected.
pub(super) struct SplicedBlock {
    memory: Pinned,
    cookie: u64,
    /// Position of the block among the copied bytes of the stream.
    at: u64,
}

/// State of the collection, explained at the head of this file.
pub(super) enum Collection {
    None,
    Open(SplicedBlock),
    Closed(SplicedBlock),
    Flushing(u64),
    Failed(SplicedBlock),
}

impl Collection {
    fn is_none(&self) -> bool {
        matches!(self, Collection::None)
    }

    /// Closes the collection. No more pages are added, and the block is mapped next.
    fn close(&mut self) {
        *self = match replace(self, Collection::None) {
            Collection::Open(collected) | Collection::Failed(collected) => {
                Collection::Closed(collected)
            }
            other => other,
        };
    }

    /// Closes the collection and takes the pages out for mapping.
    fn take(&mut self) -> Option<SplicedBlock> {
        self.close();
        let Collection::Closed(SplicedBlock { cookie, .. }) = *self else {
            return None;
        };
        match replace(self, Collection::Flushing(cookie)) {
            Collection::Closed(collected) => Some(collected),
            _ => None,
        }
    }

    fn flushed(&mut self, cookie: u64) {
        if matches!(self, Collection::Flushing(of) if *of == cookie) {
            *self = Collection::None;
        }
    }
}

/// Adds the next pages of a call to the collection. Returns `None` if the caller has to copy.
/// Context: process, socket lock held.
pub(crate) fn add(sk: &SdpSock, lock: &mut Locked<'_>, message: &mut SendMsg<'_>) -> Option<Added> {
    if let Some(end) = sk.local_end(lock) {
        return local::add_spliced(sk, end, message);
    }
    let more = message.flags() & c::MSG_MORE != 0;
    let added = sk.connection().collect(sk, message);
    message.advance(added);
    if added == 0 {
        // the pages begin another block, or the caller copies them
        flush(sk);
        match begin(sk, message, more)? {
            Added::Block => {}
            other => return Some(other),
        }
    }
    if message.remaining() > 0 || !more {
        flush(sk);
    }
    Some(Added::Block)
}

/// Begins a collection with the next pages of a call. Returns `None` if the caller has to copy.
fn begin(sk: &SdpSock, message: &mut SendMsg<'_>, more: bool) -> Option<Added> {
    let want = message.remaining();
    let (at, len) = message.run(want)?;
    let most = {
        let c = sk.connection();
        if !c.zcopy.blocks.has_space() {
            return Some(Added::Full);
        }
        // the next call may add pages to the block
        let least = if more && len == want { PAGE } else { LEAST };
        let worth = len >= least && c.zcopy_threshold().is_some();
        if !worth || !c.writable(sk) || !c.zcopy.collection.is_none() {
            return Some(Added::Copy(message.short(want, least).max(len)));
        }
        c.most_collected()
    };
    let pinned = PinnedCall::collect(sk, message, (at, len), most)?;
    let (first, added) = (pinned.first, pinned.len());
    let memory = pinned.into_memory()?;
    let size = u32::try_from(added).unwrap_or(0);
    let mut c = sk.connection();
    let (at, idle, connected) = (c.tx.end(), c.outstanding() == 0, c.connected());
    let posted = Posted {
        id: BlockId::NONE,
        watch: memory.watch(),
    };
    let begun = c.zcopy.get_mut().filter(|_| connected).and_then(|z| {
        let cookie = z.next_cookie();
        let advert = Advert::unregistered(posted, size, cookie);
        z.blocks.push_open(advert, first, at).ok()?;
        Some((z, cookie))
    });
    let Some((z, cookie)) = begun else {
        drop(c);
        sk.keep(memory);
        return None;
    };
    z.collection = Collection::Open(SplicedBlock { memory, cookie, at });
    // corked bytes have to be sent before the block
    c.tx.set_more(false);
    if idle {
        c.alive.progress(jiffies());
    }
    c.set_timer(sk, Timer::Cork, CORK_TIME);
    drop(c);
    message.advance(added);
    Some(Added::Block)
}

/// Sends the collected block, if any. Context: process, connection's lock not held.
pub(crate) fn flush(sk: &SdpSock) {
    let mut c = sk.connection();
    let Some(mut collected) = c.zcopy.with(|z| z.collection.take()) else {
        return;
    };
    let worth = c.may_use_zcopy(collected.memory.len());
    drop(c);
    let mapped = collected.memory.map_source(worth);
    let mut c = sk.connection();
    let left = c.flushed(sk, collected, mapped.ok());
    if left.is_none() {
        c.progress();
    }
    drop(c);
    if let Some(memory) = left {
        sk.keep(memory);
    }
}

/// Sends a closed collection. Context: worker.
pub(crate) fn flush_closed(sk: &SdpSock) {
    let closed = matches!(sk.connection().zcopy.collection, Collection::Closed(_));
    if closed {
        flush(sk);
    }
}

impl Connection {
    /// Ends the delay by `MSG_MORE` of all queued bytes, including a collection.
    pub(crate) fn no_more(&mut self) {
        self.tx.set_more(false);
        self.end_collection();
    }

    /// Closes the collection: later pages begin another block.
    pub(crate) fn end_collection(&mut self) {
        self.zcopy.with(|z| z.collection.close());
    }

    pub(crate) fn is_collecting(&self) -> bool {
        !self.zcopy.collection.is_none()
    }

    /// Schedules the flush of a collection that is closed, or followed by other queued bytes.
    pub(crate) fn check_collection(&mut self, sk: &SdpSock) {
        let behind = |b: &SplicedBlock| b.at != self.tx.end();
        if matches!(&self.zcopy.collection, Collection::Open(b) if behind(b)) {
            self.end_collection();
        }
        if let Collection::Closed(_) = self.zcopy.collection {
            sk.schedule(JOB_MOVE);
        }
    }

    /// Returns the maximum size of a collected block in bytes.
    fn most_collected(&self) -> usize {
        let limit = self.protocol.as_ref().map_or(0, |p| p.source_limit());
        match limit {
            // limit 0: the peer reads no blocks, and the pages are sent in messages
            0 => usize::MAX,
            most => most as usize,
        }
    }

    /// Adds the next pages of a call to the collection, and returns the number of bytes, which are
    /// not consumed.
    fn collect(&mut self, sk: &SdpSock, message: &SendMsg<'_>) -> usize {
        let (most, end) = (self.most_collected(), self.tx.end());
        let (Some(z), Some(account)) = (self.zcopy.get_mut(), sk.account()) else {
            return 0;
        };
        let Collection::Open(collected) = &mut z.collection else {
            return 0;
        };
        // on a stalled connection, the collection may still be open when later bytes are queued
        if collected.at != end {
            return 0;
        }
        let space = most.saturating_sub(collected.memory.len());
        let added = collected.memory.add_pages(message, space, account);
        let n = u32::try_from(added.unwrap_or(0)).unwrap_or(0);
        z.blocks.grow(collected.cookie, n);
        n as usize
    }

    /// Sends a block after the mapping of its pages. `mapped` is `Some(true)` if the peer can get
    /// access. Returns memory that is not needed.
    fn flushed(
        &mut self,
        sk: &SdpSock,
        collected: SplicedBlock,
        mapped: Option<bool>,
    ) -> Option<Pinned> {
        let SplicedBlock { memory, cookie, at } = collected;
        let watch = memory.watch();
        let Some(z) = self.zcopy.get_mut() else {
            return Some(memory);
        };
        z.collection.flushed(cookie);
        if !z.blocks.has_open(cookie) {
            // the connection was lost during the mapping
            return Some(memory);
        }
        let entry = match (mapped, self.endpoint.as_mut()) {
            (Some(_), Some(endpoint)) => endpoint.post_block(memory),
            _ => Err(memory),
        };
        let id = match entry {
            Ok(id) => id,
            Err(memory) => {
                // out of memory, so the timer will retry
                z.collection = Collection::Failed(SplicedBlock { memory, cookie, at });
                self.set_timer(sk, Timer::Cork, CORK_TIME);
                return None;
            }
        };
        let offered = mapped == Some(true) && !z.detached_skips.skip();
        match &mut self.protocol {
            // allows several outstanding blocks
            Some(p) if offered => p.set_pipelined(true),
            _ => z.blocks.hide(cookie),
        }
        let _ = z.blocks.moved(cookie, Posted { id, watch }, true);
        None
    }
}

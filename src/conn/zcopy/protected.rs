// SPDX-License-Identifier: GPL-2.0-only

//! Asynchronous zero-copy sends (AZ-SDP): detached blocks ([`super::detached`]) of memory that is
//! write-protected until its bytes are sent ([`crate::memory::protect`]).
//!
//! A blocking call sends whole pages this way if the socket has the option (`SDP_ASYNC_SEND`,
//! `async_send`) and the program seldom writes to its blocks before the peer has them
//! ([`super::touches`]). Bytes before and after the whole pages are copied. A task that writes to a
//! protected block waits until the block is taken back. Bytes that the peer has not read then go in
//! messages.

use super::super::timers::Timer;
use super::super::{keepalive, stats, Connection, SdpSock, JOB_MOVE, JOB_WRITE_FAULT};
use super::detached;
use super::memory::{Added, PinnedCall, LEAST};
use super::{local, BlockUser, Posted, CANCEL_TIME};
use crate::memory::pinned::{Accounting, Notify};
use crate::memory::protect::{self, Holder, InFlight, Refusal, MOST_RANGES};
use crate::sys::net::message::SendMsg;
use crate::sys::net::sock::Locked;
use crate::sys::pin::{Pages, PAGE};
use crate::sys::time::{jiffies, milliseconds, Jiffies};
use kernel::prelude::*;
use kernel::sync::aref::ARef;

impl Connection {
    /// Returns true if a blocking call with this many bytes may return at once.
    pub(crate) fn may_send_async(&mut self, bytes: usize) -> bool {
        let worth = |least| bytes >= least && bytes >= PAGE;
        self.options.sends_async()
            && self.zcopy_threshold().is_some_and(worth)
            && self.zcopy.with(|z| z.touches.may_protect())
    }
}

/// Returns the size of a call's next block in bytes, or without a block the result of [`add`].
fn next_size(sk: &SdpSock, message: &SendMsg<'_>, left: usize) -> Result<usize, Option<Added>> {
    let (most, least) = {
        let c = sk.connection();
        if !c.has_block_space() {
            return Err(Some(Added::Full));
        }
        let most = c
            .protocol
            .as_ref()
            .map_or(usize::MAX, |p| p.source_limit() as usize);
        (most, c.zcopy_threshold().unwrap_or(PAGE).max(PAGE))
    };
    let most = most.min(left);
    let (address, len) = message.piece(most).ok_or(None)?;
    let head = address.wrapping_neg() % PAGE;
    let size = worthwhile(message, most).saturating_sub(head);
    let size = size.saturating_sub(size % PAGE);
    if size < least {
        // a small segment of the call's memory is next
        return Err((len < left).then_some(Added::Copy(len)));
    }
    match head {
        0 => Ok(size),
        _ => Err(Some(Added::Copy(head))),
    }
}

/// Adds the next bytes of a call as a block. Returns `None` if the call continues synchronously.
/// Context: process, socket lock held.
pub(crate) fn add(sk: &SdpSock, lock: &mut Locked<'_>, message: &mut SendMsg<'_>) -> Option<Added> {
    let left = message.remaining();
    let size = match next_size(sk, message, left) {
        Ok(size) => size,
        Err(without) => return without,
    };
    let mut flight = Err(Refusal::Busy);
    Pages::count_pins();
    let run = message.run(size);
    let pin = PinnedCall::pin_next(sk, message, run, 1, |block, message, account| {
        block.pin_counted(message, size, Accounting::HereAnew, account, &mut |pages| {
            // the protection by an earlier attempt has to end first
            drop(core::mem::replace(&mut flight, Err(Refusal::Busy)));
            flight = protect(sk, pages);
        })
    });
    let mut memory = pin?;
    let flight = match flight {
        Ok(flight) => flight,
        Err(why) => {
            let mut c = sk.connection();
            if let Some(z) = c.zcopy.get_mut().filter(|_| why.lasts()) {
                z.touches.refused();
            }
            stats::count(&mut c.stats.async_refused, why.index());
            return None;
        }
    };
    let touch = flight.touch();
    memory.notify(Notify::Protected(flight));
    let added = detached::push(sk, lock, message, memory, BlockUser::Writers);
    if added == Added::Block && touch() {
        // a write fault happened before the block was added
        on_write_fault(sk);
    }
    Some(added)
}

/// Returns the size of the next block: a [run](SendMsg::run) of few segments, none of them small.
fn worthwhile(message: &SendMsg<'_>, most: usize) -> usize {
    let run = message.run(most).map_or(0, |(_, len)| len);
    let lengths = message.ranges(run).map(|(_, len)| len);
    let large = lengths.take_while(|len| *len >= LEAST);
    large.take(MOST_RANGES).sum()
}

/// Write-protects a block between pinning and mapping, when page faults are still allowed.
fn protect(sk: &SdpSock, pages: &Pages) -> Result<InFlight, Refusal> {
    let owner = Holder {
        sk: ARef::from(&**sk),
        jobs: JOB_WRITE_FAULT,
    };
    let cached = sk.connection().zcopy.mm.clone();
    let mm = match cached.filter(|r| r.is_mine() && !r.handler.is_closed()) {
        Some(mm) => mm,
        None => protect::current().map_err(|_| Refusal::Unsupported)?,
    };
    let flight = protect::protect(&mm, pages, owner);
    let mut c = sk.connection();
    let before = c.zcopy.get_mut().map(|z| z.mm.replace(mm));
    drop(c);
    drop(before);
    flight
}

/// Handles a write fault on a block. Context: worker.
pub(crate) fn on_write_fault(sk: &SdpSock) {
    let mut c = sk.connection();
    let any = match &c.local {
        Some(local) => local.link.blocks_of(BlockUser::Writers, false).0 > 0,
        None => c.zcopy.with(|z| z.blocks.want(jiffies())),
    };
    if !any {
        return;
    }
    c.zcopy.with(|z| z.touches.on_write_fault());
    c.stats.async_touched += 1;
    c.expedite_blocks();
    c.check_for_writers(sk);
    c.progress();
    drop(c);
    keepalive::update(sk);
    move_away(sk);
}

/// Moves the unread bytes of unused blocks to kernel memory, so that the program can write to its
/// memory again. Context: worker.
pub(crate) fn move_away(sk: &SdpSock) {
    let link = sk.with(|c| c.local.as_ref().map(|local| local.link.clone()));
    if let Some(link) = link {
        return local::move_away(sk, &link, BlockUser::Writers);
    }
    loop {
        let mut c = sk.connection();
        let taken = c.zcopy.get_mut().and_then(|z| z.blocks.take_to_move());
        let Some((cookie, posted)) = taken else {
            return;
        };
        let Ok(mut memory) = c.take_back(posted, false) else {
            // the destruction of the transport also releases the memory
            return;
        };
        drop(c);
        let copy = memory.copied();
        let mut c = sk.connection();
        c.stats.async_copied += u64::from(copy.is_ok());
        let (bytes, rest) = match copy {
            Ok(copy) => (copy, Some(memory)),
            // a writing task waits until the bytes are sent, or until memory is available
            Err(_) => (memory, None),
        };
        let watch = bytes.watch();
        let entry = c.endpoint.as_mut().ok_or(None);
        let entry = entry.and_then(|e| e.post_block(bytes).map_err(Some));
        let mut lost = None;
        if let (Ok(id), Some(z)) = (entry, c.zcopy.get_mut()) {
            let posted = Posted { id, watch };
            let moved = z.blocks.moved(cookie, posted, rest.is_some());
            if rest.is_none() {
                c.set_timer(sk, Timer::GiveBack, milliseconds(100));
            }
            // after another connect(2) during the copy, the endpoint belongs to the new connection
            lost = moved.err().and_then(|p| c.take_back(p, false).ok());
        }
        c.progress();
        drop(c);
        // wakes the call that sends a whole message
        sk.wake();
        if let Some(memory) = lost {
            sk.keep(memory);
        }
        match rest {
            Some(memory) => sk.keep(memory),
            None => return,
        }
    }
}

impl Connection {
    /// Returns true if a task has waited for at least `CANCEL_TIME` to write to a block.
    pub(crate) fn is_withheld(&self, now: Jiffies) -> bool {
        let longest = self.zcopy.blocks.longest_wait(now);
        longest.is_some_and(|waited| waited >= CANCEL_TIME)
    }

    /// Retries moves that failed for lack of memory.
    pub(crate) fn retry_moves(&mut self, sk: &SdpSock) {
        self.zcopy.with(|z| z.blocks.retry());
        if self.local.is_some() {
            sk.schedule(JOB_MOVE);
        }
        self.check_for_writers(sk);
    }

    /// Schedules the move of returned blocks with waiting writers. Sets a timer while writers wait.
    pub(crate) fn check_for_writers(&mut self, sk: &SdpSock) {
        if self.zcopy.blocks.any_to_move() {
            sk.schedule(JOB_MOVE);
        }
        let now = jiffies();
        match self.zcopy.blocks.longest_wait(now) {
            None => self.timers.clear(Timer::GiveBack),
            Some(waited) if !self.timers.is_set(Timer::GiveBack) => self.timers.set(
                Timer::GiveBack,
                now.wrapping_add(CANCEL_TIME.saturating_sub(waited)),
            ),
            Some(_) => {}
        }
    }
}

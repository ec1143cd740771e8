// SPDX-License-Identifier: GPL-2.0-only

//! Sends without a copy on a local connection: the reader copies from the pages of the sender
//! ([`crate::conn::local::blocks`]).
//!
//! A blocking call waits until its blocks are read. After a time without a reader, a signal, or the
//! end of the stream, it replaces them by copies in the kernel, which count as sent.

use super::super::local::blocks::BlockUser;
use super::super::local::{LocalEnd, LocalLink};
use super::super::timers::Timer;
use super::super::{SdpSock, Threshold};
use super::memory::{Added, PinnedCall, Waits, LEAST};
use super::{by_read, by_write};
use crate::memory::notify::Watch;
use crate::sys::bindings as c;
use crate::sys::errno::EPIPE;
use crate::sys::net::message::SendMsg;
use crate::sys::net::sock::{interrupted, Locked, FOREVER, SEND_SHUTDOWN};
use crate::sys::net::trace::{self, ZeroCopy};
use crate::sys::pin::PinTerm;
use crate::sys::time::{jiffies, milliseconds, Jiffies};
use kernel::prelude::*;
use kernel::sync::Arc;

/// Number of bytes read after which a call waits for the reader anew.
const STEP: i64 = 65536;
/// Maximum number of bytes at the end of a call that are copied.
const MOST_TAIL: usize = 128 << 10;
/// Time after which a copy is attempted again for which there was no memory.
const PAUSE: Jiffies = milliseconds(100);

/// A block of a call in the stream.
struct Placed {
    start: i64,
    end: i64,
    watch: Watch,
}

impl Placed {
    fn len(&self) -> u32 {
        self.end.wrapping_sub(self.start) as u32
    }

    /// Returns the number of bytes that the peer has not read.
    fn left(&self, link: &LocalLink) -> usize {
        let from = link.arrived().max(self.start);
        usize::try_from(self.end.wrapping_sub(from)).unwrap_or(0)
    }
}

/// Reason for the end of a wait.
enum Waited {
    Read,
    /// The peer has not read the block in time.
    Late,
    Interrupted(Error),
    /// The stream is over.
    Ended,
}

fn link(sk: &SdpSock, lock: &mut Locked<'_>) -> Result<Arc<LocalLink>> {
    Ok(sk.local_end(lock).ok_or(EPIPE)?.link.clone())
}

/// Sends the next bytes of a call that waits until they are read, as far as that is worth it.
/// The last bytes, as many as [`tail`] returns, are copied by `copy` while the peer reads the
/// others: it has bytes left when the caller is woken. Returns false if the caller has to copy.
///
/// # Errors
///
/// `EPIPE`: the connection is lost. Other errors: a signal. Bytes sent nevertheless are counted in
/// the message.
pub(crate) fn send_blocks(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    timeout: &mut isize,
    mut copy: impl FnMut(&mut Locked<'_>, &mut SendMsg<'_>),
) -> Result<bool> {
    let tail = tail(sk, message.remaining());
    if link(sk, lock)?.block_of(BlockUser::Call).is_some() {
        // another call waits
        return Ok(false);
    }
    // one block is pinned while the one before is read
    let (mut first, mut second) = (add_block(sk, lock, message, tail)?, None);
    let any = first.is_some();
    while let Some(block) = first {
        if second.is_none() {
            second = add_block(sk, lock, message, tail)?;
        }
        if (1..=tail).contains(&message.remaining()) {
            copy(lock, message);
        }
        let waited = await_read(sk, lock, &block, timeout)?;
        let link = link(sk, lock)?;
        if let Waited::Read = waited {
            trace::zero_copy(sk, ZeroCopy::ReadByPeer, block.len(), block.len());
            (first, second) = (second.take(), None);
            continue;
        }
        if sk.has_error() {
            let end = sk.local_end(lock).ok_or(EPIPE)?.writer.position();
            let left = end.wrapping_sub(link.arrived().max(block.start));
            message.give_back(usize::try_from(left).unwrap_or(0));
            return Err(EPIPE.into());
        }
        for block in [Some(&block), second.as_ref()].into_iter().flatten() {
            let read = block.len().saturating_sub(block.left(&link) as u32);
            trace::zero_copy(sk, ZeroCopy::ReadByPeer, block.len(), read);
            take_back(sk, lock, &link, block);
        }
        return match waited {
            Waited::Interrupted(e) => Err(e),
            Waited::Ended => Err(EPIPE.into()),
            Waited::Late | Waited::Read => Ok(true),
        };
    }
    Ok(any)
}

/// Returns the number of bytes at the end of a call with `size` bytes to copy.
fn tail(sk: &SdpSock, size: usize) -> usize {
    match sk.with(|c| c.options.zcopy_threshold()) {
        Threshold::Adaptive => (size / 8).min(MOST_TAIL),
        _ => 0,
    }
}

/// Adds a block with the next bytes of a call before its `tail`, if that is worth it.
fn add_block(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    tail: usize,
) -> Result<Option<Placed>> {
    let want = message.remaining().saturating_sub(tail);
    let end = sk.local_end(lock).ok_or(EPIPE)?;
    let at = end.writer.position();
    let free = end.link.space(sk, at);
    let least = {
        let c = sk.connection();
        let may = (by_read() || by_write()) && at as u64 >= c.zcopy.copy_until && free > 0;
        c.zcopy_threshold().filter(|_| may && c.has_block_space())
    };
    let worth = |len| least.is_some_and(|least| len >= least.max(super::LEAST_TRANSFER));
    if !message.run(want).is_some_and(|(_, len)| worth(len)) {
        return Ok(None);
    }
    let pin = PinnedCall::pin(sk, message.piece(want), 1, |block, account| {
        block.pin_source(message, want, PinTerm::Long, account)
    });
    let Some(memory) = pin.and_then(PinnedCall::into_memory) else {
        return Ok(None);
    };
    let (len, watch) = (memory.len(), memory.watch());
    let end = sk.local_end(lock).ok_or(EPIPE)?;
    let start = match end.offer(sk, memory, BlockUser::Call) {
        Ok(start) => start,
        Err(memory) => {
            sk.keep(memory);
            return Ok(None);
        }
    };
    sk.connection().trims_later(sk);
    message.advance(len);
    let end = start.wrapping_add_unsigned(len as u64);
    Ok(Some(Placed { start, end, watch }))
}

/// Waits until the peer has read a block.
fn await_read(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    block: &Placed,
    timeout: &mut isize,
) -> Result<Waited> {
    let patience = sk.with(|c| c.zcopy.timeout_of_advert());
    let start = jiffies();
    let (mut since, mut seen) = (start, sk.local_end(lock).ok_or(EPIPE)?.link.arrived());
    loop {
        let seq = sk.event_seq();
        let read = sk.local_end(lock).ok_or(EPIPE)?.link.arrived();
        let now = jiffies();
        if read >= block.end {
            sk.with(|c| c.zcopy.with(|z| z.taken_up(now.wrapping_sub(start))));
            return Ok(Waited::Read);
        }
        if sk.has_error() || sk.shutdown() & SEND_SHUTDOWN != 0 {
            return Ok(Waited::Ended);
        }
        if read.wrapping_sub(seen) >= STEP {
            (since, seen) = (now, read);
        }
        let left = patience.saturating_sub(now.wrapping_sub(since));
        let limit = (left as isize).min(*timeout);
        if limit == 0 {
            return Ok(Waited::Late);
        }
        match sk.wait_local(lock, seq, limit) {
            Ok(left) if *timeout != FOREVER => {
                *timeout = timeout.saturating_sub(limit.saturating_sub(left));
            }
            Ok(_) => {}
            Err(_) => return Ok(Waited::Interrupted(interrupted(*timeout))),
        }
    }
}

/// Takes the memory of a block back to its call: the unread rest is replaced by a copy. Waits for
/// the reader's step, and for memory for the copy.
fn take_back(sk: &SdpSock, lock: &mut Locked<'_>, link: &LocalLink, block: &Placed) {
    let left = block.left(link) as u32;
    if left > 0 {
        let mut c = sk.connection();
        let at = block.end as u64;
        c.zcopy.with(|z| z.not_taken_up(at, block.len(), 0));
        c.stats.direct_returned += 1;
    }
    while link.arrived() < block.end && !sk.has_error() {
        match link.replace_block(block.start) {
            Ok(Some(memory)) => return sk.keep(memory),
            Ok(None) => break,
            Err(_) => lock.unlocked(|| sk.sleep_through(sk.event_seq(), PAUSE)),
        }
    }
    sk.taken_back(lock, Err(block.watch.clone()));
}

/// Adds memory that no call waits for, or releases it.
pub(super) fn push(
    sk: &SdpSock,
    end: &mut LocalEnd,
    memory: PinnedCall<'_>,
    waits: Waits,
) -> Added {
    let len = memory.len();
    let owner = match waits {
        Waits::Writers => BlockUser::Writers,
        _ => BlockUser::Nobody,
    };
    if !end.link.has_block_space() {
        return Added::Full;
    }
    let Some(memory) = memory.into_memory() else {
        return Added::Copy(len);
    };
    if let Err(memory) = end.offer(sk, memory, owner) {
        sk.keep(memory);
        return Added::Copy(len);
    }
    let mut c = sk.connection();
    if let Some(z) = c.zcopy.get_mut().filter(|_| owner == BlockUser::Writers) {
        z.touches.began();
        c.stats.async_blocks += 1;
    }
    c.trims_later(sk);
    Added::Block
}

/// Adds the next pages that a call gives away. `None`: the caller has to copy.
pub(super) fn add_spliced(
    sk: &SdpSock,
    end: &mut LocalEnd,
    message: &mut SendMsg<'_>,
) -> Option<Added> {
    let want = message.remaining();
    let account = sk.account()?;
    let grown = end.grow_block(|memory| memory.add_pages(message, want, account).unwrap_or(0));
    if grown > 0 {
        message.advance(grown);
        return Some(Added::Block);
    }
    let (at, len) = message.run(want)?;
    if !end.link.has_block_space() {
        return Some(Added::Full);
    }
    let worth = sk.with(|connection| {
        let worth = match message.flags() & c::MSG_MORE {
            0 => connection.may_use_zcopy(len),
            // the size is not known yet
            _ => len >= LEAST && connection.zcopy_threshold().is_some(),
        };
        worth && connection.writable(sk)
    });
    if !worth {
        return None;
    }
    let mut memory = sk.space_for((at, len))?;
    let added = memory.collect().ok().and_then(|()| {
        let n = memory.add_pages(message, want, account).ok()?;
        (n > 0).then_some(n)
    });
    let Some(added) = added else {
        sk.connection().stats.unpinnable += 1;
        sk.keep(memory);
        return None;
    };
    match end.offer(sk, memory, BlockUser::Nobody) {
        Ok(_) => message.advance(added),
        Err(memory) => {
            sk.keep(memory);
            return None;
        }
    }
    Some(Added::Block)
}

/// Handles a write fault on a block. Returns false if the connection is not local. Context: worker.
pub(super) fn on_write_fault(sk: &SdpSock) -> bool {
    let link = {
        let mut c = sk.connection();
        let Some(local) = &c.local else {
            return false;
        };
        let link = local.link.clone();
        if link.block_of(BlockUser::Writers).is_some() {
            c.zcopy.with(|z| z.touches.on_write_fault());
            c.stats.async_touched += 1;
        }
        link
    };
    move_away(sk, &link);
    true
}

/// Replaces write-protected blocks by copies, so that the program can write to its memory again.
/// Context: worker.
pub(super) fn move_away(sk: &SdpSock, link: &LocalLink) {
    while let Some(start) = link.block_of(BlockUser::Writers) {
        match link.replace_block(start) {
            Ok(memory) => {
                sk.connection().stats.async_copied += 1;
                if let Some(memory) = memory {
                    sk.keep(memory);
                }
            }
            Err(_) => return sk.connection().set_timer(sk, Timer::GiveBack, PAUSE),
        }
    }
}

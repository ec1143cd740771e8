// SPDX-License-Identifier: GPL-2.0-only

//! Zero-copy send calls that wait until their bytes are read or sent.
//!
//! While the oldest block of a call is in flight, the next blocks are pinned and queued behind it.
//! The queue is in the connection ([`super::tx_blocks`]). The call adds blocks, and waits for the
//! oldest one. After a time without a reader, a signal or urgent data, the call recalls its blocks:
//! unsent bytes return to the call's iterator.

use super::super::{SdpSock, Threshold};
use super::detached::push;
use super::local::move_away;
use super::memory::{Added, PinnedCall};
use super::tx_blocks::call::Awaits;
use super::tx_blocks::BlockUser;
use super::waiting::{AfterSleep, Waiting};
use super::{by_read, by_write, LEAST_TRANSFER};
use crate::memory::pinned::{Accounting, Notify};
use crate::sys::errno::EPIPE;
use crate::sys::net::message::SendMsg;
use crate::sys::net::notice::ZerocopyCompletion;
use crate::sys::net::sock::{interrupted, Locked, SEND_SHUTDOWN};
use crate::sys::net::trace::{self, ZeroCopy};
use crate::sys::time::jiffies;
use kernel::prelude::*;

/// Maximum number of blocks of a local send call: one is pinned while the peer reads the other.
const MOST_LOCAL: usize = 2;
/// Number of bytes read after which a local send call restarts the time limit for its reader.
const STEP: i64 = 65536;
/// Maximum number of bytes at the end of a local send call that are copied.
const MOST_TAIL: usize = 128 << 10;

/// Offers the next bytes of the call to the peer, starting with a block of `size` bytes
/// ([`Connection::block_size`](super::Connection::block_size)). The peer reads the blocks, or this
/// end writes them to a waiting reader of the peer. Returns `Ok(false)` if the caller has to copy
/// instead.
///
/// # Errors
///
/// `EPIPE`: the connection is lost. Other errors: a signal or time-out. The message counts the
/// bytes sent before the error.
pub(crate) fn send_blocks(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    size: usize,
    timeout: &mut isize,
) -> Result<bool> {
    if !add_block(sk, lock, message, size) {
        return Ok(false);
    }
    // number of added bytes that were not sent, and must precede all later bytes
    let mut left = 0_usize;
    let mut end = Ok(());
    loop {
        while left == 0 && end.is_ok() {
            let size = sk.connection().next_size(message.remaining());
            if size == 0 || !add_block(sk, lock, message, size) {
                break;
            }
        }
        if !sk.connection().zcopy.blocks.has_call() {
            break;
        }
        if end.is_ok() {
            end = wait_sent(sk, lock, timeout);
        } else {
            // the call has taken all blocks back together with the oldest one
            let _ = wait_sent(sk, lock, &mut 0);
        }
        let Some((memory, unsent)) = sk.connection().take_block(sk, left == 0) else {
            break;
        };
        left = left.saturating_add(unsent);
        sk.taken_back(lock, memory);
    }
    message.give_back(left);
    end.map(|()| true)
}

/// Pins the next bytes of the call and offers them to the peer, which consumes the bytes from the
/// call's iterator. Returns false if no block is possible.
fn add_block(sk: &SdpSock, lock: &mut Locked<'_>, message: &mut SendMsg<'_>, size: usize) -> bool {
    let least = sk.connection().zcopy_threshold();
    let least = least.unwrap_or(size).min(size);
    if message.run(size).is_none_or(|(_, len)| len < least) {
        return false;
    }
    let piece = message.piece(size);
    let pin = PinnedCall::pin_next(sk, message, piece, least, |block, message, account| {
        block.pin_source(message, size, account)
    });
    pin.is_some_and(|memory| push(sk, lock, message, memory, BlockUser::Call) == Added::Block)
}

/// Adds all bytes of a message as one block, behind the queued header, and waits until the block is
/// sent. With a `notice`, the call does not wait. After a time without a reader, or a signal, a
/// copy in the kernel replaces the block. Returns false if the caller has to copy.
///
/// # Errors
///
/// `EPIPE`: the connection is lost.
pub(crate) fn send_message(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    notice: Option<&ZerocopyCompletion>,
    timeout: &mut isize,
) -> Result<bool> {
    let len = message.remaining();
    let at = sk.local_end(lock).map(|end| end.writer.position());
    let (user, accounting) = match (notice, at) {
        (Some(_), _) => (BlockUser::None, Accounting::ByNotice),
        (None, Some(_)) => (BlockUser::Call, Accounting::Here),
        (None, None) => (BlockUser::Message, Accounting::Here),
    };
    let may = sk.with(|c| match at {
        _ if notice.is_some() => true,
        Some(at) => (by_read() || by_write()) && at as u64 >= c.zcopy.copy_until,
        None => by_read() && c.block_size(sk, len) == len,
    });
    let run = message.run(len).filter(|_| may);
    let pin = PinnedCall::pin_next(sk, message, run, len, |block, message, account| {
        block.pin_counted(message, len, accounting, account, &mut |_| ())
    });
    let Some(mut memory) = pin else {
        return Ok(false);
    };
    if let Some(notice) = notice {
        memory.notify(Notify::Call(notice.piece()));
    }
    if push(sk, lock, message, memory, user) != Added::Block {
        return Ok(false);
    }
    let sent = match at {
        _ if notice.is_some() => Ok(()),
        Some(_) => await_read(sk, lock, message, 0, timeout),
        None => {
            let sent = wait_sent(sk, lock, timeout);
            let back = sk.connection().take_block(sk, true);
            sk.with(|c| c.zcopy.with(|z| z.blocks.message_returned()));
            match back {
                Some((memory, _)) => sk.taken_back(lock, memory),
                // a copy in the kernel has replaced the block
                None => sk.with(|c| {
                    let at = c.tx.end();
                    c.stats.direct_returned += 1;
                    c.zcopy.with(|z| z.not_taken_up(at, len as u32, 0));
                }),
            }
            sent
        }
    };
    // all bytes are in the stream, even after a signal
    match sent {
        Err(e) if sk.has_error() => Err(e),
        _ => Ok(true),
    }
}

/// Waits until the call's oldest block returns to the caller, or the connection is lost.
fn wait_sent(sk: &SdpSock, lock: &mut Locked<'_>, timeout: &mut isize) -> Result {
    let start = jiffies();
    let is_message = sk.with(|c| c.records.is_some());
    let mut waiting = Waiting::new(sk.connection().zcopy.timeout_of_advert());
    let mut result = Ok(());
    loop {
        let seq = sk.event_seq();
        let awaits = {
            let mut c = sk.connection();
            let Some(z) = c.zcopy.get_mut() else {
                return Err(EPIPE.into());
            };
            match z.blocks.oldest() {
                None if is_message => return Ok(()),
                None | Some((Awaits::Nothing { lost: true }, _)) => return Err(EPIPE.into()),
                Some((Awaits::Nothing { lost: false }, read)) => {
                    if read {
                        z.taken_up(jiffies().wrapping_sub(start));
                    }
                    return result;
                }
                Some((awaits, _)) => awaits,
            }
        };
        if awaits == Awaits::Write {
            if waiting.sleep_through(sk, lock, seq) {
                result = Err(interrupted(*timeout));
            }
            continue;
        }
        let over = sk.has_error() || sk.shutdown() & SEND_SHUTDOWN != 0;
        let turn = waiting.sleep(sk, lock, seq, over, timeout, |lock, limit| {
            sk.poll_then_wait(lock, seq, limit, &sk.data().busy_poll_adverts)
        });
        if turn == AfterSleep::Interrupted {
            result = Err(interrupted(*timeout));
        }
        if turn != AfterSleep::Look {
            sk.connection().take_blocks_back();
            sk.progress();
        }
    }
}

/// Adds the next bytes of a local send call as a block, for which the call later waits
/// ([`await_read`]). The last bytes are copied while the peer reads the others, so that the peer
/// has bytes left when the call is woken. `waits` is true if the call has added blocks. Returns
/// `Ok(false)` if the caller has to copy instead.
pub(crate) fn add_local(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    waits: &mut bool,
    timeout: &mut isize,
) -> Result<bool> {
    let left = message.remaining();
    let Some(end) = sk.local_end(lock) else {
        return Ok(false);
    };
    let at = end.writer.position();
    let (own, _) = end.link.blocks_of(BlockUser::Call, *waits);
    let free = end.link.space(sk, at);
    let (least, tail) = {
        let c = sk.connection();
        let may = (by_read() || by_write()) && at as u64 >= c.zcopy.copy_until && free > 0;
        let tail = match c.options.zcopy_threshold() {
            Threshold::Adaptive => (message.taken().saturating_add(left) / 8).min(MOST_TAIL),
            _ => 0,
        };
        let least = c.zcopy_threshold();
        (least.filter(|_| may && c.has_block_space()), tail)
    };
    let size = left.saturating_sub(tail);
    if least.is_none_or(|least| size < least.max(LEAST_TRANSFER)) || own > 0 && !*waits {
        return Ok(false);
    }
    if own >= MOST_LOCAL {
        await_read(sk, lock, message, 1, timeout)?;
        return Ok(true);
    }
    let added = add_block(sk, lock, message, size);
    *waits |= added;
    Ok(added)
}

/// Waits until at most `most` blocks of a local send call are unread. After a time without a
/// reader, a signal, or the end of the stream, copies in the kernel replace the call's blocks,
/// whose bytes count as sent.
///
/// # Errors
///
/// `EPIPE`: the connection is lost; the message counts the bytes that were read. Other errors: a
/// signal.
pub(crate) fn await_read(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    most: usize,
    timeout: &mut isize,
) -> Result {
    let link = sk.local_end(lock).ok_or(EPIPE)?.link.clone();
    let (start, size) = (jiffies(), link.blocks_of(BlockUser::Call, true).1);
    let mut waiting = Waiting::new(sk.with(|c| c.zcopy.timeout_of_advert()));
    let (mut seen, mut back, mut result) = (link.arrived(), None, Ok(()));
    loop {
        let seq = sk.event_seq();
        if sk.has_error() {
            message.give_back(link.unsent().min(message.taken()));
            return Err(EPIPE.into());
        }
        let (blocks, left) = link.blocks_of(BlockUser::Call, true);
        if blocks <= most {
            if back.is_none() {
                let took = jiffies().wrapping_sub(start);
                sk.with(|c| c.zcopy.with(|z| z.taken_up(took)));
            }
            let read = size.saturating_sub(back.unwrap_or(left));
            trace::zero_copy(sk, ZeroCopy::ReadByPeer, size as u32, read as u32);
            return result;
        }
        if link.arrived().wrapping_sub(seen) >= STEP {
            seen = link.arrived();
            waiting.restart();
        }
        let over = sk.shutdown() & SEND_SHUTDOWN != 0;
        let turn = waiting.sleep(sk, lock, seq, over, timeout, |lock, limit| {
            sk.wait_local(lock, seq, limit)
        });
        match turn {
            AfterSleep::Look if back.is_none() => continue,
            AfterSleep::Interrupted => result = Err(interrupted(*timeout)),
            AfterSleep::TakeBack if over => result = Err(EPIPE.into()),
            AfterSleep::Look | AfterSleep::TakeBack => {}
        }
        if back.is_none() {
            back = Some(left);
            let at = link.arrived().wrapping_add(link.unsent() as i64) as u64;
            sk.with(|c| c.zcopy.with(|z| z.not_taken_up(at, size as u32, 0)));
        }
        move_away(sk, &link, BlockUser::Call);
    }
}

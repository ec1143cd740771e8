// SPDX-License-Identifier: GPL-2.0-only

//! Send calls without a copy.
//!
//! While the oldest piece of the call is in flight, the next ones are pinned and queued behind it.
//! The connection has the queue ([`super::tx`]); the call adds to it, and waits for its oldest
//! piece. Unsent bytes return to the call's iterator.

use super::super::{Connection, SdpSock};
use super::advert::{Advert, AdvertState};
use super::detached::first_byte;
use super::memory::CallMemory;
use super::posted::Way;
use super::waiting::{spend, wait_moved, Dying, Turn, Waiting};
use super::LEAST_TRANSFER;
use crate::sys::errno::EPIPE;
use crate::sys::net::message::SendMsg;
use crate::sys::net::sock::{interrupted, Locked, SEND_SHUTDOWN};
use crate::sys::pin::PinTerm;
use crate::sys::time::jiffies;
use kernel::prelude::*;

/// Advertises the next bytes of the call for the peer to read, starting with a block of `size`
/// bytes ([`Connection::block_size`]). Returns `Ok(false)` if the caller has to copy instead.
///
/// # Errors
///
/// `EPIPE`: the connection is lost. Others: the error of a signal or time-out. The message counts
/// the bytes sent nevertheless.
pub(crate) fn be_read(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    size: usize,
    timeout: &mut isize,
) -> Result<bool> {
    if !add_block(sk, message, size) {
        return Ok(false);
    }
    // added bytes that were not sent and must go before any others
    let mut left = 0;
    let mut end = Ok(());
    loop {
        while left == 0 && end.is_ok() && message.remaining() > 0 {
            let want = message.remaining();
            let another = sk.connection().another_block(want);
            if !another || !add_block(sk, message, want) {
                break;
            }
        }
        if !sk.connection().direct.blocks.has_call() {
            break;
        }
        if end.is_ok() {
            sk.progress();
            end = wait_read(sk, lock, timeout);
        } else {
            // all were taken back with the oldest one
            let _ = wait_read(sk, lock, &mut 0);
        }
        let Some(taken) = sk.connection().take_block(sk) else {
            break;
        };
        left += (taken.size - taken.done) as usize;
        sk.taken_back(lock, taken.memory);
    }
    message.give_back(left);
    end.map(|()| true)
}

/// Pins the next bytes of the call and offers them, which counts them as taken. Returns false if
/// that is not possible.
fn add_block(sk: &SdpSock, message: &mut SendMsg<'_>, size: usize) -> bool {
    let least = sk.connection().zcopy_threshold();
    let least = least.unwrap_or(size).min(size);
    if message.run(size).is_none_or(|(_, len)| len < least) {
        return false;
    }
    let Some(first) = first_byte(message) else {
        return false;
    };
    let piece = message.piece(size);
    let pin = CallMemory::pin(sk, piece, least, |block, account| {
        block.pin_source(message, size, PinTerm::Long, account)
    });
    let Some(mut memory) = pin else {
        return false;
    };
    let mut c = sk.connection();
    if !c.takes_block(u32::try_from(memory.len()).unwrap_or(0)) {
        return false;
    }
    let (at, cookie) = (c.tx.end(), c.direct.next_cookie());
    let Some(posted) = c.endpoint.as_mut().and_then(|c| memory.post(c)) else {
        return false;
    };
    let size = u32::try_from(memory.len()).unwrap_or(0);
    let advert = Advert::unregistered(posted, size, cookie);
    // corked bytes go before it
    c.set_more(false);
    // there is space, as checked above
    let _ = c.direct.blocks.push(advert, first, at);
    drop(c);
    message.advance(memory.len());
    true
}

/// Waits until the oldest block returns to the caller, or the connection is lost.
fn wait_read(sk: &SdpSock, lock: &mut Locked<'_>, timeout: &mut isize) -> Result {
    let start = jiffies();
    let mut waiting = Waiting::new(sk.connection().direct.patience());
    let mut result = Ok(());
    loop {
        let seq = sk.event_seq();
        {
            let mut c = sk.connection();
            match c.direct.blocks.oldest().map(|(a, read)| (a.state, read)) {
                Some((AdvertState::Invalid, read)) => {
                    if read {
                        c.direct.taken_up(jiffies().wrapping_sub(start));
                    }
                    return result;
                }
                Some((AdvertState::Lost, _)) | None => return Err(EPIPE.into()),
                _ => {}
            }
        }
        let over = sk.has_error() || sk.shutdown() & SEND_SHUTDOWN != 0;
        let turn = waiting.sleep(sk, lock, seq, over, timeout, |lock, limit| {
            sk.wait_for_taking(lock, seq, limit)
        });
        if turn == Turn::Interrupted {
            result = Err(interrupted(*timeout));
        }
        if turn != Turn::Look {
            sk.connection().take_blocks_back();
            sk.progress();
        }
    }
}

/// Waits a little for a reader to write to, where READs must not be used (`zcopy_ways`). Returns
/// the number of the call's bytes that can be written then.
pub(crate) fn await_reader(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    want: usize,
    timeout: &mut isize,
) -> Result<usize> {
    let start = jiffies();
    let _wanted = sk.want_room();
    loop {
        let seq = sk.event_seq();
        // earlier bytes must not wait for those that wait here
        sk.connection().set_more(false);
        sk.progress();
        let limit = {
            let mut c = sk.connection();
            let writable = c.writable_directly(want);
            let closed = sk.has_error() || sk.shutdown() & SEND_SHUTDOWN != 0;
            if writable > 0 || closed || *timeout == 0 || !c.awaits_reader(want) {
                return Ok(writable);
            }
            let waited = jiffies().wrapping_sub(start);
            let left = c.direct.patience().saturating_sub(waited);
            if left == 0 {
                c.direct.readers_advertise = false;
                return Ok(0);
            }
            (left as isize).min(*timeout)
        };
        let left = sk.wait(lock, seq, limit)?;
        spend(timeout, limit - left);
    }
}

/// Result of an attempt to add a piece to write.
#[derive(PartialEq, Eq)]
enum Added {
    Piece,
    /// The peer has no space for more than is queued.
    Full,
    /// The rest goes another way.
    No,
}

/// Writes bytes of the call to a waiting reader of the peer. `Ok(false)`: they have to go another
/// way.
///
/// WRITEs follow one another, and the pieces need not be as large as the blocks of the peer's
/// reader: the block of the last WRITE stays open for the next piece, until the call has none.
///
/// # Errors
///
/// `EPIPE`: the connection is lost. The message counts the bytes sent nevertheless.
pub(crate) fn write(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
) -> Result<bool> {
    // sent bytes, and added bytes that were not sent
    let (mut sent, mut unsent) = (0, 0);
    let (mut open, mut lost) = (true, false);
    let mut dying = Dying::new();
    loop {
        let mut full = false;
        while open && !full && sk.connection().direct.writing.has_room() {
            match add_piece(sk, message) {
                Added::Piece => {}
                Added::Full => full = true,
                Added::No => open = false,
            }
        }
        if full || !open {
            close(sk);
        }
        let left = message.remaining();
        // the peer's reader may advertise more meanwhile
        let more = |c: &Connection| open && c.writable_behind(left) > 0;
        let Some(gone) = wait_moved(sk, lock, Way::Write, &mut dying, more) else {
            continue;
        };
        let Some(taken) = sk.connection().take_piece(sk, Way::Write) else {
            break;
        };
        sent += taken.done as usize;
        unsent += (taken.size - taken.done) as usize;
        sk.taken_back(lock, taken.memory);
        // bytes behind one that was not sent entirely do not go
        lost |= gone;
        open &= !lost && taken.done == taken.size && !dying.has_begun();
    }
    message.give_back(unsent);
    match lost {
        true => Err(EPIPE.into()),
        false => Ok(sent > 0),
    }
}

/// Ends the pieces of the writing call for now: the report to the peer is due.
fn close(sk: &SdpSock) {
    let mut c = sk.connection();
    if !c.direct.writing.close() {
        return;
    }
    if let Some(p) = &mut c.protocol {
        p.written_all();
    }
    c.progress();
}

/// Pins the next bytes of the call and queues their WRITE behind the others. Counts them as taken.
fn add_piece(sk: &SdpSock, message: &mut SendMsg<'_>) -> Added {
    let left = message.remaining();
    let (want, first) = {
        let c = sk.connection();
        (c.writable_behind(left), c.direct.writing.is_empty())
    };
    if want == 0 {
        return Added::Full;
    }
    let piece = message.piece(want);
    let pin = CallMemory::pin(sk, piece, LEAST_TRANSFER.min(want), |block, account| {
        block.pin_source(message, want, PinTerm::Short, account)
    });
    let Some(mut memory) = pin else {
        return Added::No;
    };
    let mut c = sk.connection();
    // the peer may have cancelled it
    let there = match first {
        true => c.writable_directly(usize::MAX) > 0,
        false => c.direct.writing.has_room(),
    };
    let endpoint = c.endpoint.as_mut().filter(|_| there);
    let Some(posted) = endpoint.and_then(|c| memory.post(c)) else {
        return Added::No;
    };
    c.stats.direct_queued += u64::from(!first);
    // corked bytes have gone before it
    c.set_more(false);
    let len = u32::try_from(memory.len()).unwrap_or(0);
    let more = c.is_worth_writing(left - memory.len());
    // there is space, as checked above
    let _ = c.direct.writing.push(posted, len, more);
    c.progress();
    drop(c);
    message.advance(memory.len());
    Added::Piece
}

// SPDX-License-Identifier: GPL-2.0-only

//! Send calls without a copy.
//!
//! While the oldest block of the call is in flight, the next ones are pinned and queued behind it.
//! The queue is in the connection ([`super::tx_blocks`]). The call adds blocks, and waits for its
//! oldest one. After a time without a reader, a signal or urgent data, the call recalls its blocks:
//! unsent bytes return to its iterator.

use super::super::SdpSock;
use super::detached::{first_byte, push};
use super::memory::{Added, PinnedCall, Waits};
use super::tx_blocks::call::Awaits;
use super::waiting::{AfterSleep, Waiting};
use crate::sys::errno::EPIPE;
use crate::sys::net::message::SendMsg;
use crate::sys::net::sock::{interrupted, Locked, SEND_SHUTDOWN};
use crate::sys::pin::PinTerm;
use crate::sys::time::jiffies;
use kernel::prelude::*;

/// Offers the next bytes of the call to the peer, starting with a block of `size` bytes
/// ([`Connection::block_size`](super::Connection::block_size)): the peer reads them, or they are
/// written to its waiting reader. Returns `Ok(false)` if the caller has to copy instead.
///
/// # Errors
///
/// `EPIPE`: the connection is lost. Other errors: a signal or time-out. Bytes sent nevertheless are
/// counted in the message.
pub(crate) fn send_blocks(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    size: usize,
    timeout: &mut isize,
) -> Result<bool> {
    if !add_block(sk, message, size) {
        return Ok(false);
    }
    // added bytes that were not sent and must precede all others
    let mut left = 0_usize;
    let mut end = Ok(());
    loop {
        while left == 0 && end.is_ok() {
            let size = sk.connection().next_size(message.remaining());
            if size == 0 || !add_block(sk, message, size) {
                break;
            }
        }
        if !sk.connection().zcopy.blocks.has_call() {
            break;
        }
        if end.is_ok() {
            end = wait_sent(sk, lock, timeout);
        } else {
            // the call took all blocks back with the oldest one
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

/// Pins the next bytes of the call and offers them, which consumes them from its iterator. Returns
/// false if that is not possible.
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
    let pin = PinnedCall::pin(sk, piece, least, |block, account| {
        block.pin_source(message, size, PinTerm::Long, account)
    });
    let Some(memory) = pin else {
        return false;
    };
    let (size, left) = (memory.len(), message.remaining());
    let added = push(sk, memory, first, Waits::Caller { left }) == Added::Block;
    if added {
        message.advance(size);
    }
    added
}

/// Waits until the oldest block returns to the caller, or the connection is lost.
fn wait_sent(sk: &SdpSock, lock: &mut Locked<'_>, timeout: &mut isize) -> Result {
    let start = jiffies();
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

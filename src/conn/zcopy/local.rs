// SPDX-License-Identifier: GPL-2.0-only

//! Adds blocks to a local connection. The reader copies from the sender's pages
//! ([`crate::conn::local::blocks`]).

use super::super::local::{LocalEnd, LocalLink};
use super::super::timers::Timer;
use super::super::SdpSock;
use super::memory::{Added, PinnedCall, LEAST};
use super::BlockUser;
use crate::sys::bindings as c;
use crate::sys::net::message::SendMsg;
use crate::sys::time::{milliseconds, Jiffies};

/// Time until the retry of a copy that failed for lack of memory.
const PAUSE: Jiffies = milliseconds(100);

/// Adds memory to the stream, or releases the memory.
pub(super) fn push(
    sk: &SdpSock,
    end: &mut LocalEnd,
    memory: PinnedCall<'_>,
    user: BlockUser,
) -> Added {
    let len = memory.len();
    if !end.link.has_block_space() {
        return Added::Full;
    }
    let Some(memory) = memory.into_memory() else {
        return Added::Copy(len);
    };
    if let Err(memory) = end.offer(sk, memory, user) {
        sk.keep(memory);
        return Added::Copy(len);
    }
    sk.connection().trims_later(sk);
    Added::Block
}

/// Adds the next pages that a call gives away. Returns `None` if the caller has to copy.
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
            // `MSG_MORE`: later calls may add pages, so the block's size is not known yet
            _ => len >= LEAST && connection.zcopy_threshold().is_some(),
        };
        worth && connection.writable(sk)
    });
    if !worth {
        return None;
    }
    let memory = PinnedCall::collect(sk, message, (at, len), want)?;
    let size = memory.len();
    let added = push(sk, end, memory, BlockUser::None);
    if added == Added::Block {
        message.advance(size);
    }
    Some(added)
}

/// Replaces blocks of `user` by copies in the kernel, so that the user's memory is free again.
/// Context: process, may sleep.
pub(super) fn move_away(sk: &SdpSock, link: &LocalLink, user: BlockUser) {
    let moved = link.replace_blocks(user, |memory| {
        let mut c = sk.connection();
        match user {
            BlockUser::Call => c.stats.direct_returned += 1,
            _ => c.stats.async_copied += 1,
        }
        drop(c);
        if let Some(memory) = memory {
            sk.keep(memory);
        }
    });
    if moved.is_err() {
        sk.connection().set_timer(sk, Timer::GiveBack, PAUSE);
    }
}

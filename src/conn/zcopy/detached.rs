// SPDX-License-Identifier: GPL-2.0-only

//! Blocks that no call waits for, of sends with `MSG_ZEROCOPY` by programs and io_uring.
//!
//! A send call pins its next bytes, adds them to the connection's blocks ([`super::tx_blocks`]),
//! and continues. Usually the peer reads detached blocks by RDMA. Bytes that the peer does not read
//! are sent from the same pages, by RDMA WRITE to a waiting reader of the peer or in messages. Each
//! `Guard::progress` takes out completed blocks, whose memory the guard's drop releases after the
//! unlock, with a [`Notify`].
//!
//! If the peer reads nothing, the memory stays pinned and charged to the sender. While
//! [`MOST_BLOCKS`](super::tx_blocks::MOST_BLOCKS) are in flight, the next call waits, or gets
//! EAGAIN.

use super::super::{keepalive, Connection, SdpSock, Wakeup, Wakeups};
use super::advert::Advert;
use super::local;
use super::memory::{Added, PinnedCall, LEAST};
use super::tx_blocks::call::Returned;
use super::tx_blocks::BlockUser;
use crate::memory::pinned::{Accounting, Notify};
use crate::sys::net::message::SendMsg;
use crate::sys::net::notice::ZerocopyCompletion;
use crate::sys::net::sock::Locked;
use crate::sys::net::trace::{self, ZeroCopy};
use crate::sys::time::jiffies;

/// Adds the next bytes of a call as a block. The release of the block completes `notice`. Context:
/// process, socket lock held.
pub(crate) fn add(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    notice: &ZerocopyCompletion,
) -> Added {
    let want = {
        let c = sk.connection();
        if !c.has_block_space() {
            return Added::Full;
        }
        c.protocol.as_ref().map_or(0, |p| p.source_limit() as usize)
    };
    let want = match want {
        // limit 0: the peer reads no blocks, which are sent in messages
        0 => message.remaining(),
        most => most.min(message.remaining()),
    };
    let Some((_, len)) = message.run(want) else {
        return Added::Copy(want);
    };
    if len < LEAST {
        return Added::Copy(len);
    }
    let run = message.run(want);
    let pin = PinnedCall::pin_next(sk, message, run, 1, |block, message, account| {
        block.pin_counted(message, want, Accounting::ByNotice, account, &mut |_| ())
    });
    let Some(mut memory) = pin else {
        // copy only the bytes that cannot be pinned
        return Added::Copy(message.piece(len).map_or(len, |(_, n)| n));
    };
    memory.notify(Notify::Call(notice.piece()));
    push(sk, lock, message, memory, BlockUser::None)
}

/// Adds pinned memory as the next bytes of a call, or releases the memory.
pub(super) fn push(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    memory: PinnedCall<'_>,
    user: BlockUser,
) -> Added {
    let len = memory.len();
    let added = match sk.local_end(lock) {
        Some(end) => local::push(sk, end, memory, user),
        None => push_last(sk, memory, message.remaining(), user),
    };
    if added != Added::Block {
        return added;
    }
    message.advance(len);
    if user == BlockUser::Writers {
        let mut c = sk.connection();
        c.stats.async_blocks += 1;
        c.zcopy.with(|z| z.touches.began());
    }
    added
}

/// Adds memory of a call with `left` bytes as the last block for a device, or releases the memory.
fn push_last(sk: &SdpSock, mut memory: PinnedCall<'_>, left: usize, user: BlockUser) -> Added {
    let len = memory.len();
    let mut c = sk.connection();
    // during pinning, the peer may have returned blocks, or cancelled its sink advert
    let fits = match user {
        BlockUser::Call | BlockUser::Message => c.next_size(left) > 0,
        _ => c.zcopy.blocks.has_space(),
    };
    if !fits {
        return Added::Full;
    }
    let idle = c.outstanding() == 0;
    let Connection {
        endpoint,
        protocol,
        zcopy,
        tx,
        stats,
        ..
    } = &mut *c;
    let (Some(endpoint), Some(z)) = (endpoint, zcopy.get_mut()) else {
        return Added::Copy(len);
    };
    let Some(posted) = memory.post(endpoint) else {
        return Added::Copy(len);
    };
    let size = u32::try_from(len).unwrap_or(0);
    let mut advert = Advert::unregistered(posted, size, z.next_cookie());
    if matches!(user, BlockUser::Call | BlockUser::Message) {
        stats.direct_queued += u64::from(z.blocks.is_sending());
    } else {
        if z.detached_skips.skip() {
            advert.finish();
        }
        if let Some(p) = protocol {
            // allows several outstanding blocks
            p.set_pipelined(true);
        }
    }
    // publishes the queued header of a message, too
    tx.publish();
    // the check above has found space
    let _ = z.blocks.push(advert, memory.first, tx.end(), user);
    // corked bytes have to be sent before the block
    c.no_more();
    if idle {
        c.alive.progress(jiffies());
    }
    c.progress();
    let timed = idle && c.options.user_timeout != 0;
    drop(c);
    if timed {
        // no later event would start the timer
        keepalive::update(sk);
    }
    Added::Block
}

impl Connection {
    /// Removes completed detached blocks.
    pub(crate) fn retire_blocks(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        while let Some(Returned {
            memory,
            size,
            in_messages,
            ..
        }) = self.zcopy.get_mut().and_then(|z| z.blocks.retire())
        {
            let done = size.saturating_sub(in_messages);
            trace::zero_copy(sk, ZeroCopy::ReadByPeer, size, done);
            self.has_space_again(sk, wakeups);
            wakeups.add(Wakeup::Zcopy);
            let Some(endpoint) = self.endpoint.as_mut() else {
                continue;
            };
            let Ok(memory) = endpoint.take_back(memory.id) else {
                // the destruction of the transport also releases the memory
                continue;
            };
            wakeups.add(Wakeup::Released);
            let z = self.zcopy.get_mut();
            if let Some(slot) = z.and_then(|z| z.released.iter_mut().find(|p| p.is_none())) {
                *slot = Some(memory);
            }
        }
    }
}

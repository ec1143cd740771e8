// SPDX-License-Identifier: GPL-2.0-only

//! Implements sendmsg(2) on a local connection, which copies to the peer's queue under the lock.

use super::call::Queued;
use crate::conn::local::blocks::Offered;
use crate::conn::local::{LocalEnd, LocalLink, Special};
use crate::conn::zcopy::LEAST_TRANSFER;
use crate::conn::SdpSock;
use crate::memory::pressure;
use crate::sys::bindings as c;
use crate::sys::byte_queue::Writer;
use crate::sys::errno::EFAULT;
use crate::sys::net::message::SendMsg;
use crate::sys::net::sock::SEND_SHUTDOWN;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;

/// Segment size for occasional small sends, for single sends of a few pages, and for all others.
const SMALL: usize = 2048;
const MIDDLE: usize = 8192;
const LARGE: usize = 65536;
/// Maximum number of bytes held back by `MSG_MORE` and `TCP_CORK`.
const MOST_HELD: usize = 32768;
/// Flags of calls that [`at_once`] does not send.
const NOT_AT_ONCE: u32 =
    c::MSG_FASTOPEN | c::MSG_ZEROCOPY | c::MSG_SPLICE_PAGES | c::MSG_MORE | c::MSG_OOB;

/// Counts the call, and sends all bytes of a small call at once, if they fit the last segment and
/// no option or flag needs more. Returns false if the call has to be sent by [`queue`].
#[inline]
pub(super) fn at_once(sk: &SdpSock, end: &mut LocalEnd, message: &mut SendMsg<'_>) -> bool {
    let LocalEnd { link, writer, .. } = end;
    link.count_call(true);
    let (flags, size) = (message.flags(), message.remaining());
    let is_plain = flags & NOT_AT_ONCE == 0 && size < LEAST_TRANSFER && !link.is_special();
    let has_ended = || sk.has_error() || sk.shutdown() & SEND_SHUTDOWN != 0;
    if !is_plain || !sk.is_connected() || has_ended() || size > link.space(sk, writer.position()) {
        return false;
    }
    let Some(space) = writer.space().get_mut(..size) else {
        return false;
    };
    let got = message.take(space);
    if got < size {
        message.give_back(got);
        return false;
    }
    let waits = writer.publish(size);
    link.has_written(waits);
    true
}

/// Queues the next bytes of the call, as many as fit one segment and at most `most`.
///
/// Errors: `EFAULT`, `ENOMEM`.
pub(super) fn queue(
    sk: &SdpSock,
    end: &mut LocalEnd,
    message: &mut SendMsg<'_>,
    most: usize,
) -> Result<Queued> {
    let LocalEnd { link, writer, .. } = end;
    let (flags, want) = (message.flags(), message.remaining());
    let free = link.space(sk, writer.position());
    if free == 0 || link.has(Special::Send) && link.has_enough_unsent(sk) {
        return Ok(Queued::Full);
    }
    if writer.space().is_empty() && !extend(link, writer, want)? {
        if !link.peer_is_closed() {
            return Ok(Queued::NoMemory);
        }
        // as on TCP, the bytes are sent before the peer's reset arrives
        message.advance(want);
        link.has_written(false);
        return Ok(Queued::Some);
    }
    let space = writer.space();
    let n = space.len().min(free).min(want).min(most);
    let got = message.take(space.get_mut(..n).unwrap_or_default());
    if got < n {
        // as on TCP, a segment that faults is not sent at all
        message.give_back(got);
        return Err(EFAULT.into());
    }
    let more = flags & c::MSG_MORE != 0 || link.has(Special::Cork);
    let urgent = n == want && flags & c::MSG_OOB != 0;
    if more && n == want && !urgent && writer.held().saturating_add(n) < MOST_HELD {
        writer.hold(n);
        link.holds(sk);
        return Ok(Queued::Some);
    }
    if urgent {
        link.announce(writer.position().wrapping_add_unsigned(n as u64));
    }
    if link.has(Special::Send) {
        link.watch_progress(sk);
    }
    let waits = writer.publish(n);
    link.has_written(waits);
    if urgent {
        link.peer.send_sigurg();
    }
    Ok(Queued::Some)
}

/// Adds a segment for the next bytes of a call with `want` bytes. Returns false if unread bytes use
/// too much memory, or the peer's socket is closed.
#[cold]
fn extend(link: &LocalLink, writer: &mut Writer<Offered>, want: usize) -> Result<bool> {
    let idle = link.copied() == 0;
    let mut size = match want {
        _ if want > MIDDLE || !idle => LARGE,
        _ if want > SMALL => MIDDLE,
        _ => SMALL,
    };
    if pressure::is_exhausted() {
        if !idle {
            return Ok(false);
        }
        size = SMALL;
    }
    if link.peer_is_closed() {
        return Ok(false);
    }
    let made = writer.extend(size, GFP_KERNEL);
    match made.or_else(|_| writer.extend(SMALL, GFP_KERNEL)) {
        Err(e) if e == ENOSPC => Ok(false),
        r => r.map(|()| true),
    }
}

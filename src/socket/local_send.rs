// SPDX-License-Identifier: GPL-2.0-only

//! sendmsg(2) on a local connection: under the socket lock, straight into the peer's queue.

use super::call::{may_choose, Call};
use crate::conn::local::blocks::Offered;
use crate::conn::local::{LocalEnd, LocalLink, Special};
use crate::conn::zcopy::{self, memory::Added, LEAST_TRANSFER};
use crate::conn::SdpSock;
use crate::memory::pressure;
use crate::sys::bindings as c;
use crate::sys::byte_queue::Writer;
use crate::sys::errno::{EAGAIN, EFAULT, EPIPE};
use crate::sys::net::message::SendMsg;
use crate::sys::net::notice::ZerocopyCompletion;
use crate::sys::net::sock::{Locked, SEND_SHUTDOWN};
use crate::sys::time::nanoseconds;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;

/// Segment size for occasional small sends, for single sends of a few pages, and for all others.
const SMALL: usize = 2048;
const MIDDLE: usize = 8192;
const LARGE: usize = 65536;
/// Maximum number of bytes held back by `MSG_MORE` and `TCP_CORK`.
const MOST_HELD: usize = 32768;

/// Result of an attempt to queue bytes.
enum Queued {
    /// Bytes were queued.
    Some,
    /// There is no space in the send buffer.
    Full,
    /// There is no memory for more unread bytes.
    NoMemory,
}

/// Queues the bytes of a call, which the message counts. `None`: the connection is not local.
#[inline]
pub(super) fn send(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    notice: Option<&ZerocopyCompletion>,
    timeout: isize,
) -> Option<(Result, bool)> {
    let end = sk.local_end(lock)?;
    end.link.count_send();
    if sk.has_error() || sk.shutdown() & SEND_SHUTDOWN != 0 {
        return Some((Err(EPIPE.into()), false));
    }
    let size = message.remaining();
    if size >= LEAST_TRANSFER || message.is_spliced() {
        let mut call = Call::new(notice);
        if !call.is_plain(sk, message, timeout != 0) {
            let r = go_on(sk, lock, message, &mut call, timeout);
            return Some((r, call.copied));
        }
    }
    let end = sk.local_end(lock)?;
    let r = match queue(sk, end, message, size) {
        Ok(Queued::Some) if message.remaining() == 0 => Ok(()),
        Ok(_) => go_on(sk, lock, message, &mut Call::plain(), timeout),
        Err(e) => Err(e),
    };
    Some((r, true))
}

/// Sends the next bytes of a call without a copy, if possible. Returns the number of bytes to copy
/// next, or `None` to check again. 0: the call has to wait for space for a block.
fn offer(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    call: &mut Call<'_>,
    timeout: &mut isize,
) -> Result<Option<usize>> {
    let want = message.remaining();
    let mut most = want;
    if call.may_detach(message) {
        match call.add(sk, lock, message, *timeout != 0) {
            Added::Block => return Ok(None),
            Added::Copy(n) => most = n.min(want),
            Added::Full => return Ok(Some(0)),
        }
    }
    let left = call.look(message);
    let may_wait = may_choose(message) && call.notice.is_none() && *timeout != 0;
    if may_wait && most == want && call.is_direct(&mut sk.connection()) {
        match zcopy::send::add_local(sk, lock, message, call.waits) {
            Added::Copy(_) => {}
            Added::Full => {
                zcopy::send::await_read(sk, lock, message, 1, timeout)?;
                return Ok(None);
            }
            Added::Block => {
                call.waits = true;
                return Ok(None);
            }
        }
    }
    Ok(Some(most.min(left)))
}

/// Sends the rest of the call's bytes.
fn go_on(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    call: &mut Call<'_>,
    mut timeout: isize,
) -> Result {
    let size = message.remaining();
    let timed = size >= zcopy::policy::SMALLEST && timeout != 0 && may_choose(message);
    let start = timed.then(nanoseconds);
    let mut r = queue_all(sk, lock, message, call, &mut timeout);
    if call.waits {
        if r.is_err() {
            timeout = 0;
        }
        let read = zcopy::send::await_read(sk, lock, message, 0, &mut timeout);
        r = r.and(read);
    }
    if r.is_ok() {
        call.has_sent(sk, size, start);
    }
    r
}

/// Queues the rest of the call's bytes, as there is space.
fn queue_all(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    call: &mut Call<'_>,
    timeout: &mut isize,
) -> Result {
    while message.remaining() > 0 {
        let seq = sk.event_seq();
        if sk.has_error() || sk.shutdown() & SEND_SHUTDOWN != 0 {
            return Err(EPIPE.into());
        }
        let most = match call.is_plain(sk, message, *timeout != 0) {
            true => Some(usize::MAX),
            false => offer(sk, lock, message, call, timeout)?,
        };
        let Some(most) = most else {
            continue;
        };
        if most == 0 {
            *timeout = wait_for_block(sk, lock, seq, *timeout)?;
            continue;
        }
        call.copied = true;
        let end = sk.local_end(lock).ok_or(EPIPE)?;
        let mut queued = queue(sk, end, message, most)?;
        if !matches!(queued, Queued::Some) {
            if *timeout == 0 {
                sk.want_space();
            }
            end.link.uncork();
            end.link.await_space(sk);
            queued = queue(sk, end, message, most)?;
        }
        match queued {
            Queued::Some => {}
            Queued::NoMemory => *timeout = sk.wait_for_local_memory(lock, seq, *timeout)?,
            Queued::Full if *timeout == 0 => return Err(EAGAIN.into()),
            Queued::Full => *timeout = sk.wait_local(lock, seq, *timeout)?,
        }
    }
    Ok(())
}

/// Waits for space for a block.
fn wait_for_block(sk: &SdpSock, lock: &mut Locked<'_>, seq: i32, timeout: isize) -> Result<isize> {
    if timeout != 0 {
        return sk.wait_local(lock, seq, timeout);
    }
    sk.want_space();
    let end = sk.local_end(lock).ok_or(EPIPE)?;
    match end.link.has_block_space() {
        true => Ok(timeout),
        false => Err(EAGAIN.into()),
    }
}

/// Queues the next bytes of the call, as many as fit one segment and at most `most`.
///
/// Errors: `EFAULT`, `ENOMEM`.
#[inline]
fn queue(
    sk: &SdpSock,
    end: &mut LocalEnd,
    message: &mut SendMsg<'_>,
    most: usize,
) -> Result<Queued> {
    let LocalEnd { link, writer, .. } = end;
    let (flags, want) = (message.flags(), message.remaining());
    let special = link.special();
    let free = link.space(sk, writer.position());
    if free == 0 || special.has(Special::Send) && link.has_enough_unsent(sk) {
        return Ok(Queued::Full);
    }
    if writer.space().is_empty() && !extend(link, writer, want)? {
        if !link.peer_is_closed() {
            return Ok(Queued::NoMemory);
        }
        // as on TCP, the peer's reset comes behind the bytes
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
    let mut urgent = false;
    if flags & (c::MSG_MORE | c::MSG_OOB) != 0 || !special.is_empty() {
        let more = flags & c::MSG_MORE != 0 || special.has(Special::Cork);
        urgent = n == want && flags & c::MSG_OOB != 0;
        if more && n == want && !urgent && writer.held().saturating_add(n) < MOST_HELD {
            writer.hold(n);
            link.holds(sk);
            return Ok(Queued::Some);
        }
        if urgent {
            link.announce(writer.position().wrapping_add_unsigned(n as u64));
        }
        if special.has(Special::Send) {
            link.watch_progress(sk);
        }
    }
    let waits = writer.publish(n);
    link.has_written(waits);
    if urgent {
        link.peer().send_sigurg();
    }
    Ok(Queued::Some)
}

/// Adds a segment for the next bytes of a call with `want` bytes. Returns false if there are too
/// many unread bytes for the memory, or the peer reads nothing any more.
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

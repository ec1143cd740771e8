// SPDX-License-Identifier: GPL-2.0-only

//! sendmsg(2) and the calls that end in it: write(2), send(2), sendfile(2), splice(2).

use super::call::{request_space, wait_for_space, Call, Queued, Space};
use super::local_send;
use crate::conn::events::last_check;
use crate::conn::send_queue::{OpenChunk, SMALL_CHUNK};
use crate::conn::{keepalive, zcopy, Connection, SdpSock};
use crate::sys::bindings as c;
use crate::sys::errno::{EAGAIN, EFAULT, ENODEV, ENOMEM, EOPNOTSUPP, EPIPE};
use crate::sys::net::message::SendMsg;
use crate::sys::net::notice::ZerocopyCompletion;
use crate::sys::net::sock::{Locked, State, SEND_SHUTDOWN};
use crate::sys::rdma::buffer::Buffer;
use crate::sys::time::jiffies;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::dma::DataDirection as Direction;
use kernel::prelude::*;

/// sendmsg(2).
#[inline(always)] // in the callback of the core, without a frame of its own
pub(super) fn send(sk: &SdpSock, message: &mut SendMsg<'_>) -> Result<usize> {
    let mut lock = sk.lock();
    let local = sk.local_end(&mut lock);
    if local.is_some_and(|end| local_send::at_once(sk, end, message)) {
        return Ok(message.taken());
    }
    sk.charged(|| send_parts(sk, lock, message))
}

/// Sends the bytes of a call part by part.
#[inline(never)] // keeps its registers out of calls that send at once
fn send_parts(sk: &SdpSock, mut lock: Locked<'_>, message: &mut SendMsg<'_>) -> Result<usize> {
    let flags = message.flags();
    if flags & c::MSG_FASTOPEN != 0 {
        return Err(EOPNOTSUPP.into());
    }
    let mut timeout = sk.send_timeout(flags & c::MSG_DONTWAIT != 0);
    if let Err(e) = wait_connected(sk, &mut lock, &mut timeout) {
        return Err(sk.stream_error(e, flags));
    }
    let notice = ZerocopyCompletion::begin(message, sk)?;
    let is_local = sk.local_end(&mut lock).is_some();
    let mut call = Call::new(notice.as_ref(), is_local);
    let r = queue(sk, &mut lock, message, &mut call, timeout);
    let (copied, sent) = (call.copied, message.taken());
    if let Some(notice) = notice.filter(|_| sent > 0) {
        notice.sent(copied);
    }
    match r {
        Ok(()) => Ok(sent),
        Err(_) if sent > 0 => {
            // as on TCP, sent bytes do not wait for bytes that were not accepted
            if flags & c::MSG_MORE == 0 {
                sk.connection().no_more();
            }
            sk.progress();
            Ok(sent)
        }
        Err(e) => Err(sk.stream_error(e, flags)),
    }
}

/// Waits for a connect(2) in progress.
///
/// Errors: `EPIPE`: no connection. `EAGAIN`: the call must not wait.
#[inline]
pub(super) fn wait_connected(sk: &SdpSock, lock: &mut Locked<'_>, timeout: &mut isize) -> Result {
    loop {
        let seq = sk.event_seq();
        match sk.state() {
            State::Established | State::CloseWait => return Ok(()),
            State::SynSent | State::SynRecv if *timeout == 0 => return Err(EAGAIN.into()),
            State::SynSent | State::SynRecv => *timeout = sk.wait(lock, seq, *timeout)?,
            _ => return Err(EPIPE.into()),
        }
    }
}

/// Sends the call's bytes. On a local connection, waits until the peer has read the uncopied bytes.
fn queue(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    call: &mut Call<'_>,
    mut timeout: isize,
) -> Result {
    let mut r = queue_all(sk, lock, message, call, &mut timeout);
    if call.waits {
        if r.is_err() {
            timeout = 0;
        }
        r = r.and(zcopy::send::await_read(sk, lock, message, 0, &mut timeout));
    }
    if r.is_ok() {
        call.has_sent(sk);
    }
    r
}

/// Queues the call's bytes as space in the send queue becomes free.
#[inline]
fn queue_all(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    call: &mut Call<'_>,
    timeout: &mut isize,
) -> Result {
    loop {
        let seq = sk.event_seq();
        if sk.has_error() || sk.shutdown() & SEND_SHUTDOWN != 0 {
            return Err(EPIPE.into());
        }
        let want = message.remaining();
        if want == 0 {
            return Ok(());
        }
        let (space, most) = match call.plain_space(sk, message, *timeout != 0)? {
            Some(space) => (space, want),
            None => match call.send_part(sk, lock, message, seq, timeout)? {
                Some(most) => (call.find(sk, &mut sk.connection(), want)?, most),
                None => continue,
            },
        };
        let mut wanted = None;
        let queued = last_check(
            copy(sk, lock, message, call, space, most),
            |queued| matches!(queued, Ok(Queued::Full | Queued::NoMemory)),
            || wanted = request_space(sk, *timeout == 0),
            || copy_again(sk, lock, message, call, most),
        );
        match queued? {
            Queued::Some => call.copied = true,
            Queued::NoMemory => *timeout = sk.wait_for_local_memory(lock, seq, *timeout)?,
            Queued::Full if *timeout == 0 => {
                return Err(call.stopped.take().unwrap_or(EAGAIN.into()));
            }
            Queued::Full => *timeout = wait_for_space(sk, lock, seq, *timeout)?,
        }
    }
}

/// Queues a copy of the next bytes, as many as fit a chunk and at most `most`, and sends. `space`:
/// result of [`Call::find`].
///
/// Errors: `EFAULT`, and those of [`make`] and [`commit`]. `message` counts the queued bytes.
#[inline(always)] // a call would cost the first attempt 2 % of a small send
fn copy(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    call: &mut Call<'_>,
    space: bool,
    most: usize,
) -> Result<Queued> {
    if call.is_local {
        let end = sk.local_end(lock).ok_or(EPIPE)?;
        return local_send::queue(sk, end, message, most);
    }
    if !space {
        return Ok(Queued::Full);
    }
    let (flags, space) = (message.flags(), &mut call.space);
    let want = message.remaining();
    let mut chunk = match space.chunk.take() {
        Some(c) => c,
        None => make(sk, space)?,
    };
    let free = chunk.room();
    let n = free.len().min(space.bytes).min(most).min(want);
    let got = message.take(free.get_mut(..n).unwrap_or_default());
    if got < n {
        // as on TCP, a segment that faults is not sent at all
        message.give_back(got);
        let mut c = sk.connection();
        c.tx.close(chunk, 0);
        return Err(EFAULT.into());
    }
    let more = message.remaining() > 0;
    let r = commit(
        sk,
        chunk,
        got,
        more || flags & c::MSG_MORE != 0,
        flags & c::MSG_OOB != 0 && !more,
    );
    if r.is_err() {
        message.give_back(got);
    }
    r.map(|()| Queued::Some)
}

/// Checks for space once more, and queues a copy ([`copy`]).
#[inline(never)] // keeps the function's registers out of calls that find space
fn copy_again(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    call: &mut Call<'_>,
    most: usize,
) -> Result<Queued> {
    let space = call.find(sk, &mut sk.connection(), message.remaining())?;
    copy(sk, lock, message, call, space, most)
}

/// Handles the end of the data that `MSG_MORE` has announced.
pub(super) fn announced_no_more(sk: &SdpSock) {
    let _lock = sk.lock();
    if let Some(link) = sk.with(|c| c.living_link().cloned()) {
        return link.uncork();
    }
    sk.connection().no_more();
    zcopy::spliced::flush(sk);
    sk.progress();
}

/// Allocates a chunk for the next bytes.
///
/// Errors: `EPIPE`: no connection. `ENOMEM`.
#[inline(never)] // few calls need a new chunk
pub(super) fn make(sk: &SdpSock, space: &mut Space) -> Result<OpenChunk> {
    let mut buffer =
        Buffer::new(space.size, GFP_KERNEL).or_else(|_| Buffer::new(SMALL_CHUNK, GFP_KERNEL))?;
    let mapper = space.mapper.take().ok_or(EPIPE)?;
    if let Err(e) = buffer.map(&mapper, Direction::ToDevice, GFP_KERNEL) {
        // the connection has just ended, or the removal of its device is ending it
        return Err(if e == ENODEV.into() { EPIPE.into() } else { e });
    }
    let mut c = sk.connection();
    match c.endpoint {
        Some(_) => c.tx.open_new(buffer).ok_or(ENOMEM.into()),
        None => Err(EPIPE.into()),
    }
}

/// Closes a chunk with `n` new bytes, and sends.
///
/// Errors: `EPIPE`: no connection; the new bytes are not queued.
#[inline(always)] // inlined into both send paths
pub(super) fn commit(sk: &SdpSock, chunk: OpenChunk, n: usize, more: bool, urgent: bool) -> Result {
    let timed = {
        let mut c = sk.connection();
        let Connection { endpoint, tx, .. } = &mut *c;
        if endpoint.is_none() {
            return Err(EPIPE.into());
        }
        let idle = tx.queued() == 0;
        tx.close(chunk, n);
        if urgent {
            tx.mark_urgent();
        }
        c.tx.set_more(more);
        if urgent {
            // the urgent byte must not wait until the peer has read the block before it
            c.expedite_blocks();
        }
        if idle {
            c.alive.progress(jiffies());
        }
        if !idle && !urgent && c.is_stalled(sk) {
            sk.set_memory(c.rx.memory(), c.tx.queued());
            return Ok(());
        }
        c.progress();
        idle && c.options.user_timeout != 0
    };
    if timed {
        keepalive::update(sk);
    }
    Ok(())
}

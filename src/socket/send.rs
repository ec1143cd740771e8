// SPDX-License-Identifier: GPL-2.0-only

//! sendmsg(2) and the calls that end in it: write(2), send(2), sendfile(2), splice(2).

use super::call::{may_choose, Call, Space};
use super::{local_send, netns};
use crate::conn::room::last_check;
use crate::conn::send_queue::{OpenChunk, SMALL_CHUNK};
use crate::conn::wait::SpaceWanted;
use crate::conn::zcopy::memory::Added;
use crate::conn::{keepalive, zcopy, Connection, SdpSock};
use crate::sys::bindings as c;
use crate::sys::errno::{EAGAIN, EFAULT, ENODEV, ENOMEM, EOPNOTSUPP, EPIPE};
use crate::sys::net::message::SendMsg;
use crate::sys::net::notice::ZerocopyCompletion;
use crate::sys::net::sock::{Locked, State, SEND_SHUTDOWN};
use crate::sys::rdma::buffer::Buffer;
use crate::sys::rdma::dma::Direction;
use crate::sys::time::{jiffies, nanoseconds};
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;

/// sendmsg(2).
pub(super) fn send(sk: &SdpSock, message: &mut SendMsg<'_>) -> Result<usize> {
    let flags = message.flags();
    if flags & c::MSG_FASTOPEN != 0 {
        return Err(EOPNOTSUPP.into());
    }
    let mut lock = sk.lock();
    let mut timeout = sk.send_timeout(flags & c::MSG_DONTWAIT != 0);
    if let Err(e) = wait_connected(sk, &mut lock, &mut timeout) {
        return Err(sk.stream_error(e, flags));
    }
    let notice = ZerocopyCompletion::begin(message, sk)?;
    if let Some((r, copied)) = local_send::send(sk, &mut lock, message, notice.as_ref(), timeout) {
        let sent = message.taken();
        if let Some(notice) = notice.filter(|_| sent > 0) {
            notice.sent(copied);
        }
        return match r {
            Err(e) if sent == 0 => Err(sk.stream_error(e, flags)),
            _ => Ok(sent),
        };
    }
    let mut call = Call::new(notice.as_ref());
    let r = queue(sk, &mut lock, message, &mut call, timeout);
    let copied = call.copied;
    let sent = message.taken();
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

/// Queues the call's bytes as space in the send queue becomes free.
fn queue(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    call: &mut Call<'_>,
    mut timeout: isize,
) -> Result {
    let size = message.remaining();
    let timed = size >= zcopy::policy::SMALLEST && timeout != 0 && may_choose(message);
    let start = timed.then(nanoseconds);
    loop {
        let seq = sk.event_seq();
        if sk.has_error() || sk.shutdown() & SEND_SHUTDOWN != 0 {
            return Err(EPIPE.into());
        }
        let want = message.remaining();
        if want == 0 {
            call.has_sent(sk, size, start);
            return Ok(());
        }
        let (space, most) = match call.plain_space(sk, message, timeout != 0)? {
            Some(space) => (space, want),
            None => match by_parts(sk, lock, message, call, seq, &mut timeout)? {
                Some(most) => (call.space.find(sk, &mut sk.connection(), want)?, most),
                None => continue,
            },
        };
        let mut wanted = None;
        let space = last_check(
            Ok(space),
            |space| matches!(space, Ok(false)),
            || wanted = request_space(sk, timeout == 0),
            || call.space.find(sk, &mut sk.connection(), want),
        );
        match space? {
            true => {
                copy(sk, message, &mut call.space, most)?;
                call.copied = true;
            }
            false if timeout == 0 => return Err(call.stopped.take().unwrap_or(EAGAIN.into())),
            false => timeout = wait_for_space(sk, lock, seq, timeout)?,
        }
    }
}

/// Sends the next bytes of a call that does not only copy. `None`: check again. Otherwise, the
/// number of bytes to copy next.
///
/// # Errors
///
/// `EPIPE`: the connection is lost. `EAGAIN`, or the error of a signal or time-out: some bytes are
/// sent, or a block has no space.
#[inline(never)] // keeps its registers out of calls that only copy
fn by_parts(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    call: &mut Call<'_>,
    seq: i32,
    timeout: &mut isize,
) -> Result<Option<usize>> {
    let want = message.remaining();
    let mut most = want;
    if call.may_detach(message) {
        let may_wait = *timeout != 0;
        let mut wanted = None;
        let added = last_check(
            call.add(sk, lock, message, may_wait),
            |added| *added == Added::Full,
            || wanted = request_space(sk, !may_wait),
            || call.add(sk, lock, message, may_wait),
        );
        match added {
            Added::Block => return Ok(None),
            Added::Copy(n) => most = n.min(want),
            Added::Full if !may_wait => return Err(EAGAIN.into()),
            Added::Full => {
                *timeout = wait_for_space(sk, lock, seq, *timeout)?;
                return Ok(None);
            }
        }
    }
    let left = call.look(message);
    // bytes before and after a block are copied
    let may_wait = may_choose(message) && call.notice.is_none() && *timeout != 0;
    let size = match may_wait && most == want {
        true => call.block_size(sk, left),
        false => 0,
    };
    if size > 0 {
        match zcopy::send::send_blocks(sk, lock, message, size, timeout) {
            Ok(true) => return Ok(None),
            Err(e) if message.taken() > 0 || e == EPIPE.into() => return Err(e),
            // as on TCP, bytes are accepted while the queue has space
            Err(e) => (call.stopped, *timeout) = (Some(e), 0),
            Ok(false) => {}
        }
    }
    Ok(Some(most.min(left)))
}

/// Queues a copy of the next bytes, as many as fit a chunk and at most `most`, and sends.
///
/// Errors: Those of [`make`] and [`commit`], `EFAULT`. The message counts the queued bytes.
fn copy(sk: &SdpSock, message: &mut SendMsg<'_>, space: &mut Space, most: usize) -> Result {
    let flags = message.flags();
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
    r
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
#[inline(never)] // few calls need one
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
#[inline(always)] // in either send path
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
        c.cork.set_more(more);
        if urgent {
            // does not wait until the previous block is read
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

/// Sends the queued bytes before a call waits or fails, as TCP does; completions may have arrived
/// without a notification. `poll`: the call must not wait, so pollers are notified of space;
/// otherwise its caller is.
#[inline(never)]
pub(super) fn request_space(sk: &SdpSock, poll: bool) -> Option<SpaceWanted<'_>> {
    let wanted = (!poll).then(|| sk.await_space());
    if poll {
        sk.want_space();
    }
    let lacks_memory = {
        let mut c = sk.connection();
        c.no_more();
        c.space_wanted |= poll;
        c.await_memory(sk);
        c.lacks_memory()
    };
    if lacks_memory {
        netns::shed();
    }
    sk.progress();
    wanted
}

/// Waits for space in the send queue ([`SpaceWanted`] is held).
#[inline(never)]
fn wait_for_space(sk: &SdpSock, lock: &mut Locked<'_>, seq: i32, timeout: isize) -> Result<isize> {
    sk.connection().stats.memory_waits += 1;
    sk.wait(lock, seq, timeout)
}

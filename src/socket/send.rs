// SPDX-License-Identifier: GPL-2.0-only

//! sendmsg(2) and all that ends in it: write(2), send(2), sendfile(2), splice(2).

use super::call::Call;
use super::netns;
use super::send_step::{Space, Step};
use crate::conn::room::last_look;
use crate::conn::send_queue::{OpenChunk, SMALL_CHUNK};
use crate::conn::wait::RoomWanted;
use crate::conn::zcopy::detached::Added;
use crate::conn::{keepalive, zcopy, Connection, SdpSock};
use crate::sys::bindings as c;
use crate::sys::errno::{EAGAIN, EFAULT, ENODEV, ENOMEM, EOPNOTSUPP, EPIPE};
use crate::sys::net::message::SendMsg;
use crate::sys::net::notice::Notice;
use crate::sys::net::sock::{Locked, State, SEND_SHUTDOWN};
use crate::sys::rdma::buffer::Buffer;
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
    let notice = Notice::begin(message, sk)?;
    let mut timeout = sk.send_timeout(flags & c::MSG_DONTWAIT != 0);
    let mut call = Call::new(notice.as_ref());
    let r = wait_connected(sk, &mut lock, &mut timeout)
        .and_then(|()| queue(sk, &mut lock, message, &mut call, timeout));
    let copied = call.copied;
    let sent = message.taken();
    if let Some(notice) = notice.filter(|_| sent > 0) {
        notice.sent(copied);
    }
    match r {
        Ok(()) => Ok(sent),
        Err(_) if sent > 0 => {
            // as on TCP, they do not wait for those that could not be taken
            if flags & c::MSG_MORE == 0 {
                sk.connection().set_more(false);
            }
            sk.progress();
            Ok(sent)
        }
        Err(e) => Err(sk.stream_error(e, flags)),
    }
}

/// Waits until a connect(2) that is under way is done.
///
/// # Errors
///
/// `EPIPE` without connection, `EAGAIN` if the call must not wait.
fn wait_connected(sk: &SdpSock, lock: &mut Locked<'_>, timeout: &mut isize) -> Result {
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

/// Takes the call's bytes into the send queue, as it has room.
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
        let (mut step, most) = match call.plain_step(sk, message, timeout != 0) {
            Some(step) => (step, want),
            None => match by_parts(sk, lock, message, call, seq, &mut timeout)? {
                Some(some) => some,
                None => continue,
            },
        };
        let mut wanted = None;
        step = last_look(
            step,
            |step| *step == Step::Full,
            || wanted = ask_for_room(sk, timeout == 0),
            || Step::copy(sk, want, &mut call.space),
        );
        match step {
            Step::Copy => copy(sk, message, &mut call.space, most)?,
            Step::Full if timeout == 0 => return Err(call.stopped.take().unwrap_or(EAGAIN.into())),
            Step::Full => {
                timeout = wait_for_room(sk, lock, seq, timeout)?;
                continue;
            }
            _ => return Err(EPIPE.into()),
        }
        call.copied = true;
    }
}

/// Whether bytes of the call are copied only as it is chosen.
fn may_choose(message: &SendMsg<'_>) -> bool {
    message.flags() & c::MSG_OOB == 0 && !message.is_spliced()
}

/// Has the next bytes go of a call of which not all are copied: to look again then. Else how they are to go, and how many.
///
/// # Errors
///
/// `EPIPE` if the connection is lost, `EAGAIN`, or what a signal or the end of `timeout` means, if some of the call
/// have gone or there is no room for a block.
#[inline(never)] // calls of which all is copied do without its registers
fn by_parts(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    call: &mut Call<'_>,
    seq: i32,
    timeout: &mut isize,
) -> Result<Option<(Step, usize)>> {
    let want = message.remaining();
    let Some(most) = detach(sk, lock, message, call, seq, timeout)? else {
        return Ok(None);
    };
    let left = call.look(message);
    // what is in front of a block, or behind it, is copied
    let may_wait = may_choose(message) && call.notice.is_none() && *timeout != 0;
    let part = (may_wait && most == want).then_some(left);
    let mut step = call.step(sk, want, part);
    if let Step::AwaitReader = step {
        step = match zcopy::send::await_reader(sk, lock, want, timeout)? {
            0 => Step::copy(sk, want, &mut call.space),
            _ => Step::Write,
        };
    }
    match directly(sk, lock, message, &step, timeout) {
        None => {}
        Some(Ok(true)) => return Ok(None),
        Some(Err(e)) if message.taken() > 0 || e == EPIPE.into() => return Err(e),
        Some(r) => {
            // as on TCP, what there is room for is taken
            if let Err(e) = r {
                (call.stopped, *timeout) = (Some(e), 0);
            }
            step = Step::copy(sk, want, &mut call.space);
        }
    }
    Ok(Some((step, most.min(left))))
}

/// Adds bytes of a call that need not wait for them as a block, if it is one: to look again then. Else so
/// many of them are to go otherwise.
///
/// # Errors
///
/// `EAGAIN`, or what a signal means, as there is no room for a block.
fn detach(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    call: &mut Call<'_>,
    seq: i32,
    timeout: &mut isize,
) -> Result<Option<usize>> {
    let want = message.remaining();
    if !call.may_detach(message) {
        return Ok(Some(want));
    }
    let may_wait = *timeout != 0;
    let mut wanted = None;
    let added = last_look(
        call.add(sk, message, may_wait),
        |added| *added == Some(Added::Full),
        || wanted = ask_for_room(sk, !may_wait),
        || call.add(sk, message, may_wait),
    );
    let Some(added) = added else {
        return Ok(Some(want));
    };
    match added {
        Added::Block => {}
        Added::Copy(n) => return Ok(Some(n.min(want))),
        Added::Full if *timeout == 0 => return Err(EAGAIN.into()),
        Added::Full => *timeout = wait_for_room(sk, lock, seq, *timeout)?,
    }
    Ok(None)
}

/// Has bytes of the call go by a step that does not copy them, if it is one. `Ok(false)`: they are to be copied.
///
/// # Errors
///
/// `EPIPE` if the connection is lost, or what a signal or the end of `timeout` means.
fn directly(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    step: &Step,
    timeout: &mut isize,
) -> Option<Result<bool>> {
    match *step {
        Step::Write => Some(zcopy::send::write(sk, lock, message)),
        Step::Block(size) => Some(zcopy::send::be_read(sk, lock, message, size, timeout)),
        _ => None,
    }
}

/// Queues a copy of the next bytes of the call, as many as a chunk takes and at most `most`, and sends what may
/// be sent.
///
/// # Errors
///
/// Those of [`make`], `EFAULT`, and those of [`commit`]. The message tells what was queued, and no more.
fn copy(sk: &SdpSock, message: &mut SendMsg<'_>, space: &mut Space, most: usize) -> Result {
    let flags = message.flags();
    let want = message.remaining();
    let mut chunk = match space.chunk.take() {
        Some(c) => c,
        None => make(sk, space)?,
    };
    let free = chunk.room();
    let n = free.len().min(space.room).min(most).min(want);
    let got = message.take(free.get_mut(..n).unwrap_or_default());
    if got < n {
        // as on TCP, nothing of a piece that could not be read whole is sent
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

/// There is no more behind what was sent with `MSG_MORE`.
pub(super) fn announced_no_more(sk: &SdpSock) {
    let _lock = sk.lock();
    sk.connection().set_more(false);
    zcopy::spliced::flush(sk);
    sk.progress();
}

/// Makes a chunk for the next bytes.
///
/// # Errors
///
/// `EPIPE` without connection, `ENOMEM`.
#[inline(never)] // few calls need one
fn make(sk: &SdpSock, space: &mut Space) -> Result<OpenChunk> {
    let mut buffer =
        Buffer::new(space.size, GFP_KERNEL).or_else(|_| Buffer::new(SMALL_CHUNK, GFP_KERNEL))?;
    if let Err(e) = buffer.map_send(space.mapper.take().as_ref()) {
        // the connection has just ended, or its device goes, which ends it
        return Err(if e == ENODEV.into() { EPIPE.into() } else { e });
    }
    let mut c = sk.connection();
    match c.endpoint {
        Some(_) => c.tx.open_new(buffer).ok_or(ENOMEM.into()),
        None => Err(EPIPE.into()),
    }
}

/// Closes a chunk, which has `got` new bytes, and sends what may be sent.
///
/// # Errors
///
/// `EPIPE` without connection; the new bytes are not queued.
fn commit(sk: &SdpSock, chunk: OpenChunk, got: usize, more: bool, urgent: bool) -> Result {
    let timed = {
        let mut c = sk.connection();
        let Connection { endpoint, tx, .. } = &mut *c;
        if endpoint.is_none() {
            return Err(EPIPE.into());
        }
        let idle = tx.queued() == 0;
        tx.close(chunk, got);
        if urgent {
            tx.mark_urgent();
        }
        c.set_more(more);
        if urgent {
            // does not wait for whoever reads the block before it
            c.hurry_blocks();
        }
        if idle {
            c.heard.progress(jiffies());
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

/// As on TCP, what is queued goes out before a call waits or gives up; and completions may have come that
/// nobody was told of. `poll`: the call must not wait, so that who polls is told when there is room; else the caller is.
#[inline(never)]
fn ask_for_room(sk: &SdpSock, poll: bool) -> Option<RoomWanted<'_>> {
    let wanted = (!poll).then(|| sk.want_room());
    if poll {
        sk.want_space();
    }
    let lacks_memory = {
        let mut c = sk.connection();
        c.set_more(false);
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

/// Waits until the send queue has room, which is [wanted](RoomWanted).
#[inline(never)]
fn wait_for_room(sk: &SdpSock, lock: &mut Locked<'_>, seq: i32, timeout: isize) -> Result<isize> {
    sk.connection().stats.memory_waits += 1;
    sk.wait(lock, seq, timeout)
}

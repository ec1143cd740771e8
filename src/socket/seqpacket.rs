// SPDX-License-Identifier: GPL-2.0-only

//! sendmsg(2) and recvmsg(2) of `SOCK_SEQPACKET`: a message is sent and received whole, or not at
//! all. All bytes are copied. [`Records`] describes the stream.
//!
//! A message is accepted if the send buffer has any space, as on AF_UNIX. So poll(2) and send(2)
//! agree, and the queue exceeds `SO_SNDBUF` by one message at most.

use super::call::{request_space, Space};
use super::receive_call::{ended, nothing};
use super::send::{commit, make, wait_connected};

use crate::conn::events::last_check;
use crate::conn::local::{LocalEnd, Special};
use crate::conn::send_queue::LARGE_CHUNK;
use crate::conn::SdpSock;
use crate::memory::pressure;
use crate::protocol::{RecordHeader, Records, RECORD_HEADER};
use crate::sys::bindings as c;
use crate::sys::byte_queue::Found;
use crate::sys::errno::{EAGAIN, ECONNRESET, EFAULT, EMSGSIZE, ENOTCONN, EOPNOTSUPP, EPIPE};
use crate::sys::net::message::{RecvMsg, SendMsg};
use crate::sys::net::notice::ZerocopyCompletion;
use crate::sys::net::sock::{Locked, State, SEND_SHUTDOWN};
use core::array::IntoIter;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;

/// Bytes of a message that are not queued.
struct Rest<'m, 'a> {
    header: IntoIter<u8, RECORD_HEADER>,
    message: &'m mut SendMsg<'a>,
}

impl Rest<'_, '_> {
    fn len(&mut self) -> usize {
        self.header.len().saturating_add(self.message.remaining())
    }

    /// Moves the next bytes to `to`, as many as fit. Returns their number, or `EFAULT`.
    fn take(&mut self, to: &mut [u8]) -> Result<usize> {
        let n = to.len().min(self.len());
        let to = to.get_mut(..n).unwrap_or_default();
        let (first, rest) = to.split_at_mut(self.header.len().min(n));
        first.fill_with(|| self.header.next().unwrap_or_default());
        match self.message.take(rest) == rest.len() {
            true => Ok(n),
            false => Err(EFAULT.into()),
        }
    }
}

/// sendmsg(2).
///
/// Errors: `EOPNOTSUPP`: urgent data. `EMSGSIZE`: the peer does not receive as long a message.
/// `EPIPE`, `EAGAIN`, `EFAULT`, `ENOMEM`, and those of a signal. Nothing is sent then.
pub(super) fn send(sk: &SdpSock, message: &mut SendMsg<'_>) -> Result<usize> {
    let (flags, len) = (message.flags(), message.remaining());
    if flags & (c::MSG_OOB | c::MSG_FASTOPEN) != 0 {
        return Err(EOPNOTSUPP.into());
    }
    let mut lock = sk.lock();
    let mut timeout = sk.send_timeout(flags & c::MSG_DONTWAIT != 0);
    let mut r = wait_connected(sk, &mut lock, &mut timeout);
    let notice = ZerocopyCompletion::begin(message, sk)?;
    if r.is_ok() {
        r = send_whole(sk, &mut lock, message, timeout);
    }
    if let Some(notice) = notice.filter(|_| message.taken() > 0) {
        notice.sent(true);
    }
    r.map(|()| len).map_err(|e| sk.stream_error(e, flags))
}

fn send_whole(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut SendMsg<'_>,
    mut timeout: isize,
) -> Result {
    let len = message.remaining();
    let most = sk.with(|c| c.records.as_ref().map(Records::peer_most));
    if len > most.ok_or(EPIPE)? as usize {
        return Err(EMSGSIZE.into());
    }
    let header = RecordHeader {
        len: len as u32,
        ends_record: message.flags() & c::MSG_EOR != 0,
    };
    match sk.local_end(lock) {
        Some(end) => end.link.count_send(),
        None => sk.with(|c| c.stats.send_calls += 1),
    }
    loop {
        let seq = sk.event_seq();
        if sk.has_error() || sk.shutdown() & SEND_SHUTDOWN != 0 {
            return Err(EPIPE.into());
        }
        if len == 0 {
            return Ok(());
        }
        let header = header.encode().into_iter();
        let mut rest = Rest { header, message };
        if let Some(end) = sk.local_end(lock) {
            let mut is_sent = write(sk, end, &mut rest)?;
            if !is_sent {
                let _ = request_space(sk, timeout == 0);
                is_sent = write(sk, end, &mut rest)?;
            }
            if is_sent {
                return Ok(());
            }
            timeout = match pressure::is_exhausted() {
                true => sk.wait_for_local_memory(lock, seq, timeout)?,
                false if timeout == 0 => return Err(EAGAIN.into()),
                false => sk.wait_local(lock, seq, timeout)?,
            };
            continue;
        }
        let (mut space, mut wanted, size) = (Space::default(), None, rest.len());
        let found = sk.with(|c| space.find(sk, c, size));
        let found = last_check(
            found,
            |found| matches!(found, Ok(false)),
            || wanted = request_space(sk, timeout == 0),
            || sk.with(|c| space.find(sk, c, size)),
        )?;
        if found {
            return queue(sk, &mut rest, space);
        } else if timeout == 0 {
            return Err(EAGAIN.into());
        }
        sk.connection().stats.memory_waits += 1;
        timeout = sk.wait(lock, seq, timeout)?;
    }
}

/// Queues and sends a message, which begins in the given space.
fn queue(sk: &SdpSock, rest: &mut Rest<'_, '_>, mut space: Space) -> Result {
    let r = loop {
        let mut chunk = match space.chunk.take().map_or_else(|| make(sk, &mut space), Ok) {
            Ok(chunk) => chunk,
            Err(e) => break Err(e),
        };
        let taken = rest.take(chunk.room());
        let left = rest.len();
        match taken {
            Ok(n) if left == 0 => break commit(sk, chunk, n, false, false),
            Ok(n) => sk.with(|c| {
                c.tx.hold(chunk, n);
                space.size = left.next_power_of_two().min(LARGE_CHUNK);
                space.chunk = c.tx.open(space.size);
                space.mapper = c.mapper();
            }),
            Err(e) => {
                sk.with(|c| c.tx.hold(chunk, 0));
                break Err(e);
            }
        }
    };
    if r.is_err() {
        sk.with(|c| c.tx.rewind());
        rest.message.give_back(rest.message.taken());
    }
    r
}

/// Writes a message to the peer's queue on a local connection. Returns false if there is no space.
fn write(sk: &SdpSock, end: &mut LocalEnd, rest: &mut Rest<'_, '_>) -> Result<bool> {
    let LocalEnd { link, writer, .. } = end;
    let special = link.has(Special::Send);
    let (idle, is_full) = (link.unsent() == 0, link.space(sk, writer.position()) == 0);
    if is_full || special && link.has_enough_unsent(sk) || !idle && pressure::is_exhausted() {
        return Ok(false);
    }
    if link.peer_is_closed() {
        // as on TCP, the peer's reset comes behind the bytes
        let all = rest.message.remaining();
        rest.message.advance(all);
        link.has_written(false);
        return Ok(true);
    }
    let header = rest.header.clone();
    let r = loop {
        let left = rest.len();
        if left == 0 {
            break Ok(());
        }
        let size = if idle { left } else { LARGE_CHUNK };
        let size = size.next_power_of_two().clamp(2048, LARGE_CHUNK);
        let extended = match writer.space().is_empty() {
            true => writer.extend(size, GFP_KERNEL),
            false => Ok(()),
        };
        match extended.and_then(|()| rest.take(writer.space())) {
            Ok(n) => writer.fill(n),
            Err(e) => break Err(e),
        }
    };
    if let Err(e) = r {
        writer.rewind();
        rest.message.give_back(rest.message.taken());
        rest.header = header;
        // `ENOSPC`: too many segments, or the peer has just been closed
        return if e == ENOSPC { Ok(false) } else { Err(e) };
    }
    if special {
        link.watch_progress(sk);
    }
    let waits = writer.publish(0);
    link.has_written(waits);
    Ok(true)
}

/// recvmsg(2).
pub(super) fn receive(sk: &SdpSock, to: &mut RecvMsg<'_>) -> Result<usize> {
    let mut lock = sk.lock();
    if sk.state() == State::Listen {
        return Err(ENOTCONN.into());
    }
    if to.flags() & c::MSG_OOB != 0 {
        return Err(EOPNOTSUPP.into());
    }
    let mut timeout = sk.receive_timeout(to.flags() & c::MSG_DONTWAIT != 0);
    let mut looked = false;
    loop {
        let seq = sk.event_seq();
        // Checked before the queue: messages that arrived before the end are in the queue then.
        let ended = ended(sk);
        let mut found = sk.with(|c| c.has_message());
        let end = sk.local_end(&mut lock);
        let is_local = end.is_some();
        if let Some(end) = end.filter(|_| !found) {
            end.link.await_bytes();
            found = end.link.readable() > 0;
        }
        if found {
            return take(sk, &mut lock, to);
        }
        if (ended || timeout == 0) && !looked && !is_local {
            // completions may have arrived without a notification
            looked = true;
            sk.progress();
            continue;
        }
        if let Some(r) = nothing(sk, timeout, ended) {
            return r.map(|()| 0);
        }
        looked = true;
        timeout = match is_local {
            true => sk.wait_local(&mut lock, seq, timeout)?,
            false => sk.wait_to_read(&mut lock, seq, timeout)?,
        };
    }
}

/// Copies the first message, of which all bytes have arrived, and removes it unless the call peeks.
/// Bytes without space are dropped.
fn take(sk: &SdpSock, lock: &mut Locked<'_>, to: &mut RecvMsg<'_>) -> Result<usize> {
    let flags = to.flags();
    let peek = flags & c::MSG_PEEK != 0;
    let mut header = [0; RECORD_HEADER];
    let mut unset = header.iter_mut();
    let mut at = visit(sk, lock, (0, RECORD_HEADER), peek, |bytes| {
        for (from, to) in bytes.iter().zip(&mut unset) {
            *to = *from;
        }
    })?;
    let RecordHeader { len, ends_record } = RecordHeader::parse(header);
    match sk.local_end(lock) {
        Some(end) => end.link.count_receive(),
        None => sk.with(|c| {
            c.stats.receive_calls += 1;
            if let Some(records) = c.records.as_mut().filter(|_| !peek) {
                records.taken();
            }
        }),
    }
    let len = len as usize;
    let (fits, mut given) = (len.min(to.space()), 0usize);
    at = visit(sk, lock, (at, fits), peek, |bytes| {
        given = given.saturating_add(to.give(bytes));
    })?;
    if !peek {
        visit(sk, lock, (at, len.saturating_sub(fits)), peek, |_| ())?;
    }
    if sk.local_end(lock).is_none() {
        // posted buffers of the last message may suffice no more
        let mut c = sk.connection();
        match c.wants_refill(sk) {
            true => c.progress(),
            false => sk.set_memory(c.rx.memory(), c.tx.queued()),
        }
    }
    if given < fits {
        return Err(EFAULT.into());
    }
    if ends_record {
        to.set_result_flag(c::MSG_EOR);
    }
    if fits < len {
        to.set_result_flag(c::MSG_TRUNC);
    }
    Ok(match flags & c::MSG_TRUNC {
        0 => fits,
        _ => len,
    })
}

/// Calls `f` with the parts of `n` unread bytes, which begin `ahead` bytes behind the next one, and
/// removes them unless the call peeks. Returns the place of the bytes behind them.
///
/// `ECONNRESET`: there are fewer bytes, which no whole message has.
fn visit(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    (mut ahead, mut n): (usize, usize),
    peek: bool,
    mut f: impl FnMut(&[u8]),
) -> Result<usize> {
    while n > 0 {
        let size = if let Some(end) = sk.local_end(lock) {
            let Found::Bytes(bytes) = end.reader.at(ahead) else {
                return Err(ECONNRESET.into());
            };
            let bytes = bytes.get(..n).unwrap_or(bytes);
            f(bytes);
            let size = bytes.len();
            if !peek {
                end.consume(size);
            }
            size
        } else {
            let taken = sk.with(|c| {
                let next = c.rx.unread.position();
                c.rx.take(next.wrapping_add(ahead as u64))
            });
            let (memory, range) = taken.ok_or(ECONNRESET)?;
            let bytes = memory.bytes().get(range).unwrap_or_default();
            let bytes = bytes.get(..n).unwrap_or(bytes);
            f(bytes);
            let (size, mut c) = (bytes.len(), sk.connection());
            if peek {
                c.rx.put_back(memory);
            } else if let Some(empty) = c.rx.consumed(memory, size) {
                c.recycle(empty);
            }
            size
        };
        n = n.saturating_sub(size);
        if peek {
            ahead = ahead.saturating_add(size);
        }
    }
    Ok(ahead)
}

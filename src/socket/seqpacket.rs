// SPDX-License-Identifier: GPL-2.0-only

//! sendmsg(2) and recvmsg(2) of `SOCK_SEQPACKET`: a message is sent and received whole, or not at
//! all. [`Records`] describes the format of messages in the stream.
//!
//! A message long enough for zero copy is sent as one block of program memory behind its header.
//! The peer's reader fetches the block if its buffer is large enough; else all bytes are copied.
//!
//! A message is accepted if the send buffer has any space, as on AF_UNIX. poll(2) and send(2) thus
//! agree, and the queue exceeds `SO_SNDBUF` by one message at most.

use super::call::{may_choose, request_space, wait_for_space, Queued, Space};
use super::receive_call::{ended, nothing};
use super::send::{commit, make, wait_connected};
use crate::conn::events::last_check;
use crate::conn::local::{LocalEnd, Special};
use crate::conn::send_queue::LARGE_CHUNK;
use crate::conn::zcopy::memory::LEAST;
use crate::conn::zcopy::policy::SMALLEST;
use crate::conn::zcopy::send::send_message;
use crate::conn::zcopy::LEAST_TRANSFER;
use crate::conn::{zcopy, SdpSock};
use crate::memory::pressure;
use crate::protocol::{RecordHeader, Records, RECORD_HEADER};
use crate::sys::bindings as c;
use crate::sys::byte_queue::Found;
use crate::sys::errno::{EAGAIN, ECONNRESET, EFAULT, EMSGSIZE, ENOTCONN, EOPNOTSUPP, EPIPE};
use crate::sys::net::message::{RecvMsg, SendMsg};
use crate::sys::net::notice::ZerocopyCompletion;
use crate::sys::net::sock::{Locked, State, SEND_SHUTDOWN};
use crate::sys::time::nanoseconds;
use core::array::IntoIter;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;

/// Message that a call is sending.
struct Rest<'m, 'a> {
    sk: &'m SdpSock,
    /// Bytes of the header that are not queued.
    header: IntoIter<u8, RECORD_HEADER>,
    message: &'m mut SendMsg<'a>,
    notice: Option<&'m ZerocopyCompletion>,
    timeout: isize,
    /// Set until the message is offered as a block.
    zcopy: bool,
    copied: bool,
}

/// sendmsg(2).
///
/// Errors: `EOPNOTSUPP`: urgent data. `EMSGSIZE`: the message is longer than the peer accepts.
/// Nothing is sent on `EPIPE`, `EAGAIN`, `EFAULT`, `ENOMEM` or an error of a signal.
pub(super) fn send(sk: &SdpSock, message: &mut SendMsg<'_>) -> Result<usize> {
    let (flags, len) = (message.flags(), message.remaining());
    if flags & (c::MSG_OOB | c::MSG_FASTOPEN) != 0 {
        return Err(EOPNOTSUPP.into());
    }
    let mut lock = sk.lock();
    let mut timeout = sk.send_timeout(flags & c::MSG_DONTWAIT != 0);
    let connected = wait_connected(sk, &mut lock, &mut timeout);
    let notice = ZerocopyCompletion::begin(message, sk)?;
    let header = RecordHeader {
        len: len as u32,
        ends_record: flags & c::MSG_EOR != 0,
    };
    let mut rest = Rest {
        sk,
        header: header.encode().into_iter(),
        message,
        notice: notice.as_ref(),
        timeout,
        zcopy: false,
        copied: true,
    };
    let r = connected.and_then(|()| rest.send(&mut lock, len));
    let copied = rest.copied;
    if let Some(notice) = notice.filter(|_| message.taken() > 0) {
        notice.sent(copied);
    }
    r.map(|()| len).map_err(|e| sk.stream_error(e, flags))
}

impl Rest<'_, '_> {
    fn len(&mut self) -> usize {
        self.header.len().saturating_add(self.message.remaining())
    }

    /// Returns the number of bytes that need space now.
    fn chunk(&mut self) -> usize {
        match self.zcopy {
            true => RECORD_HEADER,
            false => self.len(),
        }
    }

    /// Moves the next bytes to `to`, as many as fit; only the header if a block follows. Returns
    /// the number of bytes moved, or `EFAULT`.
    fn take(&mut self, to: &mut [u8]) -> Result<usize> {
        let n = to.len().min(self.chunk());
        let to = to.get_mut(..n).unwrap_or_default();
        let (first, rest) = to.split_at_mut(self.header.len().min(n));
        first.fill_with(|| self.header.next().unwrap_or_default());
        let is_whole = self.message.take(rest) == rest.len();
        is_whole.then_some(n).ok_or(EFAULT.into())
    }

    /// Sends a message of `len` bytes.
    fn send(&mut self, lock: &mut Locked<'_>, len: usize) -> Result {
        let sk = self.sk;
        let most = sk.with(|c| c.records.as_ref().map(Records::peer_most));
        if len > most.ok_or(EPIPE)? as usize {
            return Err(EMSGSIZE.into());
        }
        match sk.local_end(lock) {
            Some(end) => end.link.count_call(true),
            None => sk.with(|c| c.stats.send_calls += 1),
        }
        let worth = match self.notice {
            Some(_) => len >= LEAST,
            None => len >= LEAST_TRANSFER && self.timeout != 0 && sk.with(|c| c.chooses_zcopy(len)),
        };
        self.zcopy = worth && may_choose(self.message) && sk.prepare_zcopy();
        let is_timed = len >= SMALLEST && self.timeout != 0 && self.notice.is_none();
        let start = is_timed.then(nanoseconds);
        loop {
            let seq = sk.event_seq();
            if sk.has_error() || sk.shutdown() & SEND_SHUTDOWN != 0 {
                return Err(EPIPE.into());
            }
            if len == 0 {
                return Ok(());
            }
            let (mut wanted, poll) = (None, self.timeout == 0);
            let queued = last_check(
                self.queue(lock),
                |queued| matches!(queued, Ok(Queued::Full | Queued::NoMemory)),
                || wanted = request_space(sk, poll),
                || self.queue(lock),
            );
            self.timeout = match queued? {
                Queued::Some => break,
                Queued::NoMemory => sk.wait_for_local_memory(lock, seq, self.timeout)?,
                Queued::Full if poll => return Err(EAGAIN.into()),
                Queued::Full => wait_for_space(sk, lock, seq, self.timeout)?,
            }
        }
        if let Some(start) = start {
            sk.connection().has_sent(len, len, start);
        }
        Ok(())
    }

    /// Sends the message as a block behind its queued header. Returns false if a copy is needed.
    fn send_block(&mut self, lock: &mut Locked<'_>) -> Result<bool> {
        let timeout = &mut self.timeout;
        let is_next = core::mem::take(&mut self.zcopy) && self.header.len() == 0;
        let sent = is_next && send_message(self.sk, lock, self.message, self.notice, timeout)?;
        self.copied = !sent;
        Ok(sent)
    }

    /// Queues and sends the message, if there is any space.
    fn queue(&mut self, lock: &mut Locked<'_>) -> Result<Queued> {
        let sk = self.sk;
        if sk.local_end(lock).is_some() {
            return self.write(lock);
        }
        let (mut space, size) = (Space::default(), self.chunk());
        if !sk.with(|c| space.find(sk, c, size))? {
            return Ok(Queued::Full);
        }
        let r = loop {
            let mut chunk = match space.chunk.take().map_or_else(|| make(sk, &mut space), Ok) {
                Ok(chunk) => chunk,
                Err(e) => break Err(e),
            };
            let taken = self.take(chunk.room());
            let left = self.len();
            match taken {
                Ok(n) if left == 0 => break commit(sk, chunk, n, false, false),
                _ => sk.with(|c| c.tx.hold(chunk, taken.unwrap_or(0))),
            }
            match taken.and_then(|_| self.send_block(lock)) {
                Ok(false) => {}
                r => break r.map(|_| ()),
            }
            sk.with(|c| space.open(c, left));
        };
        if r.is_err() {
            sk.with(|c| c.tx.rewind());
            self.message.give_back(self.message.taken());
        }
        r.map(|()| Queued::Some)
    }

    /// Variant of [`Self::queue`] for a local connection.
    fn write(&mut self, lock: &mut Locked<'_>) -> Result<Queued> {
        let sk = self.sk;
        let LocalEnd { link, writer, .. } = sk.local_end(lock).ok_or(EPIPE)?;
        let special = link.has(Special::Send);
        let (idle, is_full) = (link.unsent() == 0, link.space(sk, writer.position()) == 0);
        if !idle && pressure::is_exhausted() {
            return Ok(Queued::NoMemory);
        }
        if is_full || special && link.has_enough_unsent(sk) {
            return Ok(Queued::Full);
        }
        if link.peer_is_closed() {
            // as on TCP, the bytes are sent before the peer's reset arrives
            let all = self.message.remaining();
            self.message.advance(all);
            link.has_written(false);
            return Ok(Queued::Some);
        }
        let header = self.header.clone();
        let mut r = Ok(false);
        while matches!(r, Ok(false)) && self.len() > 0 {
            let LocalEnd { writer, .. } = sk.local_end(lock).ok_or(EPIPE)?;
            let size = if idle { self.chunk() } else { LARGE_CHUNK };
            let size = size.next_power_of_two().clamp(2048, LARGE_CHUNK);
            let extended = match writer.space().is_empty() {
                true => writer.extend(size, GFP_KERNEL),
                false => Ok(()),
            };
            let taken = extended.and_then(|()| self.take(writer.space()));
            let filled = taken.map(|n| writer.fill(n));
            r = filled.and_then(|()| self.send_block(lock));
        }
        let LocalEnd { link, writer, .. } = sk.local_end(lock).ok_or(EPIPE)?;
        match r {
            Ok(true) => {}
            Ok(false) => {
                if special {
                    link.watch_progress(sk);
                }
                let waits = writer.publish(0);
                link.has_written(waits);
            }
            Err(e) => {
                writer.rewind();
                self.message.give_back(self.message.taken());
                self.header = header;
                // `ENOSPC`: too many segments, or the peer has just been closed
                return match e == ENOSPC {
                    true => Ok(Queued::Full),
                    false => Err(e),
                };
            }
        }
        Ok(Queued::Some)
    }
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
    let peek = to.flags() & c::MSG_PEEK != 0;
    let mut looked = false;
    loop {
        let seq = sk.event_seq();
        // Check the end before the queue: messages before the end are then in the queue.
        let ended = ended(sk);
        let (mut found, advert) = sk.with(|c| (c.has_message(), c.next_advert()));
        let end = sk.local_end(&mut lock);
        let is_local = end.is_some();
        if let Some(end) = end.filter(|_| !found) {
            end.link.await_bytes();
            found = end.link.readable() > 0;
        }
        // the next bytes are an advert only if no message is in the queue
        let reads = advert.is_some_and(|len| !peek && timeout != 0 && to.space() >= len as usize);
        if advert.is_some() && !reads {
            zcopy::recv::refuse(sk);
        }
        if found || reads {
            match take(sk, &mut lock, to, reads) {
                Ok(Some(n)) => return Ok(n),
                Err(e) if e != ECONNRESET.into() => return Err(e),
                // the message is lost with the connection, whose error is pending
                _ => {}
            }
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
/// Drops the bytes that exceed the caller's buffer. `reads`: the message is in an advert of the
/// peer behind its header. `None`: the advert is refused or cancelled, and its bytes arrive as
/// Data.
fn take(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    to: &mut RecvMsg<'_>,
    reads: bool,
) -> Result<Option<usize>> {
    let flags = to.flags();
    let peek = flags & c::MSG_PEEK != 0;
    let mut call = Take {
        sk,
        to,
        peek: peek || reads,
        at: 0,
        fault: false,
    };
    let mut header = [0; RECORD_HEADER];
    call.visit(lock, RECORD_HEADER, Some(&mut header))?;
    let RecordHeader { len, ends_record } = RecordHeader::parse(header);
    let len = len as usize;
    let fits = len.min(call.to.space());
    let mut read = 0;
    if reads {
        let Some(n) = zcopy::recv::read(sk, lock, call.to, len) else {
            return Ok(None);
        };
        (read, call.peek, call.at) = (n, false, 0);
    }
    call.visit(lock, fits.saturating_sub(read), None)?;
    let fault = core::mem::replace(&mut call.fault, true);
    if !peek {
        call.visit(lock, len.saturating_sub(fits), None)?;
    }
    match sk.local_end(lock) {
        Some(end) => end.link.count_call(false),
        None => {
            let mut c = sk.connection();
            c.stats.receive_calls += 1;
            if let Some(records) = c.records.as_mut().filter(|_| !peek) {
                records.taken();
            }
            // the buffers posted for the last message may no longer suffice
            match c.wants_refill(sk) {
                true => c.progress(),
                false => sk.set_memory(c.rx.memory(), c.tx.queued()),
            }
            if reads {
                c.leave_advert();
            }
            let others = reads && c.has_message(); // messages that arrived during the READ
            drop(c);
            if others {
                sk.wake();
                sk.data_ready();
            }
        }
    }
    if fault {
        return Err(EFAULT.into());
    }
    if ends_record {
        to.set_result_flag(c::MSG_EOR);
    }
    if fits < len {
        to.set_result_flag(c::MSG_TRUNC);
    }
    Ok(Some(match flags & c::MSG_TRUNC {
        0 => fits,
        _ => len,
    }))
}

/// Unread bytes that a call takes.
struct Take<'m, 'a> {
    sk: &'m SdpSock,
    to: &'m mut RecvMsg<'a>,
    /// Set if the bytes stay unread.
    peek: bool,
    /// Number of bytes that were visited and stay unread.
    at: usize,
    /// Set once no byte more fits the caller's memory: the rest of the message is dropped.
    fault: bool,
}

impl Take<'_, '_> {
    /// Gives the next `n` bytes to the caller, or to `header`.
    ///
    /// Errors: `ENOMEM`. `ECONNRESET`: fewer than `n` bytes are left, never in a whole message.
    fn visit(
        &mut self,
        lock: &mut Locked<'_>,
        mut n: usize,
        mut header: Option<&mut [u8; RECORD_HEADER]>,
    ) -> Result {
        let sk = self.sk;
        let mut have = 0usize;
        while n > 0 {
            let mut give = |this: &mut Self, bytes: &[u8]| {
                let bytes = bytes.get(..n).unwrap_or(bytes);
                match &mut header {
                    Some(header) => {
                        let to = header.iter_mut().skip(have);
                        to.zip(bytes).for_each(|(to, from)| *to = *from);
                        have = have.saturating_add(bytes.len());
                    }
                    None if this.fault => {}
                    None => this.fault = this.to.give(bytes) < bytes.len(),
                }
                bytes.len()
            };
            let size = if let Some(end) = sk.local_end(lock) {
                match end.reader.at(self.at) {
                    Found::Bytes(bytes) => {
                        let size = give(self, bytes);
                        if !self.peek {
                            end.consume(size);
                        }
                        size
                    }
                    Found::Block { start, offset, len } => {
                        let how = (self.peek, self.fault);
                        match end.give_block(self.to, (start, offset), n.min(len), how) {
                            Err(e) if e == EFAULT.into() => {
                                self.fault = true;
                                0
                            }
                            size => size?,
                        }
                    }
                    Found::Nothing => return Err(ECONNRESET.into()),
                }
            } else {
                let taken = sk.with(|c| {
                    let next = c.rx.unread.position();
                    c.rx.take(next.wrapping_add(self.at as u64))
                });
                let (memory, range) = taken.ok_or(ECONNRESET)?;
                let size = give(self, memory.bytes().get(range).unwrap_or_default());
                let mut c = sk.connection();
                if self.peek {
                    c.rx.put_back(memory);
                } else if let Some(empty) = c.rx.consumed(memory, size) {
                    c.recycle(empty);
                }
                size
            };
            n = n.saturating_sub(size);
            if self.peek {
                self.at = self.at.saturating_add(size);
            }
        }
        Ok(())
    }
}

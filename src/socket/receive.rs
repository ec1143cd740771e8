// SPDX-License-Identifier: GPL-2.0-only

//! Implements recvmsg(2), read(2) and recv(2), and the copying part of splice(2).

use super::local_receive;
use super::receive_call::{ended, Call, NextBytes};
use crate::conn::unread::Urgent;
use crate::conn::zcopy;
use crate::conn::{Connection, SdpSock};
use crate::sys::bindings as c;
use crate::sys::errno::{EAGAIN, EFAULT, EINVAL, ENOTCONN};
use crate::sys::net::message::RecvMsg;
use crate::sys::net::sock::{signal_pending, Flag, Locked, State, RCV_SHUTDOWN};
use crate::sys::pages::Memory;
use kernel::prelude::*;

/// recvmsg(2).
#[inline(always)] // in the callback of the core, without a frame of its own
pub(super) fn receive(sk: &SdpSock, to: &mut RecvMsg<'_>) -> Result<usize> {
    let mut lock = sk.lock();
    let local = sk.local_end(&mut lock);
    match local.and_then(|end| local_receive::at_once(sk, end, to)) {
        Some(n) => Ok(n),
        None => sk.charged(|| receive_parts(sk, lock, to)),
    }
}

/// Receives the bytes of a call part by part.
#[inline(never)] // keeps its registers out of calls that receive at once
fn receive_parts(sk: &SdpSock, mut lock: Locked<'_>, to: &mut RecvMsg<'_>) -> Result<usize> {
    let flags = to.flags();
    if sk.state() == State::Listen {
        return Err(ENOTCONN.into());
    }
    if flags & c::MSG_OOB != 0 {
        return receive_urgent(sk, &mut lock, to);
    }
    let len = to.space();
    let timeout = sk.receive_timeout(flags & c::MSG_DONTWAIT != 0);
    let target = match flags & c::MSG_WAITALL {
        0 => sk.rcvlowat().min(len),
        _ => len,
    };
    let mut call = Call {
        sk,
        peek: flags & c::MSG_PEEK != 0,
        discard: flags & c::MSG_TRUNC != 0,
        begun: false,
        inq: to.wants_rest(),
        len,
        copied: 0,
        peeked: 0,
    };
    let offset = sk.peek_offset();
    if call.peek && offset > 0 {
        let position = sk.connection().unread().position();
        call.peeked = position.wrapping_add(offset as u64);
    }
    let r = call.run(&mut lock, to, target, timeout);
    if offset >= 0 {
        let by = call.copied as isize;
        sk.move_peek_offset(if call.peek { by } else { by.wrapping_neg() });
    }
    if call.copied == 0 {
        r?;
    }
    if call.inq {
        let c = sk.connection();
        let (wanted, rest) = (c.options.inq, rest(sk, &c));
        drop(c);
        to.set_rest(rest, wanted);
    }
    Ok(call.copied)
}

/// Returns the number of unread bytes for `TCP_INQ`: at least 1 if the next call finds the end of
/// the stream, or bytes still at the peer.
fn rest(sk: &SdpSock, c: &Connection) -> i32 {
    let (bytes, _) = c.queues();
    let more = c.holds_advert() || sk.peer_has_ended();
    i32::try_from(bytes.max(more.into())).unwrap_or(i32::MAX)
}

impl Call<'_> {
    fn run(
        &mut self,
        lock: &mut Locked<'_>,
        to: &mut RecvMsg<'_>,
        target: usize,
        mut timeout: isize,
    ) -> Result {
        let sk = self.sk;
        let mut looked = false;
        loop {
            let seq = sk.event_seq();
            // Check the end before the queue: bytes before the end are then in the queue.
            let ended = ended(sk);
            let (found, is_local) = match sk.local_end(lock) {
                Some(end) => (self.take(end, to)?, true),
                None => (self.take_all(to)?, false),
            };
            match found {
                NextBytes::Mark => return Ok(()),
                NextBytes::Advert if self.read_by_rdma(lock, to, timeout) => continue,
                _ => {}
            }
            let enough = match self.len {
                0 => {
                    let c = sk.connection();
                    self.inq |= c.options.inq;
                    c.unread().bytes() > 0
                }
                _ => self.copied >= target,
            };
            if enough {
                return Ok(());
            }
            let over = self.copied > 0 && signal_pending() || timeout == 0 || ended;
            // Before the end of the call: poll for completions without a notification. Before a
            // wait on a local connection: register for the peer's notification.
            if over != is_local && !looked {
                looked = true;
                match sk.local_end(lock) {
                    Some(end) => end.link.await_bytes(),
                    None => sk.progress(),
                }
                continue;
            }
            if over {
                if let Some(r) = self.nothing(timeout, ended) {
                    return r;
                }
            }
            if is_local {
                timeout = sk.wait_local(lock, seq, timeout)?;
            } else if self.be_written_to(lock, to, &mut timeout) {
                continue;
            } else {
                timeout = sk.wait_to_read(lock, seq, timeout)?;
            }
            looked = !is_local;
        }
    }

    /// Copies the available bytes of an RDMA connection.
    fn take_all(&mut self, to: &mut RecvMsg<'_>) -> Result<NextBytes> {
        while self.left() > 0 {
            match self.step(to)? {
                NextBytes::Copied => {}
                found => return Ok(found),
            }
        }
        Ok(NextBytes::Nothing)
    }

    /// Reads the peer's advert, if next in the stream. Returns true if the caller must check again.
    fn read_by_rdma(
        &mut self,
        lock: &mut Locked<'_>,
        to: &mut RecvMsg<'_>,
        timeout: isize,
    ) -> bool {
        let sk = self.sk;
        if self.peek || self.discard || timeout == 0 {
            zcopy::recv::refuse(sk);
            return false;
        }
        let n = zcopy::recv::read(sk, lock, to, self.left());
        self.copied = self.copied.saturating_add(n.unwrap_or(0));
        n.is_some()
    }

    /// Advertises the rest of the caller's buffer to the peer, if the rest is large enough, and
    /// waits. Returns true if the caller has to check again.
    fn be_written_to(
        &mut self,
        lock: &mut Locked<'_>,
        to: &mut RecvMsg<'_>,
        timeout: &mut isize,
    ) -> bool {
        let sk = self.sk;
        let left = self.left();
        // a signal ends only a wait without an advert
        if left < zcopy::LEAST_TRANSFER || self.peek || self.discard || signal_pending() {
            return false;
        }
        let size = {
            let mut c = sk.connection();
            if c.sink_size(left) == 0 {
                return false;
            }
            // polls for completions that caused no event
            c.progress();
            c.sink_size(left)
        };
        if size > 0 {
            let n = zcopy::recv::be_written_to(sk, lock, to, size, timeout);
            self.copied = self.copied.saturating_add(n);
        }
        true
    }

    /// Copies bytes of one buffer.
    fn step(&mut self, to: &mut RecvMsg<'_>) -> Result<NextBytes> {
        let sk = self.sk;
        let inline = sk.flag(Flag::UrgInline);
        let ((memory, bytes), next) = {
            let mut c = sk.connection();
            if !core::mem::replace(&mut self.begun, true) {
                c.stats.receive_calls += 1;
                self.inq |= c.options.inq;
            }
            let unread = &c.rx.unread;
            let Some(next) = unread.next(self.peeked, self.left(), self.copied > 0, inline) else {
                return Ok(NextBytes::Mark);
            };
            match c.rx.take(next.at) {
                Some(taken) => (taken, next),
                None if c.holds_advert() => return Ok(NextBytes::Advert),
                None => return Ok(NextBytes::Nothing),
            }
        };
        let bytes = next.of(memory.bytes().get(bytes).unwrap_or(&[]));
        let n = bytes.len().saturating_add(next.skip);
        let read = self.give(to, bytes, (next.at, next.skip));
        self.done(memory, read);
        if read < n || read == 0 {
            return Err(EFAULT.into());
        }
        Ok(NextBytes::Copied)
    }

    /// Puts the buffer's memory back after `read` bytes were taken or peeked.
    fn done(&self, memory: Memory, read: usize) {
        let sk = self.sk;
        let mut c = sk.connection();
        if self.peek {
            return c.rx.put_back(memory);
        }
        let Some(empty) = c.rx.consumed(memory, read) else {
            return;
        };
        c.recycle(empty);
        if !c.wants_refill(sk) {
            return sk.set_memory(c.rx.memory(), c.tx.queued());
        }
        c.progress();
    }
}

/// recv(2) with `MSG_OOB`.
fn receive_urgent(sk: &SdpSock, lock: &mut Locked<'_>, to: &mut RecvMsg<'_>) -> Result<usize> {
    sk.progress();
    let peek = to.flags() & c::MSG_PEEK != 0;
    let inline = sk.flag(Flag::UrgInline);
    let local = local_receive::urgent(sk, lock, peek || inline);
    let byte = {
        let mut c = sk.connection();
        let urgent = local.unwrap_or(c.unread().urgent);
        match urgent {
            _ if inline => return Err(EINVAL.into()),
            Urgent::None | Urgent::Read(_) => return Err(EINVAL.into()),
            _ if sk.state() == State::Close && !sk.peer_has_ended() => return Err(ENOTCONN.into()),
            Urgent::Valid(byte, at) => {
                if !peek && local.is_none() {
                    c.rx.unread.urgent = Urgent::Read(at);
                }
                byte
            }
            Urgent::Pending if sk.state() == State::Close || sk.shutdown() & RCV_SHUTDOWN != 0 => {
                return Ok(0);
            }
            Urgent::Pending => return Err(EAGAIN.into()),
        }
    };
    to.set_result_flag(c::MSG_OOB);
    if to.space() == 0 {
        to.set_result_flag(c::MSG_TRUNC);
        return Ok(0);
    }
    if to.flags() & c::MSG_TRUNC == 0 && to.give(&[byte]) != 1 {
        return Err(EFAULT.into());
    }
    Ok(1)
}

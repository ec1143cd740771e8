// SPDX-License-Identifier: GPL-2.0-only

//! splice(2) from a socket: the pipe gets pages of receive buffers, as by `tcp_splice_read()`.
//! recvmsg copies small parts of a buffer, and all bytes of a local connection.

use super::receive_call::ended;
use crate::conn::send_queue::LARGE_CHUNK;
use crate::conn::{zcopy, SdpSock};
use crate::sys::errno::EAGAIN;
use crate::sys::net::message::PipeSink;
use crate::sys::net::sock::Flag;
use kernel::prelude::*;

/// Result of [`step`].
#[derive(PartialEq, Eq)]
enum Next {
    /// The caller checks again: more bytes may be available.
    Again,
    Mark,
    Nothing,
    /// The caller has to copy the next bytes, at most the given number.
    Copy(usize),
}

/// Implements splice(2). `None`: no pages were given, and recvmsg continues with `to.left` bytes.
pub(super) fn splice(sk: &SdpSock, to: &mut PipeSink, nowait: bool) -> Result<Option<usize>> {
    let mut lock = sk.lock();
    let mut timeout = sk.receive_timeout(nowait);
    let (len, mut polled) = (to.left, false);
    loop {
        let seq = sk.event_seq();
        // Check the end before the queue: bytes before the end are then in the queue.
        let ended = ended(sk);
        let mut next = Next::Again;
        while next == Next::Again && to.left > 0 {
            next = step(sk, to);
        }
        if to.left < len {
            let mut c = sk.connection();
            c.stats.receive_calls += 1;
            return Ok(Some(len.saturating_sub(to.left)));
        }
        let at_mark = next == Next::Mark;
        if let Next::Copy(most) = next {
            to.left = to.left.min(most);
            if sk.rcvlowat() > 1 {
                // recvmsg might wait for more bytes, but tcp_splice_read() does not
                let any = sk.with(|c| c.unread().readable(sk.flag(Flag::UrgInline)));
                to.left = to.left.min(any.max(1));
            }
            return Ok(None);
        } else if !at_mark && !ended && timeout != 0 {
            timeout = sk.wait_to_read(&mut lock, seq, timeout)?;
            polled = true;
        } else if !polled {
            // completions may have arrived without a notification
            polled = true;
            sk.progress();
        } else if ended || timeout != 0 {
            return Ok(at_mark.then_some(0));
        } else {
            return Err(EAGAIN.into());
        }
    }
}

/// Gives pages of one buffer to the pipe.
fn step(sk: &SdpSock, to: &mut PipeSink) -> Next {
    let mut c = sk.connection();
    if c.endpoint.is_none() {
        // copy_splice_read() allocates pages for all bytes before it copies
        return Next::Copy(LARGE_CHUNK);
    }
    // as on TCP, the urgent byte ends the call even if MSG_OOB has read it, or SO_OOBINLINE is set
    let Some(next) = c.rx.unread.next(0, to.left, true, true) else {
        return Next::Mark;
    };
    let may_give = c.may_give();
    let Some((memory, bytes)) = c.rx.take(next.at) else {
        drop(c);
        zcopy::recv::refuse(sk);
        return Next::Nothing;
    };
    let start = bytes.start;
    let part = next.of(memory.bytes().get(bytes).unwrap_or(&[])).len();
    let most = part >= memory.block().size() / 2;
    let n = match c.rx.front() {
        Some(front) if may_give && (most || front.given) => {
            front.given = true;
            to.give(memory.block(), start, part)
        }
        _ => 0,
    };
    if n == 0 {
        c.rx.put_back(memory);
        // after the copy, more than half of a full next buffer remains, whose pages can be given
        return Next::Copy(LARGE_CHUNK / 4);
    }
    c.stats.bytes_spliced += n as u64;
    if let Some(empty) = c.rx.consumed(memory, n) {
        c.recycle(empty);
        match c.wants_refill(sk) {
            true => c.progress(),
            false => sk.set_memory(c.rx.memory(), c.tx.queued()),
        }
    }
    Next::Again
}

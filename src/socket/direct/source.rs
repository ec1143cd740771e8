// SPDX-License-Identifier: GPL-2.0-only

//! A block that a send call has advertised: SrcAvail (IBA Annex A4).
//!
//! ```text
//!  Offered -- SrcAvail posted --> Advertised -- read, or given back by the peer --> Over
//!     '------------- withdrawn before it was posted ---------------------------------^
//!  Over -- access ended --> Ended                   any of them -- connection lost --> Lost
//! ```

use super::super::connection::{Connection, Tell};
use super::super::{SdpSock, Socket};
use super::Direct;
use crate::protocol::{Block, Outgoing, MAX_HEADER};
use crate::sys::errno::{ECONNABORTED, EPIPE};
use crate::sys::net::message::Source;
use crate::sys::net::sock::{interrupted, Locked, FOREVER, SEND_SHUTDOWN};
use crate::sys::pin::Hold;
use crate::sys::time::{jiffies, milliseconds, Jiffies};
use crate::transport::{Access, Loan, Pinned, Sending, Transport};
use kernel::prelude::*;

/// How long the peer's kernel may take to answer a SrcAvailCancel, which it does by itself.
const CANCEL_TIME: Jiffies = milliseconds(10_000);

/// Where a block stands; see the head of this file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Offered,
    Advertised,
    Over,
    Ending,
    Ended,
    Lost,
}

/// The block of a send call.
pub(in crate::socket) struct Advertised {
    loan: Loan,
    block: Block,
    /// Its first byte, which goes in the SrcAvail.
    first: u8,
    /// Its position in what is sent.
    at: u64,
    stage: Stage,
    /// Bytes of it that the peer has.
    done: u32,
    /// The peer has read it to the end.
    finished: bool,
}

impl Advertised {
    pub(super) fn offered(&self) -> Option<(Block, u64)> {
        (self.stage == Stage::Offered).then_some((self.block, self.at))
    }

    pub(super) fn lost(&mut self) {
        self.stage = Stage::Lost;
    }
}

impl Direct {
    /// Posts the SrcAvail of the block that was offered. `sent`: position in what is sent.
    pub(in crate::socket) fn advertise(
        &mut self,
        channel: &mut impl Transport,
        message: &Outgoing,
        sent: u64,
    ) -> Result {
        let s = self.source.as_mut().ok_or(EINVAL)?;
        let head = message
            .header
            .get(..message.header_len.into())
            .ok_or(EINVAL)?;
        let mut bytes = [0; MAX_HEADER + 1];
        let inline = usize::from(message.payload > 0);
        bytes
            .get_mut(..head.len())
            .ok_or(EINVAL)?
            .copy_from_slice(head);
        if let Some(b) = bytes.get_mut(head.len()) {
            *b = s.first;
        }
        channel.post_send(&Sending {
            header: bytes.get(..head.len() + inline).ok_or(EINVAL)?,
            payload: &[],
            signaled: false,
            solicited: false,
            cookie: sent,
        })?;
        s.stage = Stage::Advertised;
        s.done = message.payload;
        Ok(())
    }
}

impl Connection {
    /// The peer has read `bytes` more of our block; `finished`: that was all.
    pub(in crate::socket) fn source_read(&mut self, bytes: u32, finished: bool, tell: &mut Tell) {
        if let Some(s) = &mut self.direct.source {
            s.done = s.done.saturating_add(bytes).min(s.block.size);
            self.stats.bytes_sent += u64::from(bytes);
            self.stats.direct_sent += u64::from(bytes);
            self.last_progress = jiffies();
            if finished && s.stage == Stage::Advertised {
                s.finished = true;
                s.stage = Stage::Over;
            }
            tell.direct = true;
        }
    }

    /// The peer gives our block back, of which it has `done` bytes.
    pub(in crate::socket) fn source_returned(&mut self, done: u32, tell: &mut Tell) {
        if let Some(s) = self
            .direct
            .source
            .as_mut()
            .filter(|s| s.stage == Stage::Advertised)
        {
            let before = core::mem::replace(&mut s.done, done.min(s.block.size));
            let more = u64::from(s.done.saturating_sub(before));
            self.stats.bytes_sent += more;
            self.stats.direct_sent += more;
            s.stage = Stage::Over;
            tell.direct = true;
        }
    }

    /// Ends the peer's access to a block that it is done with, as soon as there is room to.
    pub(in crate::socket) fn end_access(&mut self) -> Result {
        let (Some(channel), Some(s)) = (self.channel.as_mut(), self.direct.source.as_mut()) else {
            return Ok(());
        };
        if s.stage == Stage::Over {
            match channel.invalidate(s.loan, 0) {
                Ok(()) => s.stage = Stage::Ending,
                Err(e) if e == ENOSPC => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The peer's access to our block has ended.
    pub(in crate::socket) fn access_ended(&mut self, tell: &mut Tell) {
        if let Some(s) = self
            .direct
            .source
            .as_mut()
            .filter(|s| s.stage == Stage::Ending)
        {
            s.stage = Stage::Ended;
            tell.direct = true;
        }
    }

    /// Takes the block of a send call back from whoever has it, if there is one.
    pub(in crate::socket) fn take_block_back(&mut self) {
        let Some(s) = &mut self.direct.source else {
            return;
        };
        match s.stage {
            Stage::Offered => s.stage = Stage::Over,
            Stage::Advertised => {
                if let Some(p) = &mut self.protocol {
                    p.cancel_sources();
                }
            }
            _ => {}
        }
    }

    fn zcopy_threshold(&self) -> usize {
        usize::try_from(self.options.zcopy_threshold()).unwrap_or(0)
    }

    /// How large a block to offer for a call that has `want` bytes; 0: copy.
    pub(in crate::socket) fn block_size(&self, sk: &SdpSock, want: usize) -> usize {
        let threshold = self.zcopy_threshold();
        if self.tx.queued() >= sk.sndbuf() {
            // a call waits for room before anything else of it is taken
            return 0;
        }
        if threshold == 0 || want < threshold || !self.connected() || self.direct.source.is_some() {
            return 0;
        }
        let Some(p) = &self.protocol else { return 0 };
        let size = u32::try_from(want)
            .unwrap_or(u32::MAX)
            .min(p.source_limit());
        if !p.can_advertise(size) || self.tx.end() < self.direct.copy_until {
            return 0;
        }
        size as usize
    }
}

/// Sends bytes of the call without copying them, `size` of them ([`Connection::block_size`]) or as
/// many as there are in one piece. `Ok(false)`: they are to be copied.
///
/// # Errors
///
/// `EPIPE` if the connection is lost, or what a signal or the end of `timeout` means. The message
/// tells how many bytes were sent nevertheless.
pub(in crate::socket) fn send(
    sk: &SdpSock,
    lock: &mut Locked<'_, Socket>,
    message: &mut Source<'_>,
    size: usize,
    timeout: &mut isize,
) -> Result<bool> {
    let Some(mut room) = sk.pinning_room(message.piece(size)) else {
        return Ok(false);
    };
    let pinned = match sk.netns().account(sk) {
        Some(account) if room.make_registrable().is_ok() => room
            .pin_source(message, size, Hold::Long, &account)
            .unwrap_or(0),
        _ => 0,
    };
    let mut first = [0];
    let least = sk.data().connection.lock().zcopy_threshold().min(size);
    if pinned < least || message.take(&mut first) != 1 {
        sk.data().connection.lock().stats.unpinnable += 1;
        sk.give_back_room(room);
        return Ok(false);
    }
    message.give_back(1);
    let watch = room.watch().ok_or(ENODEV)?;
    let [first] = first;
    let loan = {
        let mut c = sk.data().connection.lock();
        match offer(&mut c, room, first) {
            Ok(loan) => loan,
            Err(room) => {
                drop(c);
                if let Some(room) = room {
                    sk.give_back_room(room);
                }
                return Ok(false);
            }
        }
    };
    let start = jiffies();
    sk.progress();
    let end = wait(sk, lock, timeout);
    let (done, room) = {
        let mut c = sk.data().connection.lock();
        let Some(s) = c.direct.source.take() else {
            return Err(EPIPE.into());
        };
        if s.finished {
            c.direct.taken_up(jiffies().wrapping_sub(start));
        } else {
            let at = c.tx.end();
            c.direct
                .not_taken_up(at, s.block.size, s.block.size - s.done);
            c.stats.direct_returned += 1;
        }
        let done = s.done;
        let room = c.channel.as_mut().and_then(|c| c.reclaim(loan).ok());
        (done, room)
    };
    match room {
        Some(room) => sk.give_back_room(room),
        None => sk.wait_released(lock, &watch),
    }
    message.advance(done as usize);
    end.map(|()| true)
}

/// Lends the memory, lets the peer have access, and offers the block to the protocol.
fn offer(c: &mut Connection, room: Pinned, first: u8) -> Result<Loan, Option<Pinned>> {
    let size = u32::try_from(room.len()).unwrap_or(0);
    let possible =
        c.direct.source.is_none() && c.protocol.as_ref().is_some_and(|p| p.can_advertise(size));
    let Some(channel) = c.channel.as_mut().filter(|_| possible) else {
        return Err(Some(room));
    };
    let loan = channel.lend(room).map_err(Some)?;
    let key = match channel.register(loan, Access::Read) {
        Ok(key) => key,
        Err(_) => return Err(channel.reclaim(loan).ok()),
    };
    // what was corked goes before it
    c.more = false;
    c.direct.source = Some(Advertised {
        loan,
        block: Block {
            size,
            r_key: key.rkey,
            address: key.address,
        },
        first,
        at: c.tx.end(),
        stage: Stage::Offered,
        done: 0,
        finished: false,
    });
    Ok(loan)
}

/// Waits until the block is the caller's again, or the connection is lost.
fn wait(sk: &SdpSock, lock: &mut Locked<'_, Socket>, timeout: &mut isize) -> Result {
    let start = jiffies();
    let patience = sk.data().connection.lock().direct.patience();
    let mut result = Ok(());
    let mut taken_back = None;
    loop {
        let mark = sk.wake_mark();
        let stage = sk
            .data()
            .connection
            .lock()
            .direct
            .source
            .as_ref()
            .map(|s| s.stage);
        match stage {
            Some(Stage::Ended) => return result,
            Some(Stage::Lost) | None => return Err(EPIPE.into()),
            _ => {}
        }
        if let Some(since) = taken_back {
            let waited = jiffies().wrapping_sub(since);
            if sk
                .wait_killably(lock, mark, CANCEL_TIME.saturating_sub(waited))
                .is_err()
            {
                sk.give_up(ECONNABORTED);
            }
            continue;
        }
        let waited = jiffies().wrapping_sub(start);
        let limit = (patience.saturating_sub(waited) as isize).min(*timeout);
        let closed = sk.has_error() || sk.shutdown() & SEND_SHUTDOWN != 0;
        let over = limit == 0
            || closed
            || match sk.wait(lock, mark, limit) {
                Ok(left) => {
                    if *timeout != FOREVER {
                        *timeout -= limit - left;
                    }
                    false
                }
                Err(_) => {
                    result = Err(interrupted(*timeout));
                    true
                }
            };
        if over {
            taken_back = Some(jiffies());
            sk.data().connection.lock().take_block_back();
            sk.progress();
        }
    }
}

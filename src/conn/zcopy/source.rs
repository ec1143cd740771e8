// SPDX-License-Identifier: GPL-2.0-only

//! Blocks that a send call has advertised: SrcAvail (IBA Annex A4).
//!
//! The blocks are pieces of the call's bytes, one behind the other. While the peer reads the oldest
//! one, the next ones are pinned and advertised, as many as the peer can hold. If it gives them back,
//! what it has not read is copied.

use super::super::{Connection, SdpSock, Wakeups};
use super::lent::{self, Lent, Stage};
use super::waiting::{Turn, Waiting};
use super::{by_read, is_told, Direct, BLOCKS};
use crate::observe::trace::{self, ZeroCopy};
use crate::protocol::{Block, Outgoing, MAX_HEADER};
use crate::sys::errno::EPIPE;
use crate::sys::net::message::Source;
use crate::sys::net::sock::{interrupted, Locked, SEND_SHUTDOWN};
use crate::sys::pin::Hold;
use crate::sys::time::jiffies;
use crate::transport::{Access, Channel, Pinned, Sending, Transport, Watch};
use kernel::prelude::*;

/// A block of a send call.
#[derive(Clone, Copy)]
pub(crate) struct Advertised {
    pub(super) lent: Lent,
    /// Its first byte, which goes in the SrcAvail.
    first: u8,
    /// Its position in what is sent.
    at: u64,
    /// The peer has read it to the end.
    finished: bool,
}

impl Advertised {
    /// Tells older ones from younger ones.
    fn number(&self) -> u64 {
        self.lent.cookie
    }
}

impl Direct {
    /// The block to advertise next, and the position in the stream that it is at.
    pub(crate) fn offered(&self) -> Option<(Block, u64)> {
        self.sources
            .iter()
            .flatten()
            .filter_map(|s| Some((s.number(), (s.lent.offered()?, s.at))))
            .min_by_key(|(number, _)| *number)
            .map(|(_, offered)| offered)
    }

    /// The oldest block in a stage.
    fn oldest(&mut self, stage: Stage) -> Option<&mut Advertised> {
        self.sources
            .iter_mut()
            .flatten()
            .filter(|s| s.lent.stage == stage)
            .min_by_key(|s| s.number())
    }

    /// Posts the SrcAvail of the block that was offered. `sent`: position in what is sent.
    pub(crate) fn advertise(
        &mut self,
        channel: &mut Channel,
        message: &Outgoing,
        sent: u64,
    ) -> Result {
        let s = self.oldest(Stage::Offered).ok_or(EINVAL)?;
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
            solicited: is_told(channel, message),
            cookie: sent,
        })?;
        s.lent.stage = Stage::Advertised;
        s.lent.done = message.payload;
        Ok(())
    }
}

impl Connection {
    /// The peer has read `bytes` more of our oldest block; `finished`: that was all.
    pub(crate) fn source_read(&mut self, bytes: u32, finished: bool, wakeups: &mut Wakeups) {
        if let Some(s) = self.direct.oldest(Stage::Advertised) {
            s.lent.done = s.lent.done.saturating_add(bytes).min(s.lent.block.size);
            self.stats.bytes_sent += u64::from(bytes);
            self.stats.direct_sent += u64::from(bytes);
            self.heard.progress(jiffies());
            if finished {
                s.finished = true;
                s.lent.over();
            }
            wakeups.direct = true;
        }
    }

    /// The peer gives our blocks back, and has `done` bytes of the oldest one.
    pub(crate) fn sources_returned(&mut self, done: u32, wakeups: &mut Wakeups) {
        if let Some(s) = self.direct.oldest(Stage::Advertised) {
            let lent = &mut s.lent;
            let before = core::mem::replace(&mut lent.done, done.min(lent.block.size));
            let more = u64::from(lent.done.saturating_sub(before));
            self.stats.bytes_sent += more;
            self.stats.direct_sent += more;
            wakeups.direct = true;
        }
        // those that were to follow must not go before the rest of it
        for s in self.direct.sources.iter_mut().flatten() {
            s.lent.over();
        }
    }

    /// The peer's reader waits with memory of its own, and has nothing of our blocks.
    pub(crate) fn sources_void(&mut self, wakeups: &mut Wakeups) {
        self.stats.direct_void += 1;
        self.direct.voided = true;
        self.sink_came(wakeups);
        self.sources_returned(0, wakeups);
    }

    /// The peer's reader waits with memory of its own: blocks that it was not told of yet are to be
    /// written there.
    pub(super) fn withdraw_sources(&mut self) {
        for s in self.direct.sources.iter_mut().flatten() {
            if s.lent.stage == Stage::Offered {
                s.lent.over();
                self.direct.voided = true;
            }
        }
    }

    /// Ends the peer's access to blocks that it is done with, as soon as there is room to.
    pub(crate) fn end_source_access(&mut self) -> Result {
        if let Some(channel) = self.channel.as_mut() {
            for s in self.direct.sources.iter_mut().flatten() {
                lent::end_access(&mut s.lent, channel)?;
            }
        }
        Ok(())
    }

    /// Takes the blocks of a send call back from whoever has them.
    pub(crate) fn take_blocks_back(&mut self) {
        for s in self.direct.sources.iter_mut().flatten() {
            if s.lent.stage == Stage::Offered {
                s.lent.over();
            }
        }
        if self.direct.oldest(Stage::Advertised).is_some() {
            if let Some(p) = &mut self.protocol {
                p.cancel_sources();
            }
        }
    }

    /// How large a block to offer for a call that has `want` bytes; 0: copy.
    pub(crate) fn block_size(&self, sk: &SdpSock, want: usize) -> usize {
        let Some(p) = self.protocol.as_ref().filter(|_| self.channel.is_some()) else {
            return 0;
        };
        if !by_read() || self.zcopy_threshold().is_none_or(|least| want < least) {
            return 0;
        }
        if self.tx.queued() >= sk.sndbuf() || self.direct.sources.iter().any(Option::is_some) {
            // a call waits for room, or for another one, before anything else of it is taken
            return 0;
        }
        let size = u32::try_from(want)
            .unwrap_or(u32::MAX)
            .min(p.source_limit());
        if !p.can_advertise(size) || self.tx.end() < self.direct.copy_until {
            return 0;
        }
        size as usize
    }

    /// Whether what follows the blocks of a call may go: the peer has them, or will read them. One
    /// that came back goes first.
    fn unbroken(&self) -> bool {
        let goes = |s: &Advertised| {
            s.finished || matches!(s.lent.stage, Stage::Offered | Stage::Advertised)
        };
        self.direct.sources.iter().flatten().all(goes)
    }

    /// Whether an advert of the peer has come before a block at this place could be advertised, which it
    /// cannot be as long as that is here.
    fn is_crossed(&self, place: usize) -> bool {
        let own = self.direct.sources.get(place).copied().flatten();
        let waits = |s: &Advertised| s.lent.stage == Stage::Offered;
        own.filter(waits).is_some_and(|s| {
            let size = s.lent.block.size;
            let alone = |p: &crate::protocol::Connection| p.sources_outstanding() == 0;
            let p = self.protocol.as_ref().filter(|p| alone(p));
            p.is_some_and(|p| p.holds_sources() && !p.can_advertise(size))
        })
    }

    /// Whether one more block of `size` may follow those of a call.
    fn another_block(&self, size: usize) -> bool {
        if self.zcopy_threshold().is_none_or(|least| size < least) {
            return false;
        }
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let going = |s: &Advertised| matches!(s.lent.stage, Stage::Offered | Stage::Advertised);
        self.direct.sources.iter().flatten().all(going)
            && self.protocol.as_ref().is_some_and(|p| {
                let size = size.min(p.source_limit());
                p.send_mode() == crate::protocol::Mode::Pipelined && p.can_advertise(size)
            })
    }
}

/// A block of the call, at the place in [`Direct::sources`] that it was given.
struct Own {
    place: usize,
    size: usize,
    watch: Watch,
}

/// What became of an attempt to offer a block.
enum Tried {
    Offered(Own),
    /// The bytes are to be copied, for now.
    No,
}

/// Sends bytes of the call without copying them, from a block of `size` bytes on
/// ([`Connection::block_size`]). `Ok(false)`: they are to be copied.
///
/// # Errors
///
/// `EPIPE` if the connection is lost, or what a signal or the end of `timeout` means. The message
/// tells how many bytes were sent nevertheless.
pub(crate) fn send(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    message: &mut Source<'_>,
    size: usize,
    timeout: &mut isize,
) -> Result<bool> {
    let mut own: [Option<Own>; BLOCKS] = [const { None }; BLOCKS];
    let Tried::Offered(first) = try_block(sk, message, size)? else {
        return Ok(false);
    };
    let mut ahead = first.size;
    let [place, ..] = &mut own;
    *place = Some(first);
    // the oldest one, and the place behind the youngest one
    let (mut oldest, mut next) = (0, 1);
    // whether more may follow, and whether all so far was read
    let (mut open, mut whole) = (true, true);
    let mut end = Ok(());
    loop {
        while open && next - oldest < BLOCKS && message.remaining() > 0 {
            let want = message.remaining();
            if !sk.connection().another_block(want) {
                break;
            }
            match try_block(sk, message, want) {
                Ok(Tried::Offered(block)) => {
                    ahead += block.size;
                    if let Some(place) = own.get_mut(next % BLOCKS) {
                        *place = Some(block);
                    }
                    next += 1;
                }
                _ => break,
            }
        }
        let Some(block) = own.get_mut(oldest % BLOCKS).and_then(Option::take) else {
            break;
        };
        oldest += 1;
        if end.is_ok() {
            sk.progress();
            end = wait(sk, lock, block.place, timeout);
        } else {
            // all were taken back with the oldest one
            let _ = wait(sk, lock, block.place, &mut 0);
        }
        let (done, finished) = retire(sk, lock, &block, whole);
        ahead -= done;
        whole &= finished;
        open = whole && end.is_ok();
    }
    message.give_back(ahead);
    end.map(|()| true)
}

/// Takes a block out that is the caller's again: how much of it has gone, and whether that was all.
/// `first`: what was before it has gone.
fn retire(sk: &SdpSock, lock: &mut Locked<'_>, block: &Own, first: bool) -> (usize, bool) {
    let (done, finished, room) = {
        let mut c = sk.connection();
        let taken = c.direct.sources.get_mut(block.place).and_then(Option::take);
        let Some(s) = taken else {
            return (0, false);
        };
        let voided = core::mem::take(&mut c.direct.voided);
        if first && !s.finished && !voided {
            let at = c.tx.end();
            let Lent { block, done, .. } = s.lent;
            c.direct.not_taken_up(at, block.size, block.size - done);
            c.stats.direct_returned += 1;
        }
        let done = if first { s.lent.done } else { 0 };
        trace::zero_copy(sk, ZeroCopy::ReadByPeer, s.lent.block.size, done);
        let room = c.channel.as_mut().and_then(|c| c.reclaim(s.lent.loan).ok());
        (done as usize, s.finished, room)
    };
    match room {
        Some(room) => sk.give_back_room(room),
        None => sk.wait_released(lock, &block.watch),
    }
    (done, finished)
}

/// Pins the next bytes of the call and offers them, which counts them as taken.
fn try_block(sk: &SdpSock, message: &mut Source<'_>, size: usize) -> Result<Tried> {
    let Some(mut room) = sk.pinning_room(message.piece(size)) else {
        return Ok(Tried::No);
    };
    let mut first = [0];
    let pinned = match sk.account() {
        // what is pinned holds the device, so nothing may fault behind that
        Some(account) if message.take(&mut first) == 1 => {
            message.give_back(1);
            room.pin_source(message, size, Hold::Long, account)
                .unwrap_or(0)
        }
        _ => 0,
    };
    let least = sk.connection().zcopy_threshold();
    let least = least.unwrap_or(size).min(size);
    if pinned < least {
        sk.connection().stats.unpinnable += 1;
        sk.give_back_room(room);
        return Ok(Tried::No);
    }
    let watch = room.watch().ok_or(ENODEV)?;
    let [first] = first;
    let offered = {
        let mut c = sk.connection();
        offer(&mut c, room, first)
    };
    match offered {
        Ok(place) => {
            message.advance(pinned);
            Ok(Tried::Offered(Own {
                place,
                size: pinned,
                watch,
            }))
        }
        Err(room) => {
            if let Some(room) = room {
                sk.give_back_room(room);
            }
            Ok(Tried::No)
        }
    }
}

/// Lends the memory, lets the peer have access, and offers the block to the protocol: its place.
fn offer(c: &mut Connection, room: Pinned, first: u8) -> Result<usize, Option<Pinned>> {
    let size = u32::try_from(room.len()).unwrap_or(0);
    // the one before it may have come back while this one was pinned
    let possible = c.unbroken() && c.protocol.as_ref().is_some_and(|p| p.can_advertise(size));
    let place = c.direct.sources.iter().position(Option::is_none);
    let (Some(channel), Some(place)) = (c.channel.as_mut().filter(|_| possible), place) else {
        return Err(Some(room));
    };
    let at = c.tx.end();
    let lent = lent::lend(channel, room, Access::Read, c.direct.next_block())?;
    // what was corked goes before it
    c.cork.set_more(false);
    if let Some(s) = c.direct.sources.get_mut(place) {
        *s = Some(Advertised {
            lent,
            first,
            at,
            finished: false,
        });
    }
    Ok(place)
}

/// Waits until a block is the caller's again, or the connection is lost.
fn wait(sk: &SdpSock, lock: &mut Locked<'_>, place: usize, timeout: &mut isize) -> Result {
    let start = jiffies();
    let mut waiting = Waiting::new(sk.connection().direct.patience());
    let mut result = Ok(());
    loop {
        let mark = sk.wake_mark();
        let crossed = {
            let mut c = sk.connection();
            let s = c.direct.sources.get(place).copied().flatten();
            match s.map(|s| (s.lent.stage, s.finished)) {
                Some((Stage::Ended, finished)) => {
                    if finished {
                        c.direct.taken_up(jiffies().wrapping_sub(start));
                    }
                    return result;
                }
                Some((Stage::Lost, _)) | None => return Err(EPIPE.into()),
                _ => {}
            }
            let crossed = c.is_crossed(place);
            // it was not refused
            c.direct.voided |= crossed;
            crossed
        };
        let over = crossed || sk.has_error() || sk.shutdown() & SEND_SHUTDOWN != 0;
        let turn = waiting.sleep(sk, lock, mark, over, timeout, |lock, limit| {
            sk.wait_for_taking(lock, mark, limit)
        });
        if turn == Turn::Interrupted {
            result = Err(interrupted(*timeout));
        }
        if turn != Turn::Look {
            sk.connection().take_blocks_back();
            sk.progress();
        }
    }
}

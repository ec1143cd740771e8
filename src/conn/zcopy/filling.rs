// SPDX-License-Identifier: GPL-2.0-only

//! A receive call whose room the peer fills.
//!
//! The call has one block of its room advertised at a time. One that waits for all of its room to
//! be filled (`MSG_WAITALL`), and has seen the peer fill a block to its end, has several, as many as
//! `recv_adverts` allows: so the peer goes on with the next one while the call takes one back.
//!
//! What is in order the call has by then; what is not, because a block came back before it was
//! full, is told by [`Filled`] and brought in order by the call ([`crate::protocol::settle`]).
//! From the moment that a block falls short, nothing more is advertised and everything is taken
//! back, so that there is little of it.

use super::super::SdpSock;
use super::lent;
use super::waiting::{Turn, Waiting};
use super::{by_read, MOST_PATIENCE};
use crate::observe::trace::{self, ZeroCopy};
use crate::protocol::{Rest, Stage, MOST_PLACES};
use crate::sys::net::message::Destination;
use crate::sys::net::params;
use crate::sys::net::sock::{Locked, State, RCV_SHUTDOWN};
use crate::sys::pin::{Hold, PAGE};
use crate::transport::{Access, Transport, Watch};
use kernel::prelude::*;

/// What a call was given.
pub(crate) struct Filled {
    /// So many bytes are in order, and the call's iterator is behind them.
    pub(crate) whole: usize,
    /// What was written behind that.
    rest: [Option<Rest>; MOST_PLACES],
    /// Memory to move that with, where there may be any to move.
    pub(crate) scratch: KVec<u8>,
}

impl Filled {
    fn new() -> Self {
        Filled {
            whole: 0,
            rest: [None; MOST_PLACES],
            scratch: KVec::new(),
        }
    }

    /// Whether anything can be moved.
    fn may_move(&mut self) -> bool {
        !self.scratch.is_empty() || self.scratch.resize(PAGE, 0, GFP_KERNEL).is_ok()
    }

    fn is_empty(&self) -> bool {
        self.whole == 0 && self.rest().all(|r| r.len == 0)
    }

    /// What is to be brought in order.
    pub(crate) fn rest(&self) -> impl Iterator<Item = Rest> + '_ {
        self.rest.iter().flatten().copied()
    }
}

/// A block of the call.
struct Own {
    size: usize,
    watch: Watch,
}

/// What became of an attempt to offer a block.
enum Offered {
    Block(Own),
    /// Something has come, or as many are out as may be.
    NotNow,
    /// It cannot be had.
    No,
}

/// How a wait for a block has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The peer has given it back.
    Back,
    /// The peer was not told of it, since something came before.
    Withdrawn,
    /// The call has taken all of its memory back.
    TakenBack,
}

/// How many blocks a call may have out that waits for all of its room.
fn most() -> usize {
    usize::try_from(params::recv_adverts())
        .unwrap_or(1)
        .clamp(1, MOST_PLACES)
}

/// Has the peer write to the room that a receive call has left, and waits for that. With nothing
/// that came so, the call goes on as if it had not been tried. `size`: of the first block; `all`: the
/// call waits for all of its room.
pub(crate) fn receive(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    to: &mut Destination<'_>,
    size: usize,
    all: bool,
    timeout: &mut isize,
) -> Filled {
    let mut filled = Filled::new();
    let mut rests = 0;
    let mut own: [Option<Own>; MOST_PLACES] = [const { None }; MOST_PLACES];
    // the oldest block, and the place behind the youngest one
    let (mut oldest, mut next) = (0, 0);
    // where the oldest one begins and the youngest one ends
    let (mut start, mut end) = (0, 0);
    // whether another one may follow, and whether those that are out may stay
    let (mut more, mut open) = (true, true);
    let mut limit = 1;
    let mut withdrawn = false;
    loop {
        while more && next - oldest < limit {
            let want = match next {
                0 => size,
                _ => to.room(),
            };
            match offer(sk, to, want, next > oldest) {
                Offered::Block(block) => {
                    to.skip(block.size);
                    end += block.size;
                    if let Some(place) = own.get_mut(next % MOST_PLACES) {
                        *place = Some(block);
                    }
                    next += 1;
                }
                Offered::NotNow => break,
                Offered::No => more = false,
            }
        }
        let Some(block) = own.get_mut(oldest % MOST_PLACES).and_then(Option::take) else {
            break;
        };
        oldest += 1;
        let how = wait(sk, lock, open, timeout);
        let (len, at) = retire(sk, lock, &block);
        let whole = len == block.size;
        if start == filled.whole && whole {
            filled.whole += len;
        } else if let Some(rest) = filled.rest.get_mut(rests) {
            *rest = Some(Rest {
                place: start,
                len: len as u32,
                at,
            });
            rests += 1;
        }
        start += block.size;
        withdrawn |= how == Wait::Withdrawn;
        open &= how == Wait::Back && whole;
        // several only behind one that shows that the peer fills them
        more &= all && open && most() > 1 && filled.may_move();
        limit = most();
    }
    if next > 0 {
        let skips = &mut sk.connection().direct.sink_skips;
        match filled.is_empty() {
            // that something came first says nothing
            true if withdrawn => {}
            // without READs the sender may be waiting for it
            true if by_read() => skips.failed(),
            _ => skips.worked(),
        }
    }
    for rest in filled.rest.iter_mut().flatten() {
        rest.place -= filled.whole;
    }
    to.give_back(end - filled.whole);
    filled
}

/// Pins the next `size` bytes of the call's room and offers them, or fewer; `behind` others of the
/// call that are out.
fn offer(sk: &SdpSock, to: &mut Destination<'_>, size: usize, behind: bool) -> Offered {
    let size = {
        let c = sk.connection();
        if behind == c.direct.sinks.is_empty() {
            // of another call, or none any more
            return Offered::No;
        }
        c.another_sink(size)
    };
    if size == 0 {
        return Offered::NotNow;
    }
    let failed = || {
        if !behind {
            sk.connection().direct.sink_skips.failed();
        }
        Offered::No
    };
    let Some(mut room) = sk.pinning_room(to.piece(size)) else {
        return failed();
    };
    let pinned = match sk.account() {
        Some(account) => room
            .pin_destination(to, size, Hold::Long, account)
            .unwrap_or(0),
        None => 0,
    };
    let Some(watch) = room.watch().filter(|_| pinned > 0) else {
        sk.connection().stats.unpinnable += 1;
        sk.give_back_room(room);
        return failed();
    };
    let mut c = sk.connection();
    let fits = c.sink_fits(u32::try_from(pinned).unwrap_or(0))
        && c.direct.sinks.has_room()
        && behind != c.direct.sinks.is_empty();
    let cookie = c.direct.next_block();
    let lent = match c.channel.as_mut().filter(|_| fits) {
        Some(channel) => lent::lend(channel, room, Access::Write, cookie),
        None => Err(Some(room)),
    };
    match lent {
        Ok(lent) => {
            // there is room, as was asked
            let _ = c.direct.sinks.push(lent);
            c.progress();
            drop(c);
            Offered::Block(Own {
                size: pinned,
                watch,
            })
        }
        Err(room) => {
            // Less was pinned than is worth while: the call must not try again at once. It may
            // if something came meanwhile.
            let little = c.sink_fits(u32::try_from(size).unwrap_or(0));
            drop(c);
            if let Some(room) = room {
                sk.give_back_room(room);
            }
            match little {
                true => failed(),
                false => Offered::NotNow,
            }
        }
    }
}

/// Takes the oldest block out, which is the caller's again: how much of it was written, and where in
/// the stream that begins.
fn retire(sk: &SdpSock, lock: &mut Locked<'_>, block: &Own) -> (usize, u64) {
    let (len, at, room) = {
        let mut c = sk.connection();
        let Some(back) = c.direct.sinks.take() else {
            return (0, 0);
        };
        trace::zero_copy(sk, ZeroCopy::WrittenByPeer, back.size, back.done);
        let room = c.channel.as_mut().and_then(|c| c.reclaim(back.loan).ok());
        (back.done as usize, back.at, room)
    };
    match room {
        Some(room) => sk.give_back_room(room),
        None => sk.wait_released(lock, &block.watch),
    }
    (len, at)
}

/// Waits until the oldest block is the caller's again, or the connection is lost. Unless the call is
/// `open`, all its memory is taken back.
fn wait(sk: &SdpSock, lock: &mut Locked<'_>, open: bool, timeout: &mut isize) -> Wait {
    let mut waiting = Waiting::new(MOST_PATIENCE);
    let mut how = Wait::Back;
    let mut over = !open;
    loop {
        let mark = sk.wake_mark();
        {
            let mut c = sk.connection();
            let fits = c.offered_sink().is_some();
            let sinks = &mut c.direct.sinks;
            let Some(oldest) = sinks.oldest() else {
                return how;
            };
            if oldest.stage == Stage::Offered && !fits {
                // something came before the peer was told
                how = Wait::Withdrawn;
                sinks.withdraw();
            } else if oldest.is_back() {
                return how;
            }
            // what lies behind a hole is wanted back at once
            over |= sinks.fell_short() && sinks.iter().any(|b| b.is_out());
        }
        let closed = sk.has_error()
            || sk.shutdown() & RCV_SHUTDOWN != 0
            || sk.peer_has_ended()
            || sk.state() == State::Close;
        let turn = waiting.sleep(sk, lock, mark, over || closed, timeout, |lock, limit| {
            sk.wait_to_read(lock, mark, limit)
        });
        // (a signal is seen again by the call)
        if turn != Turn::Look {
            if how == Wait::Back {
                how = Wait::TakenBack;
            }
            let mut c = sk.connection();
            c.take_sinks_back();
            c.progress();
        }
    }
}

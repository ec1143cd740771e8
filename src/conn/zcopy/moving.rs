// SPDX-License-Identifier: GPL-2.0-only

//! What a call moves itself, by RDMA READ or WRITE.
//!
//! Pieces of its memory stand in line ([`crate::protocol::Line`]), with what the peer has advertised
//! at the other end. The peer's device answers without its program, so the call waits for the end,
//! whatever it was told about waiting.

use super::super::{Connection, SdpSock, Wakeups};
use super::waiting::Dying;
use crate::observe::trace::{self, ZeroCopy};
use crate::protocol::{Line, Progress, Remote};
use crate::sys::errno::ECONNABORTED;
use crate::sys::net::sock::{Locked, FOREVER};
use crate::transport::{Channel, Loan, Pinned, Transfer, Transport, Watch};
use kernel::prelude::*;

/// Which way the bytes go; also the last bit of the cookies of transfers, the others being the number of
/// the piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By READ, from the peer.
    Read = 0,
    /// By WRITE, to the peer.
    Write = 1,
}

impl Way {
    fn cookie(self, number: u64) -> u64 {
        number << 1 | self as u64
    }

    fn of(cookie: u64) -> (Self, u64) {
        let way = match cookie & 1 {
            0 => Way::Read,
            _ => Way::Write,
        };
        (way, cookie >> 1)
    }
}

impl From<Way> for ZeroCopy {
    fn from(way: Way) -> Self {
        match way {
            Way::Read => ZeroCopy::Read,
            Way::Write => ZeroCopy::Written,
        }
    }
}

/// Posts the next request, and tells for how many bytes, and whether these are the call's last; 0
/// bytes: there is no room now, or nothing to post. Nothing more comes if the peer has nothing more
/// advertised.
pub(super) fn post(
    line: &mut Line<Loan>,
    channel: &mut Channel,
    way: Way,
    remote: Option<Remote>,
) -> Result<(u32, bool)> {
    let Some(next) = line.next() else {
        return Ok((0, false));
    };
    let Some(remote) = remote else {
        line.cut();
        return Ok((0, false));
    };
    let posted = channel.transfer(
        next.loan,
        &Transfer {
            read: way == Way::Read,
            offset: next.offset,
            len: next.len.min(remote.size),
            address: remote.address,
            rkey: remote.r_key,
            cookie: way.cookie(next.number),
        },
    );
    match posted {
        Ok(n) => Ok((n, line.posted(n))),
        Err(e) if e == ENOSPC => Ok((0, false)),
        Err(e) => Err(e),
    }
}

impl Connection {
    /// What a call has in line in one direction.
    pub(super) fn line(&mut self, way: Way) -> &mut Line<Loan> {
        match way {
            Way::Read => &mut self.direct.reading,
            Way::Write => &mut self.direct.writing,
        }
    }

    /// A READ or WRITE of `n` bytes is complete.
    pub(crate) fn moved(&mut self, cookie: u64, n: u32, wakeups: &mut Wakeups) {
        let (way, number) = Way::of(cookie);
        match way {
            Way::Read => {
                if let Some(p) = self.protocol.as_mut() {
                    p.read_done(n);
                }
                self.stats.bytes_received += u64::from(n);
                self.stats.direct_received += u64::from(n);
            }
            Way::Write => {
                self.stats.bytes_sent += u64::from(n);
                self.stats.direct_written += u64::from(n);
                self.heard.progress(crate::sys::time::jiffies());
            }
        }
        wakeups.direct |= self.line(way).moved(number, n);
    }
}

/// Waits until a call's oldest piece is over and gives its memory back. Returns how many bytes were
/// moved, and whether the connection was lost meanwhile.
pub(super) fn finish(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    way: Way,
    watch: &Watch,
    dying: &mut Dying,
) -> (u32, bool) {
    let lost = wait(sk, lock, way, dying, |_| false).unwrap_or(false);
    let (done, room): (u32, Option<Pinned>) = {
        let mut c = sk.connection();
        let Some(moved) = c.line(way).take() else {
            return (0, lost);
        };
        trace::zero_copy(sk, way.into(), moved.len, moved.done);
        let room = c.channel.as_mut().and_then(|c| c.reclaim(moved.loan).ok());
        (moved.done, room)
    };
    match room {
        Some(room) => sk.give_back_room(room),
        None => sk.wait_released(lock, watch),
    }
    (done, lost)
}

/// Waits until all requests of the oldest piece are complete; whether the connection is lost instead, or
/// nothing if `sooner` is true of the connection before. Only death makes this end earlier, and not at
/// once.
pub(super) fn wait(
    sk: &SdpSock,
    lock: &mut Locked<'_>,
    way: Way,
    dying: &mut Dying,
    sooner: impl Fn(&Connection) -> bool,
) -> Option<bool> {
    loop {
        let mark = sk.wake_mark();
        {
            let mut c = sk.connection();
            match c.line(way).progress() {
                Some(Progress::Done) | None => return Some(false),
                Some(Progress::Lost) => return Some(true),
                Some(Progress::Moving) if sooner(&c) => return None,
                Some(Progress::Moving) => {}
            }
        }
        if !dying.sleep(sk, lock, mark, FOREVER as usize) {
            sk.give_up(ECONNABORTED);
        }
    }
}

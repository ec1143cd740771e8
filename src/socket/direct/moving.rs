// SPDX-License-Identifier: GPL-2.0-only

//! What a call moves itself, by RDMA READ or WRITE.
//!
//! A [`Moving`] is the transfer of one call, with memory of its own at one end and what the peer has
//! advertised at the other. The peer's device answers without its program, so the call waits for
//! the end, whatever it was told about waiting.

use super::super::connection::{Connection, Tell};
use super::super::{SdpSock, Socket};
use crate::observe::trace::{self, ZeroCopy};
use crate::protocol::Remote;
use crate::sys::errno::ECONNABORTED;
use crate::sys::net::sock::{Locked, FOREVER};
use crate::transport::{Channel, Loan, Pinned, Transfer, Transport, Watch};
use kernel::prelude::*;

/// Which way the bytes go; also the cookie of the transfers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By READ, from the peer.
    Read = 0,
    /// By WRITE, to the peer.
    Write = 1,
}

impl From<Way> for ZeroCopy {
    fn from(way: Way) -> Self {
        match way {
            Way::Read => ZeroCopy::Read,
            Way::Write => ZeroCopy::Written,
        }
    }
}

/// The transfer of one call.
pub(super) struct Moving {
    loan: Loan,
    /// Bytes to move.
    pub(super) len: u32,
    /// Bytes for which requests were posted.
    pub(super) started: u32,
    /// Bytes that have arrived.
    done: u32,
    /// The connection is lost, and with it what was to come.
    lost: bool,
    /// The peer had not enough advertised.
    short: bool,
}

impl Moving {
    /// Nothing is posted yet of `len` bytes.
    pub(super) fn new(loan: Loan, len: u32) -> Self {
        Moving {
            loan,
            len,
            started: 0,
            done: 0,
            lost: false,
            short: false,
        }
    }

    /// The connection is lost.
    pub(super) fn lost(&mut self) {
        self.lost = true;
    }

    /// Whether there is less to move than the call waits for, which it is told once.
    pub(super) fn is_short(&mut self) -> bool {
        core::mem::replace(&mut self.short, false)
    }

    /// Whether there is something left to post.
    pub(super) fn goes_on(&self) -> bool {
        !self.lost && self.started < self.len
    }

    /// Posts the next request, and tells for how many bytes; 0: there is no room now. Nothing more
    /// comes if the peer has nothing more advertised.
    pub(super) fn post(
        &mut self,
        channel: &mut Channel,
        way: Way,
        remote: Option<Remote>,
    ) -> Result<u32> {
        let Some(remote) = remote else {
            (self.len, self.short) = (self.started, true);
            return Ok(0);
        };
        let posted = channel.transfer(
            self.loan,
            &Transfer {
                read: way == Way::Read,
                offset: self.started,
                len: (self.len - self.started).min(remote.size),
                address: remote.address,
                rkey: remote.r_key,
                cookie: way as u64,
            },
        );
        match posted {
            Ok(n) => {
                self.started = self.started.saturating_add(n);
                Ok(n)
            }
            Err(e) if e == ENOSPC => Ok(0),
            Err(e) => Err(e),
        }
    }
}

impl Connection {
    /// The call's transfer in one direction.
    pub(super) fn moving(&mut self, way: Way) -> &mut Option<Moving> {
        match way {
            Way::Read => &mut self.direct.reading,
            Way::Write => &mut self.direct.writing,
        }
    }

    /// A READ or WRITE of `n` bytes is complete.
    pub(in crate::socket) fn moved(&mut self, cookie: u64, n: u32, tell: &mut Tell) {
        let way = match cookie {
            0 => Way::Read,
            _ => Way::Write,
        };
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
                self.last_progress = crate::sys::time::jiffies();
            }
        }
        if let Some(m) = self.moving(way) {
            m.done = m.done.saturating_add(n);
            tell.direct |= m.done == m.len;
        }
    }
}

/// Waits until a call's transfer is over and gives its memory back. Returns how many bytes were
/// moved, and whether the connection was lost meanwhile.
pub(super) fn finish(
    sk: &SdpSock,
    lock: &mut Locked<'_, Socket>,
    way: Way,
    loan: Loan,
    watch: &Watch,
) -> (u32, bool) {
    let lost = wait(sk, lock, way);
    let (done, room): (u32, Option<Pinned>) = {
        let mut c = sk.data().connection.lock();
        let (len, done) = c.moving(way).take().map_or((0, 0), |m| (m.len, m.done));
        trace::zero_copy(sk, way.into(), len, done);
        (done, c.channel.as_mut().and_then(|c| c.reclaim(loan).ok()))
    };
    match room {
        Some(room) => sk.give_back_room(room),
        None => sk.wait_released(lock, watch),
    }
    (done, lost)
}

/// Waits until all requests are complete; whether the connection is lost instead. Only death makes
/// this end earlier.
fn wait(sk: &SdpSock, lock: &mut Locked<'_, Socket>, way: Way) -> bool {
    loop {
        let mark = sk.wake_mark();
        match sk.data().connection.lock().moving(way) {
            Some(m) if m.done == m.len => return false,
            Some(m) if m.lost => return true,
            Some(_) => {}
            None => return false,
        }
        if sk.wait_killably(lock, mark, FOREVER as usize).is_err() {
            sk.give_up(ECONNABORTED);
        }
    }
}

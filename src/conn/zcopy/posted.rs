// SPDX-License-Identifier: GPL-2.0-only

//! Memory that the transport has: it is read or written by a call's own transfers ([`Way`]), or by the
//! peer, whose access is ended in the end.

use super::advert::{Advert, AdvertState};
use super::transfer::TransferQueue;
use crate::protocol::Remote;
use crate::transport::{Endpoint, Loan, Transfer, Transport, Watch};
use kernel::prelude::*;

/// Memory that the transport has.
#[derive(Clone)]
pub(super) struct Posted {
    pub(super) id: Loan,
    /// Tells when it is let go of, where it cannot be taken back.
    pub(super) watch: Watch,
}

/// Ends the peer's access to a piece if it is time to, as soon as there is room for that.
pub(super) fn end_access(advert: &mut Advert<Posted>, endpoint: &mut Endpoint) -> Result {
    if advert.state == AdvertState::Done {
        match endpoint.invalidate(advert.memory.id, advert.cookie) {
            Ok(()) => advert.invalidating(),
            Err(e) if e == ENOSPC => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Which way bytes go that a call moves itself; also the last bit of the cookies of transfers, the others
/// being the number of the piece. The peer's device answers without its program, so the call waits for the
/// end, whatever it was told about waiting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By READ, from the peer.
    Read = 0,
    /// By WRITE, to the peer.
    Write = 1,
}

/// Marks the cookie of a WRITE or message with the rest of a block; the others are its own cookie.
pub(super) const REST: u64 = 1 << 63;

impl Way {
    fn cookie(self, number: u64) -> u64 {
        number << 1 | self as u64
    }

    pub(super) fn of(cookie: u64) -> (Self, u64) {
        let way = match cookie & 1 {
            0 => Way::Read,
            _ => Way::Write,
        };
        (way, cookie >> 1)
    }

    /// Posts the next request, and tells for how many bytes, and whether these are the call's last; 0
    /// bytes: there is no room now, or nothing to post. Nothing more comes if the peer has nothing more
    /// advertised.
    pub(super) fn post(
        self,
        queue: &mut TransferQueue<Posted>,
        endpoint: &mut Endpoint,
        remote: Option<Remote>,
    ) -> Result<(u32, bool)> {
        let Some(next) = queue.next() else {
            return Ok((0, false));
        };
        let Some(remote) = remote else {
            queue.cut();
            return Ok((0, false));
        };
        let posted = endpoint.transfer(
            next.memory.id,
            &Transfer {
                read: self == Way::Read,
                offset: next.offset,
                len: next.len.min(remote.size),
                address: remote.address,
                rkey: remote.r_key,
                cookie: self.cookie(next.number),
            },
        );
        match posted {
            Ok(n) => Ok((n, queue.posted(n))),
            Err(e) if e == ENOSPC => Ok((0, false)),
            Err(e) => Err(e),
        }
    }
}

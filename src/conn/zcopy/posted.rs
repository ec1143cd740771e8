// SPDX-License-Identifier: GPL-2.0-only

//! Memory lent to the transport, for a call's own transfers ([`Way`]) or for access by the peer.

use super::advert::{Advert, AdvertState};
use super::transfer::TransferQueue;
use crate::protocol::Remote;
use crate::transport::{Endpoint, Loan, Transfer, Transport, Watch};
use kernel::prelude::*;

/// Memory lent to the transport.
#[derive(Clone)]
pub(super) struct Posted {
    pub(super) id: Loan,
    /// Reports the release where the memory cannot be reclaimed.
    pub(super) watch: Watch,
}

/// Posts the invalidation of a piece if it is due and there is space.
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

/// Direction of a call's own transfers; also the last bit of their cookies, the others being the
/// number of the piece. The peer's device replies without its program, so the call waits for the
/// end even if it is non-blocking.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By READ, from the peer.
    Read = 0,
    /// By WRITE, to the peer.
    Write = 1,
}

/// Flag in the cookie of a WRITE or message with the rest of a block; the other bits are the
/// block's cookie.
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

    /// Posts the next request. Returns the number of bytes, and true if these are the call's last.
    /// 0 bytes: no space now, or nothing to post. Cuts the queue if the peer's adverts are used
    /// up.
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

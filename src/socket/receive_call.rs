// SPDX-License-Identifier: GPL-2.0-only

//! State of one receive call, for local and for RDMA connections.

use crate::conn::SdpSock;
use crate::sys::errno::{EAGAIN, ENOTCONN};
use crate::sys::net::message::RecvMsg;
use crate::sys::net::sock::{State, RCV_SHUTDOWN};
use kernel::prelude::*;

/// State of one receive call.
pub(super) struct Call<'a> {
    pub(super) sk: &'a SdpSock,
    pub(super) peek: bool,
    pub(super) discard: bool,
    /// Set once the call is counted.
    pub(super) begun: bool,
    /// Set if the call returns the number of bytes left (`TCP_INQ`).
    pub(super) inq: bool,
    pub(super) len: usize,
    pub(super) copied: usize,
    /// With `MSG_PEEK`, the position behind the peeked bytes.
    pub(super) peeked: u64,
}

/// Result of one step of a receive call.
pub(super) enum NextBytes {
    /// Bytes were copied; more bytes may be available.
    Copied,
    /// The urgent mark is next: one call never returns bytes from both sides of the mark.
    Mark,
    /// The next bytes are in an advert of the peer.
    Advert,
    /// No bytes.
    Nothing,
}

impl Call<'_> {
    pub(super) fn left(&self) -> usize {
        self.len.saturating_sub(self.copied)
    }

    /// Copies the bytes from `at` on to the caller, or discards them. The first `skip` bytes are
    /// not for the caller. Returns the number of bytes read, skipped ones included.
    #[inline]
    pub(super) fn give(
        &mut self,
        to: &mut RecvMsg<'_>,
        bytes: &[u8],
        (at, skip): (u64, usize),
    ) -> usize {
        let given = match self.discard {
            true => {
                to.skip(bytes.len());
                bytes.len()
            }
            false => to.give(bytes),
        };
        self.copied = self.copied.saturating_add(given);
        let read = given.saturating_add(skip);
        if self.peek {
            self.peeked = at.wrapping_add(read as u64);
        }
        read
    }

    /// Returns the result of a call that must not wait for more bytes; `None` if the call may wait.
    pub(super) fn nothing(&self, timeout: isize, ended: bool) -> Option<Result> {
        match self.copied {
            0 => nothing(self.sk, timeout, ended),
            _ => Some(Ok(())),
        }
    }
}

/// Returns true if nothing more will arrive, or an error is pending.
pub(super) fn ended(sk: &SdpSock) -> bool {
    sk.has_error()
        || sk.shutdown() & RCV_SHUTDOWN != 0
        || sk.peer_has_ended()
        || sk.state() == State::Close
}

/// Returns the result of a call that has received nothing; `None` if the call may wait.
pub(super) fn nothing(sk: &SdpSock, timeout: isize, ended: bool) -> Option<Result> {
    if ended {
        if sk.peer_has_ended() {
            return Some(Ok(()));
        }
        if let Err(e) = sk.take_error() {
            return Some(Err(e));
        }
        if sk.shutdown() & RCV_SHUTDOWN != 0 {
            return Some(Ok(()));
        }
        if sk.state() == State::Close {
            return Some(Err(ENOTCONN.into()));
        }
    }
    (timeout == 0).then_some(Err(EAGAIN.into()))
}

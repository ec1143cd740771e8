// SPDX-License-Identifier: GPL-2.0-only

//! Sockets of `IPPROTO_SDP` use SDP if the peer replies by SDP, else TCP.
//!
//! The descriptor of an `IPPROTO_SDP` socket has an SDP [`Socket`] and a TCP socket. Until
//! connect(2), every call applies to both sockets: both have the same port and options, and both
//! listen. connect(2) tries SDP. If SDP succeeds, the TCP socket only keeps the port reserved. If
//! SDP fails, the open file switches to the TCP socket ([`to_tcp`]). An accepted connection is SDP
//! or TCP from the beginning.
//!
//! # Why SDP and TCP are not tried at the same time
//!
//! SDP and TCP are tried one after the other. A SYN and a Hello sent together could both reach a
//! listening program, and one of the two connections would end at once. SDP has to reply within
//! `ipproto_wait`; most peers without SDP refuse much sooner. After a failure of SDP, TCP is tried.
//!
//! A peer may neither support SDP nor refuse it; only a timeout distinguishes such a peer from a
//! slow one. The timeout starts with the request, after the neighbour is resolved, which TCP needs,
//! too. For a host that has replied recently, the timeout allows one more request.
//!
//! # Deciding between SDP and TCP
//!
//! The connection's spinlock protects the [`Phase`], which events change. Before connect(2) the
//! phase is `Open`. In phase `Open`, a call that takes long or may fault holds the mutex of
//! [`SockCore::decide`](crate::sys::net::sock::SockCore::decide). connect(2) takes the mutex to
//! begin. A worker that falls back to TCP thus never waits for a program; later calls wait for it.

mod bind;
mod connect;
mod options;
mod to_tcp;

pub(super) use bind::listen;
pub(super) use options::set_route;
pub(super) use to_tcp::fall_back;

use crate::conn::fallback::{Phase, Route};
use crate::conn::{FallbackReason, SdpSock, Socket};
use crate::sys::errno::{EAGAIN, ENOBUFS};
use crate::sys::net::family::{DualOps, FallbackState};
use crate::sys::net::sock::{State, FOREVER};
use kernel::prelude::*;

fn phase(sk: &SdpSock) -> Phase {
    sk.connection().fallback.phase
}

/// Returns the descriptor's current protocol.
fn chosen(sk: &SdpSock) -> FallbackState {
    match sk.state() {
        State::Close | State::Listen | State::SynSent | State::SynRecv => {
            sk.connection().fallback.chosen()
        }
        // connected by SDP: with a TCP connection, the SDP socket has state Close
        _ => FallbackState::Sdp,
    }
}

/// Socket calls that differ from those of families 27 and 28.
pub(super) const OPS: DualOps<Socket> = DualOps {
    begun,
    undone: |sk| sk.netns().leave(sk),
    chosen,
    settled,
    given_up,
    leave_port: connect::leave_port,
    prefer_tcp: options::prefer_tcp,
    bind: bind::bind,
    connect: connect::connect,
    accept: bind::accept,
    set: options::set,
    get: options::get,
    closing: to_tcp::closing,
};

fn begun(sk: &SdpSock) -> Result {
    let only_tcp = match sk.netns().enter(sk) {
        Ok(()) => None,
        Err(e) if e == ENOBUFS.into() => Some(FallbackReason::Limit),
        Err(e) => return Err(e),
    };
    let mut c = sk.connection();
    (c.fallback.phase, c.fallback.only_tcp) = (Phase::Open, only_tcp);
    c.fallback.route = Some(Route::Both);
    Ok(())
}

fn settled(sk: &SdpSock, mut timeout: isize) -> Result<FallbackState> {
    loop {
        let seq = sk.event_seq();
        match chosen(sk) {
            FallbackState::Neither if timeout == 0 => return Err(EAGAIN.into()),
            FallbackState::Neither => timeout = sk.sleep(seq, timeout)?,
            side => return Ok(side),
        }
    }
}

fn given_up(sk: &SdpSock) -> Result<FallbackState> {
    loop {
        let seq = sk.event_seq();
        {
            let mut c = sk.connection();
            match c.fallback.phase {
                Phase::Trying | Phase::Falling => {
                    c.fallback.dissolve();
                    return Ok(FallbackState::Sdp);
                }
                Phase::Crossing => {}
                _ => return Ok(c.fallback.chosen()),
            }
        }
        sk.sleep(seq, FOREVER)?;
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Sockets of `IPPROTO_SDP`: SDP where the peer answers by it, TCP where it does not.
//!
//! Such a socket is an ordinary [`Socket`] beneath whose descriptor there is a TCP
//! socket as well. Until a connection is asked for, whatever is done to the descriptor is done to
//! both: they hold the same port, have the same options, listen both. connect(2) tries SDP. Either
//! that succeeds, and the TCP socket does nothing any more but hold its port; or it does not, and
//! the open file becomes the TCP socket's ([`to_tcp`]). The new connections of a listener are
//! sockets of one kind or the other from the beginning.
//!
//! # Why not both at the same time
//!
//! A SYN and a Hello that go out together both reach the program of a peer that listens for both: it
//! would be given a connection that dies at once. So SDP has a time to answer (`ipproto_wait`); most
//! peers without it say so much sooner. Then TCP has its turn.
//!
//! A peer without SDP stays silent, like a slow one, so that only time distinguishes them. The
//! time counts from the sent request; before, the neighbour is resolved, which TCP has to wait for
//! as well. A host that has replied lately gets the time for another request, should the first be
//! lost.
//!
//! # Who decides
//!
//! How far it has come is the [`Phase`], under the connection's spinlock: events that decide for SDP,
//! or against it, change it there. A call that takes long, or may sleep in a page fault, holds the
//! right to decide ([`SockCore::decide`](crate::sys::net::sock::SockCore::decide)) as long as it is `Open`,
//! and connect(2) needs that to begin. So whoever falls back to TCP, in a worker, does not wait for a
//! program: calls that come in between wait for the worker.

mod bind;
mod connect;
mod options;
mod peer_cache;
mod route;
mod to_tcp;

pub(super) use bind::listen;
pub(super) use peer_cache::{answered, timeout_for, PeerCache};
pub(super) use route::set as set_route;
pub(super) use to_tcp::fall_back;

use crate::conn::fallback::{Phase, Route};
use crate::conn::{FallbackReason, SdpSock, Socket};
use crate::sys::errno::{EAGAIN, ENOBUFS};
use crate::sys::net::family::{DualOps, FallbackState};
use crate::sys::net::sock::{State, FOREVER};
use kernel::prelude::*;

/// State of the decision.
fn phase(sk: &SdpSock) -> Phase {
    sk.connection().fallback.phase
}

/// Current kind of the descriptor.
fn chosen(sk: &SdpSock) -> FallbackState {
    match sk.state() {
        State::Close | State::Listen | State::SynSent | State::SynRecv => {
            sk.connection().fallback.chosen()
        }
        // connected, and not by TCP: those have state Close here
        _ => FallbackState::Sdp,
    }
}

/// The calls that differ from those of families 27 and 28.
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

// SPDX-License-Identifier: GPL-2.0-only

//! bind(2), listen(2) and accept(2), on the SDP socket and its TCP socket.
//!
//! TCP chooses the port and reports errors. If SDP cannot take the same address and port, the
//! socket becomes a TCP socket.

use super::options::route;
use super::to_tcp::hand_to_tcp;
use crate::conn::fallback::{Phase, Route};
use crate::conn::{FallbackReason, SdpSock, Socket};
use crate::socket::bind::{choose_port, note_bind};
use crate::socket::{self, listen as sdp};
use crate::sys::address::Address;
use crate::sys::errno::{EADDRINUSE, EADDRNOTAVAIL, EAGAIN, EINVAL, ENOBUFS};
use crate::sys::net::descriptor::Descriptor;
use crate::sys::net::sock::{State, Unaccepted};
use crate::sys::net::tcp::{Name, Tcp};
use kernel::prelude::*;

/// Maximum number of ports that TCP may choose until one is also free in SDP.
const TRIES: u32 = 100;

pub(super) fn bind(call: &Descriptor<'_, Socket>, name: &Name) -> Result {
    let sk = call.sk;
    let decision = sk.decide();
    let tcp = decision.tcp().ok_or(EINVAL)?;
    match (super::phase(sk), route(sk)) {
        (Phase::Settled, _) => return call.bind_sdp(name.bytes()),
        (Phase::Open, Route::Sdp) if tcp.port() == 0 => return call.bind_sdp(name.bytes()),
        (Phase::Open, Route::Tcp) => {
            tcp.bind(name)?;
            let _lock = sk.lock();
            sk.share_name(Some(&tcp));
            return Ok(());
        }
        (Phase::Open, Route::Both) if only_tcp(sk, &tcp) => {}
        (Phase::Open, Route::Both) if tcp.port() == 0 && sk.state() == State::Close => {
            return bind_both(sk, &tcp, name);
        }
        (Phase::Open, Route::Both) | (Phase::Tcp, _) => {}
        _ => return Err(EINVAL.into()),
    }
    tcp.bind(name)
}

fn bind_both(sk: &SdpSock, tcp: &Tcp<'_>, name: &Name) -> Result {
    let interface = sk.bound_interface();
    for _ in 0..TRIES {
        tcp.bind(name)?;
        match join(sk, tcp) {
            Err(e) if e == EADDRNOTAVAIL.into() => {
                hand_to_tcp(sk, tcp, FallbackReason::Address, None);
                return Ok(());
            }
            Err(e) => {
                tcp.unbind(interface);
                if e != EADDRINUSE.into() || !name.wants_port() {
                    return Err(e);
                }
            }
            Ok(()) => return Ok(()),
        }
    }
    tcp.bind(name)?;
    hand_to_tcp(sk, tcp, FallbackReason::Port, None);
    Ok(())
}

/// Switches the socket to TCP alone, if SDP cannot be used.
fn only_tcp(sk: &SdpSock, tcp: &Tcp<'_>) -> bool {
    let why = sk.connection().fallback.only_tcp;
    if let Some(why) = why {
        hand_to_tcp(sk, tcp, why, None);
    }
    why.is_some()
}

/// Assigns TCP's address and port to the SDP socket.
fn join(sk: &SdpSock, tcp: &Tcp<'_>) -> Result {
    let r = {
        let _lock = sk.lock();
        match sk.share_name(Some(tcp)).port {
            0 => Ok(()),
            port => socket::bind::take_port(sk, port),
        }
    };
    joined(sk, r)
}

fn joined(sk: &SdpSock, r: Result) -> Result {
    if r.is_err() {
        let _lock = sk.lock();
        sk.share_name(None);
    }
    note_bind(sk, &sk.local(), r);
    r
}

/// Ensures that the socket has a port, for a connection to `to` if given.
pub(super) fn take_port(sk: &SdpSock, tcp: &Tcp<'_>, to: Option<&Address>) -> Result {
    if sk.port() != 0 {
        return Ok(());
    }
    // bind(2) chose the port while the program wanted TCP, or set the address alone
    join(sk, tcp)?;
    if sk.port() != 0 {
        return Ok(());
    }
    let port = choose_port(sk, to, Some(&tcp.ports()));
    joined(sk, port.map(|_| ()))?;
    let _lock = sk.lock();
    sk.set_port(port?);
    Ok(())
}

/// Decides between SDP and TCP if the program wants one of them, or SDP cannot be used. Returns
/// false while both SDP and TCP remain possible. The socket keeps the port of bind(2).
///
/// `ENOBUFS`: the program wants SDP, which cannot be used. Other errors: those of [`take_port`].
pub(super) fn follows_route(sk: &SdpSock, tcp: &Tcp<'_>) -> Result<bool> {
    match route(sk) {
        Route::Both => return Ok(only_tcp(sk, tcp)),
        Route::Tcp => hand_to_tcp(sk, tcp, FallbackReason::Chosen, None),
        Route::Sdp => {
            if sk.connection().fallback.only_tcp.is_some() {
                return Err(ENOBUFS.into());
            }
            if tcp.port() != 0 {
                take_port(sk, tcp, None)?;
                tcp.unbind(sk.bound_interface());
            }
            sk.connection().fallback.phase = Phase::Settled;
        }
    }
    Ok(true)
}

pub(in crate::socket) fn listen(call: &Descriptor<'_, Socket>, backlog: u32) -> Result {
    let sk = call.sk;
    let decision = sk.decide();
    let Some(tcp) = decision.tcp() else {
        return sdp::listen(call, backlog);
    };
    if super::phase(sk) == Phase::Open && !follows_route(sk, &tcp)? {
        if let Err(e) = take_port(sk, &tcp, None) {
            hand_to_tcp(sk, &tcp, FallbackReason::of_port(e), None);
        }
    }
    match super::phase(sk) {
        Phase::Tcp => return tcp.listen(backlog),
        Phase::Settled => return sdp::listen(call, backlog),
        Phase::Open => {}
        _ => return Err(EINVAL.into()),
    }
    let listened = sk.state() == State::Listen;
    sdp::listen(call, backlog)?;
    let r = tcp.listen(backlog);
    if r.is_err() && !listened {
        let _lock = sk.lock();
        sdp::stop(sk);
    }
    r
}

/// Implements accept(2): takes connections from the SDP and the TCP socket in turn.
pub(super) fn accept(
    call: &Descriptor<'_, Socket>,
    non_blocking: bool,
    tcp: &mut dyn FnMut(&Tcp<'_>) -> Result,
) -> Result<Option<Unaccepted<Socket>>> {
    let sk = call.sk;
    let mut timeout = sk.receive_timeout(non_blocking);
    let mut tcp_first = {
        let mut c = sk.connection();
        c.fallback.tcp_next = !c.fallback.tcp_next;
        c.fallback.tcp_next
    };
    let count = |o| sk.connection().stats.count_outcome(o);
    if super::phase(sk) == Phase::Settled {
        let child = sdp::accept(sk, non_blocking)?;
        count(FallbackReason::Accepted);
        return Ok(Some(child));
    }
    'again: loop {
        let seq = sk.event_seq();
        let listens = sk.state() == State::Listen;
        // an option may have switched this socket to TCP
        let only_tcp = super::phase(sk) == Phase::Tcp;
        if !listens && !only_tcp {
            return Err(EINVAL.into());
        }
        for _ in 0..2 {
            let r = match call.tcp() {
                Some(t) if tcp_first || only_tcp => tcp(&t).map(|()| None),
                _ => sdp::accept(sk, true).map(Some),
            };
            match r {
                Ok(child) => {
                    count(match child {
                        Some(_) => FallbackReason::Accepted,
                        None => FallbackReason::AcceptedTcp,
                    });
                    return Ok(child);
                }
                Err(e) if e == EAGAIN.into() => {}
                Err(_) if !only_tcp && super::phase(sk) == Phase::Tcp => continue 'again,
                Err(e) => return Err(e),
            }
            tcp_first = !tcp_first;
        }
        if timeout == 0 {
            return Err(EAGAIN.into());
        }
        timeout = sk.sleep_in_turn(seq, timeout)?;
    }
}

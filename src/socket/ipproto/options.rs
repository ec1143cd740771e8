// SPDX-License-Identifier: GPL-2.0-only

//! setsockopt(2) and getsockopt(2). Options set before the protocol is decided are set on both the
//! SDP and the TCP socket. With `SDP_ROUTE`, the program selects SDP, TCP or both.

use super::to_tcp::hand_to_tcp;
use crate::conn::fallback::{Phase, Route};
use crate::conn::{FallbackReason, SdpSock, Socket};
use crate::socket::listen;
use crate::sys::address::Address;
use crate::sys::bindings as c;
use crate::sys::errno::{EINVAL, EISCONN, ENOPROTOOPT};
use crate::sys::net::descriptor::Descriptor;
use crate::sys::net::family::{FallbackState, TcpOption};
use crate::sys::net::sock::{State, FOREVER};
use crate::sys::net::tcp::Name;
use kernel::prelude::*;

/// Implements setsockopt(2). TCP checks the values of options that TCP has. If SDP does not support
/// the requested option, the socket switches to TCP.
pub(super) fn set(
    call: &Descriptor<'_, Socket>,
    level: i32,
    name: i32,
    tcp: TcpOption<'_>,
    sdp: &dyn Fn() -> Result,
) -> Result {
    let sk = call.sk;
    loop {
        let side = super::settled(sk, FOREVER)?;
        if side == FallbackState::Sdp {
            return sdp();
        }
        if side == FallbackState::Tcp {
            return call.tcp().map_or_else(sdp, |t| tcp(&t));
        }
        if is_route(level, name) {
            // SDP alone checks the value
            return sdp();
        }
        let decision = sk.decide();
        let Some(t) = decision.tcp() else {
            return sdp();
        };
        if super::phase(sk) != Phase::Open {
            continue;
        }
        if is_sdp(level, name) {
            return sdp();
        }
        tcp(&t)?;
        let r = sdp();
        if r.is_err() && !is_advice(level, name) {
            if route(sk) == Route::Sdp {
                return r;
            }
            let listened = sk.state() == State::Listen;
            hand_to_tcp(sk, &t, FallbackReason::Option, None);
            if listened {
                // accept(2) calls in progress continue with TCP
                let _lock = sk.lock();
                listen::stop(sk);
            }
        }
        return Ok(());
    }
}

pub(super) fn get(
    call: &Descriptor<'_, Socket>,
    level: i32,
    name: i32,
    tcp: TcpOption<'_>,
    sdp: &dyn Fn() -> Result,
) -> Result {
    let sk = call.sk;
    match super::chosen(sk) {
        FallbackState::Tcp => call.tcp().map_or_else(sdp, |t| tcp(&t)),
        FallbackState::Both if !is_sdp(level, name) => {
            let decision = sk.decide();
            match decision.tcp() {
                Some(t) if super::phase(sk) == Phase::Open => tcp(&t),
                _ => {
                    drop(decision);
                    sdp()
                }
            }
        }
        _ => sdp(),
    }
}

/// Switches the socket to TCP: the program uses a feature that SDP lacks.
pub(super) fn prefer_tcp(sk: &SdpSock) {
    let decision = sk.decide();
    if let Some(tcp) = decision.tcp() {
        let open = super::phase(sk) == Phase::Open && sk.state() == State::Close;
        if open && route(sk) != Route::Sdp {
            hand_to_tcp(sk, &tcp, FallbackReason::Option, None);
        }
    }
}

/// Returns true for an option that TCP does not have.
fn is_sdp(level: i32, name: i32) -> bool {
    let options = [
        c::SDP_ASYNC_SEND,
        c::SDP_MAX_MESSAGE,
        c::SDP_ZCOPY_THRESH,
        c::SDP_LAST_BIND_ERR,
        c::SDP_INFO,
    ];
    let is_tcp = level as u32 == c::SOL_TCP && options.contains(&(name as u32));
    is_tcp || is_route(level, name)
}

fn is_route(level: i32, name: i32) -> bool {
    (level as u32, name as u32) == (c::SOL_TCP, c::SDP_ROUTE)
}

/// Returns true for an option that only concerns TCP's packets, which an SDP connection may ignore.
fn is_advice(level: i32, name: i32) -> bool {
    let options = [
        c::TCP_CONGESTION,
        c::TCP_FASTOPEN,
        c::TCP_FASTOPEN_KEY,
        c::TCP_FASTOPEN_NO_COOKIE,
        c::TCP_THIN_LINEAR_TIMEOUTS,
        c::TCP_THIN_DUPACK,
    ];
    match level as u32 {
        c::SOL_SOCKET => name as u32 == c::SO_TXREHASH,
        level => level == c::SOL_TCP && options.contains(&(name as u32)),
    }
}

/// Returns the protocols that the program wants for an undecided socket.
pub(super) fn route(sk: &SdpSock) -> Route {
    let route = sk.connection().fallback.route;
    route.unwrap_or(Route::Sdp)
}

/// Sets `SDP_ROUTE`, before connect(2) or listen(2), or after a failed connect. Without locks.
///
/// # Errors
///
/// `ENOPROTOOPT`: the socket has no TCP socket. `EISCONN`, `EINVAL`: the protocol is decided.
/// `EINVAL`: the value is not a route. Other errors: those of bind(2).
pub(in crate::socket) fn set_route(sk: &SdpSock, value: i32) -> Result {
    let decision = sk.decide();
    let tcp = decision.tcp().ok_or(ENOPROTOOPT)?;
    let route = Route::new(value).ok_or(EINVAL)?;
    match (super::phase(sk), sk.state()) {
        (Phase::Tcp, _) => return Err(ENOPROTOOPT.into()),
        (Phase::Open | Phase::Settled, State::Close) => {}
        (Phase::Open | Phase::Settled, State::Listen | State::SynSent | State::SynRecv) => {
            return Err(EINVAL.into());
        }
        (Phase::Trying | Phase::Falling | Phase::Crossing, _) => return Err(EINVAL.into()),
        _ => return Err(EISCONN.into()),
    }
    if route != Route::Sdp && tcp.port() == 0 && sk.port() != 0 {
        // only the SDP socket is bound so far
        let local = Address {
            scope: sk.bound_interface() as u32,
            ..sk.local()
        };
        tcp.bind(&Name::of(&local, sk.is_v6()))?;
    }
    let mut c = sk.connection();
    (c.fallback.phase, c.fallback.route) = (Phase::Open, Some(route));
    Ok(())
}

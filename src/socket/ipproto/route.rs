// SPDX-License-Identifier: GPL-2.0-only

//! `SDP_ROUTE`: the program selects SDP, TCP or both.

use crate::conn::fallback::{Phase, Route};
use crate::conn::SdpSock;
use crate::sys::address::Address;
use crate::sys::errno::{EINVAL, EISCONN, ENOPROTOOPT};
use crate::sys::net::sock::State;
use crate::sys::net::tcp::Name;
use kernel::prelude::*;

/// Returns the protocols that the program wants for an undecided socket.
pub(super) fn of(sk: &SdpSock) -> Route {
    let route = sk.connection().fallback.route;
    route.unwrap_or(Route::Sdp)
}

/// Sets `SDP_ROUTE`, before connect(2) or listen(2), or after a failed connect. Without locks.
///
/// # Errors
///
/// `ENOPROTOOPT`: the socket has no TCP socket. `EISCONN`, `EINVAL`: the protocol is decided.
/// `EINVAL`: the value is no route. Other errors: those of bind(2).
pub(in crate::socket) fn set(sk: &SdpSock, value: i32) -> Result {
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
        // bound by SDP alone so far
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

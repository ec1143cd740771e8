// SPDX-License-Identifier: GPL-2.0-only

//! `SDP_ROUTE`: the program says what a socket is to be.

use super::Phase;
use crate::socket::SdpSock;
use crate::sys::bindings as c;
use crate::sys::errno::{EINVAL, EISCONN, ENOPROTOOPT};
use crate::sys::net::address::Address;
use crate::sys::net::sock::State;
use crate::sys::net::tcp::Name;
use kernel::prelude::*;

/// By what a program wants to connect, or to listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::socket) enum Route {
    /// SDP, else TCP.
    Both,
    /// SDP alone.
    Sdp,
    /// TCP alone.
    Tcp,
}

impl Route {
    fn new(value: i32) -> Option<Self> {
        [Route::Both, Route::Sdp, Route::Tcp]
            .into_iter()
            .find(|r| i64::from(r.value()) == i64::from(value))
    }

    /// As programs call it.
    pub(in crate::socket) fn value(self) -> u32 {
        match self {
            Route::Both => c::SDP_ROUTE_BOTH,
            Route::Sdp => c::SDP_ROUTE_SDP,
            Route::Tcp => c::SDP_ROUTE_TCP,
        }
    }
}

/// What the program wants of a socket that is open.
pub(super) fn of(sk: &SdpSock) -> Route {
    let route = sk.data().connection.lock().fallback.route;
    route.unwrap_or(Route::Sdp)
}

/// Says so, before anything was begun, or after that has failed. The caller holds no lock.
///
/// # Errors
///
/// `ENOPROTOOPT` where there is no choice, `EISCONN` or `EINVAL` once it was made, `EINVAL` for what
/// is no route, and those of bind(2).
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
    let mut c = sk.data().connection.lock();
    (c.fallback.phase, c.fallback.route) = (Phase::Open, Some(route));
    Ok(())
}

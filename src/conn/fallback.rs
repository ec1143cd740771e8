// SPDX-License-Identifier: GPL-2.0-only

//! Choice of SDP or TCP for an `IPPROTO_SDP` socket, which `socket/ipproto` switches to TCP.

use super::timers::Timer;
use super::{Connection, SdpSock, JOB_FALL_BACK};
use crate::protocol::named::named_enum;
use crate::sys::address::Address;
use crate::sys::bindings as c;
use crate::sys::errno::{
    Errno, EADDRINUSE, EADDRNOTAVAIL, ECONNREFUSED, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENOBUFS,
    ENODEV, ETIMEDOUT,
};
use crate::sys::net::family::FallbackState;
use crate::sys::net::tcp::Name;
use crate::sys::time::Jiffies;
use kernel::error::Error;

/// Protocols that the program wants (`SDP_ROUTE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Route {
    /// SDP if the peer replies, otherwise TCP.
    Both = c::SDP_ROUTE_BOTH,
    Sdp = c::SDP_ROUTE_SDP,
    Tcp = c::SDP_ROUTE_TCP,
}

impl Route {
    pub(crate) fn new(value: i32) -> Option<Self> {
        [Route::Both, Route::Sdp, Route::Tcp]
            .into_iter()
            .find(|r| *r as i32 == value)
    }
}

/// State of the choice between SDP and TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The socket has no choice: it is of family 27 or 28, comes from accept(2), or uses SDP alone.
    Settled,
    /// The socket has not begun a connect(2), but may listen.
    Open,
    /// connect(2) tries SDP.
    Trying,
    /// SDP has failed; a worker will switch to TCP.
    Falling,
    /// A worker is switching to TCP.
    Crossing,
    /// Connected by SDP.
    Sdp,
    /// The descriptor belongs to the TCP socket.
    Tcp,
}

/// State and inputs of the choice between SDP and TCP. Protected by the connection's spinlock.
pub(crate) struct Fallback {
    pub(crate) phase: Phase,
    /// Protocols that the program wants; `None` if the socket has no choice.
    pub(crate) route: Option<Route>,
    /// Reason, known before connect(2), why SDP cannot be used.
    pub(crate) only_tcp: Option<FallbackReason>,
    /// Destination of connect(2), as the program passed it.
    pub(crate) name: Name,
    /// Destination of connect(2), as parsed.
    pub(crate) to: Option<Address>,
    /// Set once the connection request is sent.
    pub(crate) requested: bool,
    /// Reason why SDP has failed, or why the socket uses TCP.
    pub(crate) why: FallbackReason,
    /// True if the next accept(2) checks the TCP listener first. Each accept(2) toggles the value.
    pub(crate) tcp_next: bool,
}

impl Fallback {
    pub(crate) const fn new() -> Self {
        Fallback {
            phase: Phase::Settled,
            route: None,
            only_tcp: None,
            name: Name::EMPTY,
            to: None,
            requested: false,
            why: FallbackReason::Failed,
            tcp_next: false,
        }
    }

    /// Returns the state of a socket without a connection.
    pub(crate) fn chosen(&self) -> FallbackState {
        match self.phase {
            Phase::Settled | Phase::Sdp => FallbackState::Sdp,
            Phase::Open => FallbackState::Both,
            Phase::Trying | Phase::Falling | Phase::Crossing => FallbackState::Neither,
            Phase::Tcp => FallbackState::Tcp,
        }
    }

    /// Resets the choice once no connection or attempt is left, so that connect(2) may follow.
    pub(crate) fn dissolve(&mut self) {
        if matches!(self.phase, Phase::Trying | Phase::Falling | Phase::Sdp) {
            self.phase = Phase::Open;
        }
    }

    /// Returns the protocol for `SDP_INFO`.
    pub(crate) fn info(&self) -> u32 {
        match self.phase {
            Phase::Settled if self.route.is_none() => c::SDP_IPPROTO_NONE,
            Phase::Settled | Phase::Sdp => c::SDP_IPPROTO_SDP,
            _ => c::SDP_IPPROTO_OPEN,
        }
    }
}

impl Connection {
    /// Returns the text for the choice and its reason in `/proc/net/sdp_ipproto`.
    pub(crate) fn choice(&self) -> &'static str {
        match self.fallback.phase {
            Phase::Settled | Phase::Sdp => "SDP",
            Phase::Open => "open",
            Phase::Trying | Phase::Falling | Phase::Crossing => "connecting",
            Phase::Tcp => self.fallback.why.name(),
        }
    }

    /// Handles the peer's SDP reply. Returns false if the socket has already fallen back to TCP.
    pub(crate) fn settle_on_sdp(&mut self) -> bool {
        match self.fallback.phase {
            Phase::Settled if self.fallback.route.is_none() => return true,
            Phase::Settled => {}
            Phase::Trying => {
                self.fallback.phase = Phase::Sdp;
                self.timers.clear(Timer::Close);
            }
            _ => return false,
        }
        self.stats.count_outcome(FallbackReason::Connected);
        true
    }

    /// Returns true if the attempt by SDP has failed, so that TCP is tried next.
    pub(crate) fn has_fallen_back(&self) -> bool {
        matches!(self.fallback.phase, Phase::Falling | Phase::Crossing)
    }

    /// Handles a failed attempt by SDP. Returns true if TCP is tried next, so that no error is set.
    pub(crate) fn falls_back(&mut self, sk: &SdpSock, e: Errno) -> bool {
        match self.fallback.phase {
            Phase::Trying => {
                self.fallback.phase = Phase::Falling;
                self.fallback.why = FallbackReason::of(e);
                self.timers.clear(Timer::Close);
                sk.schedule(JOB_FALL_BACK);
                true
            }
            // the failure was reported before
            Phase::Falling | Phase::Crossing => true,
            _ => false,
        }
    }

    /// Starts the timeout of the SDP reply, once the connection request is sent.
    pub(crate) fn request_sent(&mut self, sk: &SdpSock, patience: Jiffies) {
        if self.fallback.phase == Phase::Trying {
            self.fallback.requested = true;
            self.set_timer(sk, Timer::Close, patience);
        }
    }
}

named_enum! {
    /// Protocol of the connection, and the reason if TCP is used.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(usize)]
    pub(crate) enum FallbackReason {
        Connected = "connected by SDP",
        Accepted = "accepted by SDP",
        AcceptedTcp = "accepted by TCP",
        /// TCP: no SDP listener at that port, or the peer rejects SDP.
        Refused = "TCP: refused",
        /// TCP: no RDMA route to the destination.
        Unreachable = "TCP: unreachable",
        /// TCP: no reply from the peer in time.
        NoAnswer = "TCP: no answer",
        /// TCP: SDP failed for another reason.
        Failed = "TCP: failed",
        /// TCP: an earlier failure of SDP is cached for the peer.
        Remembered = "TCP: remembered",
        /// TCP: chosen by the program (`SDP_ROUTE`).
        Chosen = "TCP: chosen",
        /// TCP: the program uses a feature that SDP lacks.
        Option = "TCP: option",
        /// TCP: SDP cannot use the address.
        Address = "TCP: address",
        /// TCP: no port was free in both protocols.
        Port = "TCP: port",
        /// TCP: the limit of sockets or memory (module parameters) was reached.
        Limit = "TCP: limit",
    }
}

impl FallbackReason {
    /// Returns the reason for an error of bind(2) or listen(2).
    pub(crate) fn of_port(e: Error) -> Self {
        if e == EADDRINUSE.into() {
            FallbackReason::Port
        } else {
            FallbackReason::Address
        }
    }

    /// Returns the reason for an error of connect(2).
    pub(crate) fn of(e: Errno) -> Self {
        match e {
            ECONNREFUSED => FallbackReason::Refused,
            ENETUNREACH | EHOSTUNREACH | ENETDOWN | EADDRNOTAVAIL | ENODEV => {
                FallbackReason::Unreachable
            }
            ETIMEDOUT => FallbackReason::NoAnswer,
            ENOBUFS => FallbackReason::Limit,
            _ => FallbackReason::Failed,
        }
    }
}

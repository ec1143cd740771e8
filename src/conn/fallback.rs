// SPDX-License-Identifier: GPL-2.0-only

//! How far it is decided whether an `IPPROTO_SDP` socket is SDP's or TCP's. What is done about it is in
//! `socket/ipproto`.

use super::timers::Timer;
use super::{Connection, Outcome, SdpSock, JOB_FALL_BACK};
use crate::sys::bindings as c;
use crate::sys::errno::Errno;
use crate::sys::net::address::Address;
use crate::sys::net::ipproto::Chosen;
use crate::sys::net::tcp::Name;
use crate::sys::time::Jiffies;

/// By what a program wants to connect, or to listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// SDP, else TCP.
    Both,
    /// SDP alone.
    Sdp,
    /// TCP alone.
    Tcp,
}

impl Route {
    /// By a program's number.
    pub(crate) fn new(value: i32) -> Option<Self> {
        [Route::Both, Route::Sdp, Route::Tcp]
            .into_iter()
            .find(|r| i64::from(r.value()) == i64::from(value))
    }

    /// As programs call it.
    pub(crate) fn value(self) -> u32 {
        match self {
            Route::Both => c::SDP_ROUTE_BOTH,
            Route::Sdp => c::SDP_ROUTE_SDP,
            Route::Tcp => c::SDP_ROUTE_TCP,
        }
    }
}

/// How far it is decided what a descriptor is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Nothing is to be decided: a socket of families 27 and 28, or one that accept(2) has made, or
    /// that has begun to connect or listen by SDP alone.
    Settled,
    /// No connection was asked for. It may listen.
    Open,
    /// connect(2) tries SDP.
    Trying,
    /// SDP has failed; a worker is to go on with TCP.
    Falling,
    /// It does so.
    Crossing,
    /// Connected by SDP.
    Sdp,
    /// The descriptor is the TCP socket's.
    Tcp,
}

/// What a socket knows of the choice between SDP and TCP. Protected by the connection's spinlock.
pub(crate) struct Fallback {
    pub(crate) phase: Phase,
    /// What the program wants it to be; `None` if there is no choice.
    pub(crate) route: Option<Route>,
    /// Why it cannot be SDP, known before anything else.
    pub(crate) only_tcp: Option<Outcome>,
    /// Where connect(2) is to go to, as it was told.
    pub(crate) name: Name,
    /// And as it was understood.
    pub(crate) to: Option<Address>,
    /// The request of that is out.
    pub(crate) asked: bool,
    /// Why SDP has failed, or why the socket is TCP's.
    pub(crate) why: Outcome,
    /// Whose turn is next in accept(2).
    pub(crate) tcp_next: bool,
}

impl Fallback {
    /// Of a socket that has no choice.
    pub(crate) const fn new() -> Self {
        Fallback {
            phase: Phase::Settled,
            route: None,
            only_tcp: None,
            name: Name::EMPTY,
            to: None,
            asked: false,
            why: Outcome::Failed,
            tcp_next: false,
        }
    }

    /// What the descriptor is while there is no connection.
    pub(crate) fn chosen(&self) -> Chosen {
        match self.phase {
            Phase::Settled | Phase::Sdp => Chosen::Sdp,
            Phase::Open => Chosen::Both,
            Phase::Trying | Phase::Falling | Phase::Crossing => Chosen::Neither,
            Phase::Tcp => Chosen::Tcp,
        }
    }

    /// There is no connection any more, nor an attempt to make one: another one can be asked for.
    pub(crate) fn dissolve(&mut self) {
        if matches!(self.phase, Phase::Trying | Phase::Falling | Phase::Sdp) {
            self.phase = Phase::Open;
        }
    }

    /// What `SDP_ROUTE` says, if it has a say.
    pub(crate) fn route(&self) -> Option<Route> {
        self.route
    }

    /// What `SDP_INFO` tells.
    pub(crate) fn info(&self) -> u32 {
        match self.phase {
            Phase::Settled if self.route.is_some() => c::SDP_IPPROTO_SDP,
            Phase::Settled => c::SDP_IPPROTO_NONE,
            Phase::Sdp => c::SDP_IPPROTO_SDP,
            _ => c::SDP_IPPROTO_OPEN,
        }
    }
}

impl Connection {
    /// What was chosen, and why, in words.
    pub(crate) fn choice(&self) -> &'static str {
        match self.fallback.phase {
            Phase::Settled | Phase::Sdp => "SDP",
            Phase::Open => "open",
            Phase::Trying | Phase::Falling | Phase::Crossing => "connecting",
            Phase::Tcp => self.fallback.why.name(),
        }
    }

    /// The peer has answered by SDP. Whether that still counts.
    pub(crate) fn settle_on_sdp(&mut self) -> bool {
        match self.fallback.phase {
            Phase::Settled => {
                if self.fallback.route.is_some() {
                    self.stats.count_outcome(Outcome::Connected);
                }
                true
            }
            Phase::Trying => {
                self.fallback.phase = Phase::Sdp;
                self.timers.clear(Timer::Close);
                self.stats.count_outcome(Outcome::Connected);
                true
            }
            _ => false,
        }
    }

    /// SDP's time is over, and TCP has its turn.
    pub(crate) fn has_fallen_back(&self) -> bool {
        matches!(self.fallback.phase, Phase::Falling | Phase::Crossing)
    }

    /// An attempt to connect has failed. Whether TCP has its turn now, so that nobody is to be told.
    pub(crate) fn falls_back(&mut self, sk: &SdpSock, e: Errno) -> bool {
        match self.fallback.phase {
            Phase::Trying => {
                self.fallback.phase = Phase::Falling;
                self.fallback.why = Outcome::of(e);
                self.timers.clear(Timer::Close);
                sk.schedule(JOB_FALL_BACK);
                true
            }
            // reported a second time
            Phase::Falling | Phase::Crossing => true,
            _ => false,
        }
    }

    /// The request is out; SDP has so long to answer.
    pub(crate) fn asked(&mut self, sk: &SdpSock, patience: Jiffies) {
        if self.fallback.phase == Phase::Trying {
            self.fallback.asked = true;
            self.set_timer(sk, Timer::Close, patience);
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Switches a descriptor to its TCP socket.

use crate::conn::fallback::Phase;
use crate::conn::timers::Timer;
use crate::conn::{FallbackReason, SdpSock, JOB_FALL_BACK};
use crate::socket::netns::remember;
use crate::sys::debug::debug;
use crate::sys::net::sock::{Ends, State};
use crate::sys::net::tcp::{Name, Tcp};

/// Switches the descriptor, under `decision`, to the TCP socket, which first connects if requested.
pub(super) fn hand_to_tcp(
    sk: &SdpSock,
    tcp: &Tcp<'_>,
    why: FallbackReason,
    connect: Option<&Name>,
) {
    debug!("{}: {}", Ends(sk), why.name());
    let namespace = sk.netns();
    namespace.ports.lock().crossed(sk.id());
    tcp.inherit(sk);
    if let Some(name) = connect {
        tcp.begin(name);
    }
    tcp.take_file(sk);
    namespace.count(|s| s.count_outcome(why));
    // must precede the change of phase, after which waiting calls continue
    namespace.became_tcp(sk);
    {
        let mut c = sk.connection();
        (c.fallback.phase, c.fallback.why) = (Phase::Tcp, why);
        c.timers.clear(Timer::Close);
        if sk.state() != State::Close {
            sk.set_state(State::Close);
        }
    }
    // waiting calls continue with TCP
    sk.wake();
    sk.state_changed();
}

/// Switches to TCP after SDP has failed. Context: worker.
pub(in crate::socket) fn fall_back(sk: &SdpSock) {
    let Some(decision) = sk.try_decide(JOB_FALL_BACK) else {
        return;
    };
    let Some(tcp) = decision.tcp() else { return };
    let (name, why, below) = {
        let mut c = sk.connection();
        if c.fallback.phase != Phase::Falling {
            // the program has closed or disconnected the socket
            return;
        }
        c.fallback.phase = Phase::Crossing;
        (c.fallback.name, c.fallback.why, c.detach())
    };
    below.destroy();
    remember(sk, why);
    hand_to_tcp(sk, &tcp, why, Some(&name));
}

/// Handles close(2) of a descriptor. If TCP got no reply either, no failure of SDP is recorded.
pub(super) fn closing(sk: &SdpSock, won: Option<&Tcp<'_>>) {
    sk.netns().ports.lock().let_go_of_tcp(sk.id());
    let Some(tcp) = won else { return };
    let to = sk.connection().fallback.to;
    if let Some(to) = to.filter(|_| !tcp.was_connected()) {
        sk.netns().peer_cache.lock().forget(&to.ip, to.port);
    }
}

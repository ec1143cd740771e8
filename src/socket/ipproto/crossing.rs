// SPDX-License-Identifier: GPL-2.0-only

//! The descriptor becomes the TCP socket's.

use super::{Outcome, Phase};
use crate::observe::debug::{debug, Ends};
use crate::socket::{SdpSock, JOB_FALL_BACK};
use crate::sys::net::address::Address;
use crate::sys::net::params;
use crate::sys::net::sock::State;
use crate::sys::net::tcp::{Name, Tcp};

/// Hands the descriptor over to the TCP socket, which connects first, if it is to. The caller holds
/// the right to decide.
pub(super) fn cross(sk: &SdpSock, tcp: &Tcp<'_>, why: Outcome, connect: Option<&Name>) {
    debug!("{}: {}", Ends(sk), why.name());
    let namespace = sk.netns();
    namespace.ports.lock().crossed(sk.id(), sk.port());
    tcp.take_signals(sk);
    if let Some(name) = connect {
        tcp.begin(name);
    }
    tcp.take_file(sk);
    {
        let mut c = sk.data().connection.lock();
        (c.fallback.phase, c.fallback.why) = (Phase::Tcp, why);
        c.deadline = None;
        if sk.state() != State::Close {
            sk.set_state(State::Close);
        }
    }
    namespace.count(|s| s.count_outcome(why));
    namespace.cross(sk);
    // whoever waits goes on with TCP
    sk.wake();
    sk.state_changed();
}

/// SDP has failed; in a worker.
pub(in crate::socket) fn fall_back(sk: &SdpSock) {
    let Some(decision) = sk.try_decide(JOB_FALL_BACK) else {
        return;
    };
    let Some(tcp) = decision.tcp() else { return };
    let (name, why, below) = {
        let mut c = sk.data().connection.lock();
        if c.fallback.phase != Phase::Falling {
            // the program has given up, too
            return;
        }
        c.fallback.phase = Phase::Crossing;
        (c.fallback.name, c.fallback.why, c.let_go())
    };
    drop(below);
    remember(sk, why);
    cross(sk, &tcp, why, Some(&name));
}

/// SDP has connected.
pub(in crate::socket) fn answered(sk: &SdpSock) {
    remember(sk, Outcome::Connected);
}

/// Remembers what came of the attempt to connect by SDP, if it tells of the host. What is asked by an
/// interface of the program's choice goes another way than what others ask, or to somebody else; and
/// an address of its choice may be one that no way leads from.
fn remember(sk: &SdpSock, why: Outcome) {
    let (to, asked) = {
        let c = sk.data().connection.lock();
        (c.fallback.to, c.fallback.asked)
    };
    let tells = |to: &Address| {
        let by_interface = to.scope != 0 || sk.bound_interface() != 0;
        params::ipproto_memory() > 0
            && !by_interface
            && (asked || !sk.address_is_bound())
            && !sk.is_own_address(to)
    };
    if let Some(to) = to.filter(tells) {
        let mut remembered = sk.netns().remembered.lock();
        remembered.add(&to.ip, to.port, why);
    }
}

/// A descriptor is closed. If TCP has won it and was not answered either, nothing is known of SDP.
pub(super) fn closing(sk: &SdpSock, won: Option<&Tcp<'_>>) {
    sk.netns().ports.lock().let_go_of_tcp(sk.id(), sk.port());
    let Some(tcp) = won else { return };
    let to = sk.data().connection.lock().fallback.to;
    if let Some(to) = to.filter(|_| !tcp.was_connected()) {
        sk.netns().remembered.lock().forget(&to.ip, to.port);
    }
}

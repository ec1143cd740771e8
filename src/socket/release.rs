// SPDX-License-Identifier: GPL-2.0-only

//! Common steps of calls, events and the timer at the end of a connection.

use crate::conn::closing::{CloseAction, CloseEvent};
use crate::conn::timers::Timer;
use crate::conn::{BacklogSlot, Connection, Guard, SdpSock};
use crate::sys::debug::debug;
use crate::sys::errno::{
    Errno, EADDRNOTAVAIL, ECONNRESET, ENETDOWN, ENETRESET, ENETUNREACH, ENODEV, EPIPE,
};
use crate::sys::net::sock::{Ends, Sock, State, SHUTDOWN_MASK};
use crate::sys::net::trace;
use crate::transport::LinkId;
use kernel::prelude::*;
use kernel::sync::aref::ARef;

/// Drops all transport objects of the socket's connection.
pub(super) fn release_transport(sk: &SdpSock) {
    let below = sk.connection().detach();
    below.destroy();
}

/// Ends a connection that never had a descriptor.
pub(super) fn destroy_unaccepted(child: ARef<SdpSock>) {
    {
        let mut c = child.connection();
        if !c.closing.orphan() {
            return;
        }
        c.close_on(CloseEvent::Reset, ECONNRESET);
    }
    finish(&child);
    Sock::discard(child);
}

/// Handles the failure of a new connection that has a slot in a listener's queue.
pub(super) fn abandoned(slot: &BacklogSlot, child: &SdpSock) {
    slot.give_back();
    destroy_unaccepted(child.into());
}

/// Ends the connection if `current` identifies it as the socket's current one.
pub(super) fn lost(sk: &SdpSock, current: impl FnOnce(&Connection) -> bool) {
    let mut c = sk.connection();
    if current(&c) {
        let e = match sk.state() {
            State::SynSent => ENETRESET,
            _ => ECONNRESET,
        };
        c.close_on(CloseEvent::Failed, e);
        detach(sk, c);
    }
}

/// Handles the end of a connection at the connection manager.
pub(super) fn disconnected(sk: &SdpSock, link: LinkId, by_peer: bool) {
    // Poll for the last bytes, even those that arrived before the connection was established.
    sk.progress();
    let mut c = sk.connection();
    if !c.is_of(link) {
        return;
    }
    {
        let (c, wakeups, sk) = c.split();
        c.take_fin(sk, wakeups);
    }
    let both_ended = c.both_ended();
    let error = match sk.state() {
        State::CloseWait => EPIPE,
        _ => ECONNRESET,
    };
    let event = CloseEvent::LinkDown {
        by_peer,
        both_ended,
    };
    match c.close_on(event, error) {
        CloseAction::Fail if by_peer => c.stats.resets += 1,
        // The QP has failed without a completion, as after a forbidden access of the peer.
        CloseAction::Fail => c.stats.transport_errors += 1,
        _ => {}
    }
    c.state_has_changed();
    detach(sk, c);
}

/// Destroys the objects of a connection that has ended, wakes its waiters, and releases a closed
/// socket. A connection that accept(2) has not returned has no waiters.
fn detach(sk: &SdpSock, mut c: Guard<'_>) {
    c.timers.clear(Timer::Close);
    // Detach before the lock is released: a later call might detach the next connection.
    let (slot, below, wakeups) = (c.slot.take(), c.detach(), c.unlock());
    below.destroy();
    match slot {
        Some(slot) => {
            wakeups.forget();
            abandoned(&slot, sk);
        }
        None => {
            drop(wakeups);
            finish(sk);
        }
    }
}

/// Releases the remaining objects of a closed socket, once its connection is destroyed.
pub(super) fn finish(sk: &SdpSock) {
    let over = {
        let c = sk.connection();
        c.closing.is_orphaned() && c.is_idle()
    };
    if over {
        if sk.state() != State::Close {
            sk.set_state(State::Close);
        }
        sk.clear_timer();
        let local = {
            let mut c = sk.connection();
            c.rx.clear();
            // the device may keep a reference to the socket for a while
            c.rx_buffers.reset();
            sk.set_memory(0, 0);
            c.take_local()
        };
        drop(local);
        sk.netns().leave(sk);
    }
}

/// Converts an error of the transport or the kernel that means an unreachable destination.
pub(super) fn unreachable_error(e: Error) -> Errno {
    match Errno::of(e) {
        ENODEV | EADDRNOTAVAIL | ENETDOWN => ENETUNREACH,
        e => e,
    }
}

pub(super) fn connecting(s: State) -> bool {
    matches!(s, State::SynSent | State::SynRecv)
}

/// Ends an attempt to connect or accept, if it is still the socket's current one.
///
/// Removes the attempt's objects before the state changes: connect(2) may then start anew.
pub(super) fn fail(sk: &SdpSock, current: impl FnOnce(&Connection) -> bool, e: Errno) {
    let mut c = sk.connection();
    if !current(&c) {
        return;
    }
    if connecting(sk.state()) && !c.falls_back(sk, e) {
        sk.set_error(e);
        trace::connect(sk);
        debug!("{}: no connection: errno {}", Ends(sk), e.0);
        sk.set_state(State::Close);
        sk.add_shutdown(SHUTDOWN_MASK);
        c.is_not_made();
    }
    detach(sk, c);
}

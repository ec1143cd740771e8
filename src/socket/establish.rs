// SPDX-License-Identifier: GPL-2.0-only

//! Last step of connection setup, on both sides.

use super::netns;
use super::release::destroy_unaccepted;
use crate::conn::timers::Timer;
use crate::conn::{keepalive, setup, BacklogSlot, FallbackReason, SdpSock};
use crate::sys::net::sock::State;
use crate::sys::net::trace;
use crate::sys::time::{jiffies, seconds};
use crate::transport::LinkId;

/// Establishes the connection: the peer has the reply, or this end has sent the last message.
pub(super) fn established(sk: &SdpSock, link: LinkId) {
    let connecting = sk.state() == State::SynSent;
    let (slot, wakeups) = {
        let mut c = sk.connection();
        if !c.is_of(link) {
            return;
        }
        match sk.state() {
            State::SynSent if !c.settle_on_sdp() => return,
            State::SynSent | State::SynRecv => sk.set_state(State::Established),
            State::CloseWait => {}
            _ => return,
        }
        trace::connect(sk);
        if connecting {
            c.probe_first(sk, false);
        }
        sk.grow_sndbuf(setup::SEND_BUFFER);
        if c.slot.is_none() {
            // the connection's lock is held, so SIGIO is sent before connect(2) returns
            sk.sigio_out();
            c.state_has_changed();
        } else {
            c.timers.clear(Timer::Close);
        }
        let wait = c.options.defer_accept;
        let defers = c.slot.is_some() && wait > 0;
        let nothing_came = match &c.local {
            Some(local) => defers && local.link.defer(),
            None => c.rx.unread.bytes() == 0,
        };
        if defers && nothing_came && !sk.peer_has_ended() {
            let until = jiffies().wrapping_add(seconds(wait));
            c.timers.set(Timer::DeferAccept, until);
            (None, c.unlock())
        } else {
            (c.slot.take(), c.unlock())
        }
    };
    if connecting {
        netns::remember(sk, FallbackReason::Connected);
    }
    drop(wakeups);
    if let Some(slot) = slot {
        hand_over(&slot, sk);
    }
    sk.progress();
    keepalive::update(sk);
}

/// Queues a connection for accept(2): its data has arrived, or the time limit has passed.
pub(super) fn admit(sk: &SdpSock) {
    let slot = {
        let mut c = sk.connection();
        c.timers.clear(Timer::DeferAccept);
        c.slot.take()
    };
    if let Some(slot) = slot {
        hand_over(&slot, sk);
    }
}

/// Queues a new connection for accept(2), or destroys it if the listener has closed.
fn hand_over(slot: &BacklogSlot, child: &SdpSock) {
    if slot.hand_over(child).is_err() {
        destroy_unaccepted(child.into());
    }
}

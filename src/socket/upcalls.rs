// SPDX-License-Identifier: GPL-2.0-only

//! Upcalls of the transports for connections.

use super::listen::Incoming;
use super::release::{abandoned, destroy_unaccepted, finish, lost};
use super::{connect, ipproto};
use crate::conn::closing::{CloseAction, CloseEvent};
use crate::conn::events::Queue;
use crate::conn::timers::Timer;
use crate::conn::{keepalive, setup, BacklogSlot, SdpSock};
use crate::protocol::HELLO_ACK_LEN;
use crate::sys::errno::{ECONNRESET, EPIPE};
use crate::sys::net::sock::{SockCore, State};
use crate::sys::net::trace;
use crate::sys::time::{jiffies, seconds};
use crate::transport::{Attempt, Disconnect, LinkId, ResolverId, Upcalls};
use kernel::prelude::*;

impl Upcalls for SdpSock {
    type Acceptor = Incoming;

    fn receive_ready(&self) {
        self.event(Queue::Receive)
    }

    fn receive_ready_by_task(&self) -> bool {
        self.event_by_task(Queue::Receive)
    }

    fn drain(&self) {
        self.charged(|| self.progress_for_peer())
    }

    fn taken(&self) {
        self.charged(|| self.go_on_for_peer())
    }

    fn is_watched(&self) -> bool {
        SockCore::is_watched(self)
    }

    fn help(&self) {
        if self.is_awaited() {
            self.event(Queue::Send);
        }
    }

    fn send_ready(&self) {
        self.event(Queue::Send)
    }

    fn resolved(&self, search: ResolverId, r: Result) {
        self.charged(|| connect::resolved(self, search, r))
    }

    fn replied(&self, link: LinkId, hello_ack: &[u8; HELLO_ACK_LEN]) -> Result {
        connect::replied(self, link, hello_ack)
    }

    fn established(&self, link: LinkId) {
        self.charged(|| established(self, link))
    }

    fn refused(&self, link: LinkId, error: Error) {
        self.charged(|| connect::refused(self, link, error))
    }

    fn disconnected(&self, link: LinkId, how: Disconnect) {
        disconnected(self, link, how)
    }

    fn device_removed(&self, of: Attempt) {
        lost(self, |c| c.cm.is_at(of))
    }
}

/// Establishes the connection: the peer has the reply, or this end has sent the last message.
fn established(sk: &SdpSock, link: LinkId) {
    let connecting = sk.state() == State::SynSent;
    let (slot, wakeups) = {
        let mut c = sk.connection();
        if !c.cm.is_of(link) {
            return;
        }
        match sk.state() {
            State::SynSent if !c.settle_on_sdp() => return,
            State::SynSent | State::SynRecv => sk.set_state(State::Established),
            State::CloseWait => {}
            _ => return,
        }
        trace::connect(sk);
        setup::grow(sk);
        if c.slot.is_none() {
            // under the lock: see the end of connect(2)
            sk.sigio_out();
            c.state_has_changed();
        } else {
            c.timers.clear(Timer::Close);
        }
        let wait = c.options.defer_accept;
        let nothing_came = c.rx.unread.bytes() == 0 && !sk.peer_has_ended();
        if c.slot.is_some() && wait > 0 && nothing_came {
            let until = jiffies().wrapping_add(seconds(wait));
            c.timers.set(Timer::DeferAccept, until);
            (None, c.unlock())
        } else {
            (c.slot.take(), c.unlock())
        }
    };
    if connecting {
        ipproto::answered(sk);
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

/// Moves a new connection to its listener, for accept(2), or destroys it without one.
fn hand_over(slot: &BacklogSlot, child: &SdpSock) {
    if slot.hand_over(child).is_err() {
        destroy_unaccepted(child.into());
    }
}

fn disconnected(sk: &SdpSock, link: LinkId, how: Disconnect) {
    // Bytes that arrived before the connection was established count.
    sk.progress();
    let (slot, below, wakeups) = {
        let mut c = sk.connection();
        if !c.cm.is_of(link) {
            return;
        }
        let by_peer = how == Disconnect::Peer;
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
        c.timers.clear(Timer::Close);
        // Under the same hold of the lock: later it would detach the next connection.
        (c.slot.take(), c.detach(), c.unlock())
    };
    below.destroy();
    if let Some(slot) = slot {
        // accept(2) had to wait for the first bytes
        wakeups.forget();
        return abandoned(&slot, sk);
    }
    drop(wakeups);
    finish(sk);
}

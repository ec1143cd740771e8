// SPDX-License-Identifier: GPL-2.0-only

//! Upcalls of the transport for connections.

use super::connect;
use super::establish::established;
use super::release::{abandoned, finish, lost};
use crate::conn::closing::{CloseAction, CloseEvent};
use crate::conn::events::Queue;
use crate::conn::timers::Timer;
use crate::conn::SdpSock;
use crate::protocol::HELLO_ACK_LEN;
use crate::sys::errno::{ECONNRESET, EPIPE};
use crate::sys::net::sock::State;
use crate::transport::{LinkId, Upcalls};
use kernel::prelude::*;

impl Upcalls for SdpSock {
    fn completed(&self, sent: bool) {
        self.event(match sent {
            true => Queue::Send,
            false => Queue::Receive,
        })
    }

    fn resolved(&self, search: LinkId, r: Result) {
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

    fn disconnected(&self, link: LinkId, by_peer: bool) {
        disconnected(self, link, by_peer)
    }

    fn device_removed(&self, of: LinkId) {
        lost(self, |c| c.cm.is_at(of))
    }
}

fn disconnected(sk: &SdpSock, link: LinkId, by_peer: bool) {
    // Bytes that arrived before the connection was established count.
    sk.progress();
    let (slot, below, wakeups) = {
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
        c.timers.clear(Timer::Close);
        // Under the same hold of the lock, because a later call would detach the next connection.
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

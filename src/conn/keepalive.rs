// SPDX-License-Identifier: GPL-2.0-only

//! Keepalive probes and `TCP_USER_TIMEOUT`, whose times follow from when the peer was last heard of; and the
//! kernel's timer of a socket, which is set to what is next.

use super::timers::Timer;
use super::{Connection, SdpSock, Wakeups};
use crate::sys::errno::ETIMEDOUT;
use crate::sys::net::params;
use crate::sys::net::sock::{Flag, State};
use crate::sys::time::{jiffies, milliseconds, seconds, Jiffies};
use crate::transport::Transport;
use kernel::prelude::*;

/// When the peer gave its last signs of life.
pub(crate) struct Heard {
    /// When it was last heard of.
    last: Jiffies,
    /// When bytes last were known to have arrived, or began to wait.
    last_progress: Jiffies,
    /// Keepalive probes that were sent since it was last heard of.
    probes: u32,
}

impl Heard {
    /// Of a socket without connection.
    pub(super) const fn new() -> Self {
        Heard {
            last: 0,
            last_progress: 0,
            probes: 0,
        }
    }

    /// A connection begins.
    pub(super) fn begin(&mut self, now: Jiffies) {
        self.hear(now);
        self.progress(now);
    }

    /// The peer was heard of.
    pub(super) fn hear(&mut self, now: Jiffies) {
        (self.last, self.probes) = (now, 0);
    }

    /// Bytes have arrived at the peer, or begin to wait.
    pub(crate) fn progress(&mut self, now: Jiffies) {
        self.last_progress = now;
    }

    /// When the peer was last heard of.
    pub(crate) fn last(&self) -> Jiffies {
        self.last
    }

    /// When bytes last were known to have arrived, or began to wait.
    pub(crate) fn last_progress(&self) -> Jiffies {
        self.last_progress
    }

    /// Keepalive probes that were not answered so far.
    pub(crate) fn probes(&self) -> u32 {
        self.probes
    }
}

/// `SO_KEEPALIVE` was set. The socket lock is held.
pub(crate) fn set_keepalive(sk: &SdpSock, on: bool) {
    sk.set_flag(Flag::KeepOpen, on);
    update(sk);
}

/// Sets the timer to what is next, after an option or the state has changed.
pub(crate) fn update(sk: &SdpSock) {
    let next = {
        let c = sk.connection();
        next(sk, &c, jiffies())
    };
    if let Some(delay) = next {
        sk.set_timer(delay.max(1));
    }
}

/// How long until the next thing is due.
fn next(sk: &SdpSock, c: &Connection, now: Jiffies) -> Option<Jiffies> {
    let others = [keepalive_due(sk, c), user_timeout_due(sk, c)];
    c.timers.next(others, now)
}

/// When the next keepalive probe is due.
pub(crate) fn keepalive_due(sk: &SdpSock, c: &Connection) -> Option<Jiffies> {
    // also when one of the streams has ended, as on TCP
    let unconnected = matches!(
        sk.state(),
        State::Close | State::Listen | State::SynSent | State::SynRecv
    );
    if !sk.flag(Flag::KeepOpen) || !c.connected() || unconnected {
        return None;
    }
    let idle = match c.options.keep_idle {
        0 => params::sdp_keepalive_time().max(1) as u32,
        n => n,
    };
    let wait = seconds(idle)
        .wrapping_add(seconds(c.options.keep_interval).wrapping_mul(c.heard.probes as Jiffies));
    Some(c.heard.last.wrapping_add(wait))
}

/// When bytes will have waited too long to arrive.
pub(crate) fn user_timeout_due(sk: &SdpSock, c: &Connection) -> Option<Jiffies> {
    // what waits for the peer's program does not wait for the peer
    let waits = c.outstanding() > 0 && !c.awaits_taking();
    if c.options.user_timeout == 0 || !waits || sk.state() == State::Close {
        return None;
    }
    Some(
        c.heard
            .last_progress
            .wrapping_add(milliseconds(c.options.user_timeout)),
    )
}

impl Connection {
    /// Has something looked after in `delay` at the latest.
    pub(crate) fn set_timer(&mut self, sk: &SdpSock, timer: Timer, delay: Jiffies) {
        self.timers.set(timer, jiffies().wrapping_add(delay));
        sk.set_timer(delay);
    }

    /// The peer does not answer: the connection is lost.
    fn is_unanswered(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        self.stats.timeouts += 1;
        self.done_with_error(sk, ETIMEDOUT, wakeups);
    }
}

/// Asks the peer's adapter whether it is there, which its program does not notice.
pub(crate) fn probe(sk: &SdpSock, c: &mut Connection, wakeups: &mut Wakeups) {
    let Some(endpoint) = c.endpoint.as_mut() else {
        return;
    };
    let unanswered = endpoint.probes() > 0;
    if c.heard.probes > 0 && !unanswered {
        // the last one was answered
        c.heard.hear(jiffies());
    } else if unanswered && c.heard.probes >= c.options.keep_count {
        c.is_unanswered(sk, wakeups);
    } else {
        let sent = match unanswered {
            true => Ok(()),
            false => endpoint.probe().and_then(|()| endpoint.flush()),
        };
        c.heard.probes = c.heard.probes.saturating_add(1);
        c.stats.keepalive_probes += 1;
        match sent {
            // so much is on its way that the transport asks by itself
            Err(e) if e != ENOSPC => c.cannot_post(sk, e, wakeups),
            _ => {}
        }
    }
}

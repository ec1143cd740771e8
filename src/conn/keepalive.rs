// SPDX-License-Identifier: GPL-2.0-only

//! Keepalive probes, `TCP_USER_TIMEOUT`, and the socket's timer, set to the next deadline.

use super::timers::Timer;
use super::{Connection, SdpSock, Wakeups};
use crate::protocol::Stall;
use crate::sys::errno::ETIMEDOUT;
use crate::sys::net::params;
use crate::sys::net::sock::{Flag, State};
use crate::sys::time::{jiffies, milliseconds, seconds, Jiffies};
use crate::transport::{Endpoint, Unacknowledged};
use core::num::Wrapping;
use kernel::prelude::*;

/// Times and counts for detecting a peer that does not reply.
pub(crate) struct Liveness {
    /// Time of the last message from the peer.
    pub(crate) last: Jiffies,
    /// Time of the last acknowledgement, or from which bytes have waited for an acknowledgement.
    pub(crate) last_progress: Jiffies,
    /// Keepalive probes sent since the last message from the peer.
    pub(crate) probes: u32,
    /// Number of completed sends at the last check by [`check_acks`].
    completions: Wrapping<u64>,
    /// Number of checks since the last new completion; on iWARP, number of first probes.
    silent: u32,
}

const ACK_LOOKS: u32 = 3;
/// Time before the first of three probes of a new iWARP connection; doubles with each probe.
const FIRST_PROBE: Jiffies = milliseconds(50);

impl Liveness {
    pub(super) const fn new() -> Self {
        Liveness {
            last: 0,
            last_progress: 0,
            probes: 0,
            completions: Wrapping(0),
            silent: 0,
        }
    }

    pub(super) fn begin(&mut self, now: Jiffies) {
        self.received(now);
        self.progress(now);
    }

    /// Records a message from the peer.
    pub(super) fn received(&mut self, now: Jiffies) {
        (self.last, self.probes) = (now, 0);
    }

    /// Records that bytes were acknowledged, or begin to wait for an acknowledgement.
    pub(crate) fn progress(&mut self, now: Jiffies) {
        self.last_progress = now;
    }
}

/// Handles `SO_KEEPALIVE`. Context: socket lock held.
pub(crate) fn set_keepalive(sk: &SdpSock, on: bool) {
    sk.set_flag(Flag::KeepOpen, on);
    update(sk);
}

/// Sets the socket's timer to the next deadline, after an option or the state has changed.
pub(crate) fn update(sk: &SdpSock) {
    let next = sk.with(|c| {
        let others = [keepalive_due(sk, c), user_timeout_due(sk, c)];
        c.timers.next(others, jiffies())
    });
    if let Some(delay) = next {
        sk.set_timer(delay.max(1));
    }
}

/// Returns the time of the next keepalive probe.
pub(crate) fn keepalive_due(sk: &SdpSock, c: &Connection) -> Option<Jiffies> {
    // as in TCP, probes continue after the end of one stream
    let unconnected = matches!(
        sk.state(),
        State::Close | State::Listen | State::SynSent | State::SynRecv
    );
    if !sk.flag(Flag::KeepOpen) || !c.connected() || unconnected {
        return None;
    }
    let t = c.options.timers(sk);
    let between = seconds(t.keep_interval).wrapping_mul(c.alive.probes as Jiffies);
    let wait = seconds(t.keep_idle).wrapping_add(between);
    Some(c.alive.last.wrapping_add(wait))
}

/// Returns the time at which unacknowledged bytes exceed `TCP_USER_TIMEOUT`.
pub(crate) fn user_timeout_due(sk: &SdpSock, c: &Connection) -> Option<Jiffies> {
    if c.options.user_timeout == 0 || c.outstanding() == 0 || sk.state() == State::Close {
        return None;
    }
    Some(
        c.alive
            .last_progress
            .wrapping_add(milliseconds(c.options.user_timeout)),
    )
}

/// Ends the connection if the peer's adapter has acknowledged nothing for `ack_time`. The check is
/// needed for devices that retry without end (rxe).
///
/// Probes the peer while bytes wait for its credits, as TCP probes a closed window: a peer that has
/// disappeared without a DREQ reports nothing.
pub(crate) fn check_acks(sk: &SdpSock, c: &mut Connection, wakeups: &mut Wakeups) {
    let Some(endpoint) = c.endpoint.as_mut() else {
        return;
    };
    let (new, mut sent) = (c.stats.send_completions != c.alive.completions, Ok(()));
    c.alive.completions = c.stats.send_completions;
    match endpoint.unacknowledged() {
        Unacknowledged::Nothing if c.held != Some(Stall::Credits) => {
            c.alive.silent = 0;
            return;
        }
        Unacknowledged::Signaled if !new => c.alive.silent = c.alive.silent.saturating_add(1),
        Unacknowledged::Signaled => c.alive.silent = 0,
        Unacknowledged::Unsignaled | Unacknowledged::Nothing => {
            c.alive.silent = 0;
            sent = endpoint.probe().and_then(|()| endpoint.flush());
        }
    }
    match sent {
        Err(e) if e != ENOSPC => c.cannot_post(sk, e, wakeups),
        // only the DisConn is in flight: a peer may disconnect without acknowledging it
        _ if c.alive.silent >= ACK_LOOKS && c.both_ended() => c.fin_acked(sk, wakeups),
        _ if c.alive.silent >= ACK_LOOKS => c.is_unanswered(sk, wakeups),
        _ => c.watch_acks(sk),
    }
}

impl Connection {
    /// Sets the timer of [`check_acks`] if requests are in flight, or bytes wait for credits.
    #[inline]
    pub(super) fn watch_acks(&mut self, sk: &SdpSock) {
        let stalled = self.held == Some(Stall::Credits);
        let waits = |e: &Endpoint| stalled || e.unacknowledged() != Unacknowledged::Nothing;
        if !self.timers.is_set(Timer::Ack) && self.endpoint.as_ref().is_some_and(waits) {
            let time = (params::ack_time() as u32).saturating_mul(1000) / ACK_LOOKS;
            self.set_timer(sk, Timer::Ack, milliseconds(time.max(1)));
        }
    }

    /// Probes an iWARP peer up to three times, until the peer has sent a message. If `due`, sends a
    /// probe now. After its MPA reply, siw may miss the first bytes until more bytes follow
    /// (docs/kernel-notes.md).
    pub(crate) fn probe_first(&mut self, sk: &SdpSock, due: bool) {
        let protocol = self.protocol.as_ref();
        let unheard = protocol.is_some_and(|p| p.mseq_received() == 0);
        let endpoint = self.endpoint.as_mut();
        let Some(endpoint) = endpoint.filter(|e| unheard && e.qp().connector_sends_first()) else {
            return;
        };
        if due {
            // if the probe fails, posting the next message reports the error
            let _ = endpoint.probe().and_then(|()| endpoint.flush());
        }
        if self.alive.silent < ACK_LOOKS {
            self.set_timer(sk, Timer::Retry, FIRST_PROBE << self.alive.silent);
            self.alive.silent = self.alive.silent.saturating_add(1);
        }
    }

    /// Sets `timer` to expire after `delay`, and brings the kernel timer forward if needed.
    pub(crate) fn set_timer(&mut self, sk: &SdpSock, timer: Timer, delay: Jiffies) {
        self.timers.set(timer, jiffies().wrapping_add(delay));
        sk.set_timer(delay);
    }

    /// Aborts the connection, since the peer does not reply.
    fn is_unanswered(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        self.stats.timeouts += 1;
        self.done_with_error(sk, ETIMEDOUT, wakeups);
    }
}

/// Probes the peer, unnoticed by its program: by a WRITE of no bytes, or on iWARP, where a WRITE
/// completes before it arrives, by a message that requires a reply.
pub(crate) fn probe(sk: &SdpSock, c: &mut Connection, wakeups: &mut Wakeups) {
    let (Some(endpoint), Some(protocol)) = (c.endpoint.as_mut(), c.protocol.as_mut()) else {
        return;
    };
    let by_message = !endpoint.qp().completes_on_arrival();
    let unanswered = match by_message {
        true => c.alive.probes > 0 && !protocol.finished(),
        false => endpoint.probes() > 0,
    };
    if c.alive.probes > 0 && !unanswered {
        // the peer has replied to the last probe
        return c.alive.received(jiffies());
    }
    if unanswered && c.alive.probes >= c.options.timers(sk).keep_count {
        return c.is_unanswered(sk, wakeups);
    }
    c.alive.probes = c.alive.probes.saturating_add(1);
    c.stats.keepalive_probes += 1;
    if unanswered {
        return;
    }
    if by_message {
        if endpoint.send_space() > 0 && protocol.probe(endpoint.posted_receives()) {
            return c.run(sk, wakeups);
        }
        // the WRITE makes TCP send, and TCP's retries detect a dead peer
        c.alive.received(jiffies());
    }
    match endpoint.probe().and_then(|()| endpoint.flush()) {
        // `ENOSPC`: the many requests in flight make the transport itself probe the peer
        Err(e) if e != ENOSPC => c.cannot_post(sk, e, wakeups),
        _ => {}
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Actions of a socket's timer, whose deadlines are in [`keepalive`].

use super::local;
use super::release::lost;
use crate::conn::closing::{CloseAction, CloseEvent};
use crate::conn::timers::Timer;
use crate::conn::{keepalive, rx_buffers, SdpSock, FIN_TIME, JOB_ADMIT, JOB_FINISH};
use crate::sys::errno::{ECONNABORTED, ETIMEDOUT};
use crate::sys::time::{is_past, jiffies, Jiffies};

/// Handles the expiry of the timer. Context: worker.
pub(super) fn expired(sk: &SdpSock) {
    // polls completions, which may include replies
    sk.progress();
    let due = |at: Option<Jiffies>| at.is_some_and(is_past);
    let (mut repeated, mut corked) = (None, None);
    let (closing, short, trim) = {
        let mut c = sk.connection();
        c.note_progress(false);
        if due(keepalive::user_timeout_due(sk, &c)) {
            c.stats.timeouts += 1;
            c.close_on(CloseEvent::Failed, ETIMEDOUT);
        } else if due(keepalive::keepalive_due(sk, &c)) {
            let (c, wakeups, sk) = c.split();
            keepalive::probe(sk, c, wakeups);
        }
        let now = jiffies();
        if c.timers.take_due(Timer::Ack, now) {
            let (c, wakeups, sk) = c.split();
            keepalive::check_acks(sk, c, wakeups);
        }
        if c.timers.take_due(Timer::Cork, now) {
            c.tx.uncork();
            c.end_collection();
            c.progress();
            corked = c.living_link().cloned();
        }
        if c.timers.take_due(Timer::Retry, now) {
            repeated = c.cm.repeated.take();
            c.probe_first(sk, true);
        }
        if c.timers.take_due(Timer::Space, now) {
            c.check_memory();
        }
        if c.timers.take_due(Timer::GiveBack, now) {
            if c.is_withheld(now) {
                c.stats.withheld += 1;
                c.close_on(CloseEvent::Failed, ECONNABORTED);
            } else {
                c.retry_moves(sk);
            }
        }
        if c.timers.is_due(Timer::DeferAccept, now) {
            sk.schedule(JOB_ADMIT);
        }
        let trim = c.timers.take_due(Timer::Trim, now);
        let due = |timer| c.timers.is_due(timer, now);
        (due(Timer::Close), due(Timer::Memory), trim)
    };
    if let Some(link) = corked {
        link.uncork();
    }
    if let Some(request) = repeated {
        local::repeat(sk, request);
    }
    if trim {
        sk.trim_if_idle();
    }
    if short {
        rx_buffers::restock(sk);
    }
    if closing {
        overdue(sk);
    }
    keepalive::update(sk);
}

/// Handles the timeout of closing, or of a peer that does not react to the reply.
fn overdue(sk: &SdpSock) {
    let (below, wakeups) = {
        let mut c = sk.connection();
        // the timer may have been cleared meanwhile
        if !c.timers.take_due(Timer::Close, jiffies()) {
            return;
        }
        if c.slot.is_some() {
            // the event that reports the connection's end may never arrive
            drop(c);
            return lost(sk, |c| c.slot.is_some());
        }
        let moving = !is_past(c.alive.last_progress.wrapping_add(FIN_TIME));
        let act = c.close_on(CloseEvent::Deadline { moving }, ETIMEDOUT);
        c.stats.timeouts += u64::from(act == CloseAction::Fail);
        let below = (act == CloseAction::Detach).then(|| c.detach());
        (below, c.unlock())
    };
    if let Some(below) = below {
        below.give_up();
        sk.schedule(JOB_FINISH);
        below.destroy();
    }
    drop(wakeups);
}

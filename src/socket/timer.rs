// SPDX-License-Identifier: GPL-2.0-only

//! What is done when a socket's timer runs out; when that is, [`timers`] says.

use super::release::lost;
use crate::conn::closing::{Act, Event};
use crate::conn::{receive_buffers, timers, SdpSock, FIN_TIME, JOB_ADMIT, JOB_FINISH};
use crate::sys::errno::ETIMEDOUT;
use crate::sys::time::{is_past, Jiffies};

/// The timer has run out; in a worker.
pub(super) fn expired(sk: &SdpSock) {
    // the completions that tell what has been answered
    sk.progress();
    let due = |at: Option<Jiffies>| at.is_some_and(is_past);
    let (closing, short) = {
        let mut c = sk.connection();
        if due(timers::user_timeout_due(sk, &c)) {
            c.close_on(Event::Failed, ETIMEDOUT);
        } else if due(timers::keepalive_due(sk, &c)) {
            let (c, wakeups, sk) = c.split();
            timers::probe(sk, c, wakeups);
        }
        if due(c.uncork_at) {
            c.uncorked = true;
            c.progress();
        }
        if c.rouse_at.take_if(|at| is_past(*at)).is_some() {
            if let Some(channel) = c.channel.as_mut() {
                channel.rouse();
            }
        }
        if due(c.admit_at) {
            sk.schedule(JOB_ADMIT);
        }
        (due(c.deadline), due(c.shortage.due()))
    };
    if short {
        receive_buffers::restock(sk);
    }
    if closing {
        overdue(sk);
    }
    timers::update(sk);
}

/// The time that closing may take has run out, or that a peer may take to say that it has our answer.
fn overdue(sk: &SdpSock) {
    let (below, told) = {
        let mut c = sk.connection();
        // it may just have come to that
        if !c.deadline.is_some_and(is_past) {
            return;
        }
        c.deadline = None;
        if c.place.is_some() {
            // nothing may come any more that tells of its end
            drop(c);
            return lost(sk, |c| c.place.is_some());
        }
        let moving = !is_past(c.last_progress.wrapping_add(FIN_TIME));
        let act = c.close_on(Event::Deadline { moving }, ETIMEDOUT);
        let below = (act == Act::Detach).then(|| c.let_go());
        (below, c.unlock())
    };
    if let Some((_, _, link)) = &below {
        if let Some(link) = link {
            link.give_up();
        }
        sk.schedule(JOB_FINISH);
    }
    drop(below);
    drop(told);
}

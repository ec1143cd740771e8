// SPDX-License-Identifier: GPL-2.0-only

//! A turn of a connection: polls the completion queues, makes all possible progress, and arms the
//! queues.

use super::wakeups::Wakeups;
use super::{Connection, SdpSock, FIN, JOB_PROGRESS};
use crate::protocol::Stall;
use crate::sys::net::sock::State;
use crate::sys::time::jiffies;
use crate::transport::{Arming, SendCompletion};

/// Maximum number of completions handled under one hold of the lock.
const BUDGET: u32 = 64;

/// State of polling a connection's completion queues.
#[derive(Default)]
pub(crate) struct Polling {
    /// Number of callers that poll instead of waiting for a notification.
    callers: u32,
    /// True if the receive notification is armed ([`Arming::Armed`]) and has not fired since.
    pub(super) armed: bool,
}

impl SdpSock {
    /// Prepares another connect(2): a worker handles the completion events until the connection is
    /// established. Context: connection's lock held.
    pub(crate) fn begins_anew(&self) {
        // no event of the previous connection can be pending
        let _ = self.data().events.set_unfinished(true);
    }
}

impl Connection {
    /// Makes all possible progress.
    pub(super) fn run(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        self.poll(sk, wakeups);
        self.note_memory(sk);
    }

    fn poll(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        self.take_events(sk, wakeups);
        let mut budget = 0..BUDGET;
        while self.connected() {
            while !budget.is_empty() {
                let Some(c) = self.endpoint.as_mut().and_then(|c| c.poll_receive()) else {
                    break;
                };
                budget.next();
                self.stats.receive_completions += 1;
                self.received(sk, c, wakeups);
            }
            // only socket calls add blocks: if no block is posted now, this loop posts none
            let zcopy = self.zcopy.has_posted();
            if zcopy {
                // Saves a pass if invalidations complete at once. `transmit` gets an error again.
                let _ = self.end_access();
            }
            self.poll_send(sk, wakeups);
            if zcopy {
                self.retire_blocks(sk, wakeups);
                self.check_for_writers(sk);
                self.check_collection(sk);
            }
            self.refill(sk, wakeups);
            self.transmit(sk, wakeups, zcopy);
            let waits = self.waits_for_completion(sk) || zcopy && self.zcopy.is_busy();
            if budget.is_empty() {
                // a worker continues later, so that other tasks get the lock and the processor
                sk.schedule(JOB_PROGRESS);
                break;
            }
            if self.is_polled(sk) {
                break;
            }
            let armed = self.arm(waits);
            let unfinished = waits || self.is_unfinished(sk) || zcopy && self.zcopy.has_detached();
            if sk.data().events.set_unfinished(unfinished) {
                self.take_events(sk, wakeups);
            } else if armed {
                break;
            }
            budget.next(); // a device may report completions for a while and deliver none
        }
    }

    fn poll_send(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        while let Some(c) = self.endpoint.as_mut().and_then(|c| c.poll_send()) {
            self.completed(sk, c, wakeups);
        }
    }

    #[inline(never)] // most polls find no send completion, and save the registers of this function
    fn completed(&mut self, sk: &SdpSock, c: SendCompletion, wakeups: &mut Wakeups) {
        self.stats.send_completions += 1;
        match c {
            SendCompletion::Sent { cookie } => {
                self.tx.complete(cookie & !FIN);
                if cookie & FIN != 0 {
                    self.closing.fin_completed = true;
                    self.check_fin(sk, wakeups);
                }
                self.alive.progress(jiffies());
                self.has_space_again(sk, wakeups);
            }
            SendCompletion::Failed { status } => self.failed(sk, status, wakeups),
            SendCompletion::Moved { cookie, len } => self.moved(cookie, len, wakeups),
            SendCompletion::Ended { cookie } => self.access_ended(cookie, wakeups),
        }
    }

    /// Arms the receive notification and, if `wait_sent`, the send notification. Returns false if a
    /// completion arrived before the arming.
    pub(super) fn arm(&mut self, wait_sent: bool) -> bool {
        let Some(endpoint) = self.endpoint.as_mut() else {
            return true;
        };
        let armed = &mut self.polling.armed;
        *armed = *armed || endpoint.arm_receive() == Arming::Armed;
        (!wait_sent || endpoint.arm_send() == Arming::Armed) && *armed
    }

    /// Registers a caller that polls the queues. Returns false if the connection has no queues.
    /// [`Self::end_polling`] unregisters the caller.
    pub(crate) fn begin_polling(&mut self) -> bool {
        let polls = self.endpoint.is_some();
        self.polling.callers = self.polling.callers.saturating_add(polls.into());
        polls
    }

    /// Unregisters a polling caller. Before the caller sleeps, its call of
    /// [`Guard::progress`](super::guard::Guard::progress) arms the queues.
    pub(crate) fn end_polling(&mut self) {
        self.polling.callers = self.polling.callers.saturating_sub(1);
    }

    /// Returns true if a pending completion makes progress.
    pub(crate) fn has_completion(&mut self, sk: &SdpSock) -> bool {
        let sent = self.waits_for_completion(sk) || self.zcopy.is_busy();
        let endpoint = self.endpoint.as_mut();
        endpoint.is_some_and(|c| c.has_completion(sent))
    }

    /// Returns true if no notification is needed, since all waiters poll the queues. Pollers are
    /// tasks that may be preempted, so workers must not depend on them.
    pub(super) fn is_polled(&self, sk: &SdpSock) -> bool {
        let callers = self.polling.callers;
        callers > 0 && sk.data().events.awaited() <= callers && !sk.is_watched()
    }

    /// Consumes the pending completion events. The caller then polls and arms the queues.
    pub(super) fn take_events(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        let Some(events) = sk.data().events.take() else {
            return;
        };
        wakeups.events = wakeups.events.saturating_add(1);
        wakeups.to_pollers = wakeups.to_pollers.saturating_add(events.to_pollers.into());
        self.polling.armed &= !events.receive;
    }

    /// Returns true if the next completion makes progress without a socket call: the connection is
    /// being set up or closed, bytes are unsent, or blocks are posted.
    /// [`Self::waits_for_completion`] covers send completions.
    pub(super) fn is_unfinished(&self, sk: &SdpSock) -> bool {
        sk.state() != State::Established
            || self.closing.is_orphaned()
            || self.slot.is_some()
            || self.tx.unsent() > 0
            || self.held.is_some()
    }

    /// Returns true if nothing can be sent until the peer grants credits, which cause a
    /// notification. Before the peer grants credits, queueing more bytes has no effect.
    pub(crate) fn is_stalled(&self, sk: &SdpSock) -> bool {
        self.held == Some(Stall::Credits) && self.polling.armed && !sk.data().events.are_noted()
    }

    /// Returns true if a send completion makes progress, so that its notification is needed.
    pub(super) fn waits_for_completion(&self, sk: &SdpSock) -> bool {
        let closing =
            self.protocol.as_ref().is_some_and(|p| p.send_closed()) && !self.closing.fin_acked;
        let writers = sk.is_space_wanted();
        let held = matches!(self.held, Some(Stall::Wire | Stall::InFlight));
        held || writers || self.space_wanted || closing
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Polling and arming of the completion queues.

use super::wakeups::Wakeups;
use super::{Connection, SdpSock};
use crate::protocol::Stall;
use crate::sys::net::sock::State;
use crate::transport::{Arming, NotifyOn};

/// Callers that poll a connection's queues, and armed notifications. The queues store whether they
/// are armed ([`Arming`]).
pub(crate) struct Polling {
    /// Callers that poll instead of waiting for a notification.
    callers: u32,
    /// Receive notification that is armed ([`Arming::Armed`]) and has not fired since.
    armed: Option<NotifyOn>,
    /// Set after a notification without a waiting call: until the next send or receive call, each
    /// arrival is notified.
    notify_each: bool,
}

impl Polling {
    pub(super) const fn new() -> Self {
        Polling {
            callers: 0,
            armed: None,
            notify_each: false,
        }
    }

    pub(super) fn reset(&mut self) {
        (self.armed, self.notify_each) = (None, false);
    }

    /// Records a notification of the receive queue.
    pub(super) fn notified(&mut self) {
        self.notify_each |= self.armed == Some(NotifyOn::Solicited);
        self.armed = None;
    }

    /// Records a send or receive call.
    pub(crate) fn called(&mut self) {
        self.notify_each = false;
    }
}

impl SdpSock {
    /// Prepares another connect: until it is established, a worker handles the events. Called under
    /// the connection's lock.
    pub(crate) fn begins_anew(&self) {
        // no event of the previous connection can be pending
        let _ = self.data().events.set_unfinished(true);
    }
}

impl Connection {
    /// Arms the notifications; that of send completions only if `wait_sent`. Returns false if a
    /// completion has arrived meanwhile.
    pub(super) fn arm(&mut self, sk: &SdpSock, wait_sent: bool) -> bool {
        let (notify_on, awaits_drain) = (self.notify_on(sk), self.awaits_drain());
        let Some(endpoint) = self.endpoint.as_mut() else {
            return true;
        };
        let polling = &mut self.polling;
        if polling.armed != Some(notify_on) {
            let armed = endpoint.arm_receive(notify_on) == Arming::Armed;
            polling.armed = armed.then_some(notify_on);
        }
        let send_armed = !wait_sent || endpoint.arm_send() == Arming::Armed;
        let taking_armed = !awaits_drain || endpoint.arm_drain() == Arming::Armed;
        send_armed && taking_armed && polling.armed.is_some()
    }

    /// Registers a caller that polls the queues. Returns false if polling is of no use.
    /// [`Self::end_polling`] reverses it.
    pub(crate) fn begin_polling(&mut self) -> bool {
        let endpoint = self.endpoint.as_ref();
        let polls = endpoint.is_some_and(|c| !c.is_local());
        self.polling.callers = self.polling.callers.saturating_add(polls.into());
        polls
    }

    /// Unregisters the caller, which calls [`Guard::progress`](super::guard::Guard::progress)
    /// before it sleeps; that arms the queues.
    pub(crate) fn end_polling(&mut self) {
        self.polling.callers = self.polling.callers.saturating_sub(1);
    }

    /// Returns true if there is a completion that makes progress.
    pub(crate) fn has_completion(&mut self, sk: &SdpSock) -> bool {
        let sent = self.waits_for_completion(sk) || self.zcopy.is_busy();
        let endpoint = self.endpoint.as_mut();
        endpoint.is_some_and(|c| c.has_completion(sent))
    }

    /// Returns true if no notification is needed, since all waiters poll the queues. Pollers are
    /// tasks that may be preempted; workers must not depend on them.
    pub(super) fn is_polled(&self, sk: &SdpSock) -> bool {
        let callers = self.polling.callers;
        callers > 0 && sk.data().events.awaited() <= callers && !sk.is_watched()
    }

    /// Returns the receive notification to arm. Without a waiting call, arriving bytes, credits and
    /// adverts need no notification: the next call polls. A worker that handled each message would
    /// only delay the sender. A caller that begins or ends a wait or a poll repeats this decision.
    pub(super) fn notify_on(&self, sk: &SdpSock) -> NotifyOn {
        let polls_itself = self.endpoint.as_ref().is_some_and(|c| c.is_local())
            && sk.state() == State::Established
            && !self.closing.is_orphaned()
            && self.slot.is_none()
            && !self.polling.notify_each
            && (self.tx.unsent() == 0 || self.awaits_drain() || self.held == Some(Stall::Corked))
            && self.held != Some(Stall::Credits)
            && !sk.data().events.are_awaited()
            && !sk.is_watched();
        match polls_itself {
            true => NotifyOn::Solicited,
            false => NotifyOn::Next,
        }
    }

    /// Consumes the pending completion events. The caller polls and arms the queues afterwards.
    pub(super) fn take_events(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        let Some(events) = sk.data().events.take() else {
            return;
        };
        wakeups.events = wakeups.events.saturating_add(1);
        wakeups.to_pollers = wakeups.to_pollers.saturating_add(events.to_pollers.into());
        if events.receive {
            self.polling.notified();
        }
    }

    /// Returns true if the next completion makes progress without any call: the connection is
    /// being set up or closed, bytes are unsent, or blocks are posted. Send completions are
    /// separate ([`Self::waits_for_completion`]).
    pub(super) fn is_unfinished(&self, sk: &SdpSock) -> bool {
        sk.state() != State::Established
            || self.closing.is_orphaned()
            || self.slot.is_some()
            || self.tx.unsent() > 0
            || self.held.is_some()
    }

    /// Returns true if nothing can be sent until the peer grants credits or has drained its
    /// messages, which is notified. Queueing more bytes has no effect then.
    pub(crate) fn is_stalled(&self, sk: &SdpSock) -> bool {
        let waits = match self.held {
            Some(Stall::Credits) => self.polling.armed == Some(NotifyOn::Next),
            _ => self.awaits_drain() && self.tx.unsent() < self.max_payload() as usize,
        };
        waits && !sk.data().events.are_noted()
    }

    /// Returns true if small messages wait until the local peer has drained the previous ones. The
    /// peer's task then sends them.
    pub(super) fn awaits_drain(&self) -> bool {
        self.held == Some(Stall::InFlight) && self.endpoint.as_ref().is_some_and(|e| e.is_local())
    }

    /// Returns true if messages may arrive without a notification.
    pub(crate) fn polls_itself(&self) -> bool {
        self.polling.armed == Some(NotifyOn::Solicited)
    }

    /// Returns true if there may be completions that were not polled.
    pub(crate) fn may_have_events(&self, sk: &SdpSock) -> bool {
        self.polls_itself() || sk.data().events.are_noted()
    }

    /// Returns true if bytes have arrived without a notification.
    pub(crate) fn is_pending(&self) -> bool {
        self.polls_itself() && self.has_untaken()
    }

    /// Returns true if the endpoint reports bytes that were not polled.
    pub(crate) fn has_untaken(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|c| c.unpolled() > 0)
    }

    /// Returns true if a send completion makes progress, so that its notification is needed.
    pub(super) fn waits_for_completion(&self, sk: &SdpSock) -> bool {
        let closing =
            self.protocol.as_ref().is_some_and(|p| p.send_closed()) && !self.closing.fin_is_acked();
        let writers = sk.is_space_wanted();
        let held = match self.held {
            Some(Stall::Wire) => true,
            Some(Stall::InFlight) => !self.awaits_drain(),
            _ => false,
        };
        held || writers || self.space_wanted || closing
    }
}

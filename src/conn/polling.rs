// SPDX-License-Identifier: GPL-2.0-only

//! Who looks at the completion queues, and what has to be told for that.

use super::wakeups::Wakeups;
use super::{Connection, SdpSock};
use crate::protocol::Stall;
use crate::sys::net::sock::State;
use crate::transport::{Arming, NotifyOn, Transport};

/// Who polls a connection's queues, and what was asked for. That they are armed is known to the queues
/// ([`Arming`]).
pub(crate) struct Polling {
    /// Callers who poll in place of being told.
    callers: u32,
    /// Of which receives the endpoint has promised to tell ([`Arming::Armed`]), and has not since.
    armed: Option<NotifyOn>,
    /// Something was told that was not asked for: until the program next sends or receives, bytes are taken
    /// in as they come.
    notify_each: bool,
}

impl Polling {
    /// Of a new socket.
    pub(super) const fn new() -> Self {
        Polling {
            callers: 0,
            armed: None,
            notify_each: false,
        }
    }

    /// Another connection begins.
    pub(super) fn reset(&mut self) {
        (self.armed, self.notify_each) = (None, false);
    }

    /// The receive queue has told of something.
    pub(super) fn told(&mut self) {
        self.notify_each |= self.armed == Some(NotifyOn::Solicited);
        self.armed = None;
    }

    /// The program sends or receives.
    pub(crate) fn called(&mut self) {
        self.notify_each = false;
    }
}

impl SdpSock {
    /// Another connection is to be made: a worker looks after what is told until it is there. Called under
    /// the connection's lock.
    pub(crate) fn begins_anew(&self) {
        // nothing of the last one is left that could be noted
        let _ = self.data().events.set_unfinished(true);
    }
}

impl Connection {
    /// Has all told that is to be, the ends of sends if something waits for those; false if something has come meanwhile.
    pub(super) fn arm(&mut self, sk: &SdpSock, wait_sent: bool) -> bool {
        let (notify_on, awaits_taking) = (self.notify_on(sk), self.awaits_taking());
        let Some(endpoint) = self.endpoint.as_mut() else {
            return true;
        };
        let polling = &mut self.polling;
        if polling.armed != Some(notify_on) {
            let armed = endpoint.arm_receive(notify_on) == Arming::Armed;
            polling.armed = armed.then_some(notify_on);
        }
        let send_armed = !wait_sent || endpoint.arm_send() == Arming::Armed;
        let taking_armed = !awaits_taking || endpoint.arm_taking() == Arming::Armed;
        send_armed && taking_armed && polling.armed.is_some()
    }

    /// A caller is going to poll the queues. Returns whether that is of any use; it says so when it
    /// [ends](Self::end_polling).
    pub(crate) fn begin_polling(&mut self) -> bool {
        let endpoint = self.endpoint.as_ref();
        let polls = endpoint.is_some_and(|c| !c.knows_solicited());
        self.polling.callers += u32::from(polls);
        polls
    }

    /// It does so no more, and has [`Guard::progress`](super::guard::Guard::progress) called before it sleeps, which arms the queues.
    pub(crate) fn end_polling(&mut self) {
        self.polling.callers -= 1;
    }

    /// Whether there is a completion that moves something on.
    pub(crate) fn has_completion(&mut self, sk: &SdpSock) -> bool {
        let sent = self.waits_for_completion(sk);
        let endpoint = self.endpoint.as_mut();
        endpoint.is_some_and(|c| c.look(sent))
    }

    /// Whether nothing has to be told, since all who wait poll the queues. They are tasks that may have to
    /// give way, which others are not to wait for.
    pub(super) fn is_polled(&self, sk: &SdpSock) -> bool {
        let callers = self.polling.callers;
        callers > 0 && sk.data().events.awaited() <= callers && !sk.is_watched()
    }

    /// Of which receives to be told. That bytes have come, and credits, and adverts, is nobody's
    /// business until a call comes, which looks itself; a worker that takes each message from its
    /// sender's hands would only be in the way. Whoever begins to wait or to poll, or has waited, has
    /// this decided anew.
    pub(super) fn notify_on(&self, sk: &SdpSock) -> NotifyOn {
        let looks_itself = self.endpoint.as_ref().is_some_and(|c| c.knows_solicited())
            && sk.state() == State::Established
            && !self.closing.is_orphaned()
            && self.slot.is_none()
            && !self.polling.notify_each
            && (self.tx.unsent() == 0 || self.awaits_taking() || self.held == Some(Stall::Corked))
            && self.held != Some(Stall::Credits)
            && !sk.data().events.are_awaited()
            && !sk.is_watched();
        match looks_itself {
            true => NotifyOn::Solicited,
            false => NotifyOn::Next,
        }
    }

    /// Takes what was told of the queues; after that they are looked at, and armed again.
    pub(super) fn take_events(&mut self, sk: &SdpSock, wakeups: &mut Wakeups) {
        let Some(told) = sk.data().events.take() else {
            return;
        };
        wakeups.events += 1;
        wakeups.to_pollers += u32::from(told.to_pollers);
        if told.receive {
            self.polling.told();
        }
    }

    /// Whether something goes on with the next completion though no call may come, besides what
    /// [waits](Self::waits_for_completion) for that of a send: a connection that begins or ends, bytes that are to go out, memory
    /// that is lent.
    pub(super) fn is_unfinished(&self, sk: &SdpSock) -> bool {
        sk.state() != State::Established
            || self.closing.is_orphaned()
            || self.slot.is_some()
            || self.tx.unsent() > 0
            || self.held.is_some()
            || self.direct.has_detached()
    }

    /// Whether nothing can go out before the peer gives credits, or has taken what came, which will be told. More
    /// bytes change nothing then.
    pub(crate) fn is_stalled(&self, sk: &SdpSock) -> bool {
        let waits = match self.held {
            Some(Stall::Credits) => self.polling.armed == Some(NotifyOn::Next),
            _ => self.awaits_taking() && self.tx.unsent() < self.max_payload() as usize,
        };
        waits && !sk.data().events.are_noted()
    }

    /// Whether small messages wait for the peer, in this machine, to take those before them. Then its task has
    /// them sent.
    pub(super) fn awaits_taking(&self) -> bool {
        self.held == Some(Stall::InFlight)
            && self.endpoint.as_ref().is_some_and(|e| e.knows_solicited())
    }

    /// Whether messages may come without anybody being told.
    pub(crate) fn looks_itself(&self) -> bool {
        self.polling.armed == Some(NotifyOn::Solicited)
    }

    /// Whether something may have come that nobody has looked at.
    pub(crate) fn may_have_news(&self, sk: &SdpSock) -> bool {
        self.looks_itself() || sk.data().events.are_noted()
    }

    /// Whether bytes have come and nobody was told.
    pub(crate) fn is_untold(&self) -> bool {
        self.looks_itself() && self.has_untaken()
    }

    /// Whether bytes have come that were not looked for, as far as that is known.
    pub(crate) fn has_untaken(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|c| c.unpolled() > 0)
    }

    /// Whether the completion of a send moves something on, so that it has to be told.
    pub(super) fn waits_for_completion(&self, sk: &SdpSock) -> bool {
        let closing =
            self.protocol.as_ref().is_some_and(|p| p.send_closed()) && !self.closing.fin_is_acked();
        let writers = sk.is_room_wanted();
        let held = match self.held {
            Some(Stall::Wire) => true,
            Some(Stall::InFlight) => !self.awaits_taking(),
            _ => false,
        };
        held || writers || self.space_wanted || closing || self.direct.is_busy()
    }
}

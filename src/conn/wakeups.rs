// SPDX-License-Identifier: GPL-2.0-only

//! Who is to be told of news.
//!
//! [`Wakeups`] collect that under the connection's lock; they are delivered without it, when the
//! [`Guard`](super::guard::Guard) of the lock is dropped.

use super::JOB_ADMIT;
use crate::sys::net::sock::SockCore;

/// Who is to be told of what [`Connection::run`](super::Connection::run) has found.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wakeups {
    /// There is something to read, or the end of it.
    pub(crate) readable: bool,
    /// There is room to write.
    pub(crate) writable: bool,
    /// The state has changed.
    pub(crate) state: bool,
    /// An error is to be reported.
    pub(crate) error: bool,
    /// Urgent data is on its way.
    pub(crate) urgent: bool,
    /// The peer has hung up.
    pub(crate) hup: bool,
    /// What accept(2) waits for has come (`TCP_DEFER_ACCEPT`).
    pub(crate) admit: bool,
    /// Zero copy has come on.
    pub(crate) direct: bool,
    /// The transport has a copy job for whoever tells.
    pub(crate) copy_job: bool,
    /// Memory whose bytes have gone is to be let go of.
    pub(crate) released: bool,
    /// Receive buffers are to be made.
    pub(crate) buffers: bool,
    /// What was sent to a peer that no program has any more is to be taken there.
    pub(super) attend: bool,
    /// The connection is to be taken down.
    pub(super) disconnect: bool,
    /// How often something was told of the completion queues.
    pub(super) events: u32,
    /// How often of these to those who poll.
    pub(super) to_pollers: u32,
}

impl Wakeups {
    /// Adds what another one says.
    pub(crate) fn merge(&mut self, o: Wakeups) {
        self.readable |= o.readable;
        self.writable |= o.writable;
        self.state |= o.state;
        self.error |= o.error;
        self.urgent |= o.urgent;
        self.hup |= o.hup;
        self.admit |= o.admit;
        self.direct |= o.direct;
        self.copy_job |= o.copy_job;
        self.released |= o.released;
        self.buffers |= o.buffers;
        self.attend |= o.attend;
        self.disconnect |= o.disconnect;
        self.events += o.events;
        self.to_pollers += o.to_pollers;
    }

    /// Whether nobody is to be told, and nothing to be done.
    pub(super) fn is_empty(&self) -> bool {
        let Wakeups {
            readable,
            writable,
            state,
            error,
            urgent,
            hup,
            admit,
            direct,
            copy_job,
            released,
            buffers,
            attend,
            disconnect,
            events: _,
            to_pollers: _,
        } = *self;
        let told = readable | writable | state | error | urgent | hup;
        let served = copy_job | released | buffers | attend | disconnect;
        !(told | admit | direct | served)
    }

    /// Whether those who poll were woken for all of it.
    pub(super) fn is_known_to_pollers(&self) -> bool {
        self.events > 0 && self.to_pollers == self.events
    }

    /// Tells them, also those who poll unless that is said. The connection's lock is not held.
    pub(super) fn tell(self, sk: &SockCore, pollers: bool) {
        if self.state && pollers {
            // before whoever waits for it goes on: told later, it would look like what comes of that
            sk.state_changed();
        }
        if self.readable || self.writable || self.state || self.error || self.direct {
            sk.wake();
        }
        if self.admit {
            sk.schedule(JOB_ADMIT);
        }
        if self.urgent {
            sk.send_sigurg();
        }
        if self.readable && pollers {
            sk.data_ready();
        }
        if self.writable && sk.take_want_space() && pollers {
            sk.write_space();
        }
        if self.error && pollers {
            sk.error_report();
        }
        if self.hup {
            sk.sigio_hup();
        }
    }
}

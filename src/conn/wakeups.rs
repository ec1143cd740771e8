// SPDX-License-Identifier: GPL-2.0-only

//! Wakeups that a turn of the connection has found necessary.
//!
//! [`Wakeups`] are collected under the connection's lock and delivered without it, when the
//! [`Guard`](super::guard::Guard) of the lock is dropped.

use super::JOB_ADMIT;
use crate::sys::net::sock::SockCore;

/// Wakeups and deferred work found by [`Connection::run`](super::Connection::run).
#[derive(Clone, Copy, Default)]
pub(crate) struct Wakeups {
    /// Data, or the end of the stream, can be read.
    pub(crate) readable: bool,
    /// The send queue has space.
    pub(crate) writable: bool,
    /// The socket state has changed.
    pub(crate) state: bool,
    /// An error is pending.
    pub(crate) error: bool,
    /// Urgent data has been announced.
    pub(crate) urgent: bool,
    /// The peer has hung up.
    pub(crate) hup: bool,
    /// The data that accept(2) waits for has arrived (`TCP_DEFER_ACCEPT`).
    pub(crate) admit: bool,
    /// Zero copy has made progress.
    pub(crate) zcopy: bool,
    /// The transport has a copy job for the task that delivers the wakeups.
    pub(crate) copy_job: bool,
    /// Memory of sent blocks is to be released.
    pub(crate) released: bool,
    /// Receive buffers are to be allocated.
    pub(crate) buffers: bool,
    /// The closed socket of the peer is to be drained.
    pub(super) attend: bool,
    /// The connection is to be destroyed.
    pub(super) disconnect: bool,
    /// Number of completion events consumed.
    pub(super) events: u32,
    /// Number of these that had woken pollers.
    pub(super) to_pollers: u32,
}

impl Wakeups {
    pub(crate) fn merge(&mut self, o: Wakeups) {
        self.readable |= o.readable;
        self.writable |= o.writable;
        self.state |= o.state;
        self.error |= o.error;
        self.urgent |= o.urgent;
        self.hup |= o.hup;
        self.admit |= o.admit;
        self.zcopy |= o.zcopy;
        self.copy_job |= o.copy_job;
        self.released |= o.released;
        self.buffers |= o.buffers;
        self.attend |= o.attend;
        self.disconnect |= o.disconnect;
        self.events = self.events.saturating_add(o.events);
        self.to_pollers = self.to_pollers.saturating_add(o.to_pollers);
    }

    /// Returns true if there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        let Wakeups {
            readable,
            writable,
            state,
            error,
            urgent,
            hup,
            admit,
            zcopy,
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
        !(told | admit | zcopy | served)
    }

    /// Returns true if the pollers were woken for all of these events.
    pub(super) fn is_left_to_pollers(&self) -> bool {
        self.events > 0 && self.to_pollers == self.events
    }

    /// Wakes the waiters, and the pollers unless excluded. The connection's lock is not held.
    pub(super) fn notify(self, sk: &SockCore, pollers: bool) {
        if self.state && pollers {
            // before the waiter continues: later it would look like a result of the waiter's own
            // action
            sk.state_changed();
        }
        if self.readable || self.writable || self.state || self.error || self.zcopy {
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

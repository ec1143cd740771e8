// SPDX-License-Identifier: GPL-2.0-only

//! Phases of a connection, and the transitions when either end closes it.
//!
//! ```text
//!  New ---- REQ out ----> Requested ---- REP in, RTU out ----> Established
//!   |                                                           ^    |
//!   '------ REP out ----> Replied ------ RTU or message in -----'    |-- DREQ out --> Leaving
//!                                                                    |                  |
//!  any of them --- REJ, no answer ---> Closed <------- DREQ in ------'-- DREP, no answer'
//! ```
//!
//! A local connection takes the same steps without these messages.

use super::upcalls::{Disconnect, LinkId, Upcalls};
use crate::sys::errno::ECONNRESET;
use kernel::prelude::*;
use kernel::sync::aref::ARef;

/// Phase of a connection; see the head of this file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    Requested,
    Replied,
    Established,
    Leaving,
    Closed,
}

/// Notification of the owner at the end.
pub(super) enum Ending {
    /// [`Upcalls::refused`].
    Refused(Error),
    /// [`Upcalls::disconnected`].
    Disconnect(Disconnect),
    /// None: the owner was notified before.
    Known,
}

impl Phase {
    /// Disconnects from this end. Returns the phase before.
    pub(super) fn disconnect(&mut self) -> Self {
        let to = match *self {
            Phase::Established => Phase::Leaving,
            Phase::Replied => Phase::Closed,
            // not connected, or the drop of the link does the rest
            other => other,
        };
        core::mem::replace(self, to)
    }

    /// Handles a reject of the peer; `error` is for a REQ of this end.
    pub(super) fn rejected(self, error: Error) -> Ending {
        match self {
            Phase::New | Phase::Replied => Ending::Refused(ECONNRESET.into()),
            Phase::Requested => Ending::Refused(error),
            Phase::Established => Ending::Disconnect(Disconnect::Peer),
            Phase::Leaving => Ending::Disconnect(Disconnect::Acked),
            Phase::Closed => Ending::Known,
        }
    }

    /// Handles a disconnect of the peer.
    pub(super) fn left(self) -> Ending {
        match self {
            Phase::Closed => Ending::Known,
            Phase::Leaving => Ending::Disconnect(Disconnect::Acked),
            _ => Ending::Disconnect(Disconnect::Peer),
        }
    }
}

/// One end of a connection for the events of the connection manager: a phase, and the owner to
/// notify.
pub(super) trait HasPhase<O: Upcalls>: Sized {
    /// Calls `f` under the lock of phase and owner. There is no owner once the handle is dropped.
    fn with_phase<R>(&self, f: impl FnOnce(&mut Phase, &Option<ARef<O>>) -> R) -> R;

    /// Flushes posted requests, where the connection has ended, the owner has kept the endpoint,
    /// and nothing else flushes.
    fn flush(&self) {}

    fn link_id(&self) -> LinkId {
        LinkId::of(self)
    }

    fn owner(&self) -> Option<ARef<O>> {
        self.with_phase(|_, owner| owner.clone())
    }

    fn phase(&self) -> Phase {
        self.with_phase(|phase, _| *phase)
    }

    /// Changes from one phase to another. Returns false if the link was in a different phase.
    fn advance(&self, from: Phase, to: Phase) -> bool {
        self.with_phase(|phase, _| {
            let right = *phase == from;
            if right {
                *phase = to;
            }
            right
        })
    }

    /// Notifies the owner, if there still is one.
    fn notify(&self, f: impl FnOnce(&O, LinkId)) {
        if let Some(owner) = self.owner() {
            f(&owner, self.link_id());
        }
    }

    /// Handles RTU, or a message in its place.
    fn ready(&self) {
        if self.advance(Phase::Replied, Phase::Established) {
            self.notify(|o, id| o.established(id));
        }
    }

    fn ended(&self, how: Ending) {
        match how {
            Ending::Refused(e) => self.notify(|o, id| o.refused(id, e)),
            Ending::Disconnect(how) => self.gone(how),
            Ending::Known => {}
        }
    }

    fn gone(&self, how: Disconnect) {
        self.notify(|o, id| o.disconnected(id, how));
        self.flush();
    }
}

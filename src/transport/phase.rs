// SPDX-License-Identifier: GPL-2.0-only

//! How far a connection is, and what becomes of it when either end gives it up.
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

/// Where a connection stands; see the head of this file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    Requested,
    Replied,
    Established,
    Leaving,
    Closed,
}

/// What the owner is told when it ends.
pub(super) enum Ending {
    /// By [`Upcalls::refused`].
    Refused(Error),
    /// By [`Upcalls::disconnected`].
    Disconnect(Disconnect),
    /// It has been told before.
    Known,
}

impl Phase {
    /// This end disconnects; tells where it was.
    pub(super) fn disconnect(&mut self) -> Self {
        let to = match *self {
            Phase::Established => Phase::Leaving,
            Phase::Replied => Phase::Closed,
            // nobody is connected, or the drop of the link does what has to be done
            other => other,
        };
        core::mem::replace(self, to)
    }

    /// The peer rejects, with this error if it was asked.
    pub(super) fn rejected(self, error: Error) -> Ending {
        match self {
            Phase::New | Phase::Replied => Ending::Refused(ECONNRESET.into()),
            Phase::Requested => Ending::Refused(error),
            Phase::Established => Ending::Disconnect(Disconnect::Peer),
            Phase::Leaving => Ending::Disconnect(Disconnect::Acked),
            Phase::Closed => Ending::Known,
        }
    }

    /// The peer ends the connection.
    pub(super) fn left(self) -> Ending {
        match self {
            Phase::Closed => Ending::Known,
            Phase::Leaving => Ending::Disconnect(Disconnect::Acked),
            _ => Ending::Disconnect(Disconnect::Peer),
        }
    }
}

/// One end of a connection, as the connection manager's events see it: a phase, and whom to tell.
pub(super) trait HasPhase<O: Upcalls>: Sized {
    /// Calls `f` with the lock of both; there is no owner once the handle is dropped.
    fn with_phase<R>(&self, f: impl FnOnce(&mut Phase, &Option<ARef<O>>) -> R) -> R;

    /// Has what is posted flushed, if nothing else does when the connection ends and the owner has kept it.
    fn flush(&self) {}

    /// Which link this is.
    fn link_id(&self) -> LinkId {
        LinkId::of(self)
    }

    fn owner(&self) -> Option<ARef<O>> {
        self.with_phase(|_, owner| owner.clone())
    }

    fn phase(&self) -> Phase {
        self.with_phase(|phase, _| *phase)
    }

    /// Goes from one phase to the next, if that is where it is.
    fn advance(&self, from: Phase, to: Phase) -> bool {
        self.with_phase(|phase, _| {
            let right = *phase == from;
            if right {
                *phase = to;
            }
            right
        })
    }

    /// Tells the owner, if there still is one.
    fn tell(&self, f: impl FnOnce(&O, LinkId)) {
        if let Some(owner) = self.owner() {
            f(&owner, self.link_id());
        }
    }

    /// RTU has come, or what stands for it.
    fn ready(&self) {
        if self.advance(Phase::Replied, Phase::Established) {
            self.tell(|o, id| o.established(id));
        }
    }

    fn ended(&self, how: Ending) {
        match how {
            Ending::Refused(e) => self.tell(|o, id| o.refused(id, e)),
            Ending::Disconnect(how) => self.gone(how),
            Ending::Known => {}
        }
    }

    fn gone(&self, how: Disconnect) {
        self.tell(|o, id| o.disconnected(id, how));
        self.flush();
    }
}

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

use super::upcalls::Disconnect;
use crate::sys::errno::ECONNRESET;
use kernel::prelude::*;

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
    /// By [`Upcalls::refused`](super::Upcalls::refused).
    Refused(Error),
    /// By [`Upcalls::disconnected`](super::Upcalls::disconnected).
    Disconnect(Disconnect),
    /// It has been told before.
    Known,
}

impl Phase {
    /// Where this end goes that disconnects.
    pub(super) fn disconnected(self) -> Self {
        match self {
            Phase::Established => Phase::Leaving,
            Phase::Replied => Phase::Closed,
            // nobody is connected, or the drop of the link does what has to be done
            other => other,
        }
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

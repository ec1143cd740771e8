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
}

// SPDX-License-Identifier: GPL-2.0-only

//! Parameters and phase of a connection.

#[derive(Clone, Copy)]
pub(crate) struct Config {
    /// Number of posted receive buffers.
    pub(crate) receive_slots: u16,
    /// Maximum size of a message that is copied into the work request (inline), in bytes.
    pub(crate) inline: u16,
    /// Retries of a message that the peer does not acknowledge.
    pub(crate) retry_count: u8,
    /// Retries of a REQ, REP or DREQ.
    pub(crate) cm_retries: u8,
    /// Number of steps by which a request's path MTU is below the route's; each halves it.
    pub(crate) mtu_steps: u8,
}

/// Phase of a connection.
///
/// ```text
///  New ---- REQ out ----> Requested ---- REP in, RTU out ----> Established
///   |                                                           ^    |
///   '------ REP out ----> Replied ------ RTU or message in -----'    |-- DREQ out --> Leaving
///                                                                    |                  |
///  any of them --- REJ, no answer ---> Closed <------- DREQ in ------'-- DREP, no answer'
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    Requested,
    Replied,
    Established,
    Leaving,
    Closed,
}

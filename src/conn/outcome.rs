// SPDX-License-Identifier: GPL-2.0-only

//! What became of sockets of `IPPROTO_SDP`, and why: what is counted of them.

use crate::protocol::named::named_enum;
use crate::sys::errno::{
    Errno, EADDRINUSE, EADDRNOTAVAIL, ECONNREFUSED, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENOBUFS,
    ENODEV, ETIMEDOUT,
};
use kernel::error::Error;

named_enum! {
    /// How a connection was made, or why the socket is TCP's.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(usize)]
    pub(crate) enum Outcome {
        /// connect(2) by SDP.
        Connected = "connected by SDP",
        /// accept(2) of a connection by SDP.
        Accepted = "accepted by SDP",
        /// accept(2) of a connection by TCP.
        AcceptedTcp = "accepted by TCP",
        /// TCP: nobody listens by SDP there, or the peer has no SDP and says so.
        Refused = "TCP: refused",
        /// TCP: no way leads there by SDP.
        Unreachable = "TCP: unreachable",
        /// TCP: the peer has not answered in time.
        NoAnswer = "TCP: no answer",
        /// TCP: SDP has failed for another reason.
        Failed = "TCP: failed",
        /// TCP: one of these was remembered.
        Remembered = "TCP: remembered",
        /// TCP: the program has chosen it (`SDP_ROUTE`).
        Chosen = "TCP: chosen",
        /// TCP: the program wants what SDP does not have.
        Option = "TCP: option",
        /// TCP: the address is one that SDP cannot have.
        Address = "TCP: address",
        /// TCP: there was no port that is free for both.
        Port = "TCP: port",
        /// TCP: as many sockets, or as much memory, as the module's parameters allow.
        Limit = "TCP: limit",
    }
}

impl Outcome {
    /// Why there is no port, or address, for both.
    pub(crate) fn of_port(e: Error) -> Self {
        if e == EADDRINUSE.into() {
            Outcome::Port
        } else {
            Outcome::Address
        }
    }

    /// Why SDP has failed.
    pub(crate) fn of(e: Errno) -> Self {
        match e {
            ECONNREFUSED => Outcome::Refused,
            ENETUNREACH | EHOSTUNREACH | ENETDOWN | EADDRNOTAVAIL | ENODEV => Outcome::Unreachable,
            ETIMEDOUT => Outcome::NoAnswer,
            ENOBUFS => Outcome::Limit,
            _ => Outcome::Failed,
        }
    }
}

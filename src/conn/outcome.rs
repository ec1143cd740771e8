// SPDX-License-Identifier: GPL-2.0-only

//! What became of sockets of `IPPROTO_SDP`, and why: what is counted of them.

use crate::sys::errno::{
    Errno, EADDRINUSE, EADDRNOTAVAIL, ECONNREFUSED, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENODEV,
    ETIMEDOUT,
};
use kernel::error::Error;

/// How a connection was made, or why the socket is TCP's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Outcome {
    /// connect(2) by SDP.
    Connected,
    /// accept(2) of a connection by SDP.
    Accepted,
    /// accept(2) of a connection by TCP.
    AcceptedTcp,
    /// TCP: nobody listens by SDP there, or the peer has no SDP and says so.
    Refused,
    /// TCP: no way leads there by SDP.
    Unreachable,
    /// TCP: the peer has not answered in time.
    NoAnswer,
    /// TCP: SDP has failed for another reason.
    Failed,
    /// TCP: one of these was remembered.
    Remembered,
    /// TCP: the program has chosen it (`SDP_ROUTE`).
    Chosen,
    /// TCP: the program wants what SDP does not have.
    Option,
    /// TCP: the address is one that SDP cannot have.
    Address,
    /// TCP: there was no port that is free for both.
    Port,
    /// TCP: as many sockets as the module's parameters allow.
    Limit,
}

impl Outcome {
    /// All of them.
    pub(crate) const ALL: [Outcome; 13] = [
        Outcome::Connected,
        Outcome::Accepted,
        Outcome::AcceptedTcp,
        Outcome::Refused,
        Outcome::Unreachable,
        Outcome::NoAnswer,
        Outcome::Failed,
        Outcome::Remembered,
        Outcome::Chosen,
        Outcome::Option,
        Outcome::Address,
        Outcome::Port,
        Outcome::Limit,
    ];

    /// Its place in [`Outcome::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// As `/proc/net/sdpstats` calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Outcome::Connected => "connected by SDP",
            Outcome::Accepted => "accepted by SDP",
            Outcome::AcceptedTcp => "accepted by TCP",
            Outcome::Refused => "TCP: refused",
            Outcome::Unreachable => "TCP: unreachable",
            Outcome::NoAnswer => "TCP: no answer",
            Outcome::Failed => "TCP: failed",
            Outcome::Remembered => "TCP: remembered",
            Outcome::Chosen => "TCP: chosen",
            Outcome::Option => "TCP: option",
            Outcome::Address => "TCP: address",
            Outcome::Port => "TCP: port",
            Outcome::Limit => "TCP: limit",
        }
    }

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
            _ => Outcome::Failed,
        }
    }
}

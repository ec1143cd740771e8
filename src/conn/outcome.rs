// SPDX-License-Identifier: GPL-2.0-only

//! Results of `IPPROTO_SDP` sockets and their reasons, for the counters.

use crate::protocol::named::named_enum;
use crate::sys::errno::{
    Errno, EADDRINUSE, EADDRNOTAVAIL, ECONNREFUSED, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENOBUFS,
    ENODEV, ETIMEDOUT,
};
use kernel::error::Error;

named_enum! {
    /// Protocol of the connection, and for TCP the reason.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(usize)]
    pub(crate) enum FallbackReason {
        Connected = "connected by SDP",
        Accepted = "accepted by SDP",
        AcceptedTcp = "accepted by TCP",
        /// TCP: no SDP listener at that port, or the peer rejects SDP.
        Refused = "TCP: refused",
        /// TCP: no RDMA route to the destination.
        Unreachable = "TCP: unreachable",
        /// TCP: no reply from the peer in time.
        NoAnswer = "TCP: no answer",
        /// TCP: SDP failed for another reason.
        Failed = "TCP: failed",
        /// TCP: one of these reasons is cached for the peer.
        Remembered = "TCP: remembered",
        /// TCP: chosen by the program (`SDP_ROUTE`).
        Chosen = "TCP: chosen",
        /// TCP: the program uses a feature that SDP lacks.
        Option = "TCP: option",
        /// TCP: SDP cannot use the address.
        Address = "TCP: address",
        /// TCP: no port was free in both protocols.
        Port = "TCP: port",
        /// TCP: the limit of sockets or memory (module parameters) was reached.
        Limit = "TCP: limit",
    }
}

impl FallbackReason {
    /// Returns the reason for an error of bind or listen.
    pub(crate) fn of_port(e: Error) -> Self {
        if e == EADDRINUSE.into() {
            FallbackReason::Port
        } else {
            FallbackReason::Address
        }
    }

    /// Returns the reason for an error of connect.
    pub(crate) fn of(e: Errno) -> Self {
        match e {
            ECONNREFUSED => FallbackReason::Refused,
            ENETUNREACH | EHOSTUNREACH | ENETDOWN | EADDRNOTAVAIL | ENODEV => {
                FallbackReason::Unreachable
            }
            ETIMEDOUT => FallbackReason::NoAnswer,
            ENOBUFS => FallbackReason::Limit,
            _ => FallbackReason::Failed,
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Reasons to reject bytes as an SDP message.

use super::super::named::named_enum;

named_enum! {
    /// Reason to reject a message in any state of a connection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum Malformed {
        /// Fewer bytes than the headers of the message need.
        Short = "short",
        /// The BSDH's Len differs from the number of received bytes.
        Length = "length",
        /// The MID is reserved, experimental, or not the expected one.
        UnknownMid = "unknown_mid",
        /// Hello or HelloAck arrived on the queue pair, where only the other messages are valid.
        HelloInStream = "hello_in_stream",
        /// A message type without payload arrived with payload.
        UnexpectedPayload = "unexpected_payload",
        /// OOB_PRES in a message other than Data, or without payload.
        OutOfBand = "out_of_band",
        /// ModeChange to a mode that does not exist.
        Mode = "mode",
        /// Hello or HelloAck of a major version other than 2.
        Version = "version",
        /// Hello whose IP version is neither 4 nor 6.
        IpVersion = "ip_version",
        /// Hello or HelloAck that allows no advert at all.
        MaxAdverts = "max_adverts",
        /// A receive buffer too small for the headers, or larger than any RC message.
        ReceiveSize = "receive_size",
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Why bytes are not a valid SDP message.

/// Why a message cannot be read, whatever the state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Malformed {
    /// Fewer bytes than the headers of the message need.
    Short,
    /// The BSDH's Len differs from the number of bytes that came.
    Length,
    /// The MID is reserved, experimental, or of another message than this one must be.
    UnknownMid,
    /// Hello or HelloAck came over the queue pair, where only the other messages may.
    HelloInStream,
    /// A message that has no payload came with one.
    UnexpectedPayload,
    /// OOB_PRES in a message that is not Data, or has no payload whose last byte could be urgent.
    OutOfBand,
    /// ModeChange to a mode that does not exist.
    Mode,
    /// Hello or HelloAck of a major version other than 2.
    Version,
    /// Hello whose IP version is neither 4 nor 6.
    IpVersion,
    /// Hello or HelloAck that allows no advert at all.
    MaxAdverts,
    /// A receive buffer too small for the headers, or larger than any RC message.
    ReceiveSize,
}

impl Malformed {
    /// All reasons, in the order of [`Malformed::index`].
    pub const ALL: [Malformed; 11] = [
        Malformed::Short,
        Malformed::Length,
        Malformed::UnknownMid,
        Malformed::HelloInStream,
        Malformed::UnexpectedPayload,
        Malformed::OutOfBand,
        Malformed::Mode,
        Malformed::Version,
        Malformed::IpVersion,
        Malformed::MaxAdverts,
        Malformed::ReceiveSize,
    ];

    /// A number below [`Malformed::ALL`]'s length, for counters per reason.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// A short name, in one word, for statistics and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Malformed::Short => "short",
            Malformed::Length => "length",
            Malformed::UnknownMid => "unknown_mid",
            Malformed::HelloInStream => "hello_in_stream",
            Malformed::UnexpectedPayload => "unexpected_payload",
            Malformed::OutOfBand => "out_of_band",
            Malformed::Mode => "mode",
            Malformed::Version => "version",
            Malformed::IpVersion => "ip_version",
            Malformed::MaxAdverts => "max_adverts",
            Malformed::ReceiveSize => "receive_size",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_follow_the_list() {
        for (index, reason) in Malformed::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Protocol violations of a peer, and reasons to reject bytes as a message.

use super::named::named_enum;

macro_rules! violations {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Reason to abort a connection: the peer has broken the protocol.
        ///
        /// Each reason has a [name](Violation::name) and an [index](Violation::index) for counters
        /// and traces.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Violation {
            /// The bytes are no valid message.
            Malformed(Malformed),
            $($(#[$doc])* $name,)*
        }

        impl Violation {
            /// All reasons except the malformed ones.
            const OTHERS: [Violation; [$($text),*].len()] = [$(Violation::$name),*];

            /// Returns a one-word name for statistics and traces.
            pub const fn name(self) -> &'static str {
                match self {
                    Violation::Malformed(reason) => reason.name(),
                    $(Violation::$name => $text,)*
                }
            }
        }
    };
}

violations! {
    /// The message is longer than the announced receive buffers.
    TooLong = "too_long",
    /// MSeq is not the successor of the previous message's.
    Sequence = "sequence",
    /// More messages than receive buffers were announced.
    CreditsOverrun = "credits_overrun",
    /// MSeqAck of a message that was never sent.
    AckBeyondSent = "ack_beyond_sent",
    /// MSeqAck lower than an earlier one.
    AckBackwards = "ack_backwards",
    /// Stream bytes or an advert after the peer's DisConn.
    AfterDisConn = "after_disconn",
    /// A second DisConn.
    SecondDisConn = "second_disconn",
    /// Data while a source advert of the same direction was unfinished.
    DataDuringAdvert = "data_during_advert",
    /// DisConn while a source advert was unfinished.
    DisConnDuringAdvert = "disconn_during_advert",
    /// SrcAvail in Buffered mode, or with payload in Pipelined mode.
    SrcAvailMode = "srcavail_mode",
    /// SrcAvail beyond the number that may be outstanding.
    SrcAvailLimit = "srcavail_limit",
    /// SrcAvail that leaves nothing to read.
    SrcAvailSize = "srcavail_size",
    /// SrcAvail of a block that goes beyond the last address.
    SrcAvailRange = "srcavail_range",
    /// SrcAvail after a SrcAvailCancel that was not answered.
    SrcAvailDuringCancel = "srcavail_during_cancel",
    /// RdmaRdCompl of more bytes than were advertised.
    RdmaRdComplSize = "rdmardcompl_size",
    /// SinkAvail while the half that it concerns is not Pipelined.
    SinkAvailMode = "sinkavail_mode",
    /// SinkAvail beyond the number that may be outstanding.
    SinkAvailLimit = "sinkavail_limit",
    /// SinkAvail of a block without a byte.
    SinkAvailSize = "sinkavail_size",
    /// SinkAvail of a block that goes beyond the last address.
    SinkAvailRange = "sinkavail_range",
    /// SinkAvail from a sink that held a source advert.
    SinkAvailDuringAdvert = "sinkavail_during_advert",
    /// SinkAvail after a SinkAvailCancel that was not answered.
    SinkAvailDuringCancel = "sinkavail_during_cancel",
    /// SinkAvail with an impossible number of messages.
    NonDiscards = "non_discards",
    /// RdmaWrCompl of more bytes than were advertised.
    RdmaWrComplSize = "rdmawrcompl_size",
    /// ModeChange that is no transition from the current mode, or that only this end may make.
    ModeChange = "mode_change",
    /// RdmaWrCompl without a SinkAvail.
    UnexpectedRdmaWrCompl = "unexpected_rdmawrcompl",
    /// SinkCancelAck without a SinkAvailCancel.
    UnexpectedSinkCancelAck = "unexpected_sinkcancelack",
    /// SuspCommAck without a SuspComm.
    UnexpectedSuspCommAck = "unexpected_suspcommack",
    /// A message in a `SOCK_SEQPACKET` stream is empty, too long, cut by the stream's end, or
    /// contains an urgent byte.
    Record = "record",
}

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

impl Violation {
    /// Number of reasons.
    pub const COUNT: usize = Malformed::ALL.len() + Self::OTHERS.len();

    /// All reasons, in the order of their indices.
    pub fn all() -> impl Iterator<Item = Violation> {
        let malformed = Malformed::ALL.into_iter().map(Violation::Malformed);
        malformed.chain(Self::OTHERS)
    }

    /// Returns a number below [`Violation::COUNT`], for counters per reason.
    pub fn index(self) -> usize {
        Self::all().position(|v| v == self).unwrap_or(0)
    }
}

impl From<Malformed> for Violation {
    fn from(reason: Malformed) -> Self {
        Violation::Malformed(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_dense_and_names_unique() {
        assert_eq!(Violation::all().count(), Violation::COUNT);
        for (index, reason) in Violation::all().enumerate() {
            assert_eq!(reason.index(), index);
            let same = Violation::all().filter(|v| v.name() == reason.name());
            assert_eq!(same.count(), 1, "{}", reason.name());
        }
    }
}

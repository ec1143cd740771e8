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
            /// The bytes are not a valid message.
            Malformed(Malformed),
            $($(#[$doc])* $name,)*
        }

        impl Violation {
            /// All reasons except those of [`Malformed`].
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
    /// MSeq is not the successor of the previous message's MSeq.
    Sequence = "sequence",
    /// More messages arrived than receive buffers were announced.
    CreditsOverrun = "credits_overrun",
    /// MSeqAck acknowledges a message that this end never sent.
    AckBeyondSent = "ack_beyond_sent",
    /// MSeqAck is lower than an earlier MSeqAck.
    AckBackwards = "ack_backwards",
    /// Stream bytes or an advert arrived after the peer's DisConn.
    AfterDisConn = "after_disconn",
    /// A second DisConn arrived.
    SecondDisConn = "second_disconn",
    /// Data arrived while a source advert of the same direction was unfinished.
    DataDuringAdvert = "data_during_advert",
    /// DisConn arrived while a source advert was unfinished.
    DisConnDuringAdvert = "disconn_during_advert",
    /// SrcAvail arrived in Buffered mode, or with payload in Pipelined mode.
    SrcAvailMode = "srcavail_mode",
    /// SrcAvail exceeds the number of adverts that may be outstanding.
    SrcAvailLimit = "srcavail_limit",
    /// SrcAvail leaves no bytes to read.
    SrcAvailSize = "srcavail_size",
    /// SrcAvail advertises a block beyond the last address.
    SrcAvailRange = "srcavail_range",
    /// SrcAvail arrived after a SrcAvailCancel without a reply.
    SrcAvailDuringCancel = "srcavail_during_cancel",
    /// RdmaRdCompl reports more bytes than were advertised.
    RdmaRdComplSize = "rdmardcompl_size",
    /// SinkAvail arrived for a half that is not Pipelined.
    SinkAvailMode = "sinkavail_mode",
    /// SinkAvail exceeds the number of adverts that may be outstanding.
    SinkAvailLimit = "sinkavail_limit",
    /// SinkAvail advertises an empty block.
    SinkAvailSize = "sinkavail_size",
    /// SinkAvail advertises a block beyond the last address.
    SinkAvailRange = "sinkavail_range",
    /// SinkAvail arrived from a sink that held a source advert.
    SinkAvailDuringAdvert = "sinkavail_during_advert",
    /// SinkAvail arrived after a SinkAvailCancel without a reply.
    SinkAvailDuringCancel = "sinkavail_during_cancel",
    /// SinkAvail contains an impossible number of messages (NonDiscards).
    NonDiscards = "non_discards",
    /// RdmaWrCompl reports more bytes than were advertised.
    RdmaWrComplSize = "rdmawrcompl_size",
    /// ModeChange is invalid in the current mode, or only this end may send it.
    ModeChange = "mode_change",
    /// RdmaWrCompl arrived without a SinkAvail.
    UnexpectedRdmaWrCompl = "unexpected_rdmawrcompl",
    /// SinkCancelAck arrived without a SinkAvailCancel.
    UnexpectedSinkCancelAck = "unexpected_sinkcancelack",
    /// SuspCommAck arrived without a SuspComm.
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
        /// The message is shorter than its headers.
        Short = "short",
        /// The BSDH's Len differs from the number of received bytes.
        Length = "length",
        /// The MID is reserved, experimental, or not the expected one.
        UnknownMid = "unknown_mid",
        /// Hello or HelloAck arrived on the queue pair, where only the other messages are valid.
        HelloInStream = "hello_in_stream",
        /// A message type without payload arrived with payload.
        UnexpectedPayload = "unexpected_payload",
        /// OOB_PRES is set in a message other than Data, or without payload.
        OutOfBand = "out_of_band",
        /// ModeChange contains a mode that does not exist.
        Mode = "mode",
        /// Hello or HelloAck has a major version other than 2.
        Version = "version",
        /// The IP version of a Hello is neither 4 nor 6.
        IpVersion = "ip_version",
        /// Hello or HelloAck allows no adverts.
        MaxAdverts = "max_adverts",
        /// The receive buffers are too small for the headers, or larger than any RC message.
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

// SPDX-License-Identifier: GPL-2.0-only

//! What a peer can do wrong.

use super::message::Malformed;

/// Why a connection must be aborted: the peer sent what it must not.
///
/// Each reason has a [name](Violation::name) and an [index](Violation::index), so that it can be
/// counted and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// The bytes are no valid message.
    Malformed(Malformed),
    /// The message is longer than the receive buffers that were announced.
    TooLong,
    /// MSeq is not the successor of the message before.
    Sequence,
    /// More messages than receive buffers were advertised.
    CreditsOverrun,
    /// MSeqAck of a message that was never sent.
    AckBeyondSent,
    /// MSeqAck lower than one that came before.
    AckBackwards,
    /// Stream bytes or an advert after the peer's DisConn.
    AfterDisConn,
    /// A second DisConn.
    SecondDisConn,
    /// Data while a source advert of the same direction was unfinished.
    DataDuringAdvert,
    /// DisConn while a source advert was unfinished.
    DisConnDuringAdvert,
    /// SrcAvail in Buffered mode, or with payload in Pipelined mode.
    SrcAvailMode,
    /// SrcAvail beyond the number that may be outstanding.
    SrcAvailLimit,
    /// SrcAvail that leaves nothing to read.
    SrcAvailSize,
    /// SrcAvail of a block that goes beyond the last address.
    SrcAvailRange,
    /// SrcAvail after a SrcAvailCancel that was not answered.
    SrcAvailDuringCancel,
    /// RdmaRdCompl of more bytes than were advertised.
    RdmaRdComplSize,
    /// SinkAvail while the half it is for is not Pipelined.
    SinkAvailMode,
    /// SinkAvail beyond the number that may be outstanding.
    SinkAvailLimit,
    /// SinkAvail of a block without a byte.
    SinkAvailSize,
    /// SinkAvail of a block that goes beyond the last address.
    SinkAvailRange,
    /// SinkAvail from a sink that held a source advert.
    SinkAvailDuringAdvert,
    /// SinkAvail after a SinkAvailCancel that was not answered.
    SinkAvailDuringCancel,
    /// SinkAvail with a number of messages that cannot be.
    NonDiscards,
    /// RdmaWrCompl of more bytes than were advertised.
    RdmaWrComplSize,
    /// ModeChange that is no transition from the present mode, or not the peer's to make.
    ModeChange,
    /// RdmaWrCompl without a SinkAvail.
    UnexpectedRdmaWrCompl,
    /// SinkCancelAck without a SinkAvailCancel.
    UnexpectedSinkCancelAck,
    /// SuspCommAck without a SuspComm.
    UnexpectedSuspCommAck,
}

impl Violation {
    /// How many reasons there are.
    pub const COUNT: usize = Malformed::ALL.len() + Self::OTHERS.len();

    /// All reasons but the malformed ones.
    const OTHERS: [Violation; 27] = [
        Violation::TooLong,
        Violation::Sequence,
        Violation::CreditsOverrun,
        Violation::AckBeyondSent,
        Violation::AckBackwards,
        Violation::AfterDisConn,
        Violation::SecondDisConn,
        Violation::DataDuringAdvert,
        Violation::DisConnDuringAdvert,
        Violation::SrcAvailMode,
        Violation::SrcAvailLimit,
        Violation::SrcAvailSize,
        Violation::SrcAvailRange,
        Violation::SrcAvailDuringCancel,
        Violation::RdmaRdComplSize,
        Violation::SinkAvailMode,
        Violation::SinkAvailLimit,
        Violation::SinkAvailSize,
        Violation::SinkAvailRange,
        Violation::SinkAvailDuringAdvert,
        Violation::SinkAvailDuringCancel,
        Violation::NonDiscards,
        Violation::RdmaWrComplSize,
        Violation::ModeChange,
        Violation::UnexpectedRdmaWrCompl,
        Violation::UnexpectedSinkCancelAck,
        Violation::UnexpectedSuspCommAck,
    ];

    /// All reasons, in the order of their indices.
    pub fn all() -> impl Iterator<Item = Violation> {
        let malformed = Malformed::ALL.into_iter().map(Violation::Malformed);
        malformed.chain(Self::OTHERS)
    }

    /// A number below [`Violation::COUNT`], for counters per reason.
    pub const fn index(self) -> usize {
        let other = match self {
            Violation::Malformed(reason) => return reason.index(),
            Violation::TooLong => 0,
            Violation::Sequence => 1,
            Violation::CreditsOverrun => 2,
            Violation::AckBeyondSent => 3,
            Violation::AckBackwards => 4,
            Violation::AfterDisConn => 5,
            Violation::SecondDisConn => 6,
            Violation::DataDuringAdvert => 7,
            Violation::DisConnDuringAdvert => 8,
            Violation::SrcAvailMode => 9,
            Violation::SrcAvailLimit => 10,
            Violation::SrcAvailSize => 11,
            Violation::SrcAvailRange => 12,
            Violation::SrcAvailDuringCancel => 13,
            Violation::RdmaRdComplSize => 14,
            Violation::SinkAvailMode => 15,
            Violation::SinkAvailLimit => 16,
            Violation::SinkAvailSize => 17,
            Violation::SinkAvailRange => 18,
            Violation::SinkAvailDuringAdvert => 19,
            Violation::SinkAvailDuringCancel => 20,
            Violation::NonDiscards => 21,
            Violation::RdmaWrComplSize => 22,
            Violation::ModeChange => 23,
            Violation::UnexpectedRdmaWrCompl => 24,
            Violation::UnexpectedSinkCancelAck => 25,
            Violation::UnexpectedSuspCommAck => 26,
        };
        Malformed::ALL.len() + other
    }

    /// A short name, in one word, for statistics and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Violation::Malformed(reason) => reason.name(),
            Violation::TooLong => "too_long",
            Violation::Sequence => "sequence",
            Violation::CreditsOverrun => "credits_overrun",
            Violation::AckBeyondSent => "ack_beyond_sent",
            Violation::AckBackwards => "ack_backwards",
            Violation::AfterDisConn => "after_disconn",
            Violation::SecondDisConn => "second_disconn",
            Violation::DataDuringAdvert => "data_during_advert",
            Violation::DisConnDuringAdvert => "disconn_during_advert",
            Violation::SrcAvailMode => "srcavail_mode",
            Violation::SrcAvailLimit => "srcavail_limit",
            Violation::SrcAvailSize => "srcavail_size",
            Violation::SrcAvailRange => "srcavail_range",
            Violation::SrcAvailDuringCancel => "srcavail_during_cancel",
            Violation::RdmaRdComplSize => "rdmardcompl_size",
            Violation::SinkAvailMode => "sinkavail_mode",
            Violation::SinkAvailLimit => "sinkavail_limit",
            Violation::SinkAvailSize => "sinkavail_size",
            Violation::SinkAvailRange => "sinkavail_range",
            Violation::SinkAvailDuringAdvert => "sinkavail_during_advert",
            Violation::SinkAvailDuringCancel => "sinkavail_during_cancel",
            Violation::NonDiscards => "non_discards",
            Violation::RdmaWrComplSize => "rdmawrcompl_size",
            Violation::ModeChange => "mode_change",
            Violation::UnexpectedRdmaWrCompl => "unexpected_rdmawrcompl",
            Violation::UnexpectedSinkCancelAck => "unexpected_sinkcancelack",
            Violation::UnexpectedSuspCommAck => "unexpected_suspcommack",
        }
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

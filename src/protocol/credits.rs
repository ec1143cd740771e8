// SPDX-License-Identifier: GPL-2.0-only

//! Credits: one per receive buffer of the other side (IBA Annex A4, buffer flow control).
//!
//! Every message costs its sender one credit, whatever it carries. Every message tells the
//! other side two numbers that say how many credits that one has now:
//!
//! ```text
//! C = Bufs(last received) - (MSeq(last sent) - MSeqAck(last received))
//! ```
//!
//! [`SendWindow`] is what we may send, [`ReceiveWindow`] is what the peer may.
//!
//! # Reserves
//!
//! | C    | may go                                                              |
//! |------|---------------------------------------------------------------------|
//! | >= 3 | anything                                                            |
//! | 2    | messages without payload                                            |
//! | 1    | a message about adverts, or an empty Data, that gives the peer new credits (CA4-82) |
//! | 0    | nothing                                                             |
//!
//! So whoever has read something can always say so, and two ends with full buffers do not lock
//! each other out.
//!
//! # When to send a credit update
//!
//! Any message carries Bufs, so an update of its own (an empty Data) is needed only when the
//! peer is about to run out and nothing else goes its way. With `c` the credits that the peer
//! has left by what we told it, and `posted` the buffers it could have, an update is due when
//!
//! * `c` is down to half of `posted`, or to 3 if that is more: early enough that a busy peer need
//!   not stop, and before it has too few for payload;
//! * and `posted - c` is at least 2.
//!
//! The second rule is there because an update is itself a message: it uses a buffer of the peer,
//! and may make the peer's own update due. As an end sends at most one update for two messages
//! received, or for two buffers that its reader emptied, such an echo dies out. (That includes an
//! update from 0 to 2, by which the peer may send a control message, or an update of its own.)
//!
//! It costs nothing: if `posted` is 3 and `c` is 2, so that the peer cannot send payload, then
//! other buffers hold bytes that the reader has not taken. The exception is an end that never had
//! more than three buffers. There one buffer more is all that can ever be told, and is. (Two ends
//! with three buffers each would exchange updates for ever. So announce four at least.)
//!
//! An end that has one credit left keeps it until the peer cannot send payload (`c < 3`). Spent
//! earlier, it might be missed then: a peer may need two credits for its own update (RHEL 5).
//!
//! # A peer that waits for its advert
//!
//! OFED's tells of no more buffers while its program waits for what it has advertised, nor in
//! CLOSE_WAIT, and may have begun with three. What is spent then does not come back before the advert
//! is over, and a cancel takes two messages: the report of what was read, and the SendSm. So with
//! three credits or fewer, parts that were read are reported together, updates have to wait that the
//! peer can do without, and two are left by everything else. What ends the advert may take the last
//! one: it tells of our buffers itself, and the peer waits for nothing else. With two, and a peer that
//! could not even cancel, or with less, the advert is refused at once.
//!
//! # Full buffers and adverts
//!
//! An end whose reader has stopped has two buffers posted for control messages. The peer uses one
//! (`c` is 1, `posted` 2), and may need to send another: more reports about an advert, or a cancel.
//! It cannot say so. So an update is due, although it gives one credit only,
//!
//! * if we have adverts outstanding, about which the peer reports, and credits for payload: then
//!   the peer is hardly so badly off that it must answer the update with one of its own;
//! * or if we hold an advert of the peer, which it must be able to cancel. If both ends are out of
//!   buffers and hold adverts of each other, they exchange updates until one of them gives up its
//!   advert. (Whoever waits for an advert to be read has to have an end to its patience.)

use super::sequence::after;
use super::Violation;

/// Credits needed to send a message with payload.
pub const PAYLOAD_CREDITS: u16 = 3;

/// Credits needed to send a message without payload.
pub const CONTROL_CREDITS: u16 = 2;

/// Credits needed to send an empty Data that tells the peer of more receive buffers.
pub const UPDATE_CREDITS: u16 = 1;

/// What we may send.
#[derive(Clone, Debug)]
pub(super) struct SendWindow {
    /// MSeq of the last message sent.
    sent: u32,
    /// MSeqAck of the last message received.
    acked: u32,
    /// Bufs of the last message received.
    bufs: u16,
}

impl SendWindow {
    /// The window at the start: `bufs` is from the peer's Hello or HelloAck.
    pub(super) fn new(bufs: u16) -> Self {
        SendWindow {
            sent: 0,
            acked: 0,
            bufs,
        }
    }

    /// MSeq of the last message sent.
    pub(super) fn sent(&self) -> u32 {
        self.sent
    }

    /// Messages that the peer has not said it received.
    pub(super) fn unacknowledged(&self) -> u32 {
        self.sent.wrapping_sub(self.acked)
    }

    /// Messages that may be sent now, before reserves.
    pub(super) fn credits(&self) -> u16 {
        let used = self.unacknowledged();
        u32::from(self.bufs).saturating_sub(used) as u16
    }

    /// Takes the window of a received message; returns whether it is wider now.
    pub(super) fn update(&mut self, mseq_ack: u32, bufs: u16) -> Result<bool, Violation> {
        if after(mseq_ack, self.sent) {
            return Err(Violation::AckBeyondSent);
        }
        if after(self.acked, mseq_ack) {
            return Err(Violation::AckBackwards);
        }
        let before = self.credits();
        self.acked = mseq_ack;
        self.bufs = bufs;
        Ok(self.credits() > before)
    }

    /// Uses one credit; returns the message's MSeq.
    pub(super) fn take(&mut self) -> u32 {
        self.sent = self.sent.wrapping_add(1);
        self.sent
    }
}

/// What the peer may send.
#[derive(Clone, Debug)]
pub(super) struct ReceiveWindow {
    /// MSeq of the last message received.
    received: u32,
    /// MSeq of the last message that the peer has a credit for.
    edge: u32,
    /// The most buffers that the peer was ever told of at once.
    most: u16,
    /// Lower bound of the edge that the peer had received when it sent its last message.
    known: u32,
    /// MSeq of one of our messages, and the edge up to there.
    sent: (u32, u32),
}

impl ReceiveWindow {
    /// The window at the start: `posted` is what our Hello or HelloAck said.
    pub(super) fn new(posted: u16) -> Self {
        ReceiveWindow {
            received: 0,
            edge: u32::from(posted),
            most: posted,
            known: u32::from(posted),
            sent: (0, u32::from(posted)),
        }
    }

    /// MSeq of the last message received: our MSeqAck.
    pub(super) fn received(&self) -> u32 {
        self.received
    }

    /// Credits that the peer has left by what it was told.
    pub(super) fn credits(&self) -> u16 {
        self.edge.wrapping_sub(self.received) as u16
    }

    /// Counts a received message.
    pub(super) fn receive(&mut self, mseq: u32) -> Result<(), Violation> {
        if mseq != self.received.wrapping_add(1) {
            return Err(Violation::Sequence);
        }
        if after(mseq, self.edge) {
            return Err(Violation::CreditsOverrun);
        }
        self.received = mseq;
        Ok(())
    }

    /// Returns a lower bound of the peer's credits after its last message, which has this
    /// `mseq_ack`. `sent` is the MSeq of our last message.
    pub(super) fn known_credits(&mut self, mseq_ack: u32, sent: u32) -> u16 {
        if !after(self.sent.0, mseq_ack) {
            self.known = self.sent.1;
            self.sent = (sent, self.edge);
        }
        match after(self.known, self.received) {
            true => self.known.wrapping_sub(self.received) as u16,
            false => 0,
        }
    }

    /// A message that tells of `posted` buffers is being sent.
    pub(super) fn advertise(&mut self, posted: u16) {
        let edge = self.received.wrapping_add(u32::from(posted));
        // A posted buffer cannot be taken back, so the edge never moves back either.
        if after(edge, self.edge) {
            self.edge = edge;
        }
        self.most = self.most.max(posted);
    }

    /// Whether we may send a message now that the last credit is reserved for, having `own`
    /// credits.
    pub(super) fn may_use_last(&self, posted: u16, own: u16) -> bool {
        let credits = self.credits();
        own >= UPDATE_CREDITS && credits < PAYLOAD_CREDITS && posted > credits
    }

    /// Whether the peer should be told of its credits now, while we have `own` credits; see the
    /// module's text. `two`: the peer shall always have two.
    pub(super) fn update_due(&self, posted: u16, own: u16, two: bool) -> bool {
        let credits = self.credits();
        if own < UPDATE_CREDITS || own == UPDATE_CREDITS && credits >= PAYLOAD_CREDITS {
            return false;
        }
        match posted.saturating_sub(credits) {
            0 => false,
            1 if credits < CONTROL_CREDITS && posted >= CONTROL_CREDITS => two,
            1 => posted == PAYLOAD_CREDITS && self.most <= PAYLOAD_CREDITS,
            _ => credits <= PAYLOAD_CREDITS.max(posted / 2),
        }
    }
}

#[cfg(test)]
#[path = "credits_tests.rs"]
mod tests;

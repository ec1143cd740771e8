// SPDX-License-Identifier: GPL-2.0-only

//! Credits (IBA Annex A4, buffer flow control): one for each receive buffer of the other side.
//!
//! Every message costs its sender one credit, whatever its contents. Each side computes its credits
//! from two numbers in every message that it receives:
//!
//! ```text
//! C = Bufs(last received) - (MSeq(last sent) - MSeqAck(last received))
//! ```
//!
//! [`SendWindow`] contains the credits of this end, and [`ReceiveWindow`] the credits of the peer.
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
//! With these reserves, an end can always report read bytes, and two full ends do not deadlock.
//!
//! # When to send a credit update
//!
//! Any message contains Bufs, so a separate update (an empty Data) is needed only when the peer is
//! about to run out of credits and no other message is sent to it. Let `c` be the announced credits
//! that the peer has left, and `posted` the number of posted buffers. An update is due when
//!
//! * `c` has fallen to half of `posted` or to 3, whichever is more, so that a busy peer need not
//!   stop, and always has enough credits for payload;
//! * and `posted - c` is at least 2.
//!
//! The second rule exists because an update is itself a message, which uses a buffer of the peer
//! and may make the peer's own update due. An end sends at most one update for two received
//! messages, or for two buffers that its reader emptied, so updates do not trigger each other
//! endlessly. (The bound includes an update from 0 to 2 credits, by which the peer may send a
//! control message, or an update of its own.)
//!
//! The second rule delays no update that is needed: if `posted` is 3 and `c` is 2, so that the peer
//! cannot send payload, then other buffers hold unread bytes. The exception is an end that never
//! had more than three buffers. An end with at most three buffers announces even one more buffer.
//! (Two ends with three buffers each would exchange updates endlessly, so an owner should announce
//! at least four.)
//!
//! An end with one credit left keeps this credit until the peer cannot send payload (`c < 3`).
//! If spent earlier, the last credit might be missing when the peer needs two credits for its own
//! update (RHEL 5).
//!
//! # A peer that waits for its advert
//!
//! An OFED peer announces no more buffers while its program waits for the end of an advert, nor in
//! CLOSE_WAIT, and may have started with three buffers. Credits spent while the peer waits do not
//! return before the end of the peer's advert. The reply to a cancel takes two messages: the report
//! of the bytes read, and the SendSm. So with three credits or fewer, this end combines partial
//! reports, delays unneeded updates, and all other messages leave two credits unused. The message
//! that ends the advert may use the last credit, since this message also announces buffers, and the
//! peer waits for no other message. This end refuses the advert at once with fewer than two
//! credits, or with two if the peer could not even cancel.
//!
//! # Full buffers and adverts
//!
//! An end whose reader has stopped has two buffers posted for control messages. The peer uses one
//! of the two (`c` is 1, `posted` 2), and may need to send another message: a report about an
//! advert, or a cancel. The peer cannot request a credit. So an update that grants only one credit
//! is due in two cases:
//!
//! * own adverts are outstanding, about which the peer reports, and the own credits suffice for
//!   payload, so that the peer rarely replies with its own update;
//! * an advert of the peer is outstanding, which the peer must be able to cancel. Two ends without
//!   buffers that hold adverts of each other exchange updates until one of them cancels its advert.
//!   (So the wait for a reader of an advert needs a time limit.)

use super::Violation;

/// Credits needed to send a message with payload.
pub const PAYLOAD_CREDITS: u16 = 3;

/// Credits needed to send a message without payload.
pub const CONTROL_CREDITS: u16 = 2;

/// Credits needed to send an empty Data that announces more receive buffers.
pub const UPDATE_CREDITS: u16 = 1;

/// Returns true if the sequence number `a` comes after `b`. MSeq has 32 bits and wraps.
pub(super) const fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// Credits of this end.
#[derive(Clone, Debug)]
pub(super) struct SendWindow {
    /// MSeq of the last message sent.
    sent: u32,
    /// MSeqAck of the last message received.
    pub(super) acked: u32,
    /// Bufs of the last message received.
    bufs: u16,
}

impl SendWindow {
    /// Creates the initial window. `bufs` is from the peer's Hello or HelloAck.
    pub(super) fn new(bufs: u16) -> Self {
        SendWindow {
            sent: 0,
            acked: 0,
            bufs,
        }
    }

    pub(super) fn sent(&self) -> u32 {
        self.sent
    }

    /// Returns the number of credits, including reserves.
    pub(super) fn credits(&self) -> u16 {
        let used = self.sent.wrapping_sub(self.acked);
        u32::from(self.bufs).saturating_sub(used) as u16
    }

    /// Applies the window of a received message.
    pub(super) fn update(&mut self, mseq_ack: u32, bufs: u16) -> Result<(), Violation> {
        if after(mseq_ack, self.sent) {
            return Err(Violation::AckBeyondSent);
        }
        if after(self.acked, mseq_ack) {
            return Err(Violation::AckBackwards);
        }
        (self.acked, self.bufs) = (mseq_ack, bufs);
        Ok(())
    }

    /// Uses one credit for a message. Returns the message's MSeq.
    pub(super) fn take(&mut self) -> u32 {
        self.sent = self.sent.wrapping_add(1);
        self.sent
    }
}

/// State of the peer's credits.
#[derive(Clone, Debug)]
pub(super) struct ReceiveWindow {
    /// MSeq of the last message received.
    received: u32,
    /// MSeq of the last message for which the peer has a credit.
    edge: u32,
    /// Largest number of buffers ever announced to the peer.
    most: u16,
    /// Lower bound of the edge that the peer had received when it sent its last message.
    known: u32,
    /// MSeq of a message of this end, and the edge that this end had announced by then.
    sent: (u32, u32),
}

impl ReceiveWindow {
    /// Creates the initial window. `posted` is from the Hello or HelloAck of this end.
    pub(super) fn new(posted: u16) -> Self {
        ReceiveWindow {
            received: 0,
            edge: u32::from(posted),
            most: posted,
            known: u32::from(posted),
            sent: (0, u32::from(posted)),
        }
    }

    pub(super) fn received(&self) -> u32 {
        self.received
    }

    /// Returns the number of announced credits that the peer has left.
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

    /// Returns a lower bound of the peer's credits after the peer's last message, which contains
    /// this `mseq_ack`. `sent` is the MSeq of the last message of this end.
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

    /// Records a message that announces `posted` buffers.
    pub(super) fn advertise(&mut self, posted: u16) {
        let edge = self.received.wrapping_add(u32::from(posted));
        // Posted buffers cannot be taken back, so the edge never moves back.
        if after(edge, self.edge) {
            self.edge = edge;
        }
        self.most = self.most.max(posted);
    }

    /// Returns true if a message may use the reserved last credit of the `own` credits.
    pub(super) fn may_use_last(&self, posted: u16, own: u16) -> bool {
        let credits = self.credits();
        own >= UPDATE_CREDITS && credits < PAYLOAD_CREDITS && posted > credits
    }

    /// Returns true if a credit update is due, with `own` credits of this end (rules at the head of
    /// this file). `two` is true if the peer must always have two credits.
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

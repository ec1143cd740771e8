// SPDX-License-Identifier: GPL-2.0-only

//! One end of a simulated connection, of either implementation.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::fabric::Fabric;
use crate::packet::Packet;
use crate::port::{Inbox, Outbox, Port};
use crate::rng::Rng;

/// State that both kinds of ends have: the transport and the application around the protocol.
#[derive(Debug)]
pub struct Common {
    /// Number of the side, 0 or 1.
    pub side: usize,
    /// Receive buffers and SENDs.
    pub port: Port,
    /// Received stream.
    pub inbox: Inbox,
    /// Sent stream.
    pub outbox: Outbox,
    /// Memory of both sides.
    pub fabric: Rc<RefCell<Fabric>>,
}

impl Common {
    /// Lets the application read up to `most` bytes; returns true if any were read.
    pub fn read(&mut self, most: u32) -> bool {
        let before = self.inbox.read;
        let emptied = self.inbox.read(most);
        self.port.release(emptied);
        self.inbox.read > before
    }
}

/// Reason why an end's connection is closed before both streams have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// The peer broke a rule.
    Violation(String),
    /// The peer ended the connection.
    Ended,
}

/// An end of a connection.
pub trait Node {
    /// Returns the state that both kinds have.
    fn common(&mut self) -> &mut Common;

    /// Sends up to `most` messages that may be sent now; returns their number.
    fn pump(
        &mut self,
        rng: &mut Rng,
        most: u32,
        wire: &mut VecDeque<Packet>,
    ) -> Result<u32, String>;

    /// Processes the next received message; returns true if there was one.
    fn process(&mut self) -> Result<bool, String>;

    /// Lets the application write `bytes` bytes. `urgent`: the last of these bytes is urgent.
    fn write(&mut self, bytes: u32, urgent: bool, _rng: &mut Rng) {
        self.common().outbox.write(bytes, urgent);
    }

    /// Lets the application read the peer's adverts, or refuse them, if it `reads` at all; returns
    /// true if it did something. `all`: the application reads everything available.
    fn rdma(&mut self, rng: &mut Rng, reads: bool, all: bool) -> bool;

    /// Handles the completion of the oldest READ.
    fn read_completed(&mut self, bytes: &[u8]) -> Result<(), String>;

    /// Handles the arrival of the oldest WRITE in flight.
    fn write_arrived(&mut self) {}

    /// Ends the wait for the other end to use advertised memory. No block is advertised any more
    /// until bytes are written. Returns true if a call was waiting.
    fn give_up(&mut self) -> bool;

    /// Performs an action of this kind of end only: an option, a timer, a decision.
    fn tick(&mut self, rng: &mut Rng);

    /// From now on no bytes are held back on purpose. `reading`: the application reads, and waits
    /// for more.
    fn settle(&mut self, reading: bool);

    /// Stops checking bytes, because messages were tampered with.
    fn distrust(&mut self);

    /// Returns the reason if the connection is closed.
    fn over(&self) -> Option<Over>;

    /// Handles the loss of the connection: this end takes all its memory back.
    fn lost(&mut self) -> Result<(), String>;

    /// Returns true if written bytes are still at this end.
    fn has_left(&self) -> bool {
        false
    }

    /// Stream position up to which the other end has reported reads of advertised blocks.
    fn told_read(&self) -> u64 {
        0
    }

    /// Returns true if the end considers both streams closed and has no message left to send.
    fn finished(&self) -> bool;

    /// Returns true if the end has a message that its own rules hold back until it receives more,
    /// although the protocol allows it.
    fn lame(&self) -> bool {
        false
    }

    /// Returns true if the end may only send messages for which a credit is reserved.
    fn short_of_credits(&self) -> bool {
        false
    }

    /// Ends the time to hold back a small message until the previous one is acknowledged; returns
    /// true if such a message exists.
    fn hold_back_no_longer(&mut self) -> bool {
        false
    }

    /// Returns true if no message has arrived since the end's last keepalive probe.
    fn unanswered(&self) -> bool {
        false
    }

    /// Returns true if the other end must have been notified by now of the urgent byte that waits
    /// at this end.
    fn must_have_announced(&self) -> bool {
        false
    }

    /// Describes the reason why this end does not send, for reports.
    fn state(&self) -> String;

    /// Counts blocks by result: read completely, sent in messages, written to a reader, moved,
    /// returned to a call.
    fn ways(&self) -> [u64; 5] {
        [0; 5]
    }

    /// Numbers of messages sent: with stream bytes, credit updates, others.
    fn counts(&self) -> [u64; 3];
}

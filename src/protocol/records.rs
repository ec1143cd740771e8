// SPDX-License-Identifier: GPL-2.0-only

//! Messages of `SOCK_SEQPACKET` in the stream of a connection.
//!
//! Each message follows a header of four bytes, big-endian: the length of the message without the
//! header, and [`RECORD`] if the message ends a record (`MSG_EOR`). A message has at least one
//! byte, and at most the MaxMessage of its receiver.

use super::Violation;

/// Size of a message's header in bytes.
pub const RECORD_HEADER: usize = 4;

/// Largest MaxMessage that a sender uses.
pub const MAX_MESSAGE: u32 = 2 << 20;

/// Bit of the header that marks the end of a record.
const RECORD: u32 = 1 << 31;

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Length of the message in bytes.
    pub len: u32,
    /// Set if the message ends a record.
    pub ends_record: bool,
}

impl RecordHeader {
    /// Encodes the header.
    pub const fn encode(&self) -> [u8; RECORD_HEADER] {
        let bit = if self.ends_record { RECORD } else { 0 };
        (self.len & !RECORD | bit).to_be_bytes()
    }

    /// Parses a header.
    pub const fn parse(bytes: [u8; RECORD_HEADER]) -> Self {
        let word = u32::from_be_bytes(bytes);
        RecordHeader {
            len: word & !RECORD,
            ends_record: word & RECORD != 0,
        }
    }
}

/// Messages that arrive on a connection.
#[derive(Clone, Debug)]
pub struct Records {
    /// MaxMessage of this end.
    own_most: u32,
    /// MaxMessage of the peer.
    peer_most: u32,
    header: [u8; RECORD_HEADER],
    /// Number of bytes of `header` that have arrived.
    have: usize,
    /// Number of bytes of the last message that have not arrived.
    left: u32,
    /// Number of whole messages that no call has read.
    whole: usize,
    /// Set while a call READs the first message from an advert, after taking the message's header.
    is_read: bool,
}

impl Records {
    /// Creates the state of a connection with the MaxMessage of both ends. Returns `None` for a
    /// stream, whose MaxMessage is 0.
    pub fn new(own_most: u32, peer_most: u32) -> Option<Self> {
        (own_most > 0).then_some(Records {
            own_most,
            peer_most: peer_most.min(MAX_MESSAGE),
            header: [0; RECORD_HEADER],
            have: 0,
            left: 0,
            whole: 0,
            is_read: false,
        })
    }

    /// Returns the MaxMessage of this end.
    pub fn own_most(&self) -> u32 {
        self.own_most
    }

    /// Returns the MaxMessage of the peer.
    pub fn peer_most(&self) -> u32 {
        self.peer_most
    }

    /// Counts the next bytes of the stream. Fails with [`Violation::Record`] for a message without
    /// bytes, or longer than MaxMessage. After the error, none of `bytes` completes a message.
    pub fn arrived(&mut self, mut bytes: &[u8]) -> Result<(), Violation> {
        let mut whole = self.whole;
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let n = bytes.len().min(self.left as usize);
                bytes = bytes.get(n..).unwrap_or_default();
                self.left = self.left.saturating_sub(n as u32);
                whole = whole.saturating_add(usize::from(self.left == 0));
                continue;
            }
            if let Some(to) = self.header.get_mut(self.have) {
                *to = *first;
            }
            bytes = rest;
            self.have = self.have.saturating_add(1);
            if self.have == RECORD_HEADER {
                (self.have, self.left) = (0, RecordHeader::parse(self.header).len);
                if !(1..=self.own_most).contains(&self.left) {
                    return Err(Violation::Record);
                }
            }
        }
        self.whole = whole;
        Ok(())
    }

    /// Returns true if a message has arrived only in part.
    pub fn is_within(&self) -> bool {
        self.have > 0 || self.left > 0
    }

    /// Returns true if a whole message has arrived, and is not read to its end.
    pub fn has_arrived(&self) -> bool {
        self.whole > 0
    }

    /// Returns true if the next call can read a whole message.
    pub fn has_whole(&self) -> bool {
        self.whole > 0 && !self.is_read
    }

    /// Returns true if the next `bytes` of the stream are a whole message, whose header has
    /// arrived.
    pub fn awaits(&self, bytes: u32) -> bool {
        let len = RecordHeader::parse(self.header).len;
        self.have == 0 && self.left == bytes && len == bytes
    }

    /// Returns true while a call READs the first message.
    pub fn is_read(&self) -> bool {
        self.is_read
    }

    /// Records that a call takes the header of the message that the stream [awaits](Self::awaits).
    pub fn begin_read(&mut self) {
        self.is_read = true;
    }

    /// Returns true if a call that reads the first message has to wait for the message's end.
    pub fn awaits_end(&self) -> bool {
        self.is_read && self.whole == 0
    }

    /// Counts bytes of the last message that a call READs.
    pub fn passed(&mut self, bytes: u32) {
        self.left = self.left.saturating_sub(bytes);
        self.whole = self.whole.saturating_add(usize::from(self.left == 0));
    }

    /// Counts a message as read.
    pub fn taken(&mut self) {
        self.whole = self.whole.saturating_sub(1);
        self.is_read = false;
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! What comes to an end of a local connection, and the memory for it.
//!
//! A [`Message`] is a buffer that was posted, and what has come into it since. The buffer may be without memory: it gets
//! some when a message with payload is put there, so that a connection that is not used has none. Where there is none at
//! that moment, the message waits, and its sender, who may not wait under the lock of the pair, sees to a buffer that has
//! some ([`Received::refill`]).

use crate::memory::ring::Ring;
use crate::sys::rdma::buffer::Buffer;
use crate::transport::Head;
use kernel::prelude::*;

/// Buffers that there is room for at first.
const FIRST_BUFFERS: u16 = 8;

/// A buffer, and the message in it.
pub(super) struct Message {
    pub(super) buffer: Buffer,
    pub(super) len: u32,
    /// What does not lie in the buffer.
    pub(super) head: Head,
}

/// The messages that have come to an end, and behind them the buffers for those to come.
pub(super) struct Received {
    messages: Ring<Message>,
    /// How many have come.
    arrived: u16,
    /// Most of both.
    slots: u16,
}

impl Received {
    /// No buffers, and room for up to `slots`.
    pub(super) fn new(slots: u16) -> Result<Self> {
        let mut messages = Ring::new();
        messages.reserve(FIRST_BUFFERS.min(slots).into(), GFP_KERNEL)?;
        Ok(Received {
            messages,
            arrived: 0,
            slots,
        })
    }

    /// How many messages have come.
    pub(super) fn arrived(&self) -> u16 {
        self.arrived
    }

    /// Bytes of payload in those.
    pub(super) fn payload(&self) -> usize {
        // what has not come is empty
        let payload = |m: &Message| (m.len as usize).saturating_sub(m.head.bytes().len());
        self.messages.iter().map(payload).sum()
    }

    /// Buffers posted, with those of the messages that have come.
    pub(super) fn posted(&self) -> u16 {
        self.messages.len() as u16
    }

    /// Posts a buffer.
    pub(super) fn post(&mut self, buffer: Buffer) -> Result<(), Buffer> {
        if !self.messages.grow(self.slots.into(), GFP_NOWAIT) {
            return Err(buffer);
        }
        let empty = Message {
            buffer,
            len: 0,
            head: Head::EMPTY,
        };
        self.messages.push_back(empty).map_err(|m| m.buffer)
    }

    /// Takes the first message that has come.
    pub(super) fn take(&mut self) -> Option<Message> {
        self.arrived = self.arrived.checked_sub(1)?;
        self.messages.pop_front()
    }

    /// The buffer for the next message.
    pub(super) fn next(&mut self) -> Option<&mut Message> {
        self.messages.get_mut(self.arrived.into())
    }

    /// A message lies there.
    pub(super) fn has_come(&mut self) {
        self.arrived += 1;
    }

    /// Whether there is a buffer for a message, with memory if that has payload.
    pub(super) fn accepts(&mut self, payload: usize) -> Result<bool, usize> {
        let Some(Message { buffer, .. }) = self.next() else {
            return Ok(false);
        };
        if payload != 0 && buffer.have_memory(GFP_NOWAIT).is_err() {
            return Err(buffer.capacity());
        }
        Ok(true)
    }

    /// A buffer for the next message, if that is one of the same size without memory.
    pub(super) fn refill(&mut self, buffer: Buffer) {
        let next = self.next().map(|m| &mut m.buffer);
        if let Some(next) = next.filter(|b| !b.has_memory() && b.capacity() == buffer.capacity()) {
            *next = buffer;
        }
    }
}

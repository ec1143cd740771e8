// SPDX-License-Identifier: GPL-2.0-only

//! Receive buffers of a local end, and the messages in them.
//!
//! A [`Message`] is a posted buffer and its contents. A buffer may have no memory: it is allocated
//! when payload arrives, so that an idle connection uses none. If the allocation fails, the
//! message waits. Its sender must not sleep under the lock of the pair, so it allocates a buffer
//! later and replaces the one without memory ([`Received::refill`]).

use crate::memory::ring::Ring;
use crate::sys::rdma::buffer::Buffer;
use crate::transport::Head;
use kernel::prelude::*;

/// Initial capacity in buffers.
const FIRST_BUFFERS: u16 = 8;

pub(super) struct Message {
    pub(super) buffer: Buffer,
    pub(super) len: u32,
    /// Header, which is not in the buffer.
    pub(super) head: Head,
}

/// Received messages, followed by the posted buffers without one.
pub(super) struct Received {
    messages: Ring<Message>,
    /// Number of received messages.
    arrived: u16,
    /// Maximum number of messages and buffers.
    slots: u16,
}

impl Received {
    /// Creates the queue without buffers, for up to `slots`.
    pub(super) fn new(slots: u16) -> Result<Self> {
        let mut messages = Ring::new();
        messages.reserve(FIRST_BUFFERS.min(slots).into(), GFP_KERNEL)?;
        Ok(Received {
            messages,
            arrived: 0,
            slots,
        })
    }

    /// Returns the number of received messages.
    pub(super) fn arrived(&self) -> u16 {
        self.arrived
    }

    /// Returns the payload bytes of the received messages.
    pub(super) fn payload(&self) -> usize {
        // buffers without a message have length 0
        let payload = |m: &Message| (m.len as usize).saturating_sub(m.head.bytes().len());
        self.messages.iter().map(payload).sum()
    }

    /// Returns the number of posted buffers, including those with a message.
    pub(super) fn posted(&self) -> u16 {
        self.messages.len() as u16
    }

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

    /// Takes the first received message.
    pub(super) fn take(&mut self) -> Option<Message> {
        self.arrived = self.arrived.checked_sub(1)?;
        self.messages.pop_front()
    }

    /// Returns the buffer for the next message.
    pub(super) fn next(&mut self) -> Option<&mut Message> {
        self.messages.get_mut(self.arrived.into())
    }

    /// Counts the message in the next buffer.
    pub(super) fn has_come(&mut self) {
        self.arrived = self.arrived.saturating_add(1);
    }

    /// Returns true if there is a buffer for a message, with memory if it has payload. `Err`: size
    /// of a buffer without memory.
    pub(super) fn accepts(&mut self, payload: usize) -> Result<bool, usize> {
        let Some(Message { buffer, .. }) = self.next() else {
            return Ok(false);
        };
        if payload != 0 && buffer.have_memory(GFP_NOWAIT).is_err() {
            return Err(buffer.capacity());
        }
        Ok(true)
    }

    /// Replaces the next buffer if it has the same size and no memory.
    pub(super) fn refill(&mut self, buffer: Buffer) {
        let next = self.next().map(|m| &mut m.buffer);
        if let Some(next) = next.filter(|b| !b.has_memory() && b.capacity() == buffer.capacity()) {
            *next = buffer;
        }
    }
}

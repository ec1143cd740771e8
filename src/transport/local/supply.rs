// SPDX-License-Identifier: GPL-2.0-only

//! Memory for the buffers of a local connection.
//!
//! A buffer that an end has posted may be without memory: it gets some when a message with payload is put there, so that
//! a connection that is not used has none. Where there is none at that moment, the message waits, and its sender, who
//! may not wait under the lock of the pair, sees to a buffer that has some ([`PairEnd::supplied`]).

use super::pair_end::{OptionalEnd, PairEnd};
use crate::sys::rdma::buffer::Buffer;
use kernel::prelude::*;

impl PairEnd {
    /// The other end, if it has a buffer for the next message, with memory if that has payload.
    pub(super) fn receiver<'a>(
        &mut self,
        other: &'a mut OptionalEnd,
        payload: usize,
    ) -> Option<&'a mut PairEnd> {
        self.lacks_memory = None;
        let other = other.as_mut()?;
        let buffer = other.posted.front_mut()?;
        if payload != 0 && buffer.have_memory(GFP_NOWAIT).is_err() {
            self.lacks_memory = Some(buffer.capacity());
            return None;
        }
        Some(other)
    }

    /// Goes on with what waits for memory, and tells what it still waits for.
    pub(super) fn asks_for_memory(&mut self, other: &mut OptionalEnd) -> Option<usize> {
        if self.lacks_memory.is_some() {
            self.carry_on(other);
        }
        self.lacks_memory
    }

    /// A buffer for the next message, for one without memory.
    pub(super) fn supplied(&mut self, buffer: Buffer) {
        let next = self.posted.front_mut();
        if let Some(next) = next.filter(|b| !b.has_memory() && b.capacity() == buffer.capacity()) {
            *next = buffer;
        }
    }
}

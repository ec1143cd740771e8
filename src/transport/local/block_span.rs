// SPDX-License-Identifier: GPL-2.0-only

//! Messages with payload from pinned memory, copied to the other end's buffers.

use super::pair_end::{OptionalEnd, PairEnd};
use super::waiting::{BlockMessage, Waiting};
use crate::transport::{BlockSpan, Head, SendCompletion, SendWr};
use kernel::prelude::*;

impl PairEnd {
    /// Posts a message with payload from a block without access of the peer.
    pub(super) fn post_block_span(
        &mut self,
        other: &mut OptionalEnd,
        s: &SendWr<'_>,
        payload: &BlockSpan,
    ) -> Result {
        self.check_space()?;
        let head = Head::new(s.header)?;
        self.blocks.begin_message(payload)?;
        self.wait(Waiting::Lent(BlockMessage {
            head,
            payload: *payload,
            solicited: s.solicited,
            cookie: s.cookie,
        }))?;
        self.carry_on(other);
        Ok(())
    }

    /// Delivers a message with payload from a block, and queues its completion.
    pub(super) fn deliver_block_span(&mut self, other: &mut PairEnd, m: &BlockMessage) {
        let BlockSpan { block, offset, len } = m.payload;
        let sent = self.blocks.pages(block).and_then(|pages| {
            other.deliver(m.head.bytes(), len as usize, m.solicited, |to| {
                pages.copy_out(offset as usize, to)
            })
        });
        self.blocks.over(block);
        match sent {
            Ok(()) => self.notify_done(SendCompletion::Moved {
                cookie: m.cookie,
                len,
            }),
            Err(_) => self.broke(),
        }
    }
}

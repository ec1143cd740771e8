// SPDX-License-Identifier: GPL-2.0-only

//! Messages with payload from pinned memory, copied to the other end's buffers.

use super::pair_end::{OptionalEnd, PairEnd};
use super::waiting::{LentMessage, Waiting};
use crate::transport::{BlockSpan, Head, SendCompletion, SendWr};
use kernel::prelude::*;

impl PairEnd {
    /// Posts a message with payload from a block without access of the peer.
    pub(super) fn post_lent(
        &mut self,
        other: &mut OptionalEnd,
        s: &SendWr<'_>,
        payload: &BlockSpan,
    ) -> Result {
        self.check_space()?;
        let head = Head::new(s.header)?;
        self.loans.begin_message(payload)?;
        self.wait(Waiting::Lent(LentMessage {
            head,
            payload: *payload,
            solicited: s.solicited,
            cookie: s.cookie,
        }))?;
        self.carry_on(other);
        Ok(())
    }

    /// Delivers a message with payload from a block, and queues its completion.
    pub(super) fn deliver_lent(&mut self, other: &mut PairEnd, m: &LentMessage) {
        let BlockSpan { loan, offset, len } = m.payload;
        let sent = self.loans.pages(loan).and_then(|pages| {
            other.deliver(m.head.bytes(), len as usize, m.solicited, |to| {
                pages.copy_out(offset as usize, to)
            })
        });
        self.loans.over(loan);
        match sent {
            Ok(()) => self.notify_done(SendCompletion::Moved {
                cookie: m.cookie,
                len,
            }),
            Err(_) => self.broke(),
        }
    }
}

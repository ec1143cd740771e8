// SPDX-License-Identifier: GPL-2.0-only

//! Sink adverts that we made: blocks of our readers' memory that the peer may write by RDMA.
//!
//! Each comes back by itself, in their order, with what was written (RdmaWrCompl), or with nothing
//! because Data came instead. All come back at once, with nothing, when the peer confirms that we
//! have cancelled them (SinkCancelAck), ends its stream or leaves Pipelined mode.
//!
//! # Data that crosses a sink advert
//!
//! Neither end waits for the other, so the source may send Data before it sees a sink advert. Both
//! ends know when that has happened, by counting (NonDiscards, `docs/protocol.md`): the source counts
//! the messages with payload that it sends, the sink those that it receives. A message with payload
//! that finds sink adverts outstanding voids the oldest of them and is not counted; its bytes go to
//! that one's reader. Each SinkAvail says how many were counted. The source takes it if that is
//! what it has counted itself. If it has counted more, the advert was void before it came; the
//! source then forgets it, and one of the messages. A source that has taken a sink advert, and
//! sends Data nevertheless, voids its oldest one and does not count the message.
//!
//! So that the bytes of a message have room in the one block that it voids, blocks are not smaller
//! than a message can be.

use super::super::Violation;
use super::ring::Ring;
use super::OWN_ADVERTS;

/// How far taking the adverts back has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancel {
    No,
    /// A SinkAvailCancel is to be sent.
    Due,
    /// It was sent, and adverts are outstanding.
    Sent,
}

/// Our sink adverts.
#[derive(Clone, Debug)]
pub(crate) struct OwnSinks {
    /// Their sizes.
    adverts: Ring<u32, OWN_ADVERTS>,
    cancel: Cancel,
    /// Messages with payload received that no sink advert was void for.
    non_discards: u32,
}

impl OwnSinks {
    pub(crate) fn new() -> Self {
        OwnSinks {
            adverts: Ring::new(),
            cancel: Cancel::No,
            non_discards: 0,
        }
    }

    /// How many adverts the peer may be writing to.
    pub(crate) fn count(&self) -> usize {
        self.adverts.len()
    }

    /// Whether one more may go, if so many are allowed.
    pub(crate) fn room(&self, limit: usize) -> bool {
        self.cancel == Cancel::No && self.count() < limit.min(OWN_ADVERTS)
    }

    /// What a SinkAvail is to say now.
    pub(crate) fn non_discards(&self) -> u32 {
        self.non_discards
    }

    /// A SinkAvail goes. Comes only if there is [`room`](Self::room).
    pub(crate) fn advertised(&mut self, size: u32) {
        self.adverts.push(size);
    }

    /// A message with payload came. Returns whether it has voided the oldest advert.
    pub(crate) fn crossed(&mut self) -> bool {
        let crossed = self.adverts.pop().is_some();
        if crossed {
            self.settle();
        } else {
            self.non_discards = self.non_discards.wrapping_add(1);
        }
        crossed
    }

    /// A RdmaWrCompl came.
    pub(crate) fn written(&mut self, size: u32) -> Result<(), Violation> {
        let oldest = self.adverts.pop();
        let room = oldest.ok_or(Violation::UnexpectedRdmaWrCompl)?;
        if size > room {
            return Err(Violation::RdmaWrComplSize);
        }
        self.settle();
        Ok(())
    }

    /// The owner wants the adverts back.
    pub(crate) fn cancel(&mut self) {
        if self.count() > 0 && self.cancel == Cancel::No {
            self.cancel = Cancel::Due;
        }
    }

    /// Whether a SinkAvailCancel is to be sent.
    pub(crate) fn cancel_due(&self) -> bool {
        self.cancel == Cancel::Due
    }

    /// The SinkAvailCancel goes.
    pub(crate) fn cancelled(&mut self) {
        self.cancel = Cancel::Sent;
    }

    /// A SinkCancelAck came.
    pub(crate) fn cancel_confirmed(&mut self) -> Result<(), Violation> {
        if self.cancel != Cancel::Sent {
            return Err(Violation::UnexpectedSinkCancelAck);
        }
        self.void();
        Ok(())
    }

    /// The adverts are void. Returns whether there were any.
    pub(crate) fn void(&mut self) -> bool {
        let some = self.count() > 0;
        self.adverts.clear();
        self.settle();
        some
    }

    /// When nothing is outstanding, a cancel has nothing to wait for.
    fn settle(&mut self) {
        if self.adverts.is_empty() {
            self.cancel = Cancel::No;
        }
    }
}

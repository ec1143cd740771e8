// SPDX-License-Identifier: GPL-2.0-only

//! Memory of a call that the peer gets access to.
//!
//! A [`Lent`] is one piece of it, from the moment it is registered until the peer's access is over:
//!
//! ```text
//!  Offered -- advert posted --> Advertised -- used, or given back by the peer --> Over
//!     '------------- withdrawn before it was posted --------------------------------^
//!  Over -- invalidation posted --> Ending -- complete --> Ended
//!  any of them -- connection lost --> Lost
//! ```

use crate::protocol::Block;
use crate::transport::{Access, Loan, Pinned, Transport};
use kernel::prelude::*;

/// Where a piece stands; see the head of this file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Offered,
    Advertised,
    Over,
    Ending,
    Ended,
    Lost,
}

/// A piece of memory.
#[derive(Clone, Copy)]
pub(super) struct Lent {
    /// What the transport calls it.
    pub(super) loan: Loan,
    /// What the peer is told.
    pub(super) block: Block,
    /// Where it stands.
    pub(super) stage: Stage,
    /// Bytes at its start that have gone from one end to the other.
    pub(super) done: u32,
}

impl Lent {
    /// Lends pinned memory and lets the peer access it.
    ///
    /// # Errors
    ///
    /// Gives the memory back, if it has not gone with the connection.
    pub(super) fn new(
        channel: &mut impl Transport,
        memory: Pinned,
        access: Access,
    ) -> Result<Self, Option<Pinned>> {
        let loan = channel.lend(memory).map_err(Some)?;
        let Ok(key) = channel.register(loan, access) else {
            return Err(channel.reclaim(loan).ok());
        };
        Ok(Lent {
            loan,
            block: Block {
                size: key.len,
                r_key: key.rkey,
                address: key.address,
            },
            stage: Stage::Offered,
            done: 0,
        })
    }

    /// What is to be advertised.
    pub(super) fn offered(&self) -> Option<Block> {
        (self.stage == Stage::Offered).then_some(self.block)
    }

    /// The peer is done with it, or was not told of it.
    pub(super) fn over(&mut self) {
        if matches!(self.stage, Stage::Offered | Stage::Advertised) {
            self.stage = Stage::Over;
        }
    }

    /// Ends the peer's access if it is time to, as soon as there is room for that. `cookie`: what to
    /// call that.
    pub(super) fn end_access(&mut self, channel: &mut impl Transport, cookie: u64) -> Result {
        if self.stage == Stage::Over {
            match channel.invalidate(self.loan, cookie) {
                Ok(()) => self.stage = Stage::Ending,
                Err(e) if e == ENOSPC => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The peer's access has ended.
    pub(super) fn ended(&mut self) {
        if self.stage == Stage::Ending {
            self.stage = Stage::Ended;
        }
    }
}

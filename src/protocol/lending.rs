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
//!
//! A piece is known by its cookie, which no other piece of the connection has, before or after:
//! several may end at once, and where one was another one may be by then.

use super::adverts::Block;

/// Where a piece stands; see the head of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Registered, and the peer was not told.
    Offered,
    /// The peer may access it.
    Advertised,
    /// The peer is done with it, or was never told.
    Over,
    /// Its access is being ended.
    Ending,
    /// It has none any more.
    Ended,
    /// The connection is lost, and the memory is the transport's until that is gone.
    Lost,
}

/// A piece of memory; `L` is what the transport calls it.
#[derive(Clone, Copy, Debug)]
pub struct Lent<L> {
    /// What the transport calls it.
    pub loan: L,
    /// What the peer is told.
    pub block: Block,
    /// What the end of access to it is called.
    pub cookie: u64,
    /// Where it stands.
    pub stage: Stage,
    /// Bytes at its start that have gone from one end to the other.
    pub done: u32,
}

impl<L> Lent<L> {
    /// A piece that is registered.
    pub fn new(loan: L, block: Block, cookie: u64) -> Self {
        Lent {
            loan,
            block,
            cookie,
            stage: Stage::Offered,
            done: 0,
        }
    }

    /// What is to be advertised.
    pub fn offered(&self) -> Option<Block> {
        (self.stage == Stage::Offered).then_some(self.block)
    }

    /// The peer is done with it, or was not told of it.
    pub fn over(&mut self) {
        if matches!(self.stage, Stage::Offered | Stage::Advertised) {
            self.stage = Stage::Over;
        }
    }

    /// The end of the peer's access is posted.
    pub fn ending(&mut self) {
        if self.stage == Stage::Over {
            self.stage = Stage::Ending;
        }
    }

    /// Access has ended to the piece with this cookie. Returns whether it is this one.
    pub fn ended(&mut self, cookie: u64) -> bool {
        let own = self.stage == Stage::Ending && self.cookie == cookie;
        if own {
            self.stage = Stage::Ended;
        }
        own
    }

    /// Whether the end of access is waited for.
    pub fn ends(&self) -> bool {
        matches!(self.stage, Stage::Over | Stage::Ending)
    }

    /// Whether the peer may come to use it, or not use it, yet.
    pub fn is_out(&self) -> bool {
        matches!(self.stage, Stage::Offered | Stage::Advertised)
    }

    /// Whether the caller may take it: nobody accesses it any more, or the transport has it.
    pub fn is_back(&self) -> bool {
        matches!(self.stage, Stage::Ended | Stage::Lost)
    }
}

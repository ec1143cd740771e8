// SPDX-License-Identifier: GPL-2.0-only

//! Memory that the peer gets access to.
//!
//! An [`Advert`] is one piece of it, from the moment it belongs to the transport until the peer's access has
//! ended:
//!
//! ```text
//!  New -- registered --> Queued
//!  New -- goes another way --> Invalid
//!  Queued -- SrcAvail or SinkAvail posted --> Posted -- used, or given back by the peer --> Done
//!     '---------------- withdrawn before it was posted ----------------------------------------^
//!  Done -- invalidation posted --> Invalidating -- complete --> Invalid
//!  any of them -- connection lost --> Lost
//! ```
//!
//! A piece is known by its cookie, which no other piece of the connection has, before or after:
//! several may end at once, and where one was another one may be by then.

use crate::protocol::Block;

/// How far an advert is; see the head of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdvertState {
    /// Not registered yet.
    New,
    /// Registered, and the peer was not told.
    Queued,
    /// The peer may access it.
    Posted,
    /// The peer is done with it, or was never told.
    Done,
    /// Its access is being ended.
    Invalidating,
    /// It has none any more.
    Invalid,
    /// The connection is lost, and the memory is the transport's until that is gone.
    Lost,
}

/// A piece of memory; `M` is how its owner finds it again.
#[derive(Debug)]
pub(crate) struct Advert<M> {
    /// Where it is now.
    pub(crate) memory: M,
    /// What the peer is told.
    pub(crate) segment: Block,
    /// What the end of access to it is called.
    pub(crate) cookie: u64,
    /// How far it is.
    pub(crate) state: AdvertState,
    /// Bytes at its start that have gone from one end to the other.
    pub(crate) done: u32,
}

impl<M> Advert<M> {
    /// A piece of `size` bytes that is to be registered when its turn has come.
    pub(crate) fn unregistered(memory: M, size: u32, cookie: u64) -> Self {
        let segment = Block {
            size,
            r_key: 0,
            address: 0,
        };
        Advert {
            state: AdvertState::New,
            ..Advert::new(memory, segment, cookie)
        }
    }

    /// It is registered as this.
    pub(crate) fn registered(&mut self, segment: Block) {
        if self.state == AdvertState::New {
            (self.state, self.segment) = (AdvertState::Queued, segment);
        }
    }

    /// A piece that is registered.
    pub(crate) fn new(memory: M, segment: Block, cookie: u64) -> Self {
        Advert {
            memory,
            segment,
            cookie,
            state: AdvertState::Queued,
            done: 0,
        }
    }

    /// What the peer is to be told.
    pub(crate) fn queued(&self) -> Option<Block> {
        (self.state == AdvertState::Queued).then_some(self.segment)
    }

    /// Whether the peer may come to use it, or not use it, yet.
    pub(crate) fn is_out(&self) -> bool {
        use AdvertState::{New, Posted, Queued};
        matches!(self.state, New | Queued | Posted)
    }

    /// Whether the peer was not told of it yet.
    pub(crate) fn is_unsent(&self) -> bool {
        matches!(self.state, AdvertState::New | AdvertState::Queued)
    }

    /// The message that tells of it is posted.
    pub(crate) fn posted(&mut self) {
        if self.state == AdvertState::Queued {
            self.state = AdvertState::Posted;
        }
    }

    /// So many bytes at its start have gone. Returns how many of them are new.
    pub(crate) fn moved(&mut self, done: u32) -> u32 {
        let before = core::mem::replace(&mut self.done, done.min(self.segment.size));
        self.done.saturating_sub(before)
    }

    /// The peer is done with it, or was not told of it.
    pub(crate) fn finish(&mut self) {
        match self.state {
            // nobody has got access
            AdvertState::New => self.state = AdvertState::Invalid,
            AdvertState::Queued | AdvertState::Posted => self.state = AdvertState::Done,
            _ => {}
        }
    }

    /// The end of the peer's access is posted.
    pub(crate) fn invalidating(&mut self) {
        if self.state == AdvertState::Done {
            self.state = AdvertState::Invalidating;
        }
    }

    /// Access has ended to the piece with this cookie. Returns whether it is this one.
    pub(crate) fn invalidated(&mut self, cookie: u64) -> bool {
        let own = self.state == AdvertState::Invalidating && self.cookie == cookie;
        if own {
            self.state = AdvertState::Invalid;
        }
        own
    }

    /// Whether the end of access is waited for.
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.state, AdvertState::Done | AdvertState::Invalidating)
    }

    /// Whether its owner may take it: nobody accesses it any more, or the transport has it.
    pub(crate) fn is_back(&self) -> bool {
        matches!(self.state, AdvertState::Invalid | AdvertState::Lost)
    }
}

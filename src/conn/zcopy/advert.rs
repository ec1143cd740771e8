// SPDX-License-Identifier: GPL-2.0-only

//! Adverts of memory to which the peer gets access.
//!
//! An [`Advert`] is one block of memory, from its handover to the transport until the end of the
//! peer's access:
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
//! The cookie distinguishes a block from all other blocks of the connection. When a completion is
//! handled, the block's slot may already contain another block.

use crate::protocol::Block;

/// State of an advert, with the transitions shown at the head of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdvertState {
    /// The block is not registered yet.
    New,
    /// The block is registered, and the advert is not sent yet.
    Queued,
    /// The advert is sent: the peer may access the block.
    Posted,
    /// The peer no longer uses the block, or the advert was never sent.
    Done,
    /// The invalidation of the key is posted.
    Invalidating,
    /// The peer's access has ended.
    Invalid,
    /// The connection is lost; the transport owns the memory until its destruction.
    Lost,
}

/// A block of memory. The type `M` is the handle of the block's owner.
#[derive(Debug)]
pub(crate) struct Advert<M> {
    pub(crate) memory: M,
    /// Block that the SrcAvail or SinkAvail advertises.
    pub(crate) segment: Block,
    /// Cookie of the invalidation.
    pub(crate) cookie: u64,
    pub(crate) state: AdvertState,
    /// Number of bytes at the block's start that have been transferred.
    pub(crate) done: u32,
}

impl<M> Advert<M> {
    /// Creates the advert of a block of `size` bytes that is registered later.
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

    pub(crate) fn registered(&mut self, segment: Block) {
        if self.state == AdvertState::New {
            (self.state, self.segment) = (AdvertState::Queued, segment);
        }
    }

    /// Creates the advert of a registered block.
    pub(crate) fn new(memory: M, segment: Block, cookie: u64) -> Self {
        Advert {
            memory,
            segment,
            cookie,
            state: AdvertState::Queued,
            done: 0,
        }
    }

    /// Returns the block if its advert is still to be sent.
    pub(crate) fn queued(&self) -> Option<Block> {
        (self.state == AdvertState::Queued).then_some(self.segment)
    }

    /// Returns true if the peer may still use the block, or will get the advert.
    pub(crate) fn is_out(&self) -> bool {
        use AdvertState::{New, Posted, Queued};
        matches!(self.state, New | Queued | Posted)
    }

    pub(crate) fn is_unsent(&self) -> bool {
        matches!(self.state, AdvertState::New | AdvertState::Queued)
    }

    pub(crate) fn posted(&mut self) {
        if self.state == AdvertState::Queued {
            self.state = AdvertState::Posted;
        }
    }

    /// Records that the first `done` bytes are transferred. Returns the number of new bytes.
    pub(crate) fn moved(&mut self, done: u32) -> u32 {
        let before = core::mem::replace(&mut self.done, done.min(self.segment.size));
        self.done.saturating_sub(before)
    }

    /// Ends the peer's use of the block, or cancels an advert that was not sent.
    pub(crate) fn finish(&mut self) {
        match self.state {
            // the peer never had access
            AdvertState::New => self.state = AdvertState::Invalid,
            AdvertState::Queued | AdvertState::Posted => self.state = AdvertState::Done,
            _ => {}
        }
    }

    pub(crate) fn invalidating(&mut self) {
        if self.state == AdvertState::Done {
            self.state = AdvertState::Invalidating;
        }
    }

    /// Handles a completed invalidation. Returns true if the cookie belongs to this block.
    pub(crate) fn invalidated(&mut self, cookie: u64) -> bool {
        let own = self.state == AdvertState::Invalidating && self.cookie == cookie;
        if own {
            self.state = AdvertState::Invalid;
        }
        own
    }

    /// Returns true if an invalidation is due or in flight.
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.state, AdvertState::Done | AdvertState::Invalidating)
    }

    /// Returns true if no task has to wait for the block: it is unused, or lost with the transport.
    pub(crate) fn is_back(&self) -> bool {
        matches!(self.state, AdvertState::Invalid | AdvertState::Lost)
    }
}

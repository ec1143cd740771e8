// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of a call that waits for them.

use super::super::advert::{Advert, AdvertState};
use super::{TxBlock, TxBlocks};

/// Maximum number of them.
const MOST_OF_CALL: usize = 4;

/// Event that a call waits for, of its oldest block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// The peer reads the block, returns it, or makes space.
    Peer,
    /// Completion of WRITEs in flight, which needs no program of the peer.
    Write,
    /// None: it is back, or the connection was `lost`.
    Nothing { lost: bool },
}

/// A block that returns to its call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Returned<M> {
    pub(crate) memory: M,
    /// Size in bytes.
    pub(crate) size: u32,
    /// Bytes from its start that the peer has.
    pub(crate) done: u32,
    /// Set if the peer refused it, in part or in time.
    pub(crate) refused: bool,
    /// Set if some of it was written to a reader of the peer.
    pub(crate) written: bool,
}

impl<M> TxBlock<M> {
    /// Returns true if a call may queue another block behind it: the peer has it or will read it,
    /// or its rest is being sent.
    fn goes(&self) -> bool {
        let sends = self.writing || self.detached && self.is_passed();
        sends || self.finished || self.advert.is_out()
    }

    /// Returns the event that its call waits for.
    fn awaits(&self) -> Awaits {
        match self.advert.state {
            AdvertState::Lost => Awaits::Nothing { lost: true },
            AdvertState::Invalid if self.posted > self.advert.done => Awaits::Write,
            AdvertState::Invalid if !self.writing || self.is_sent() => {
                Awaits::Nothing { lost: false }
            }
            _ => Awaits::Peer,
        }
    }
}

impl<M> TxBlocks<M> {
    /// Returns the blocks of a waiting call.
    pub(super) fn of_call(&self) -> impl Iterator<Item = &TxBlock<M>> {
        self.iter().filter(|b| !b.detached)
    }

    pub(crate) fn has_call(&self) -> bool {
        self.of_call().next().is_some()
    }

    /// Returns true if another block of a waiting call may follow. There must be space, and the
    /// peer must have the present blocks or will read them.
    pub(crate) fn is_open(&self) -> bool {
        let few = self.of_call().count() < MOST_OF_CALL && !(self.broken && self.has_call());
        self.has_space() && few && self.iter().all(TxBlock::goes)
    }

    /// Returns true if a block of the call is being written.
    pub(crate) fn is_writing(&self) -> bool {
        self.of_call().any(|b| b.writing)
    }

    /// Returns true if the next block is a call's.
    pub(crate) fn is_next_of_call(&self) -> bool {
        let next = self.iter().find(|b| !b.is_passed());
        next.is_some_and(|b| !b.detached)
    }

    /// Adds a call's block behind the others, with its first byte, at a position in the copied
    /// bytes. `more`: another will follow, if the peer has space for it.
    ///
    /// # Errors
    ///
    /// The memory, unless [`Self::is_open`].
    pub(crate) fn push(
        &mut self,
        advert: Advert<M>,
        first: u8,
        at: u64,
        more: bool,
    ) -> Result<(), M> {
        if !self.is_open() {
            return Err(advert.memory);
        }
        if !self.has_call() {
            (self.broken, self.voided) = (false, false);
        }
        self.more = more;
        self.add(advert, first, at, false)
    }

    /// Returns the bytes of the call that are neither posted nor advertised.
    pub(crate) fn unposted(&self) -> u32 {
        let left = |b: &TxBlock<M>| match b.is_passed() {
            true => 0,
            false => b.advert.segment.size.saturating_sub(b.posted),
        };
        let all = self.of_call().map(left);
        all.fold(0, u32::saturating_add)
    }

    /// Handles the end of the call's bytes, or of the peer's space for them, unless the call will
    /// add more. Returns true if the announcement of more has to be withdrawn.
    pub(crate) fn close(&mut self) -> bool {
        let open = self.of_call().count() == MOST_OF_CALL;
        !open && core::mem::take(&mut self.more) && self.of_call().all(TxBlock::is_passed)
    }

    /// Withdraws the call's unsent adverts and the unwritten rest.
    pub(crate) fn cancel(&mut self) {
        for block in self.iter_mut().filter(|b| !b.detached) {
            if block.advert.is_unsent() {
                block.advert.finish();
            }
            block.writing = false;
        }
    }

    /// Ends the writing of the call's blocks: the peer has no more space.
    pub(crate) fn cut(&mut self) {
        self.cancel();
        self.voided = true;
    }

    /// Has the call's blocks written, apart from those that were read: a reader of the peer waits
    /// with its own memory.
    pub(crate) fn void(&mut self) {
        for block in self.iter_mut().filter(|b| !b.detached) {
            block.writing |= block.advert.is_out();
        }
    }

    /// Returns the event that the call waits for, and true if the peer has read its oldest block to
    /// the end.
    pub(crate) fn oldest(&self) -> Option<(Awaits, bool)> {
        self.of_call().next().map(|b| (b.awaits(), b.finished))
    }

    /// Takes the call's oldest block out, if it has returned.
    pub(crate) fn take(&mut self) -> Option<Returned<M>> {
        let at = self.iter().position(|b| !b.detached)?;
        let back = matches!(self.iter().nth(at)?.awaits(), Awaits::Nothing { .. });
        let block = back.then(|| self.remove(at)).flatten()?;
        let (whole, sent) = (!self.broken, block.is_sent());
        let voided = !sent && core::mem::take(&mut self.voided);
        self.broken |= !sent;
        Some(Returned {
            size: block.advert.segment.size,
            done: if whole { block.advert.done } else { 0 },
            refused: whole && !sent && !voided,
            written: block.posted > 0,
            memory: block.advert.memory,
        })
    }
}

#[cfg(test)]
#[path = "tx_blocks_call_tests.rs"]
mod tests;

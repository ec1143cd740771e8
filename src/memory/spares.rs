// SPDX-License-Identifier: GPL-2.0-only

//! Room for pinned memory that is kept from one transfer of a connection to the next.

use super::pinned::Pinned;
use kernel::alloc::flags::GFP_NOWAIT;
use kernel::prelude::*;

/// Pieces of pinned memory that are kept for the next time.
const SPARE: usize = 8;

/// Room for pinned memory that is not in use, the oldest first. May be dropped in any context.
pub(crate) struct Spares(KVec<Pinned>);

impl Spares {
    /// None.
    pub(crate) const fn new() -> Self {
        Spares(KVec::new())
    }

    /// The oldest, so that a region is not used again at once.
    pub(crate) fn oldest(&mut self) -> Option<Pinned> {
        self.0.remove(0).ok()
    }

    /// Room in which a piece is still pinned; else one with nothing in it, or none if there is room
    /// for more, or the oldest.
    pub(crate) fn best_for(&mut self, piece: (usize, usize)) -> Option<Pinned> {
        let hit = self.0.iter().position(|p| p.is_for(piece));
        let at = hit.or_else(|| self.0.iter().position(|p| !p.is_idle()));
        match at {
            Some(at) => self.0.remove(at).ok(),
            None if self.0.len() < SPARE => None,
            None => self.oldest(),
        }
    }

    /// Keeps room until it is needed again; in any context. If there is enough of it, or no memory for its place, it is
    /// dropped.
    pub(crate) fn keep(&mut self, p: Pinned) {
        if p.len() == 0 && self.0.len() < SPARE {
            let _ = self.0.push(p, GFP_NOWAIT);
        }
    }
}

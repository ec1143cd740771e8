// SPDX-License-Identifier: GPL-2.0-only

//! Spare blocks of a connection, kept for its next transfers.
//!
//! A busy connection keeps up to [`SPARE`] blocks; an idle connection keeps one. When memory is
//! short, all spare blocks are freed. The shrinker of [`crate::sys::watch`] frees blocks whose
//! memory stays pinned (`pin_cache`), which this limit does not count.

use super::pinned::{Pinned, Pinning, Spare};
use crate::sys::vec;
use kernel::alloc::flags::GFP_NOWAIT;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};

/// Maximum number of spare blocks, which is the number of transfers in flight of a connection.
const SPARE: usize = 8;

/// Number of spare blocks of all connections.
static ALL: Atomic<i64> = Atomic::new(0);

pub(crate) extern "C" fn count() -> usize {
    usize::try_from(ALL.load(Relaxed)).unwrap_or(0)
}

/// Spare blocks, the oldest first. May be dropped in any context.
pub(crate) struct BlockPool {
    pinning: Pinning,
    blocks: KVec<Spare>,
    /// Set by each use of the pool.
    used: bool,
}

impl BlockPool {
    pub(crate) const fn new(pinning: Pinning) -> Self {
        BlockPool {
            pinning,
            blocks: KVec::new(),
            used: false,
        }
    }

    pub(crate) fn pinning(&self) -> &Pinning {
        &self.pinning
    }

    fn remove(&mut self, at: usize) -> Option<Pinned> {
        let spare = self.blocks.remove(at).ok()?;
        ALL.fetch_sub(1, Relaxed);
        spare.into_block()
    }

    /// Removes and returns a block in which `range` of the calling process's memory is still
    /// pinned, or an empty block. Otherwise, returns `None` if more blocks are allowed, else the
    /// oldest block, whose memory region was unused for longest.
    pub(crate) fn best_for(&mut self, range: (usize, usize)) -> Option<Pinned> {
        let (address, len) = self.pinning.cut(range);
        let has_it = |s: &Spare| matches!(s, Spare::Parked(w) if w.is(address, len));
        let hit = self.blocks.iter().position(has_it);
        let at = hit.or_else(|| self.blocks.iter().position(|s| !s.is_parked()));
        match at {
            Some(at) => self.remove(at),
            None if self.blocks.len() < SPARE => None,
            None => self.remove(0),
        }
    }

    /// Keeps a block, or drops it if enough are kept. Context: any.
    pub(crate) fn keep(&mut self, spare: Spare) {
        self.used = true;
        if vec::push(&mut self.blocks, SPARE, spare, GFP_NOWAIT).is_ok() {
            ALL.add(1, Relaxed);
        }
    }

    /// Returns true if blocks were used since the last call.
    pub(crate) fn was_used(&mut self) -> bool {
        core::mem::take(&mut self.used)
    }

    /// Drops all empty blocks except `keep` of them.
    pub(crate) fn trim(&mut self, keep: usize) {
        let (mut kept, before) = (0..keep, self.blocks.len());
        self.blocks
            .retain(|s| s.is_parked() || kept.next().is_some());
        ALL.fetch_sub(before.wrapping_sub(self.blocks.len()) as i64, Relaxed);
    }
}

impl Drop for BlockPool {
    fn drop(&mut self) {
        ALL.fetch_sub(self.blocks.len() as i64, Relaxed);
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! The memory that both ends have registered, and RDMA access to it.
//!
//! A READ accesses the memory at some moment between its posting and its completion, and READs
//! complete in order. Memory that its owner has taken back must not be accessed.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;

use sdp_protocol::Block;

use crate::rng::Rng;

/// A registered block.
struct Region {
    /// End that owns the memory.
    side: usize,
    address: u64,
    bytes: Vec<u8>,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (side, size) = (self.side, self.bytes.len());
        write!(f, "of {side}, {size} bytes at {:#x}", self.address)
    }
}

/// A READ that was posted.
struct Read {
    from: Block,
    bytes: Option<Vec<u8>>,
}

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = if self.bytes.is_some() { "done" } else { "open" };
        write!(f, "{:?} {done}", self.from)
    }
}

/// Memory that both queue pairs can access.
#[derive(Default)]
pub struct Fabric {
    regions: BTreeMap<u32, Region>,
    /// Keys of blocks that their owners have taken back.
    dead: HashSet<u32>,
    /// READs, by the end that posted them.
    reads: [VecDeque<Read>; 2],
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, reads {:?}", self.regions, self.reads)
    }
}

impl Fabric {
    /// Registers memory of `side`, under a key that was never used before.
    pub fn register(&mut self, side: usize, bytes: Vec<u8>, rng: &mut Rng) -> Block {
        let mut key = rng.draw() as u32;
        while self.regions.contains_key(&key) || self.dead.contains(&key) {
            key = key.wrapping_add(1);
        }
        let address = match rng.below(4) {
            0 => 0,
            1 => u64::MAX - (bytes.len() as u64 - 1),
            _ => rng.draw() >> 1,
        };
        let block = Block {
            size: bytes.len() as u32,
            r_key: key,
            address,
        };
        let region = Region {
            side,
            address,
            bytes,
        };
        self.regions.insert(key, region);
        block
    }

    /// Takes a block back for its owner, which may use it for something else.
    pub fn take_back(&mut self, key: u32) -> Vec<u8> {
        let region = self
            .regions
            .remove(&key)
            .expect("a block that is registered");
        self.dead.insert(key);
        region.bytes
    }

    /// Takes back all blocks of an owner.
    pub fn take_back_all(&mut self, side: usize) {
        let (gone, rest) = std::mem::take(&mut self.regions)
            .into_iter()
            .partition(|(_, region)| region.side == side);
        let gone: BTreeMap<u32, Region> = gone;
        self.regions = rest;
        self.dead.extend(gone.into_keys());
    }

    /// Drops the READs of `side` that were not executed.
    pub fn forget_reads(&mut self, side: usize) {
        self.reads[side].clear();
    }

    /// Returns the number of blocks that this end has not taken back.
    pub fn registered(&self, side: usize) -> usize {
        self.regions.values().filter(|r| r.side == side).count()
    }

    /// Resolves a range of a region for an access by `side`.
    fn find(&mut self, side: usize, at: Block) -> Result<&mut [u8], String> {
        if self.dead.contains(&at.r_key) {
            return Err("memory that its owner has taken back".into());
        }
        let region = self.regions.get_mut(&at.r_key).ok_or("an unknown key")?;
        if region.side == side {
            return Err("a key of one's own memory".into());
        }
        let start = at.address.checked_sub(region.address);
        let range = start.and_then(|start| {
            let end = start.checked_add(at.size.into())?;
            region.bytes.get_mut(start as usize..end as usize)
        });
        range.ok_or_else(|| "memory outside of the block".into())
    }

    /// Executes a WRITE of `side`.
    ///
    /// # Errors
    ///
    /// `Err`: the WRITE is not allowed.
    pub fn write(&mut self, side: usize, to: Block, bytes: &[u8]) -> Result<(), String> {
        let memory = self.find(side, to);
        let memory = memory.map_err(|what| format!("side {side} writes {what}: {to:?}"))?;
        memory.copy_from_slice(bytes);
        Ok(())
    }

    /// Posts a READ of `side`.
    pub fn post_read(&mut self, side: usize, from: Block) {
        self.reads[side].push_back(Read { from, bytes: None });
    }

    /// Returns the number of READs of `side` that have not completed.
    pub fn reading(&self, side: usize) -> usize {
        self.reads[side].len()
    }

    /// Executes one of the READs of `side`.
    ///
    /// # Errors
    ///
    /// `Err`: the READ is not allowed.
    pub fn carry_out(&mut self, side: usize, which: usize) -> Result<(), String> {
        let Some(read) = self.reads[side].get(which) else {
            return Ok(());
        };
        if read.bytes.is_some() {
            return Ok(());
        }
        let from = read.from;
        let bytes = self.find(side, from);
        let bytes = bytes.map_err(|what| format!("side {side} reads {what}: {from:?}"))?;
        let bytes = bytes.to_vec();
        self.reads[side][which].bytes = Some(bytes);
        Ok(())
    }

    /// Completes the oldest READ of `side`, and returns its bytes.
    ///
    /// # Errors
    ///
    /// `Err`: the READ is not allowed.
    pub fn complete_read(&mut self, side: usize) -> Result<Option<Vec<u8>>, String> {
        self.carry_out(side, 0)?;
        Ok(self.reads[side].pop_front().and_then(|read| read.bytes))
    }
}

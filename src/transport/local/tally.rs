// SPDX-License-Identifier: GPL-2.0-only

//! Counts of a local end, read by its owner without the lock of the pair.
//!
//! Written under that lock, at each release. A read may be out of date, as with a device. No event
//! is lost: arming (`Endpoint::arm_receive`) checks under the lock. `tests/host/loom` compiles
//! this file.

use kernel::sync::atomic::{Atomic, Relaxed};

/// Counts of an end.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    /// Received messages.
    pub(crate) arrived: u16,
    /// Posted buffers, including those with a received message.
    pub(crate) posted: u16,
    /// Send completions that are not polled.
    pub(crate) done: u16,
    /// Slots of the send queue in use.
    pub(crate) used: u16,
}

impl Counts {
    /// Counts of a missing end: no messages, no free slots.
    pub(crate) const GONE: Self = Counts {
        arrived: 0,
        posted: 0,
        done: 0,
        used: u16::MAX,
    };

    /// Packs them in one word.
    fn word(self) -> i64 {
        let [arrived, posted, done, used] =
            [self.arrived, self.posted, self.done, self.used].map(i64::from);
        arrived | (posted << 16) | (done << 32) | (used << 48)
    }

    fn of(word: i64) -> Self {
        Counts {
            arrived: word as u16,
            posted: (word >> 16) as u16,
            done: (word >> 32) as u16,
            used: (word >> 48) as u16,
        }
    }
}

/// Last counts of an end, in one word: written and read by one access each.
pub(crate) struct Tally(Atomic<i64>);

impl Tally {
    /// Counts of an end that is not attached yet.
    pub(crate) fn new() -> Self {
        Tally(Atomic::new(Counts::GONE.word()))
    }

    /// Stores the counts. Called with the lock of the pair.
    pub(crate) fn note(&self, c: Counts) {
        self.0.store(c.word(), Relaxed);
    }

    fn counts(&self) -> Counts {
        Counts::of(self.0.load(Relaxed))
    }

    pub(crate) fn has_arrived(&self) -> bool {
        self.counts().arrived != 0
    }

    /// Returns true if there are send completions.
    pub(crate) fn has_done(&self) -> bool {
        self.counts().done != 0
    }

    /// Returns the number of posted buffers, including those whose message was not taken, as with
    /// a device.
    pub(crate) fn posted(&self) -> u16 {
        self.counts().posted
    }

    /// Returns the number of free slots; 0 if the end is missing.
    pub(crate) fn room(&self, slots: u16) -> u16 {
        slots.saturating_sub(self.counts().used)
    }
}

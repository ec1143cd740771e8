// SPDX-License-Identifier: GPL-2.0-only

//! What there is at an end of a local connection, for its owner to look at without the lock of the pair.
//!
//! It is written under that lock, whenever it is let go of. Its owner's look may come too early, as it may where a
//! device writes; what comes after it is told, since whoever asks to be told
//! (`Transport::arm_receive`) looks under the lock. `tests/host/loom` compiles this file.

use kernel::sync::atomic::{Atomic, Relaxed};

/// What there is at an end.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    /// Messages that have come.
    pub(crate) arrived: u16,
    /// Buffers posted, with those of the messages that have come.
    pub(crate) posted: u16,
    /// What was carried out and not polled for.
    pub(crate) done: u16,
    /// Slots of the send queue in use.
    pub(crate) used: u16,
}

impl Counts {
    /// Of an end that is not there: nothing comes, and there is no room.
    pub(crate) const GONE: Self = Counts {
        arrived: 0,
        posted: 0,
        done: 0,
        used: u16::MAX,
    };

    /// All of them in one word.
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

/// What was noted of it last: a word, so that a note and a look are one access each.
pub(crate) struct Tally(Atomic<i64>);

impl Tally {
    /// Of an end that is not there yet.
    pub(crate) fn new() -> Self {
        Tally(Atomic::new(Counts::GONE.word()))
    }

    /// Notes what there is. Called with the lock of the pair.
    pub(crate) fn note(&self, c: Counts) {
        self.0.store(c.word(), Relaxed);
    }

    fn counts(&self) -> Counts {
        Counts::of(self.0.load(Relaxed))
    }

    /// Whether messages have come.
    pub(crate) fn has_arrived(&self) -> bool {
        self.counts().arrived != 0
    }

    /// Whether something was carried out.
    pub(crate) fn has_done(&self) -> bool {
        self.counts().done != 0
    }

    /// Buffers that were posted and whose messages were not taken: as with a device, whoever counts
    /// them does not know yet what has come.
    pub(crate) fn posted(&self) -> u16 {
        self.counts().posted
    }

    /// How many of `slots` are free; none if the end is not there.
    pub(crate) fn room(&self, slots: u16) -> u16 {
        slots.saturating_sub(self.counts().used)
    }
}

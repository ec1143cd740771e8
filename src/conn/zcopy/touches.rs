// SPDX-License-Identifier: GPL-2.0-only

//! Decides whether blocks are write-protected: not if the program writes to its memory soon after
//! sending it.
//!
//! A connection stays asynchronous as long as at most one in eight of its blocks has a write fault.
//! Otherwise it is synchronous for a pause, which doubles each consecutive time; then a few blocks
//! test again.

/// One block in this many may have a write fault.
const ONE_IN: u32 = 8;
/// Window in blocks.
const WINDOW: u32 = 64;
/// Number of blocks of the first and of the longest synchronous pause.
const FIRST_PAUSE: u32 = 32;
const MOST_PAUSE: u32 = 4096;
/// Number of blocks without a write fault that resets the pause.
const GOOD: u32 = 32;

/// Measurements of one connection.
#[derive(Debug)]
pub(crate) struct FaultRate {
    blocks: u32,
    touched: u32,
    /// Consecutive blocks without a write fault.
    good: u32,
    /// Remaining synchronous blocks.
    pause: u32,
    next_pause: u32,
}

impl FaultRate {
    pub(crate) const fn new() -> Self {
        FaultRate {
            blocks: 0,
            touched: 0,
            good: 0,
            pause: 0,
            next_pause: FIRST_PAUSE,
        }
    }

    /// Returns true if the next block may be protected.
    pub(crate) fn may_protect(&mut self) -> bool {
        let pauses = self.pause > 0;
        self.pause = self.pause.saturating_sub(1);
        !pauses
    }

    /// Records a protected block.
    pub(crate) fn began(&mut self) {
        self.blocks = self.blocks.saturating_add(1);
        self.good = self.good.saturating_add(1);
        if self.good >= GOOD {
            self.next_pause = FIRST_PAUSE;
        }
        if self.blocks >= WINDOW {
            self.blocks /= 2;
            self.touched /= 2;
        }
    }

    pub(crate) fn on_write_fault(&mut self) {
        self.good = 0;
        self.touched = self.touched.saturating_add(1);
        // one among the first few, with none before, proves little
        let fresh = self.next_pause == FIRST_PAUSE;
        if self.touched.saturating_mul(ONE_IN) > self.blocks.max(if fresh { ONE_IN } else { 0 }) {
            self.stop();
        }
    }

    /// Records a block that could not be protected: the next ones cannot be either.
    pub(crate) fn refused(&mut self) {
        self.good = 0;
        self.stop();
    }

    fn stop(&mut self) {
        self.pause = self.next_pause;
        self.next_pause = self.next_pause.saturating_mul(2).min(MOST_PAUSE);
        (self.blocks, self.touched) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `blocks` blocks with write faults where `touch` is true. Returns the number of
    /// protected blocks.
    fn send(t: &mut FaultRate, blocks: u32, touch: impl Fn(u32) -> bool) -> u32 {
        let mut protected = 0;
        for n in 0..blocks {
            if t.may_protect() {
                t.began();
                protected += 1;
                if touch(n) {
                    t.on_write_fault();
                }
            }
        }
        protected
    }

    #[test]
    fn whoever_touches_nothing_is_never_slowed() {
        assert_eq!(send(&mut FaultRate::new(), 100_000, |_| false), 100_000);
    }

    #[test]
    fn now_and_then_is_no_reason() {
        assert_eq!(send(&mut FaultRate::new(), 10_000, |n| n % 10 == 9), 10_000);
        assert_eq!(send(&mut FaultRate::new(), 10_000, |n| n == 0), 10_000);
    }

    #[test]
    fn whoever_touches_all_is_synchronous() {
        let protected = send(&mut FaultRate::new(), 10_000, |_| true);
        assert!(protected <= 12, "{protected}");
    }

    #[test]
    fn every_fourth_is_too_often() {
        let protected = send(&mut FaultRate::new(), 10_000, |n| n % 4 == 0);
        assert!(protected < 1_000, "{protected}");
    }

    #[test]
    fn whoever_gets_better_is_believed() {
        let mut t = FaultRate::new();
        send(&mut t, 10_000, |_| true);
        // at most one longest pause, then as without faults
        send(&mut t, MOST_PAUSE + GOOD, |_| false);
        assert_eq!(send(&mut t, 1_000, |_| false), 1_000);
        assert_eq!(t.next_pause, FIRST_PAUSE);
    }

    #[test]
    fn what_cannot_be_protected_is_seldom_tried() {
        let mut t = FaultRate::new();
        let mut tried = 0;
        for _ in 0..10_000 {
            if t.may_protect() {
                tried += 1;
                t.refused();
            }
        }
        assert!(tried <= 10, "{tried}");
        assert!(tried >= 3, "{tried}");
    }
}

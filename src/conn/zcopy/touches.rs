// SPDX-License-Identifier: GPL-2.0-only

//! Decides if blocks are write-protected. Blocks are not protected if the program often writes to
//! memory soon after sending it.
//!
//! Sends of a connection stay asynchronous while at most one in eight blocks has a write fault.
//! After more write faults, sends are synchronous for a pause. Each consecutive pause is twice as
//! long as the one before. After the pause, a few protected blocks test again.

/// Points for a write fault. A block subtracts one point, so one block in eight may have a fault.
const FAULT: i32 = 8;
/// Lowest number of points: after many blocks without a fault, a few faults have no effect.
const LEAST: i32 = -64;
/// Number of points at which the length of the pause is reset.
const GOOD: i32 = -24;

/// Backoff of an action: skips `FIRST` to `MOST` attempts, and twice as many after each failure.
#[derive(Debug)]
pub(crate) struct Backoff<const FIRST: u32 = 1, const MOST: u32 = 64> {
    left: u32,
    next: u32,
}

impl<const FIRST: u32, const MOST: u32> Backoff<FIRST, MOST> {
    pub(crate) const fn new() -> Self {
        Backoff { left: 0, next: 0 }
    }

    /// Returns true if the action has to be skipped this time.
    pub(crate) fn skip(&mut self) -> bool {
        let skip = self.left > 0;
        self.left = self.left.saturating_sub(1);
        skip
    }

    pub(crate) fn failed(&mut self) {
        self.next = self.next.saturating_mul(2).clamp(FIRST, MOST);
        self.left = self.next;
    }

    pub(crate) fn worked(&mut self) {
        (self.left, self.next) = (0, 0);
    }
}

/// Rate of write faults on one connection.
#[derive(Debug)]
pub(crate) struct FaultRate {
    points: i32,
    /// Number of blocks to send synchronously.
    pause: Backoff<32, 4096>,
}

impl FaultRate {
    pub(crate) const fn new() -> Self {
        FaultRate {
            points: 0,
            pause: Backoff::new(),
        }
    }

    /// Returns true if the next block may be protected.
    pub(crate) fn may_protect(&mut self) -> bool {
        !self.pause.skip()
    }

    /// Records a block that is write-protected.
    pub(crate) fn began(&mut self) {
        self.points = self.points.saturating_sub(1).max(LEAST);
        if self.points <= GOOD {
            self.pause.worked();
        }
    }

    /// Records a write fault. The first write fault alone causes no pause.
    pub(crate) fn on_write_fault(&mut self) {
        self.points = self.points.saturating_add(FAULT);
        if self.points > FAULT {
            self.refused();
        }
    }

    /// Begins a pause, since protecting the next blocks would fail, too.
    pub(crate) fn refused(&mut self) {
        self.points = FAULT;
        self.pause.failed();
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
    fn now_and_then_is_no_reason() {
        assert_eq!(send(&mut FaultRate::new(), 10_000, |n| n % 10 == 9), 10_000);
        assert_eq!(send(&mut FaultRate::new(), 10_000, |n| n == 0), 10_000);
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
        // after at most one pause of maximum length, all sends are asynchronous again
        send(&mut t, 4096 + 32, |_| false);
        assert_eq!(send(&mut t, 1_000, |_| false), 1_000);
        assert_eq!(t.pause.next, 0);
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

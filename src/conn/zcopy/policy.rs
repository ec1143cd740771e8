// SPDX-License-Identifier: GPL-2.0-only

//! Whether a large send is copied or goes directly (zero copy).
//!
//! 1. A send of less than [`SMALLEST`] bytes is copied.
//! 2. Larger ones are told apart by their size: from 64 KiB on, from 256 KiB on, and from 1 MiB on. Of a call whose memory
//!    is scattered, each run that can be one memory region is a send, and the longest tells what the call's time is of.
//! 3. Of each size a connection keeps a *ratio*: the time that a direct send takes its caller, of that
//!    which a copied one takes.
//! 4. It goes directly if that is at most [`EQUAL`]: of two that take as long, this leaves the processor
//!    to others.
//! 5. A new connection has the ratio that is likely for its kind of device ([`Kind`]).
//! 6. Calls are timed. After so many bytes of them ([`FIRST_REST`]) the other way is tried for a few.
//! 7. The new ratio is the mean of the old one and of that which the trial gives.
//! 8. While trials change nothing, each comes after four times as many bytes as the one before, so that they
//!    cost next to nothing; one that does change the way is soon put to the test.
//! 9. What comes first after a change of the way is not timed, since it fills buffers, or drains them.
//! 10. Connections have nothing in common: what holds with one peer need not with another.

/// Sends below this many bytes are always copied: pinning and telling of them takes longer.
pub(crate) const SMALLEST: usize = 64 << 10;

/// Where the second and the third size begin.
const LARGER: usize = 256 << 10;
const LARGEST: usize = 1 << 20;

/// A ratio of 1.
const ONE: u64 = 1024;
/// 1.02: as good as equal, in what can be measured.
const EQUAL: u64 = ONE + ONE / 50;
/// Ratios that are likely before anything is known: a trial that tells otherwise by a fifth changes the way.
const LIKELY_DIRECT: u64 = ONE - ONE / 10;
const LIKELY_COPIED: u64 = ONE + ONE / 10;
/// No trial counts for more than a ratio of 2, or of a half: one that waits for a processor takes any time.
const MOST: u64 = 2 * ONE;
const LEAST: u64 = ONE / 2;

/// Bytes between two trials, at first and at most.
const FIRST_REST: u64 = 16 << 20;
const LONGEST_REST: u64 = 1 << 30;
/// Bytes that are timed of a trial.
const TRIAL: u64 = 1 << 20;
/// Bytes that are not, once sends go directly, and once they are copied again: the buffers of both ends
/// have to drain, or to be filled.
const DRAIN: u64 = 1 << 19;
const FILL: u64 = 2 << 20;
/// Bytes that the mean of the way in use reaches back, about.
const BACK: u64 = 8 << 20;

/// What carries a connection, as far as that tells which way is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An adapter, which copies nothing by the processor.
    Adapter,
    /// A device in software, such as rxe, for which the processor copies in any case.
    Software,
    /// Nothing: both ends are here, and a direct send is copied once instead of twice.
    Local,
}

impl Kind {
    /// The size from which direct sends are likely to be better. Counted with rxe their throughput is 0.76 of that of copying at
    /// 64 KiB and 1.06 at 1 MiB; adapters are told to break even between 64 and 256 KiB. Within one machine it is 0.67 at
    /// 64 KiB and 1.4 at 256 KiB, and by the clock 0.5 and 1.1.
    const fn begins(self) -> usize {
        match self {
            Kind::Adapter | Kind::Local => LARGER,
            Kind::Software => LARGEST,
        }
    }
}

/// What sends have cost lately.
#[derive(Clone, Copy, Debug)]
struct Cost {
    bytes: u64,
    /// Nanoseconds.
    time: u64,
}

impl Cost {
    const NOTHING: Self = Cost { bytes: 0, time: 0 };

    fn add(&mut self, bytes: u64, time: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.time = self.time.saturating_add(time);
        if self.bytes > BACK {
            (self.bytes, self.time) = (self.bytes / 2, self.time / 2);
        }
    }

    /// Nanoseconds for a page.
    fn of_page(&self) -> u64 {
        let pages = (self.bytes >> 12).max(1);
        self.time.checked_div(pages).unwrap_or(0)
    }
}

/// Sends of one size, on one connection.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// There were any.
    used: bool,
    /// See the head of this file; in [`ONE`]s.
    ratio: u64,
    /// The other way is tried.
    trying: bool,
    /// Bytes that are not timed.
    warm_up: u64,
    /// Bytes until the trial is over, or until the next one.
    left: u64,
    /// Bytes until the one after that.
    rest: u64,
    /// What the way costs that the ratio tells, and what the other one does.
    own: Cost,
    other: Cost,
}

impl Size {
    const fn new(likely: bool) -> Self {
        Size {
            used: false,
            ratio: match likely {
                true => LIKELY_DIRECT,
                false => LIKELY_COPIED,
            },
            trying: false,
            warm_up: FILL,
            left: FIRST_REST,
            rest: FIRST_REST,
            own: Cost::NOTHING,
            other: Cost::NOTHING,
        }
    }

    /// The way that the ratio tells.
    fn prefers_direct(&self) -> bool {
        self.ratio <= EQUAL
    }

    /// The way in use.
    fn is_direct(&self) -> bool {
        self.prefers_direct() != self.trying
    }

    fn sent(&mut self, bytes: u64, time: u64) {
        if self.warm_up > 0 {
            self.warm_up = self.warm_up.saturating_sub(bytes);
            return;
        }
        match self.trying {
            true => self.other.add(bytes, time),
            false => self.own.add(bytes, time),
        }
        self.left = self.left.saturating_sub(bytes.min(LARGEST as u64));
        let clear = self.trying
            && self.other.bytes >= TRIAL / 4
            && self.other.of_page() / 5 > self.own.of_page() / 4;
        if self.left > 0 && !clear {
            return;
        }
        let before = self.is_direct();
        if self.trying {
            self.judge();
        } else {
            (self.trying, self.left) = (true, TRIAL);
            self.other = Cost::NOTHING;
        }
        self.warm_up = match self.is_direct() {
            direct if direct == before => 0,
            true => DRAIN,
            false => FILL,
        };
    }

    /// A trial is over.
    fn judge(&mut self) {
        let before = self.prefers_direct();
        let (direct, copied) = match before {
            true => (self.own.of_page(), self.other.of_page()),
            false => (self.other.of_page(), self.own.of_page()),
        };
        let ratio = direct
            .saturating_mul(ONE)
            .checked_div(copied)
            .unwrap_or(ONE)
            .clamp(LEAST, MOST);
        self.ratio = (self.ratio + ratio) / 2;
        self.trying = false;
        if self.prefers_direct() != before {
            self.own = self.other;
        }
        self.rest = match (ratio <= EQUAL) == before {
            true => self.rest.saturating_mul(4).min(LONGEST_REST),
            false => FIRST_REST,
        };
        self.left = self.rest;
    }
}

/// What one connection goes by.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    sizes: [Size; 3],
}

impl Policy {
    /// That of a new connection.
    pub(crate) const fn new(kind: Kind) -> Self {
        let begins = kind.begins();
        Policy {
            sizes: [
                Size::new(SMALLEST >= begins),
                Size::new(LARGER >= begins),
                Size::new(LARGEST >= begins),
            ],
        }
    }

    fn size(&mut self, bytes: usize) -> Option<&mut Size> {
        let [large, larger, largest] = &mut self.sizes;
        match bytes {
            LARGEST.. => Some(largest),
            LARGER.. => Some(larger),
            SMALLEST.. => Some(large),
            _ => None,
        }
    }

    /// Whether a send of so many bytes is to go directly.
    pub(crate) fn is_direct(&mut self, bytes: usize) -> bool {
        self.size(bytes).is_some_and(|s| s.is_direct())
    }

    /// Such a send begins. Whether sends of any size that this connection has go directly now.
    pub(crate) fn begins(&mut self, bytes: usize) -> bool {
        if let Some(size) = self.size(bytes) {
            size.used = true;
        }
        self.sizes.iter().any(|s| s.used && s.is_direct())
    }

    /// A call that may wait has sent so many bytes, in so many nanoseconds, as [`is_direct`](Self::is_direct) said of so many
    /// of them, its longest run.
    pub(crate) fn sent(&mut self, run: usize, bytes: usize, time: u64) {
        if let Some(size) = self.size(run) {
            size.sent(bytes as u64, time);
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;

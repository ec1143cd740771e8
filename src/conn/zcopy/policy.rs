// SPDX-License-Identifier: GPL-2.0-only

//! Choice between copy and zero copy for large sends.
//!
//! 1. A send of less than [`SMALLEST`] bytes is copied.
//! 2. Larger sends form three classes: from 64 KiB, from 256 KiB, and from 1 MiB on. In a call with
//!    scattered memory, each segment that fits one memory region (a run) counts as a send. The
//!    longest run determines the class of the call's time.
//! 3. For each class a connection keeps a *ratio*: the time of a zero-copy send divided by the time
//!    of a copied send, both as the caller sees them.
//! 4. A send is zero copy if the ratio of its class is at most [`EQUAL`]: at equal times, zero copy
//!    leaves the processor to other tasks.
//! 5. A new connection starts with the typical ratio of its kind of device ([`Kind`]).
//! 6. The connection measures the time of its calls. After [`FIRST_REST`] bytes, a few sends try
//!    the other method.
//! 7. The ratio after a trial is the mean of the old ratio and the trial's ratio.
//! 8. While trials change nothing, the distance between two trials grows fourfold each time, so
//!    that trials cost little. A trial that changes the method is verified soon.
//! 9. The first bytes after a change of the method are not timed, since they fill or drain
//!    buffers.
//! 10. Connections share no results, since peers differ.

/// Size in bytes below which sends are always copied: pinning and advertising take longer.
pub(crate) const SMALLEST: usize = 64 << 10;

/// Minimum size of the second and third class in bytes.
const LARGER: usize = 256 << 10;
const LARGEST: usize = 1 << 20;

/// The fixed-point ratio 1.
const ONE: u64 = 1024;
/// Largest ratio that counts as equal, by measuring accuracy: 1.02.
const EQUAL: u64 = ONE + ONE / 50;
/// Initial ratios before any measurement. A trial that differs by a fifth changes the method.
const LIKELY_DIRECT: u64 = ONE - ONE / 10;
const LIKELY_COPIED: u64 = ONE + ONE / 10;
/// Bounds of a trial's ratio, 0.5 and 2: a single time is meaningless if the task had to wait for a
/// processor.
const MOST: u64 = 2 * ONE;
const LEAST: u64 = ONE / 2;

/// Bytes between two trials: initial value and maximum.
const FIRST_REST: u64 = 16 << 20;
const LONGEST_REST: u64 = 1 << 30;
/// Timed bytes of a trial.
const TRIAL: u64 = 1 << 20;
/// Untimed bytes after a change to zero copy, while buffers drain, and to copying, while they fill.
const DRAIN: u64 = 1 << 19;
const FILL: u64 = 2 << 20;
/// Approximate number of bytes over which the mean cost of the current method is taken.
const BACK: u64 = 8 << 20;

/// Kind of device, for the initial ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Hardware adapter: with zero copy, the processor copies nothing.
    Adapter,
    /// Software device, such as rxe: the processor copies in either case.
    Software,
    /// Local connection: zero copy means one copy instead of two.
    Local,
}

impl Kind {
    /// Returns the size from which zero copy is likely to be faster. With rxe, instruction-counted,
    /// zero copy has 0.76 of the throughput of copying at 64 KiB, and 1.06 at 1 MiB. Adapters are
    /// reported to break even between 64 and 256 KiB. On local connections, zero copy has 0.5 of
    /// the throughput of copying at 256 KiB by the clock, and 0.8 at 1 MiB with less processor
    /// time.
    const fn begins(self) -> usize {
        match self {
            Kind::Adapter => LARGER,
            Kind::Software | Kind::Local => LARGEST,
        }
    }
}

/// Recent cost of sends.
#[derive(Clone, Copy, Debug)]
struct Cost {
    bytes: u64,
    /// Time of the sends in nanoseconds.
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

    /// Returns the mean cost in nanoseconds per page.
    fn of_page(&self) -> u64 {
        let pages = (self.bytes >> 12).max(1);
        self.time.checked_div(pages).unwrap_or(0)
    }
}

/// State of one class of sends on one connection.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Set once a send of this class was seen.
    used: bool,
    /// Ratio of the class, as defined at the head of this file, in units of [`ONE`].
    ratio: u64,
    /// Set while a trial of the other method is in progress.
    trying: bool,
    /// Number of bytes that are still sent untimed.
    warm_up: u64,
    /// Number of bytes until the end of the trial, or until the next trial.
    left: u64,
    /// Number of bytes between the next trial and the following one.
    rest: u64,
    /// Cost of the method that the ratio selects, and of the other method.
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

    /// Returns true if the ratio selects zero copy.
    fn prefers_direct(&self) -> bool {
        self.ratio <= EQUAL
    }

    /// Returns true if zero copy is in use.
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
        self.ratio = self.ratio.midpoint(ratio);
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

/// Measurements and choices of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    sizes: [Size; 3],
}

impl Policy {
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

    /// Returns true if a send of this many bytes is zero copy.
    pub(crate) fn is_direct(&mut self, bytes: usize) -> bool {
        self.size(bytes).is_some_and(|s| s.is_direct())
    }

    /// Begins a send of this many bytes. Returns true if sends of any class are zero copy now.
    pub(crate) fn begins(&mut self, bytes: usize) -> bool {
        if let Some(size) = self.size(bytes) {
            size.used = true;
        }
        self.sizes.iter().any(|s| s.used && s.is_direct())
    }

    /// Records the time of a blocking call in nanoseconds. The call's longest run has `run` bytes,
    /// for which [`Self::is_direct`] chose the method.
    pub(crate) fn sent(&mut self, run: usize, bytes: usize, time: u64) {
        if let Some(size) = self.size(run) {
            size.sent(bytes as u64, time);
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;

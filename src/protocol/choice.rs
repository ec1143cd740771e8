// SPDX-License-Identifier: GPL-2.0-only

//! Whether large sends are copied or go directly (zero copy), by what each has cost lately.
//!
//! A [`Choice`] is what one connection has learnt about that, for sends of three sizes. Both ways are
//! timed in turn over some megabytes ([`EPOCH`]; less, if one is clearly worse), and the cheaper one is kept for a while, before the
//! other is tried again: after [`FIRST_REST`] epochs at first, and each time that brings nothing new
//! after twice as many. The next connection goes on where this one was ([`Learnt`]). So what trying costs vanishes. Between about equals direct transfer wins,
//! because it leaves the processor to others; what seems better is compared twice, before and after. A program that makes pauses between its sends is not
//! waiting for the network: its sends are copied.

/// Sends below this many bytes are always copied.
pub const SMALLEST: usize = 64 << 10;

/// Sends from this many bytes on are learnt about for themselves, and from this many.
const LARGER: usize = 256 << 10;
const LARGEST: usize = 1 << 20;

/// Bytes and nanoseconds over which a way is timed, at least.
const EPOCH: u64 = 2 << 20;
const EPOCH_TIME: u64 = 5_000_000;
/// Calls over which it is timed, at least.
const EPOCH_CALLS: u32 = 4;
/// Bytes after a change that tell nothing yet: buffers fill or drain.
const WARM_UP: u64 = 1 << 19;
/// Nanoseconds between two calls beyond which an epoch begins anew.
const PAUSE: u64 = 1_000_000;
/// Epochs until the other way is tried again, at first and at most.
const FIRST_REST: u32 = 16;
const LONGEST_REST: u32 = 1024;
/// Direct transfer may cost so many percent of what copying costs.
const EQUAL: u64 = 102;

/// What is being found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// What the way costs that is in use, before anything else is known.
    First,
    /// What the other one costs.
    Other,
    /// Whether the first one, which is in use again, still costs more: connections disturb each other.
    Again,
    /// Nothing, for so many epochs more.
    Settled(u32),
}

/// What is known of sends of one range of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learnt {
    /// Direct transfer is the better way.
    pub direct: bool,
    /// What the other way cost, in nanoseconds for 4 KiB.
    other: u32,
    /// Epochs until that is tried again.
    left: u16,
    /// Length of the rest after that, if it brings nothing new.
    rest: u16,
}

impl Learnt {
    /// As a number, to be kept where others can read it; 0: nothing is known.
    pub fn pack(known: Option<Self>) -> u64 {
        known.map_or(0, |k| {
            let flags = 2 | u64::from(k.direct);
            let times = (u64::from(k.left & Self::MASK) << 15) | u64::from(k.rest & Self::MASK);
            (flags << 62) | (times << 32) | u64::from(k.other)
        })
    }

    /// What [`pack`](Self::pack) has packed.
    pub fn unpack(packed: u64) -> Option<Self> {
        let time = |shift: u32| (packed >> shift) as u16 & Self::MASK;
        (packed >> 63 != 0).then_some(Learnt {
            direct: (packed >> 62) & 1 != 0,
            other: packed as u32,
            left: time(47),
            rest: time(32),
        })
    }

    const MASK: u16 = 0x7fff;
}

/// Sends of one range of sizes.
#[derive(Clone, Copy, Debug)]
struct Class {
    phase: Phase,
    /// The way in use.
    direct: bool,
    /// What the other way cost when it was used last, in nanoseconds for 4 KiB.
    other: u64,
    /// Length of the next rest.
    rest: u32,
    /// When the epoch began; when the last call ended.
    since: u64,
    last: u64,
    /// Bytes of the epoch, and calls.
    bytes: u64,
    calls: u32,
    /// Bytes until it begins.
    warm_up: u64,
}

impl Class {
    /// `known`: what was found out elsewhere.
    const fn new(known: Option<Learnt>) -> Self {
        // as long as the cost of the other way is not known, it is dear
        let (phase, direct, other, rest) = match known {
            Some(k) => {
                let phase = Phase::Settled(k.left as u32);
                (phase, k.direct, k.other as u64, k.rest as u32)
            }
            None => (Phase::First, false, u64::MAX, FIRST_REST),
        };
        Class {
            phase,
            direct,
            other,
            rest,
            since: 0,
            last: 0,
            bytes: 0,
            calls: 0,
            warm_up: WARM_UP,
        }
    }

    /// What is known by now.
    fn learnt(&self) -> Option<Learnt> {
        let Phase::Settled(left) = self.phase else {
            return None;
        };
        let short = |n: u32| u16::try_from(n.min(LONGEST_REST)).unwrap_or(0);
        Some(Learnt {
            direct: self.direct,
            other: u32::try_from(self.other).unwrap_or(u32::MAX),
            left: short(left),
            rest: short(self.rest),
        })
    }

    fn begin(&mut self, now: u64) {
        (self.since, self.bytes, self.calls) = (now, 0, 0);
    }

    /// A call of so many bytes lasted from `start` to `end`.
    fn sent(&mut self, bytes: u64, start: u64, end: u64) {
        let pause = start.saturating_sub(self.last) > PAUSE;
        self.last = end;
        if pause {
            self.begin(start);
        }
        if self.warm_up > 0 {
            self.warm_up = self.warm_up.saturating_sub(bytes);
            self.begin(end);
            return;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.calls = self.calls.saturating_add(1);
        let time = end.saturating_sub(self.since);
        let pages = (self.bytes >> 12).max(1);
        let cost = time.checked_div(pages).unwrap_or(0);
        let clear =
            self.phase == Phase::Other && self.bytes >= EPOCH / 4 && cost / 3 > self.other / 2;
        let enough = self.bytes >= EPOCH || clear;
        if enough && self.calls >= EPOCH_CALLS && time >= EPOCH_TIME {
            self.measured(cost);
            self.begin(end);
        }
    }

    /// The way in use has cost so much.
    fn measured(&mut self, cost: u64) {
        match self.phase {
            Phase::First => self.change(Phase::Other, cost),
            Phase::Settled(1..) if !self.is_good(cost) => self.change(Phase::Other, cost),
            Phase::Settled(0) => self.change(Phase::Other, cost),
            Phase::Settled(n) => self.phase = Phase::Settled(n.saturating_sub(1)),
            Phase::Other if self.is_good(cost) => self.change(Phase::Again, cost),
            Phase::Other => {
                let rest = self.longer_rest();
                self.change(Phase::Settled(rest), cost);
            }
            Phase::Again if self.is_good(cost) => self.phase = Phase::Settled(self.longer_rest()),
            Phase::Again => {
                self.rest = FIRST_REST;
                self.change(Phase::Settled(FIRST_REST), cost);
            }
        }
    }

    /// The rest that is due now; the next one is twice as long.
    fn longer_rest(&mut self) -> u32 {
        let next = self.rest.saturating_mul(2).min(LONGEST_REST);
        core::mem::replace(&mut self.rest, next)
    }

    /// Whether the way in use is the better one at this cost.
    fn is_good(&self, cost: u64) -> bool {
        let (cost, other) = (u128::from(cost), u128::from(self.other));
        let equal = u128::from(EQUAL);
        if self.direct {
            cost * 100 <= other * equal
        } else {
            cost * equal < other * 100
        }
    }

    /// Takes the other way, after this one has cost so much.
    fn change(&mut self, phase: Phase, cost: u64) {
        self.phase = phase;
        self.direct = !self.direct;
        self.other = cost;
        self.warm_up = WARM_UP;
    }
}

/// What one connection has learnt.
#[derive(Clone, Debug)]
pub struct Choice {
    classes: [Class; 3],
}

impl Default for Choice {
    fn default() -> Self {
        Self::new()
    }
}

impl Choice {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        Self::with([None; 3])
    }

    /// Begins with what another connection has [learnt](Self::learnt), and goes on with it: else
    /// connections that come and go would spend all their time on trying.
    pub const fn with(known: [Option<Learnt>; 3]) -> Self {
        let [large, larger, largest] = known;
        Choice {
            classes: [Class::new(large), Class::new(larger), Class::new(largest)],
        }
    }

    /// What is known for sends of each range of sizes.
    pub fn learnt(&self) -> [Option<Learnt>; 3] {
        self.classes.map(|c| c.learnt())
    }

    fn class(&mut self, bytes: usize) -> Option<&mut Class> {
        let [large, larger, largest] = &mut self.classes;
        if bytes < SMALLEST {
            None
        } else if bytes < LARGER {
            Some(large)
        } else if bytes < LARGEST {
            Some(larger)
        } else {
            Some(largest)
        }
    }

    /// Whether a send of so many bytes is to go directly.
    pub fn direct(&mut self, bytes: usize) -> bool {
        self.class(bytes).is_some_and(|c| c.direct)
    }

    /// Whether sends of any size go directly now.
    pub fn any_direct(&self) -> bool {
        self.classes.iter().any(|c| c.direct)
    }

    /// A call that may wait has sent so many bytes as [`direct`](Self::direct) said, and lasted from
    /// `start` to `end`, in nanoseconds by one clock.
    pub fn sent(&mut self, bytes: usize, start: u64, end: u64) {
        if let Some(class) = self.class(bytes) {
            class.sent(bytes as u64, start, end);
        }
    }
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;

// SPDX-License-Identifier: GPL-2.0-only

//! Whether large sends are copied or go directly (zero copy), by what each has cost lately.
//!
//! A [`Choice`] is what one connection goes by there, for sends of three sizes. Both ways are
//! timed in turn over some megabytes ([`EPOCH`]; less, if one is clearly worse), and the cheaper one is kept for a while, before the
//! other is tried again: after [`FIRST_REST`] epochs at first, and each time that brings nothing new
//! after twice as many. So what trying costs vanishes. Between about equals direct transfer wins,
//! because it leaves the processor to others; what seems better is compared twice, before and after. A program that makes pauses between its sends is not
//! waiting for the network: its sends are copied.
//!
//! The next connection goes on where this one was, in the middle of an epoch if need be ([`Learnt`]): those that
//! end after a few sends find out together what none of them could by itself. Of several at once the one counts that has come furthest.

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
/// Bytes that tell nothing yet, after a change, a pause and at the beginning: buffers fill, grow or drain.
const WARM_UP: u64 = 1 << 19;
/// A call of so many bytes counts nevertheless, where it does not follow a change: it is nearly all there is of some connections.
const LONG_CALL: u64 = WARM_UP << 4;
/// Bytes that told nothing after which a trial is given up: the programs that send now would not end it.
const MOST_UNTOLD: u64 = 64 << 20;
/// Nanoseconds between two calls beyond which that is a pause.
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
    phase: Phase,
    /// The way in use.
    direct: bool,
    /// What the other way cost when it was used last, in nanoseconds for 4 KiB.
    other: u64,
    /// Length of the next rest.
    rest: u32,
    /// Epochs until now.
    epochs: u64,
    /// Of the one that is not over: bytes, the nanoseconds that they took, and calls.
    bytes: u64,
    time: u64,
    calls: u32,
    /// Bytes beside it that told nothing.
    untold: u64,
}

impl Learnt {
    /// Nothing is known yet.
    pub const NOTHING: Self = Learnt {
        phase: Phase::First,
        direct: false,
        // as long as it is not known, it is dear
        other: u64::MAX,
        rest: FIRST_REST,
        epochs: 0,
        bytes: 0,
        time: 0,
        calls: 0,
        untold: 0,
    };

    /// Takes what another connection knows, if that has come further: whoever has only begun does not
    /// undo what others have found out.
    pub fn update(&mut self, other: &Self) {
        let come = |k: &Self| (k.epochs, k.bytes, k.untold);
        if come(other) > come(self) {
            *self = *other;
        }
    }

    /// So many bytes more were sent of which nothing can be told. Whether another way is in use now.
    fn skip(&mut self, bytes: u64) -> bool {
        self.untold = self.untold.saturating_add(bytes);
        self.phase == Phase::Other && self.untold >= MOST_UNTOLD && self.end(u64::MAX)
    }

    /// So many bytes more went the way in use, in so many nanoseconds. Whether another one is now.
    fn add(&mut self, bytes: u64, time: u64) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.time = self.time.saturating_add(time);
        self.calls = self.calls.saturating_add(1);
        let pages = (self.bytes >> 12).max(1);
        let cost = self.time.checked_div(pages).unwrap_or(0);
        let clear =
            self.phase == Phase::Other && self.bytes >= EPOCH / 4 && cost / 3 > self.other / 2;
        let enough = self.bytes >= EPOCH || clear;
        enough && self.calls >= EPOCH_CALLS && self.time >= EPOCH_TIME && self.end(cost)
    }

    /// The epoch is over. Whether another way is in use now.
    fn end(&mut self, cost: u64) -> bool {
        let before = self.direct;
        self.measured(cost);
        self.epochs = self.epochs.saturating_add(1);
        (self.bytes, self.time, self.calls, self.untold) = (0, 0, 0, 0);
        self.direct != before
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
    }
}

/// Sends of one range of sizes, on one connection.
#[derive(Clone, Copy, Debug)]
struct Class {
    learnt: Learnt,
    /// When the last call ended.
    last: u64,
    /// Bytes until they tell something.
    warm_up: u64,
}

impl Class {
    const fn new(learnt: Learnt) -> Self {
        Class {
            learnt,
            last: 0,
            warm_up: WARM_UP,
        }
    }

    /// A call of so many bytes lasted from `start` to `end`. Whether an epoch is over with it.
    fn sent(&mut self, bytes: u64, start: u64, end: u64) -> bool {
        let epochs = self.learnt.epochs;
        let mut since = core::mem::replace(&mut self.last, end);
        if start.saturating_sub(since) > PAUSE {
            since = start;
            self.warm_up = if bytes < LONG_CALL { WARM_UP } else { 0 };
        }
        let changed = if self.warm_up > 0 {
            self.warm_up = self.warm_up.saturating_sub(bytes);
            self.learnt.skip(bytes)
        } else {
            self.learnt.add(bytes, end.saturating_sub(since))
        };
        if changed {
            self.warm_up = WARM_UP;
        }
        self.learnt.epochs != epochs
    }
}

/// What one connection goes by.
#[derive(Clone, Debug)]
pub struct Choice {
    classes: [Class; 3],
}

impl Choice {
    /// Begins with what other connections have [learnt](Self::learnt), and goes on with it.
    pub const fn with(known: [Learnt; 3]) -> Self {
        let [large, larger, largest] = known;
        Choice {
            classes: [Class::new(large), Class::new(larger), Class::new(largest)],
        }
    }

    /// What is known for sends of each range of sizes.
    pub fn learnt(&self) -> [Learnt; 3] {
        self.classes.map(|c| c.learnt)
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
        self.class(bytes).is_some_and(|c| c.learnt.direct)
    }

    /// Whether sends of any size go directly now.
    pub fn any_direct(&self) -> bool {
        self.classes.iter().any(|c| c.learnt.direct)
    }

    /// A call that may wait has sent so many bytes as [`direct`](Self::direct) said, and lasted from
    /// `start` to `end`, in nanoseconds by one clock. Whether something has come of it that others
    /// should know before this connection ends.
    pub fn sent(&mut self, bytes: usize, start: u64, end: u64) -> bool {
        self.class(bytes)
            .is_some_and(|class| class.sent(bytes as u64, start, end))
    }
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;

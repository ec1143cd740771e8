// SPDX-License-Identifier: GPL-2.0-only

//! Whether large sends are copied or go directly (zero copy), by what each has cost lately.
//!
//! A [`Choice`] is what one connection goes by there, for sends of three sizes. Both ways are timed in
//! turn over some megabytes ([`EPOCH`]; less, if one is clearly worse), and the cheaper one is kept for a
//! while, before the other is tried again: after [`FIRST_REST`] epochs at first, and each time that
//! brings nothing new after twice as many; or sooner, where the way in use becomes dear. So what trying
//! costs vanishes. A program that makes pauses between its sends is not waiting for the network: they
//! tell nothing, and are copied as long as nothing is known.
//!
//! An epoch tells little by itself: a call that has to wait for a processor makes it several times as
//! dear, and the machine may be twice as slow for a second. So a way gets a vote only where it was
//! cheaper than the other one was both before and after, and loses one where it was dearer than both.
//! [`VOTES`] decide, or whether there is one after [`MOST_ROUNDS`]. Between equals direct transfer
//! wins, because it leaves the processor to others.
//!
//! The next connection goes on where this one was, in the middle of an epoch if need be ([`Learnt`]):
//! those that end after a few sends find out together what none of them could by itself. Of several at
//! once the one counts that has come furthest.

/// Sends below this many bytes are always copied.
pub const SMALLEST: usize = 64 << 10;

/// Sends from this many bytes on are learnt about for themselves, and from this many.
const LARGER: usize = 256 << 10;
const LARGEST: usize = 1 << 20;

/// Bytes and nanoseconds over which a way is timed, at least.
const EPOCH: u64 = 2 << 20;
const EPOCH_TIME: u64 = 5_000_000;
/// Calls over which it is timed, at least.
const EPOCH_CALLS: u32 = 2;
/// Bytes that tell nothing yet, after a pause and at the beginning, where buffers grow, and once sends
/// go directly, where they drain.
const WARM_UP: u64 = 1 << 19;
/// The same once sends are copied again, where buffers fill for nearly nothing: the sender's and the
/// receiver's.
const WARM_UP_COPYING: u64 = 2 << 20;
/// A call of so many bytes counts nevertheless, after a pause and at the beginning: it is nearly all
/// there is of some connections.
const LONG_CALL: u64 = WARM_UP << 4;
/// Bytes that told nothing after which a trial is given up: the programs that send now would not end it.
const MOST_UNTOLD: u64 = 64 << 20;
/// Nanoseconds between two calls beyond which that is a pause, if it is also more than this part of the
/// call behind it.
const PAUSE: u64 = 1_000_000;
const PAUSE_PART: u64 = 8;
/// Epochs until the other way is tried again, at first and at most.
const FIRST_REST: u32 = 32;
const LONGEST_REST: u32 = 1024;
/// Direct transfer may cost so many percent of what copying costs.
const EQUAL: u64 = 102;
/// How many times more a way has to be cheaper than dearer, or the reverse, to decide a trial.
const VOTES: i8 = 2;
/// How often it is tried for that, at most.
const MOST_ROUNDS: u8 = 5;
/// Epochs in a row in which the way in use is dearer than the other one was, before that is tried early:
/// at first, and after early trials that have brought nothing.
const FIRST_DEAR: u8 = 2;
const MOST_DEAR: u8 = 64;

/// What is being found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// What the way costs that is in use, before anything else is known.
    First,
    /// What the other one costs, which is in use for this.
    Other(Trial),
    /// What the first one costs, which is in use again: connections disturb each other.
    Again(Trial),
    /// Nothing, for so many epochs more.
    Settled(u32),
}

/// How a trial of the other way stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trial {
    /// What the way before has cost last, in nanoseconds for 4 KiB.
    before: u64,
    /// How many times the other one was cheaper, less those that it was dearer.
    votes: i8,
    /// How many times it was used for that.
    rounds: u8,
    /// The least that it has cost.
    least: u64,
    /// It has begun before its time.
    early: bool,
}

/// What is known of sends of one range of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learnt {
    phase: Phase,
    /// The way in use.
    direct: bool,
    /// What the other way cost when it was used last, in nanoseconds for 4 KiB. While it is tried, the
    /// way that is tried.
    other: u64,
    /// Epochs in a row that were dearer than that.
    dear: u8,
    /// How many of them begin an early trial.
    most_dear: u8,
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
        dear: 0,
        most_dear: FIRST_DEAR,
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
        // a call may be that long by itself
        let before = self.untold;
        self.untold = before.saturating_add(bytes);
        match self.phase {
            Phase::Other(trial) if before >= MOST_UNTOLD => {
                self.direct = !self.direct;
                self.stay(&trial);
                self.next_epoch();
                true
            }
            _ => false,
        }
    }

    /// So many bytes more went the way in use, in so many nanoseconds. Whether another one is now.
    fn add(&mut self, bytes: u64, time: u64) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.time = self.time.saturating_add(time);
        self.calls = self.calls.saturating_add(1);
        let pages = (self.bytes >> 12).max(1);
        let cost = self.time.checked_div(pages).unwrap_or(0);
        let clear = match self.phase {
            Phase::Other(trial) => self.bytes >= EPOCH / 4 && cost / 3 > trial.before / 2,
            _ => false,
        };
        let enough = self.bytes >= EPOCH || clear;
        if !enough || self.calls < EPOCH_CALLS || self.time < EPOCH_TIME {
            return false;
        }
        let before = self.direct;
        self.measured(cost);
        self.next_epoch();
        self.direct != before
    }

    fn next_epoch(&mut self) {
        self.epochs = self.epochs.saturating_add(1);
        (self.bytes, self.time, self.calls, self.untold) = (0, 0, 0, 0);
    }

    /// The way in use has cost so much.
    fn measured(&mut self, cost: u64) {
        match self.phase {
            Phase::First => self.begin_trial(cost, false),
            Phase::Settled(rest) => {
                self.dear = match is_better(self.direct, cost, self.other) {
                    true => 0,
                    false => self.dear.saturating_add(1),
                };
                match rest.checked_sub(1) {
                    None => self.begin_trial(cost, false),
                    Some(_) if self.dear >= self.most_dear => self.begin_trial(cost, true),
                    Some(rest) => self.phase = Phase::Settled(rest),
                }
            }
            Phase::Other(mut trial) => {
                self.other = cost;
                trial.least = trial.least.min(cost);
                self.take_other(Phase::Again(trial));
            }
            Phase::Again(trial) => self.judge(trial, cost),
        }
    }

    /// The other way is to be tried; the one in use has cost so much.
    fn begin_trial(&mut self, before: u64, early: bool) {
        self.take_other(Phase::Other(Trial {
            before,
            votes: 0,
            rounds: 0,
            least: u64::MAX,
            early,
        }));
    }

    /// A round of a trial is over: the way that was in use before has cost so much after it.
    fn judge(&mut self, mut trial: Trial, after: u64) {
        let tried = self.other;
        let beats = |cost: u64| is_better(!self.direct, tried, cost);
        match (beats(trial.before), beats(after)) {
            (true, true) => trial.votes += 1,
            (false, false) => trial.votes -= 1,
            _ => {}
        }
        trial.rounds += 1;
        trial.before = after;
        let is_over = trial.votes.abs() >= VOTES || trial.rounds >= MOST_ROUNDS;
        if !is_over {
            self.take_other(Phase::Other(trial));
        } else if trial.votes > 0 || trial.votes == 0 && !self.direct {
            self.other = after;
            self.rest = FIRST_REST;
            (self.dear, self.most_dear) = (0, FIRST_DEAR);
            self.take_other(Phase::Settled(FIRST_REST));
        } else {
            self.stay(&trial);
        }
    }

    /// A trial has brought nothing new: the next one of its kind comes after twice as long.
    fn stay(&mut self, trial: &Trial) {
        let rest = self.rest;
        if trial.early {
            self.most_dear = self.most_dear.saturating_mul(2).min(MOST_DEAR);
        } else {
            self.rest = rest.saturating_mul(2).min(LONGEST_REST);
        }
        self.phase = Phase::Settled(rest);
        self.other = trial.least;
        self.dear = 0;
    }

    fn take_other(&mut self, phase: Phase) {
        self.phase = phase;
        self.direct = !self.direct;
    }
}

/// Whether a way, `direct` or not, is the better one where it costs so much and the other one `than`.
fn is_better(direct: bool, cost: u64, than: u64) -> bool {
    let (cost, than) = (u128::from(cost), u128::from(than));
    let equal = u128::from(EQUAL);
    if direct {
        cost * 100 <= than * equal
    } else {
        cost * equal < than * 100
    }
}

/// Sends of one range of sizes, on one connection.
#[derive(Clone, Copy, Debug)]
struct Class {
    learnt: Learnt,
    /// Bytes until they tell something.
    warm_up: u64,
}

impl Class {
    const fn new(learnt: Learnt) -> Self {
        Class {
            learnt,
            warm_up: WARM_UP,
        }
    }

    /// A call of so many bytes lasted from `start` to `end`, and the one before it, of any size, until
    /// `last`. Whether an epoch is over with it.
    fn sent(&mut self, bytes: u64, last: u64, start: u64, end: u64) -> bool {
        let epochs = self.learnt.epochs;
        let mut since = last;
        let part = end.saturating_sub(start) / PAUSE_PART;
        if start.saturating_sub(last) > PAUSE.max(part) {
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
            self.warm_up = match self.learnt.direct {
                true => WARM_UP,
                false => WARM_UP_COPYING,
            };
        }
        self.learnt.epochs != epochs
    }
}

/// What one connection goes by.
#[derive(Clone, Debug)]
pub struct Choice {
    classes: [Class; 3],
    /// When the last call ended.
    last: u64,
}

impl Choice {
    /// Begins with what other connections have [learnt](Self::learnt), and goes on with it.
    pub const fn with(known: [Learnt; 3]) -> Self {
        let [large, larger, largest] = known;
        Choice {
            classes: [Class::new(large), Class::new(larger), Class::new(largest)],
            last: 0,
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
        let last = core::mem::replace(&mut self.last, end);
        self.class(bytes)
            .is_some_and(|class| class.sent(bytes as u64, last, start, end))
    }
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;

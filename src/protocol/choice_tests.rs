// SPDX-License-Identifier: GPL-2.0-only

//! Tests of [`super`]: a sender for whom each way has a price.

use super::super::random_tests::Random;
use super::*;

const MIB: usize = 1 << 20;

/// A program that sends all the time.
struct Sender {
    choice: Choice,
    now: u64,
    /// Nanoseconds for a mebibyte, copied and directly.
    prices: [u64; 2],
    /// Bytes that went each way.
    went: [u64; 2],
    /// How many times its price the first send of a connection costs, copied and directly.
    first: [f64; 2],
}

impl Sender {
    fn new(copied: u64, directly: u64) -> Self {
        Sender {
            choice: Choice::with([Learnt::NOTHING; 3]),
            now: 1 << 40,
            prices: [copied, directly],
            went: [0; 2],
            first: [1.0; 2],
        }
    }

    fn send(&mut self, size: usize, pause: u64) -> bool {
        self.now += pause;
        self.send_at(size, [1.0; 2])
    }

    /// A send that costs so many times its price.
    fn send_at(&mut self, size: usize, times: [f64; 2]) -> bool {
        let direct = self.choice.direct(size);
        let start = self.now;
        let price = self.prices[usize::from(direct)] as f64 * times[usize::from(direct)];
        let end = start + (price * size as f64 / MIB as f64) as u64;
        self.choice.sent(size, start, end);
        self.now = end;
        self.went[usize::from(direct)] += size as u64;
        direct
    }

    /// So many connections one after the other, of so many sends each: what share of the bytes went
    /// directly.
    fn connect(&mut self, connections: usize, sends: usize, size: usize) -> f64 {
        let before = self.went;
        for _ in 0..connections {
            self.choice = Choice::with(self.choice.learnt());
            self.now += 1_000_000_000;
            for send in 0..sends {
                self.send_at(size, if send == 0 { self.first } else { [1.0; 2] });
            }
        }
        let [copied, directly] = [0, 1].map(|way| self.went[way] - before[way]);
        directly as f64 / (copied + directly) as f64
    }

    fn send_all(&mut self, size: usize, bytes: usize) -> f64 {
        let (start, before) = (self.now, self.went);
        let mut left = bytes;
        while left > 0 {
            self.send(size, 0);
            left = left.saturating_sub(size);
        }
        assert!(self.now > start);
        (self.went[1] - before[1]) as f64 / bytes as f64
    }
}

#[test]
fn small_sends_are_copied() {
    let mut s = Sender::new(10_000_000, 1_000_000);
    assert_eq!(s.send_all(SMALLEST - 1, 100 * MIB), 0.0);
}

#[test]
fn the_first_sends_are_copied() {
    let mut s = Sender::new(10_000_000, 1_000_000);
    assert_eq!(s.send_all(MIB, 2 * MIB), 0.0);
}

#[test]
fn the_cheaper_way_is_found() {
    for size in [SMALLEST, 300_000, MIB, 16 * MIB] {
        let mut s = Sender::new(10_000_000, 8_000_000);
        s.send_all(size, 300 * MIB);
        assert!(s.send_all(size, 2000 * MIB) > 0.95, "{size}: direct");
        let mut s = Sender::new(8_000_000, 10_000_000);
        s.send_all(size, 300 * MIB);
        // (an epoch of large sends is two of them)
        assert!(s.send_all(size, 6000 * MIB) < 0.05, "{size}: copied");
    }
}

#[test]
fn a_trial_in_a_lucky_moment_changes_nothing() {
    let mut s = Sender::new(8_000_000, 10_000_000);
    s.send_all(MIB, 20 * MIB);
    for _ in 0..20 {
        // all is dear for a while, till the other way is tried
        s.prices = [16_000_000, 12_500_000];
        while !s.send(MIB, 0) {}
        s.prices = [8_000_000, 10_000_000];
        while s.send(MIB, 0) {}
        assert!(s.send_all(MIB, 40 * MIB) < 0.3);
    }
}

#[test]
fn trying_costs_less_and_less() {
    let mut s = Sender::new(10_000_000, 20_000_000);
    s.send_all(MIB, 5000 * MIB);
    assert!(s.send_all(MIB, 5000 * MIB) < 0.01);
}

#[test]
fn equals_go_directly() {
    let mut s = Sender::new(10_000_000, 10_100_000);
    s.send_all(MIB, 200 * MIB);
    assert!(s.send_all(MIB, 500 * MIB) > 0.9);
}

#[test]
fn what_becomes_dear_is_given_up_at_once() {
    let mut s = Sender::new(10_000_000, 8_000_000);
    s.send_all(MIB, 1000 * MIB);
    s.prices = [10_000_000, 30_000_000];
    s.send_all(MIB, 20 * MIB);
    assert!(s.send_all(MIB, 100 * MIB) < 0.1);
}

#[test]
fn what_becomes_cheap_is_found_again() {
    let mut s = Sender::new(8_000_000, 10_000_000);
    s.send_all(MIB, 1000 * MIB);
    s.prices = [8_000_000, 4_000_000];
    s.send_all(MIB, 6000 * MIB);
    assert!(s.send_all(MIB, 500 * MIB) > 0.9);
}

#[test]
fn noise_does_not_decide() {
    let mut shares = 0.0;
    for (seed, (directly, better)) in [(8_000_000, 1), (12_500_000, 0), (20_000_000, 0)]
        .into_iter()
        .cycle()
        .take(90)
        .enumerate()
    {
        let mut random = Random(seed as u64);
        let mut s = Sender::new(10_000_000, directly);
        // left of a slow phase, and how slow everything is just now
        let (mut slow, mut now) = (0, 0.0);
        for send in 0..12_000_u32 {
            slow = match slow {
                0 if random.below(300) == 0 => 1 + random.below(100),
                0 => 0,
                n => n - 1,
            };
            if send % 12 == 0 {
                now = 0.6 + random.below(800) as f64 / 1000.0;
            }
            let mut times = now;
            if slow > 0 {
                times *= 1.7;
            }
            // a wait for a processor; the first sends of a connection have several
            if random.below(400) == 0 || send % 1000 < 3 {
                times *= 30.0;
            }
            if send % 1000 == 0 {
                s.choice = Choice::with(s.choice.learnt());
                s.now += 1_000_000_000;
            }
            s.send_at(256 << 10, [times; 2]);
        }
        shares += s.went[better] as f64 / (s.went[0] + s.went[1]) as f64;
    }
    let share = shares / 90.0;
    assert!(share > 0.945, "{share}");
}

#[test]
fn what_buffers_take_in_does_not_count() {
    // they hold 2 MiB, and the link takes 25 ms for one of them, or 10 % less if they are not used
    for size in [64 << 10, 256 << 10, MIB] {
        let mut choice = Choice::with([Learnt::NOTHING; 3]);
        let (mut now, mut buffered, mut went) = (1 << 40, 0.0, [0; 2]);
        for send in 0..40 * 1024 * MIB / size / 8 {
            let direct = choice.direct(size);
            let mib = size as f64 / MIB as f64;
            let took = if direct {
                25.0 * buffered + 22.5 * mib
            } else {
                // what does not fit has to wait
                (25.0 * (buffered + mib - 2.0)).max(0.2 * mib)
            };
            buffered = match direct {
                true => 0.0,
                false => buffered + mib - took / 25.0,
            };
            let end = now + (took * 1e6) as u64;
            choice.sent(size, now, end);
            now = end;
            if send > 2000 {
                went[usize::from(direct)] += 1;
            }
        }
        let share = went[1] as f64 / (went[0] + went[1]) as f64;
        assert!(share > 0.9, "{size}: {share}");
    }
}

#[test]
fn very_long_sends_find_the_cheaper_way() {
    for size in [64, 256] {
        let mut s = Sender::new(10_000_000, 5_000_000);
        s.send_all(size * MIB, 20 * size * MIB);
        assert!(s.send_all(size * MIB, 50 * size * MIB) > 0.9, "{size}");
    }
}

#[test]
fn sends_of_several_sizes_in_turn_find_the_cheaper_way() {
    let mut s = Sender::new(25_000_000, 15_000_000);
    let sizes = [MIB, 100 << 10, 300 << 10];
    for turn in 0..2000 {
        s.send(sizes[turn % 3], 0);
    }
    let direct = (0..300).filter(|turn| s.send(sizes[turn % 3], 0)).count();
    assert!(direct > 270, "{direct}");
}

#[test]
fn a_short_look_away_is_no_pause() {
    let mut s = Sender::new(25_000_000, 15_000_000);
    for _ in 0..200 {
        s.send(MIB, 1_100_000);
    }
    assert!(s.send(MIB, 1_100_000));
}

#[test]
fn early_trials_become_rare() {
    // what is dear now and then is not left, and is not tried for that each time
    let mut s = Sender::new(10_000_000, 8_000_000);
    s.send_all(MIB, 500 * MIB);
    let before = s.went[0];
    for _ in 0..400 {
        s.prices = [20_000_000, 16_000_000];
        s.send_all(MIB, 6 * MIB);
        s.prices = [10_000_000, 8_000_000];
        s.send_all(MIB, 6 * MIB);
    }
    let share = (s.went[0] - before) as f64 / (400 * 12 * MIB) as f64;
    assert!(share < 0.05, "{share}");
}

#[test]
fn sizes_do_not_disturb_each_other() {
    let mut s = Sender::new(10_000_000, 5_000_000);
    s.send_all(MIB, 500 * MIB);
    s.prices = [5_000_000, 10_000_000];
    s.send_all(SMALLEST, 500 * MIB);
    assert!(s.choice.direct(MIB));
    assert!(!s.choice.direct(SMALLEST));
}

#[test]
fn others_profit() {
    let mut s = Sender::new(10_000_000, 5_000_000);
    s.send_all(MIB, 100 * MIB);
    let known = s.choice.learnt().map(|k| (k.epochs > 0, k.direct));
    assert_eq!(known, [(false, false), (false, false), (true, true)]);
    let mut other = Sender::new(10_000_000, 5_000_000);
    other.choice = Choice::with(s.choice.learnt());
    assert_eq!(other.send_all(MIB, 20 * MIB), 1.0);
    // but do not believe it for ever
    other.prices = [5_000_000, 10_000_000];
    other.send_all(MIB, 200 * MIB);
    assert!(other.send_all(MIB, 2000 * MIB) < 0.1);
}

#[test]
fn short_connections_try_as_seldom_as_one_long_one() {
    let mut s = Sender::new(10_000_000, 20_000_000);
    s.send_all(MIB, 5000 * MIB);
    let before = s.went;
    for _ in 0..250 {
        s.choice = Choice::with(s.choice.learnt());
        s.send_all(MIB, 20 * MIB);
    }
    let share = (s.went[1] - before[1]) as f64 / (5000 * MIB) as f64;
    assert!(share < 0.01, "{share}");
}

#[test]
fn who_makes_pauses_copies() {
    let mut s = Sender::new(10_000_000, 1_000_000);
    for _ in 0..1000 {
        assert!(!s.send(MIB, 50_000_000));
    }
}

#[test]
fn a_pause_does_not_count() {
    let mut s = Sender::new(8_000_000, 10_000_000);
    s.send_all(MIB, 500 * MIB);
    for turn in 0..500 {
        let pause = if turn % 20 == 0 { 1_000_000_000 } else { 0 };
        s.send(MIB, pause);
    }
    assert!(s.send_all(MIB, 500 * MIB) < 0.1);
}

#[test]
fn a_clock_that_stands_still_does_no_harm() {
    let mut s = Sender::new(0, 0);
    for _ in 0..10_000 {
        s.send(MIB, 0);
    }
    s.choice.sent(usize::MAX, u64::MAX, 0);
    s.choice.sent(usize::MAX, 0, u64::MAX);
    s.choice.sent(usize::MAX, 0, u64::MAX);
}

#[test]
fn short_connections_find_the_cheaper_way() {
    // two sends of 4 MiB tell as much as one, and one of 8 MiB or more tells enough by itself
    for (sends, size) in [(2, 4), (3, 4), (4, 4), (1, 8), (1, 16), (3, 1)] {
        let size = size * MIB;
        let mut s = Sender::new(10_000_000, 6_000_000);
        assert!(
            s.connect(1, sends, size) < 0.3,
            "{sends} times {size}: first"
        );
        s.connect(40, sends, size);
        assert!(
            s.connect(200, sends, size) > 0.9,
            "{sends} times {size}: direct"
        );
        for directly in [10_500_000, 40_000_000] {
            let mut s = Sender::new(10_000_000, directly);
            s.connect(100, sends, size);
            let share = s.connect(1000, sends, size);
            assert!(share < 0.1, "{sends} times {size}: copied, {share}");
        }
    }
    let mut s = Sender::new(10_000_000, 6_000_000);
    s.connect(30, 32, SMALLEST);
    assert!(s.connect(200, 32, SMALLEST) > 0.9, "32 small ones");
}

#[test]
fn the_first_send_of_a_connection_tells_nothing() {
    // it fills buffers, or waits until there are any
    for first in [[0.2, 1.0], [1.0, 5.0], [5.0, 1.0], [1.0, 0.2]] {
        for (directly, share) in [(6_000_000, 1.0), (14_000_000, 0.0)] {
            let mut s = Sender::new(10_000_000, directly);
            s.first = first;
            s.connect(100, 2, 4 * MIB);
            let found = s.connect(1000, 2, 4 * MIB);
            assert!((found - share).abs() < 0.1, "{first:?}: {found}");
        }
    }
}

#[test]
fn who_has_only_begun_undoes_nothing() {
    let mut s = Sender::new(10_000_000, 20_000_000);
    s.send_all(MIB, 100 * MIB);
    let settled = s.choice.learnt();
    let mut late = Sender::new(10_000_000, 20_000_000);
    for _ in 0..20 {
        late.send(MIB, 0);
        let mut known = settled;
        for (mine, theirs) in known.iter_mut().zip(late.choice.learnt()) {
            mine.update(&theirs);
        }
        assert_eq!(known, settled);
    }
}

#[test]
fn many_short_connections_at_once_get_on() {
    for (directly, share) in [(6_000_000, 1.0), (20_000_000, 0.0)] {
        let mut known = [Learnt::NOTHING; 3];
        let mut senders: Vec<_> = (0..8).map(|_| Sender::new(10_000_000, directly)).collect();
        let mut went = [0; 2];
        for turn in 0..4000 {
            // one after the other, each at another of its three sends
            let s = &mut senders[turn % 8];
            if (turn / 8 + turn % 8) % 3 == 0 {
                s.choice = Choice::with(known);
                s.now += 1_000_000_000;
            }
            let direct = s.send(4 * MIB, 0);
            for (mine, theirs) in known.iter_mut().zip(s.choice.learnt()) {
                mine.update(&theirs);
            }
            if turn >= 1000 {
                went[usize::from(direct)] += 1;
            }
        }
        let found = went[1] as f64 / (went[0] + went[1]) as f64;
        assert!((found - share).abs() < 0.15, "{found}");
    }
}

#[test]
fn a_trial_that_nobody_ends_is_given_up() {
    for pauses in [false, true] {
        let mut s = Sender::new(10_000_000, 30_000_000);
        while !s.send(MIB, 0) {}
        // from now on no send tells anything
        let single = |s: &mut Sender| match pauses {
            false => s.connect(1, 1, MIB) > 0.0,
            true => s.send(MIB, 1_000_000_000),
        };
        assert!(single(&mut s));
        let tried = (0..1000).filter(|_| single(&mut s)).count();
        assert!(tried < 100, "{tried}");
        assert!(!single(&mut s));
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Tests of [`super`]: a sender for whom each way has a price.

use super::*;

const MIB: usize = 1 << 20;

/// A program that sends all the time.
struct Sender {
    choice: Choice,
    now: u64,
    /// Nanoseconds for a mebibyte, copied and directly.
    prices: [u64; 2],
    /// Mebibytes that went each way.
    went: [u64; 2],
}

impl Sender {
    fn new(copied: u64, directly: u64) -> Self {
        Sender {
            choice: Choice::new(),
            now: 1 << 40,
            prices: [copied, directly],
            went: [0; 2],
        }
    }

    fn send(&mut self, size: usize, pause: u64) -> bool {
        let direct = self.choice.direct(size);
        let start = self.now + pause;
        let end = start + self.prices[usize::from(direct)] * size as u64 / MIB as u64;
        self.choice.sent(size, start, end);
        self.now = end;
        self.went[usize::from(direct)] += size as u64;
        direct
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
        // (an epoch of large sends is four of them)
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
        assert!(s.send_all(MIB, 20 * MIB) < 0.3);
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
    assert_eq!(s.choice.learnt(), [None; 3]);
    s.send_all(MIB, 100 * MIB);
    let known = s.choice.learnt().map(|k| k.map(|k| k.direct));
    assert_eq!(known, [None, None, Some(true)]);
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
fn what_is_known_goes_through_a_number() {
    assert_eq!(Learnt::pack(None), 0);
    assert_eq!(Learnt::unpack(0), None);
    for direct in [false, true] {
        for (left, rest) in [(0, 16), (1024, 1), (77, 1024), (0x7fff, 0)] {
            for other in [0, 1, 61_234, u32::MAX] {
                let known = Learnt {
                    direct,
                    other,
                    left,
                    rest,
                };
                assert_eq!(Learnt::unpack(Learnt::pack(Some(known))), Some(known));
            }
        }
    }
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

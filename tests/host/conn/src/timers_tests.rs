// SPDX-License-Identifier: GPL-2.0-only

//! Tests the table of deadlines, including deadlines after jiffies wrap around.

use crate::timers::{Timer, Timers};

const ALL: [Timer; 5] = [
    Timer::Close,
    Timer::Cork,
    Timer::DeferAccept,
    Timer::Memory,
    Timer::Space,
];

/// Times at which a test begins: jiffies start shortly before they wrap for the first time.
const STARTS: [usize; 4] = [0, 1000, usize::MAX - 5, usize::MAX / 2];

#[test]
fn each_has_its_own_time() {
    for now in STARTS {
        let mut timers = Timers::new();
        for (i, timer) in ALL.into_iter().enumerate() {
            assert!(!timers.is_set(timer));
            timers.set(timer, now.wrapping_add(10 + i));
        }
        for (i, timer) in ALL.into_iter().enumerate() {
            assert_eq!(timers.get(timer), Some(now.wrapping_add(10 + i)));
            assert!(!timers.is_due(timer, now.wrapping_add(9 + i)));
            assert!(timers.is_due(timer, now.wrapping_add(10 + i)));
            assert!(timers.is_due(timer, now.wrapping_add(1000)));
        }
        timers.clear(Timer::Memory);
        assert_eq!(
            ALL.map(|t| timers.is_set(t)),
            [true, true, true, false, true]
        );
    }
}

#[test]
fn what_is_due_is_taken_once() {
    for now in STARTS {
        let mut timers = Timers::new();
        timers.set(Timer::Space, now.wrapping_add(10));
        assert!(!timers.take_due(Timer::Space, now.wrapping_add(9)));
        assert!(timers.is_set(Timer::Space));
        assert!(!timers.take_due(Timer::Cork, now.wrapping_add(10)));
        assert!(timers.take_due(Timer::Space, now.wrapping_add(10)));
        assert!(!timers.take_due(Timer::Space, now.wrapping_add(11)));
    }
}

#[test]
fn the_nearest_is_next() {
    for now in STARTS {
        let mut timers = Timers::new();
        assert_eq!(timers.next([None], now), None);
        assert_eq!(timers.next([Some(now.wrapping_add(7))], now), Some(7));
        timers.set(Timer::Close, now.wrapping_add(60));
        timers.set(Timer::Cork, now.wrapping_add(20));
        assert_eq!(
            timers.next([None, Some(now.wrapping_add(30))], now),
            Some(20)
        );
        assert_eq!(
            timers.next([None, Some(now.wrapping_add(10))], now),
            Some(10)
        );
        // the timer has expired, but is not handled yet
        assert_eq!(timers.next([None], now.wrapping_add(21)), Some(0));
    }
}

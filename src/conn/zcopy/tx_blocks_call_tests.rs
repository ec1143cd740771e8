// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of a waiting call.

use super::super::tests::{take, take_behind, unregistered};
use super::super::{BlockUser, Next};
use super::*;

/// Returns cookie and offset of the next rest.
fn rest(b: &TxBlocks<u64>) -> Option<(u64, u32)> {
    match b.next()?.0 {
        Next::Rest { cookie, offset, .. } => Some((cookie, offset)),
        _ => None,
    }
}

/// Returns unregistered blocks of a call.
fn new(count: u64) -> TxBlocks<u64> {
    let mut b = TxBlocks::new();
    for cookie in 0..count {
        assert!(b.push(unregistered(cookie), 0, 0, BlockUser::Call).is_ok());
    }
    b
}

#[test]
fn they_are_written_one_after_the_other() {
    let mut b = new(2);
    assert_eq!(b.unposted(), 2000);
    b.pass_over();
    assert_eq!((rest(&b), b.unposted()), (Some((0, 0)), 2000));
    assert!(!b.rest_posted(600, false) && b.is_sending() && b.is_open());
    assert!(b.rest_posted(400, false));
    assert_eq!(b.oldest(), Some((Awaits::Write, false)));
    // the second one is sent before the first has arrived
    b.pass_over();
    assert_eq!(rest(&b), Some((1, 0)));
    assert!(b.rest_posted(1000, false));
    assert_eq!((b.next(), b.unposted()), (None, 0));
    assert_eq!(take(&mut b), None);
    b.rest_gone(0, 1000);
    assert_eq!(take(&mut b), Some((0, 1000, false)));
    b.rest_gone(1, 1000);
    assert_eq!(b.oldest(), Some((Awaits::Nothing { lost: false }, false)));
    assert_eq!(take(&mut b), Some((1, 1000, false)));
    assert!(b.is_empty());
}

#[test]
fn more_than_there_is_space_for_returns() {
    let mut b = new(3);
    b.pass_over();
    b.rest_posted(1000, false);
    b.pass_over();
    b.rest_posted(300, false);
    assert!(matches!(
        b.next(),
        Some((Next::Rest { written: true, .. }, 0))
    ));
    b.recall();
    // nothing is sent before the rest
    assert!(b.next().is_none() && !b.is_open());
    assert_eq!(b.oldest(), Some((Awaits::Write, false)));
    b.rest_gone(0, 1000);
    assert_eq!((take(&mut b), take(&mut b)), (Some((0, 1000, false)), None));
    b.rest_gone(1, 300);
    assert_eq!(take(&mut b), Some((1, 300, false)));
    assert_eq!(take_behind(&mut b), Some((2, 0, false)));
    assert!(b.is_empty());
}

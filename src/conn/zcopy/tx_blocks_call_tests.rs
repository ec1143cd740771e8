// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the blocks of a waiting call.

use super::super::tests::{take, take_behind, unregistered};
use super::super::{BlockUser, Next, Rest};
use super::*;

/// Returns unregistered blocks of a call.
fn new(count: u64) -> TxBlocks<u64> {
    let mut b = TxBlocks::new();
    for cookie in 0..count {
        assert!(b.push(unregistered(cookie), 0, 0, BlockUser::Call).is_ok());
    }
    b
}

#[test]
fn more_than_there_is_space_for_returns() {
    let mut b = new(3);
    b.pass_over();
    b.rest_posted(1000, false);
    b.pass_over();
    b.rest_posted(300, false);
    assert!(b.is_sending() && b.unposted() == 1700);
    assert!(matches!(
        b.next(),
        Some((Next::Rest(Rest { written: true, .. }), 0))
    ));
    b.recall();
    // nothing is sent before the rest of the block
    assert!(b.next().is_none() && !b.is_open());
    assert_eq!(b.oldest(), Some((Awaits::Write, false)));
    b.rest_gone(0, 1000);
    assert_eq!((take(&mut b), take(&mut b)), (Some((0, 1000, false)), None));
    b.rest_gone(1, 300);
    assert_eq!(take(&mut b), Some((1, 300, false)));
    assert_eq!(take_behind(&mut b), Some((2, 0, false)));
    assert!(b.is_empty());
}

// SPDX-License-Identifier: GPL-2.0-only

//! Tests the conditions that hold back partial messages.

use crate::send_queue::SendQueue;

#[test]
fn more_holds_until_it_is_taken_back() {
    let mut queue = SendQueue::new();
    assert!(!queue.is_corked(false) && queue.is_corked(true));
    queue.set_more(true);
    assert!(queue.is_corked(false) && queue.is_corked(true));
    queue.settle();
    assert!(queue.is_corked(false));
    queue.set_more(false);
    assert!(!queue.is_corked(false) && queue.is_corked(true));
}

#[test]
fn a_lift_is_for_what_is_there() {
    let mut queue = SendQueue::new();
    queue.set_more(true);
    queue.uncork();
    assert!(!queue.is_corked(false) && !queue.is_corked(true));
    // all queued bytes have been sent
    queue.settle();
    assert!(queue.is_corked(false) && queue.is_corked(true));
}

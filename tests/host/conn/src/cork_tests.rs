// SPDX-License-Identifier: GPL-2.0-only

//! Tests the conditions that hold back partial messages.

use crate::cork::Cork;

#[test]
fn more_holds_until_it_is_taken_back() {
    let mut cork = Cork::new();
    assert!(!cork.holds(false) && cork.holds(true));
    cork.set_more(true);
    assert!(cork.holds(false) && cork.holds(true));
    cork.settle();
    assert!(cork.holds(false));
    cork.set_more(false);
    assert!(!cork.holds(false) && cork.holds(true));
}

#[test]
fn a_lift_is_for_what_is_there() {
    let mut cork = Cork::new();
    cork.set_more(true);
    cork.lift();
    assert!(!cork.holds(false) && !cork.holds(true));
    // all queued bytes have been sent
    cork.settle();
    assert!(cork.holds(false) && cork.holds(true));
}

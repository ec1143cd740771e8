// SPDX-License-Identifier: GPL-2.0-only

//! Event number of a socket, incremented by each event. A waiter reads the number, checks its
//! condition, and sleeps until the number changes.
//!
//! The condition may be a field that no common lock protects (`sk_state`, `sk_err`, `sk_shutdown`,
//! `peer_ended`). A waiter that reads the new number must see all writes before the event, so both
//! sides use barriers. `tests/host/loom` compiles this file.

use kernel::sync::atomic::{Acquire, Atomic, Full};

/// Increments the number, after the writes of the event and before the check for sleepers.
pub(super) fn count(events: &Atomic<i32>) {
    events.fetch_add(1, Full);
}

/// Reads the number; the waiter must call this before it reads the condition.
pub(super) fn last(events: &Atomic<i32>) -> i32 {
    events.load(Acquire)
}

// SPDX-License-Identifier: GPL-2.0-only

//! A call reads the event number, then a field without a lock, and sleeps until the number has
//! changed: `wait_connected` in `socket/send.rs`, the loop of connect(2), `ended` in
//! `socket/receive.rs`. A change of the field is followed by an event, so the call must wake up.

use crate::seq;
use crate::sync::atomic::{Atomic, Relaxed};
use loom::sync::{Arc, Mutex};
use loom::thread;

const SYN_SENT: i32 = 2;
const ESTABLISHED: i32 = 1;

struct Sock {
    /// Lock of the connection.
    lock: Mutex<()>,
    state: Atomic<i32>,
    events: Atomic<i32>,
}

fn never_sleeps_for_ever(count: fn(&Atomic<i32>), last: fn(&Atomic<i32>) -> i32) {
    loom::model(move || {
        let sock = Arc::new(Sock {
            lock: Mutex::new(()),
            state: Atomic::new(SYN_SENT),
            events: Atomic::new(0),
        });
        let other = sock.clone();
        // `established()` in `socket/establish.rs`, then `SockCore::wake`
        let waker = thread::spawn(move || {
            let lock = other.lock.lock().unwrap();
            other.state.store(ESTABLISHED, Relaxed);
            drop(lock);
            count(&other.events);
        });
        let seq = last(&sock.events);
        let state = sock.state.load(Relaxed);
        waker.join().unwrap();
        // no further event occurs
        let sleeps = state == SYN_SENT && sock.events.load(Relaxed) == seq;
        assert!(!sleeps, "sleeps for ever");
    });
}

#[test]
fn what_was_changed_before_an_event_is_seen() {
    never_sleeps_for_ever(seq::count, seq::last);
}

#[test]
#[should_panic(expected = "sleeps for ever")]
fn not_if_the_event_is_counted_in_no_order() {
    never_sleeps_for_ever(
        |events| {
            events.fetch_add(1, Relaxed);
        },
        seq::last,
    );
}

#[test]
#[should_panic(expected = "sleeps for ever")]
fn not_if_the_number_is_read_in_no_order() {
    never_sleeps_for_ever(seq::count, |events| events.load(Relaxed));
}

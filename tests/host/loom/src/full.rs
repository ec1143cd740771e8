// SPDX-License-Identifier: GPL-2.0-only

//! A non-blocking send call finds no space, while a worker polls the completion that frees space.
//! Either poll(2) is notified of the space, or the call finds it.
//!
//! [`Socket`] models `socket/send.rs` and `conn`. The call's steps have the order of `last_check`,
//! which calls and poll(2) use; [`Socket::complete`] has the steps of `completed` and
//! `Wakeups::notify`.

use super::events::last_check;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

struct Socket {
    /// Protected by the connection's lock: true if there is space.
    room: Mutex<bool>,
    /// `SOCK_NOSPACE`.
    nospace: AtomicBool,
    /// Set when `sk_write_space` was called.
    told: AtomicBool,
}

impl Socket {
    /// Returns true if there is space.
    fn look(&self) -> bool {
        *self.room.lock().unwrap()
    }

    /// Returns true if the call has found space.
    fn send(&self) -> bool {
        last_check(
            self.look(),
            |room| !room,
            || self.want_space(),
            || self.look(),
        )
    }

    /// A faulty send: sets `SOCK_NOSPACE` only after its last check.
    fn send_wrongly(&self) -> bool {
        let room = self.look();
        if !room {
            self.want_space();
        }
        room
    }

    fn want_space(&self) {
        self.nospace.store(true, Ordering::SeqCst);
    }

    fn complete(&self) {
        *self.room.lock().unwrap() = true;
        if self.nospace.swap(false, Ordering::SeqCst) {
            self.told.store(true, Ordering::SeqCst);
        }
    }
}

fn nobody_waits_in_vain(send: fn(&Socket) -> bool) {
    loom::model(move || {
        let socket = Arc::new(Socket {
            room: Mutex::new(false),
            nospace: AtomicBool::new(false),
            told: AtomicBool::new(false),
        });
        let worker = {
            let socket = socket.clone();
            thread::spawn(move || socket.complete())
        };
        let found = send(&socket);
        worker.join().unwrap();
        assert!(
            found || socket.told.load(Ordering::SeqCst),
            "room, and nobody knows"
        );
    });
}

#[test]
fn who_asks_first_is_told() {
    nobody_waits_in_vain(Socket::send);
}

#[test]
#[should_panic(expected = "nobody knows")]
fn who_asks_after_the_last_look_is_not() {
    nobody_waits_in_vain(Socket::send_wrongly);
}

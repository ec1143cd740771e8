// SPDX-License-Identifier: GPL-2.0-only

//! A send call finds no room and must not wait, while a worker sees the completion that makes room: whoever
//! polls then is told of it, or the call has it.
//!
//! [`Socket`] has what `socket/send.rs` and `conn` have for that. The order of the call's steps is that of
//! `last_check`, by which calls and poll(2) find out; [`Socket::complete`] has those of `completed` and `Wakeups::notify`.

use super::room::last_check;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

struct Socket {
    /// Under the connection's lock: whether there is room.
    room: Mutex<bool>,
    /// `SOCK_NOSPACE`.
    nospace: AtomicBool,
    /// `sk_write_space` was called.
    told: AtomicBool,
}

impl Socket {
    /// Whether there is room.
    fn look(&self) -> bool {
        *self.room.lock().unwrap()
    }

    /// Whether the call has found room.
    fn send(&self) -> bool {
        last_check(
            self.look(),
            |room| !room,
            || self.want_space(),
            || self.look(),
        )
    }

    /// One that says after its last look that somebody wants to be told.
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

// SPDX-License-Identifier: GPL-2.0-only

//! A send call finds no room and must not wait, while a worker sees the completion that makes room: whoever
//! polls then is told of it, or the call has it.
//!
//! [`Socket`] has what `socket/send.rs` and `conn` have for that, and [`Socket::send`] and
//! [`Socket::complete`] the steps of `queue` there, and of `completed` and `Wakeups::tell`.

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
    /// Whether the call has found room. `asks_first`: it says that somebody wants to be told before it
    /// looks for the last time.
    fn send(&self, asks_first: bool) -> bool {
        if asks_first {
            self.want_space();
        }
        let room = *self.room.lock().unwrap();
        if !asks_first && !room {
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

fn nobody_waits_in_vain(asks_first: bool) {
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
        let found = socket.send(asks_first);
        worker.join().unwrap();
        assert!(
            found || socket.told.load(Ordering::SeqCst),
            "room, and nobody knows"
        );
    });
}

#[test]
fn who_asks_first_is_told() {
    nobody_waits_in_vain(true);
}

#[test]
#[should_panic(expected = "nobody knows")]
fn who_asks_after_the_last_look_is_not() {
    nobody_waits_in_vain(false);
}

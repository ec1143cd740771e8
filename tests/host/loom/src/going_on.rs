// SPDX-License-Identifier: GPL-2.0-only

//! Small messages wait until the peer has received the earlier ones. They are sent even if another
//! thread holds the connection's lock when the peer's task arrives.

use crate::taking::Taking;
use loom::sync::atomic::{AtomicBool, Ordering::*};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Data under the lock of the pair: messages that have arrived at the peer, and whether its task
/// has to notify the sender when it has received all of them.
struct Ends {
    arrived: u32,
    awaited: bool,
}

/// A connection that has bytes to send.
struct Sender {
    /// The connection's lock, and the number of unsent bytes.
    unsent: Mutex<u32>,
    /// True while the lock is held: loom does not model `try_lock`.
    locked: AtomicBool,
    taking: Taking,
    ends: Mutex<Ends>,
}

impl Sender {
    /// Runs `f` under the lock.
    fn with(&self, f: impl FnOnce(&mut u32)) {
        let mut unsent = self.unsent.lock().unwrap();
        self.locked.store(true, Relaxed);
        f(&mut unsent);
        self.locked.store(false, Release);
    }

    /// `Connection::poll`: sends the unsent messages if the peer has received the earlier ones,
    /// else requests a notification.
    fn progress(&self, unsent: &mut u32) {
        self.taking.check();
        let mut ends = self.ends.lock().unwrap();
        if ends.arrived == 0 {
            ends.arrived = core::mem::take(unsent);
        }
        ends.awaited = *unsent > 0;
        self.taking.set_awaited(ends.awaited);
    }

    /// The drop of a `Guard`, after the unlock.
    fn let_go(&self) {
        while self.taking.is_left() {
            self.with(|unsent| self.progress(unsent));
        }
    }

    /// A send call; it does not poll if earlier messages are already waiting.
    fn send(&self) {
        self.with(|unsent| {
            *unsent += 1;
            if *unsent == 1 {
                self.progress(unsent);
            }
        });
        self.let_go();
    }

    /// The peer receives the arrived messages, and its task continues the sender. Returns their
    /// number.
    fn take(&self) -> u32 {
        let (taken, awaited) = {
            let mut ends = self.ends.lock().unwrap();
            match core::mem::take(&mut ends.arrived) {
                0 => return 0,
                taken => (taken, core::mem::take(&mut ends.awaited)),
            }
        };
        if awaited {
            self.taking.notify();
            if !self.locked.load(Acquire) {
                self.with(|unsent| self.progress(unsent));
                self.let_go();
            }
        }
        taken
    }
}

#[test]
fn what_is_held_back_goes_when_all_was_taken() {
    loom::model(|| {
        let sender = Arc::new(Sender {
            unsent: Mutex::new(0),
            locked: AtomicBool::new(false),
            taking: Taking::new(),
            ends: Mutex::new(Ends {
                arrived: 1,
                awaited: false,
            }),
        });
        let other = sender.clone();
        let calls = thread::spawn(move || {
            other.send();
            other.send();
        });
        let mut taken = sender.take();
        calls.join().unwrap();
        // the peer's program continues to read while bytes are available
        while let more @ 1.. = sender.take() {
            taken += more;
        }
        assert_eq!(taken, 3);
        assert_eq!(*sender.unsent.lock().unwrap(), 0, "is left");
    });
}

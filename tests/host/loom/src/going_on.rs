// SPDX-License-Identifier: GPL-2.0-only

//! Small messages that wait until the peer has taken those before: they go, whoever has the connection's lock when
//! the peer's task comes.

use crate::taking::Taking;
use loom::sync::atomic::{AtomicBool, Ordering::*};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// What the lock of the pair guards: messages that have come to the peer, and whether its task is to say that it has
/// taken them all.
struct Ends {
    arrived: u32,
    awaited: bool,
}

/// A connection that has something to send.
struct Sender {
    /// The connection's lock, and the bytes that are not sent.
    unsent: Mutex<u32>,
    /// Whether it is held: loom does not find a mutex so that is tried.
    locked: AtomicBool,
    taking: Taking,
    ends: Mutex<Ends>,
}

impl Sender {
    /// With the lock.
    fn with(&self, f: impl FnOnce(&mut u32)) {
        let mut unsent = self.unsent.lock().unwrap();
        self.locked.store(true, Relaxed);
        f(&mut unsent);
        self.locked.store(false, Release);
    }

    /// `Connection::poll`: sends what is unsent if the peer has taken what came before, else waits for that.
    fn progress(&self, unsent: &mut u32) {
        self.taking.check();
        let mut ends = self.ends.lock().unwrap();
        if ends.arrived == 0 {
            ends.arrived = core::mem::take(unsent);
        }
        ends.awaited = *unsent > 0;
        self.taking.set_awaited(ends.awaited);
    }

    /// The drop of a `Guard`, after the lock.
    fn let_go(&self) {
        while self.taking.is_left() {
            self.with(|unsent| self.progress(unsent));
        }
    }

    /// A send call; it does not look if others wait already.
    fn send(&self) {
        self.with(|unsent| {
            *unsent += 1;
            if *unsent == 1 {
                self.progress(unsent);
            }
        });
        self.let_go();
    }

    /// The peer takes what has come, and its task goes on here. How much it took.
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
        // the peer's program reads on, as long as it finds anything
        while let more @ 1.. = sender.take() {
            taken += more;
        }
        assert_eq!(taken, 3);
        assert_eq!(*sender.unsent.lock().unwrap(), 0, "is left");
    });
}

// SPDX-License-Identifier: GPL-2.0-only

//! Polls an end of a local connection without the lock of the pair: each message is either found or
//! notified.

use crate::events::{Events, Queue};
use crate::tally::{Counts, Tally};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Data under the lock of the pair, as far as this test needs it.
#[derive(Default)]
struct Ends {
    arrived: u16,
    armed: bool,
}

struct Pair {
    ends: Mutex<Ends>,
    tally: Tally,
    events: Events,
}

impl Pair {
    /// Calls `f` under the lock, and records the pending messages before it unlocks.
    fn with<R>(&self, f: impl FnOnce(&mut Ends) -> R) -> R {
        let mut ends = self.ends.lock().unwrap();
        let r = f(&mut ends);
        self.tally.note(Counts {
            arrived: ends.arrived,
            ..Counts::GONE
        });
        r
    }

    /// The other end posts a message, and notifies if that was requested.
    fn deliver(&self) {
        let told = self.with(|ends| {
            ends.arrived += 1;
            core::mem::take(&mut ends.armed)
        });
        if told {
            let _ = self.events.notify(Queue::Receive, || false);
        }
    }

    /// Receives the arrived messages, as `Connection::poll` does; `armed`: true if the connection
    /// considers the queue armed.
    fn poll(&self, armed: &mut bool) -> u16 {
        let mut taken = 0;
        loop {
            if self.events.take().is_some() {
                *armed = false;
            }
            while self.tally.has_arrived() {
                taken += self.with(|ends| core::mem::take(&mut ends.arrived));
            }
            if !*armed {
                *armed = self.with(|ends| {
                    ends.armed = true;
                    ends.arrived == 0
                });
            }
            if *armed {
                return taken;
            }
        }
    }
}

#[test]
fn what_comes_is_seen_or_told() {
    loom::model(|| {
        let pair = Arc::new(Pair {
            ends: Mutex::new(Ends::default()),
            tally: Tally::new(),
            events: Events::new(),
        });
        let other = pair.clone();
        let sender = thread::spawn(move || {
            other.deliver();
            other.deliver();
        });
        let mut armed = false;
        let mut taken = pair.poll(&mut armed);
        sender.join().unwrap();
        // a notified reader polls once more; a reader without notification has found all messages
        if pair.events.are_noted() {
            taken += pair.poll(&mut armed);
        }
        assert_eq!(taken, 2, "a message lies there and nobody knows");
    });
}

// SPDX-License-Identifier: GPL-2.0-only

//! A completion queue serves one endpoint after another, while its driver's callback may run at any
//! time: an endpoint that has ended is never notified.
//!
//! [`Cq`] models `sys::rdma::cq`: the callback of `Context`, and `begin` and `end` of `Cq`.

use crate::use_count::UseCount;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::Arc;
use loom::thread;

struct Cq {
    uses: UseCount,
    /// Endpoint to notify, 0 for none.
    who: AtomicU32,
    /// Represents the endpoint: loom reports a read during a change.
    ready: UnsafeCell<()>,
}

impl Cq {
    fn set(&self, who: u32) {
        self.ready
            .with_mut(|_| self.who.store(who, Ordering::Relaxed));
    }

    /// The callback. Returns the endpoint that was notified.
    fn notify(&self) -> u32 {
        if !self.uses.any_more() {
            return 0;
        }
        let told = self.ready.with(|_| self.who.load(Ordering::Relaxed));
        assert_ne!(told, 0, "a use, and nobody to tell");
        self.uses.end();
        told
    }

    fn begin(&self, who: u32) {
        self.set(who);
        self.uses.begin();
    }

    fn end(&self) {
        self.uses.end();
        while !self.uses.is_over() {
            thread::yield_now();
        }
        self.set(0);
    }
}

#[test]
fn one_after_the_other() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(|| {
        let cq = Arc::new(Cq {
            uses: UseCount::none(),
            who: AtomicU32::new(0),
            ready: UnsafeCell::new(()),
        });
        cq.begin(1);
        let driver = {
            let cq = cq.clone();
            thread::spawn(move || [cq.notify(), cq.notify()])
        };
        cq.end();
        cq.begin(2);
        let told = driver.join().unwrap();
        assert_ne!(told, [2, 1], "the one that has ended");
        // from now on completions notify the new endpoint
        assert_eq!(cq.notify(), 2);
    });
}

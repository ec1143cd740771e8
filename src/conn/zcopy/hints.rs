// SPDX-License-Identifier: GPL-2.0-only

//! What the connections of a namespace have found out about zero copy, for those that come after them.

use crate::protocol::Learnt;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::SpinLock;

/// What is known of sends of the sizes that [`crate::protocol::Choice`] tells apart, by the
/// connection that has come furthest.
#[pin_data]
pub(crate) struct Hints {
    /// Taken last, under the lock of a connection.
    #[pin]
    known: SpinLock<[Learnt; 3]>,
}

impl Hints {
    /// Nothing is known.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Hints {
            known <- new_spinlock!([Learnt::NOTHING; 3]),
        })
    }

    /// What is known.
    pub(super) fn get(&self) -> [Learnt; 3] {
        *self.known.lock()
    }

    /// What a connection has learnt: not with each call, since all connections share this.
    pub(super) fn put(&self, learnt: [Learnt; 3]) {
        let mut known = self.known.lock();
        for (known, learnt) in known.iter_mut().zip(&learnt) {
            known.update(learnt);
        }
    }
}

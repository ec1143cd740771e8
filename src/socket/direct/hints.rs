// SPDX-License-Identifier: GPL-2.0-only

//! What the connections of a namespace have found out about zero copy, for those that come after them.

use crate::protocol::Learnt;
use kernel::sync::atomic::{Atomic, Relaxed};

/// What is known of sends of the sizes that [`crate::protocol::Choice`] tells apart. Whoever wrote
/// last knows best.
pub(in crate::socket) struct Hints([Atomic<u64>; 3]);

impl Hints {
    /// Nothing is known.
    pub(in crate::socket) const fn new() -> Self {
        Hints([const { Atomic::new(0) }; 3])
    }

    /// What is known.
    pub(super) fn get(&self) -> [Option<Learnt>; 3] {
        let [a, b, c] = &self.0;
        [a, b, c].map(|hint| Learnt::unpack(hint.load(Relaxed)))
    }

    /// What a connection has learnt.
    pub(super) fn put(&self, learnt: [Option<Learnt>; 3]) {
        for (hint, learnt) in self.0.iter().zip(learnt) {
            let packed = Learnt::pack(learnt);
            // other processors read it
            if learnt.is_some() && hint.load(Relaxed) != packed {
                hint.store(packed, Relaxed);
            }
        }
    }
}

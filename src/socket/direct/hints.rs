// SPDX-License-Identifier: GPL-2.0-only

//! What the connections of a namespace have found out about zero copy, for those that come after them.

use kernel::sync::atomic::{Atomic, Relaxed};

const UNKNOWN: i32 = 0;
const COPIED: i32 = 1;
const DIRECT: i32 = 2;

/// Which way was the better one lately, for the sizes that [`crate::protocol::Choice`] tells apart.
pub(in crate::socket) struct Hints([Atomic<i32>; 3]);

impl Hints {
    /// Nothing is known.
    pub(in crate::socket) const fn new() -> Self {
        Hints([const { Atomic::new(UNKNOWN) }; 3])
    }

    /// What is known.
    pub(super) fn get(&self) -> [Option<bool>; 3] {
        let [a, b, c] = &self.0;
        [a, b, c].map(|hint| match hint.load(Relaxed) {
            UNKNOWN => None,
            hint => Some(hint == DIRECT),
        })
    }

    /// What a connection has learnt.
    pub(super) fn put(&self, learnt: [Option<bool>; 3]) {
        for (hint, learnt) in self.0.iter().zip(learnt) {
            if let Some(direct) = learnt {
                let value = if direct { DIRECT } else { COPIED };
                // other processors read it
                if hint.load(Relaxed) != value {
                    hint.store(value, Relaxed);
                }
            }
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! The module's files of `src/conn` that need nothing of the kernel, as they are, with their tests.

#![cfg(test)]

#[path = "../../../../src/conn/closing.rs"]
#[allow(dead_code, reason = "of the module's")]
mod closing;
mod closing_tests;
#[path = "../../../../src/conn/cork.rs"]
mod cork;
mod cork_tests;
#[path = "../../../../src/sys/net/sock/state.rs"]
#[allow(dead_code, reason = "of the module's")]
mod state;

#[path = "../../../../src/conn/timers.rs"]
mod timers;
mod timers_tests;

// The files ask for the module's types by these names.
mod sys {
    pub(crate) mod time {
        pub(crate) type Jiffies = usize;
    }
    pub(crate) mod net {
        pub(crate) mod sock {
            pub(crate) use crate::state::State;
        }
    }
}

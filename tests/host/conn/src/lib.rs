// SPDX-License-Identifier: GPL-2.0-only

//! Compiles the kernel-independent files of `src/conn` unchanged, with their tests.

#![cfg(test)]

// The files under test use the kernel crate by this name.
extern crate self as kernel;

mod any_order_tests;
#[path = "../../../../src/conn/closing.rs"]
#[allow(dead_code, reason = "of the module's")]
mod closing;
mod closing_tests;
mod cork_tests;
#[path = "../../../../src/sys/net/sock/state.rs"]
#[allow(dead_code, reason = "of the module's")]
mod state;

#[path = "../../../../src/conn/receive_queue.rs"]
#[allow(dead_code, reason = "of the module's")]
mod receive_queue;
mod receive_queue_tests;
#[path = "../../../../src/memory/ring.rs"]
#[allow(dead_code, reason = "of the module's")]
mod ring;
mod ring_tests;
#[path = "../../../../src/conn/send_queue.rs"]
#[allow(dead_code, reason = "of the module's")]
mod send_queue;
mod send_queue_tests;
#[path = "../../../../src/conn/timers.rs"]
#[allow(dead_code, reason = "of the module's")]
mod timers;
mod timers_tests;
#[path = "../../../../src/conn/unread.rs"]
#[allow(dead_code, reason = "of the module's")]
mod unread;
mod unread_tests;

mod host;
use host::{alloc, prelude};

mod memory {
    pub(crate) use crate::host::pressure;
    pub(crate) use crate::ring;
}

mod transport {
    pub(crate) use crate::host::Sge;
}

// The files under test import the module's types by these names.
mod sys {
    pub(crate) use crate::host::vec;
    pub(crate) mod pages {
        pub(crate) use crate::host::Memory;
    }
    pub(crate) mod errno {
        pub(crate) use crate::host::EPROTO;
    }
    pub(crate) mod rdma {
        pub(crate) mod buffer {
            pub(crate) use crate::host::Buffer;
        }
    }
    pub(crate) mod time {
        pub(crate) type Jiffies = usize;
    }
    pub(crate) mod net {
        pub(crate) mod sock {
            pub(crate) use crate::state::State;
        }
    }
}

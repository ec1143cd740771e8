// SPDX-License-Identifier: GPL-2.0-only

//! Destruction of objects that a driver may report as busy at first.

use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::time::{delay::fsleep, Delta};

/// Number of attempts, with pauses of one second in total.
const TRIES: u32 = 51;
const PAUSE: Delta = Delta::from_millis(20);

/// Calls `destroy` until it returns 0. Returns false if all attempts failed. Context: process.
pub(super) fn wait_destroyed(what: &str, mut destroy: impl FnMut() -> c_int) -> bool {
    for attempt in 0..TRIES {
        if attempt != 0 {
            fsleep(PAUSE);
        }
        if destroy() == 0 {
            return true;
        }
    }
    pr_err!("{} could not be destroyed\n", what);
    false
}

// SPDX-License-Identifier: GPL-2.0-only

//! Time to poll before sleeping.
//!
//! A sleep and a wakeup often take longer than the peer's reply. If recent bytes arrived soon, a
//! reader polls before sleeping, unless another task needs the processor. A [`BusyPoll`] holds the
//! measurements of one socket.

use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::time::Delta;

/// Shortest polling time (us).
const LEAST: i32 = 10;

/// Recent waiting times of a socket's readers.
///
/// Concurrent readers may overwrite each other's measurement, which is harmless.
pub(crate) struct BusyPoll {
    /// Running mean (us).
    mean: Atomic<i32>,
}

impl BusyPoll {
    pub(crate) fn new() -> Self {
        BusyPoll {
            mean: Atomic::new(0),
        }
    }

    /// Returns the polling time before sleeping, 0 if bytes are not expected within `most` (us),
    /// the parameter `recv_poll`.
    pub(crate) fn limit(&self, most: i32) -> Delta {
        let mean = self.mean.load(Relaxed);
        let limit = match mean > most {
            true => 0,
            false => mean.saturating_mul(2).saturating_add(LEAST).min(most),
        };
        Delta::from_micros(limit.into())
    }

    /// Records the waiting time of a reader. A single long wait, such as a pause between two
    /// requests, does not outweigh several short ones.
    pub(crate) fn learn(&self, waited: Delta, most: i32) {
        let most = most.saturating_mul(4);
        let waited = waited.as_micros_ceil().clamp(0, most.into()) as i32;
        let mean = self.mean.load(Relaxed);
        let step = waited.saturating_sub(mean) / 4;
        self.mean.store(mean.saturating_add(step), Relaxed);
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! How long to watch before sleeping.
//!
//! Falling asleep and waking up take longer than many an answer takes to come. So a reader whose
//! bytes came soon the last times watches for them a little before it sleeps, as long as nobody else
//! needs the processor: a [`BusyPoll`] is what one socket knows about that.

use crate::sys::net::params;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::time::Delta;

/// Microseconds that are watched in any case, where watching is worth while at all.
const LEAST: i32 = 10;

/// How long the readers of a socket had to wait lately.
///
/// Readers that wait at the same time may overwrite what the other one learnt, which does no harm.
pub(crate) struct BusyPoll {
    /// A running mean, in microseconds.
    mean: Atomic<i32>,
}

impl BusyPoll {
    /// Of a socket that nobody has read from.
    pub(crate) fn new() -> Self {
        BusyPoll {
            mean: Atomic::new(0),
        }
    }

    /// How long to watch before sleeping: not at all if bytes are not to be expected within
    /// `recv_poll`.
    pub(crate) fn limit(&self) -> Delta {
        let most = params::recv_poll().clamp(0, 1000);
        let mean = self.mean.load(Relaxed);
        let limit = if mean > most {
            0
        } else {
            (2 * mean + LEAST).min(most)
        };
        Delta::from_micros(limit.into())
    }

    /// A reader has waited so long. One long wait, between two questions to a server, say, does not
    /// make up for many short ones.
    pub(crate) fn learn(&self, waited: Delta) {
        let most = i64::from(params::recv_poll().clamp(0, 1000)) * 4;
        let waited = waited.as_micros_ceil().clamp(0, most) as i32;
        let mean = self.mean.load(Relaxed);
        self.mean.store(mean + (waited - mean) / 4, Relaxed);
    }
}

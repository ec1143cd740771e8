// SPDX-License-Identifier: GPL-2.0-only

//! How much the buffers of all sockets may take together, as `tcp_mem` says it for TCP.
//!
//! From two thirds of that on buffers do not grow. When all of it is used up, new connections are refused, and
//! the others live on what they need to go on: a few receive buffers, and a small chunk to send from. So
//! none waits for memory of another.

use crate::sys::net::params;
use crate::sys::pages;
use crate::sys::pin::{ram_pages, PAGE};
use kernel::sync::atomic::{Atomic, Relaxed};

/// The default, of the machine's memory: TCP has three thirty-seconds.
const SHARE: usize = 8;

/// The default in bytes, 0 until somebody asks: what asks does so several times for a message.
static DEFAULT: Atomic<usize> = Atomic::new(0);

/// Bytes that they may take.
fn most() -> usize {
    match usize::try_from(params::max_buffer_memory()) {
        Ok(mib) => mib.saturating_mul(1 << 20),
        Err(_) => match DEFAULT.load(Relaxed) {
            0 => first_default(),
            bytes => bytes,
        },
    }
}

#[cold]
fn first_default() -> usize {
    let bytes = ram_pages() / SHARE * PAGE;
    DEFAULT.store(bytes, Relaxed);
    bytes
}

/// Whether buffers are not to grow.
pub(crate) fn is_tight() -> bool {
    pages::about_in_use() >= most() / 3 * 2
}

/// Whether there is nothing but for what a connection needs to go on.
pub(crate) fn is_exhausted() -> bool {
    pages::about_in_use() >= most()
}

/// Pages that they take.
pub(crate) fn pages_in_use() -> u64 {
    pages::in_use().div_ceil(PAGE) as u64
}

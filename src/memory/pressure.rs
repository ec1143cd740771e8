// SPDX-License-Identifier: GPL-2.0-only

//! Memory limit of the buffers of all sockets, like TCP's `tcp_mem`.
//!
//! From two thirds of the limit on, buffers do not grow. At the limit, new connections are refused.
//! Existing connections keep a few receive buffers and a small chunk to send from. So no connection
//! has to wait for memory of another connection.

use crate::sys::net::params;
use crate::sys::pages;
use crate::sys::pin::{ram_pages, PAGE};
use kernel::sync::atomic::{Atomic, Relaxed};

/// Divisor of the machine's memory for the default limit; TCP uses three thirty-seconds.
const SHARE: usize = 8;

/// Default limit in bytes, 0 until computed. Cached, since each message needs the limit.
static DEFAULT: Atomic<usize> = Atomic::new(0);

/// Returns the limit in bytes.
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
    let bytes = (ram_pages() / SHARE).saturating_mul(PAGE);
    DEFAULT.store(bytes, Relaxed);
    bytes
}

/// Returns true if buffers may not grow.
pub(crate) fn is_tight() -> bool {
    pages::about_in_use() >= (most() / 3).saturating_mul(2)
}

/// Returns true if each connection may only have the minimum of buffers.
pub(crate) fn is_exhausted() -> bool {
    pages::about_in_use() >= most()
}

pub(crate) fn pages_in_use() -> u64 {
    pages::in_use().div_ceil(PAGE) as u64
}

// SPDX-License-Identifier: GPL-2.0-only

//! Time. Jiffies are the unit of the kernel's timers and wrap around: compare differences.

use super::bindings as c;

/// A time, or a span of time, in jiffies.
pub(crate) type Jiffies = usize;

pub(crate) fn jiffies() -> Jiffies {
    // SAFETY: The counter is an aligned integer that the timer interrupt changes, hence the
    // volatile read.
    (unsafe { core::ptr::read_volatile(&raw const kernel::bindings::jiffies) }) as Jiffies
}

pub(crate) fn is_past(at: Jiffies) -> bool {
    jiffies().wrapping_sub(at) <= Jiffies::MAX / 2
}

/// Returns the monotonic clock in nanoseconds.
pub(crate) fn nanoseconds() -> u64 {
    // SAFETY: Reads a clock.
    unsafe { kernel::bindings::ktime_get() as u64 }
}

/// Longest span that [`is_past`] handles.
const LONGEST: u64 = Jiffies::MAX as u64 / 4;

pub(crate) const fn seconds(n: u32) -> Jiffies {
    at_most((n as u64).saturating_mul(c::HZ as u64))
}

/// Converts milliseconds to jiffies, rounded up.
pub(crate) const fn milliseconds(n: u32) -> Jiffies {
    at_most((n as u64).saturating_mul(c::HZ as u64).div_ceil(1000))
}

const fn at_most(n: u64) -> Jiffies {
    (if n < LONGEST { n } else { LONGEST }) as Jiffies
}

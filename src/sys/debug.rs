// SPDX-License-Identifier: GPL-2.0-only

//! Messages in the kernel's log with the reasons of failures on connections. Off by default;
//! enabled by `echo module ib_sdp +p > /proc/dynamic_debug/control`.

use super::bindings as c;
use core::{fmt, ptr};

/// Logs a line, with arguments as `format!`.
macro_rules! debug {
    ($($arg:tt)*) => { $crate::sys::debug::print(core::format_args!($($arg)*)) };
}
pub(crate) use debug;

/// Prints the line if `module ib_sdp +p` is in effect.
pub(crate) fn print(line: fmt::Arguments<'_>) {
    // SAFETY: The function reads the arguments during the call only.
    unsafe { c::sdp_h_debug(ptr::from_ref(&line).cast()) }
}

// SPDX-License-Identifier: GPL-2.0-only

//! A line for dynamic debug (`dynamic_debug/control`), nothing while that is off.

use super::bindings as c;
use core::fmt::Arguments;
use core::ptr;

/// Prints the line if `module ib_sdp +p` is in effect.
pub(crate) fn print(line: Arguments<'_>) {
    // SAFETY: The function reads the arguments during the call only.
    unsafe { c::sdp_h_debug(ptr::from_ref(&line).cast()) }
}

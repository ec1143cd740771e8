// SPDX-License-Identifier: GPL-2.0-only

//! The tracepoints of `sys/trace.h` as functions.
//!
//! One that is off costs a no-op instruction in its caller: nothing is evaluated and nothing called
//! before the static branch is taken.

use super::bindings as c;
use super::net::sock::SockCore;
use kernel::jump_label::static_branch_unlikely;

/// Length of a base header.
const HEADER: usize = 16;

macro_rules! tracepoints {
    ($($(#[$doc:meta])* $name:ident = $key:ident, $call:ident($($arg:ident: $type:ty => $value:expr),*);)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name(sk: &SockCore $(, $arg: $type)*) {
            // SAFETY: The key is the static key of a tracepoint, made in trace_points.c.
            if unsafe { static_branch_unlikely!(c::$key, c::tracepoint, key) } {
                // SAFETY: The sock is alive for the call and its addresses can be read at any time;
                // a header has the bytes that the event reads.
                unsafe { c::$call(sk.raw() $(, $value)*) }
            }
        }
    )*};
}

tracepoints! {
    /// A connection was made, or could not be.
    connect = __tracepoint_sdp_connect, rust_do_trace_sdp_connect();
    /// A connection ends.
    close = __tracepoint_sdp_close, rust_do_trace_sdp_close();
    /// A message was posted.
    send = __tracepoint_sdp_send,
        rust_do_trace_sdp_send(header: &[u8; HEADER] => header.as_ptr(), credits: u16 => credits);
    /// A message has arrived.
    receive = __tracepoint_sdp_receive,
        rust_do_trace_sdp_receive(header: &[u8; HEADER] => header.as_ptr(), credits: u16 => credits);
    /// `unsent` bytes begin to wait for credits.
    credit_stall = __tracepoint_sdp_credit_stall,
        rust_do_trace_sdp_credit_stall(credits: u16 => credits, unsent: u32 => unsent);
    /// `len` bytes of memory are a call's own again, `done` of which went without a copy.
    zero_copy = __tracepoint_sdp_zero_copy,
        rust_do_trace_sdp_zero_copy(way: u8 => way, len: u32 => len, done: u32 => done);
}

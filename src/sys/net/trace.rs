// SPDX-License-Identifier: GPL-2.0-only

//! Tracepoints of a connection's events, for perf, trace-cmd or `/sys/kernel/tracing/events/sdp`.
//! `sys/trace.h` defines the fields.
//!
//! A disabled tracepoint costs its caller a no-op: the static branch precedes all calls and the
//! evaluation of all arguments.

use super::super::bindings as c;
use super::sock::SockCore;
use kernel::jump_label::static_branch_unlikely;

const HEADER: usize = 16;

/// Direction of a zero-copy transfer, as seen by the call that owns the memory.
#[derive(Clone, Copy)]
pub(crate) enum ZeroCopy {
    /// The peer reads a send call's memory (SrcAvail).
    ReadByPeer = 0,
    /// The local end writes a send call's bytes into the peer's memory.
    Written = 1,
    /// The local end reads the peer's bytes into a receive call's memory.
    Read = 2,
    /// The peer writes into a receive call's memory (SinkAvail).
    WrittenByPeer = 3,
}

macro_rules! tracepoints {
    ($($(#[$doc:meta])* $name:ident = $key:ident, $call:ident($($arg:ident: $type:ty => $value:expr),*);)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name(sk: &SockCore $(, $arg: $type)*) {
            // SAFETY: Each key is the static key of a tracepoint defined in trace_points.c.
            if unsafe { static_branch_unlikely!(c::$key, c::tracepoint, key) } {
                // SAFETY: The sock is alive during the call, and its addresses can be read at any
                // time. The header has all bytes that the event reads.
                unsafe { c::$call(sk.raw() $(, $value)*) }
            }
        }
    )*};
}

/// Evaluates to the address of a base header; a shorter message causes no event.
macro_rules! base {
    ($header:ident) => {
        match $header.first_chunk::<HEADER>() {
            Some(header) => header.as_ptr(),
            None => return,
        }
    };
}

tracepoints! {
    /// An attempt to connect or accept has ended; the socket's error is the result.
    connect = __tracepoint_sdp_connect, rust_do_trace_sdp_connect();
    /// A connection has ended; the socket is still in its last state.
    close = __tracepoint_sdp_close, rust_do_trace_sdp_close();
    /// A message was posted, leaving `credits` send credits.
    send = __tracepoint_sdp_send,
        rust_do_trace_sdp_send(header: &[u8] => base!(header), credits: u16 => credits);
    /// A message has arrived, with `credits` send credits available now.
    receive = __tracepoint_sdp_receive,
        rust_do_trace_sdp_receive(header: &[u8] => base!(header), credits: u16 => credits);
    /// `unsent` bytes begin to wait for credits.
    credit_stall = __tracepoint_sdp_credit_stall,
        rust_do_trace_sdp_credit_stall(credits: u16 => credits, unsent: usize => unsent.try_into().unwrap_or(u32::MAX));
    /// An advert or a transfer of the call's `len` bytes has ended, with `done` bytes transferred.
    zero_copy = __tracepoint_sdp_zero_copy,
        rust_do_trace_sdp_zero_copy(way: ZeroCopy => way as u8, len: u32 => len, done: u32 => done);
}

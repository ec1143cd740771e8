// SPDX-License-Identifier: GPL-2.0-only

//! Tracepoints: what happens on which connection, as it happens, for perf, trace-cmd or
//! `/sys/kernel/tracing/events/sdp`. What is in each event is in `sys/trace.h`.
//!
//! One that is off costs a no-op instruction in its caller: nothing is evaluated and nothing called
//! before the static branch is taken.

use super::bindings as c;
use super::net::sock::SockCore;
use kernel::jump_label::static_branch_unlikely;

/// Length of a base header.
const HEADER: usize = 16;

/// How bytes go without a copy, seen from the call whose memory it is.
#[derive(Clone, Copy)]
pub(crate) enum ZeroCopy {
    /// The peer reads a send call's (SrcAvail).
    ReadByPeer = 0,
    /// A send call's are written to the peer.
    Written = 1,
    /// They are read from the peer to a receive call's memory.
    Read = 2,
    /// The peer writes them to a receive call's memory (SinkAvail).
    WrittenByPeer = 3,
}

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

/// The address of a base header; of less there is no event.
macro_rules! base {
    ($header:ident) => {
        match $header.first_chunk::<HEADER>() {
            Some(header) => header.as_ptr(),
            None => return,
        }
    };
}

tracepoints! {
    /// An attempt to connect, or to accept, has ended; the socket's error tells how.
    connect = __tracepoint_sdp_connect, rust_do_trace_sdp_connect();
    /// A connection ends; the socket is still in its last state.
    close = __tracepoint_sdp_close, rust_do_trace_sdp_close();
    /// A message was posted; `credits` more may follow.
    send = __tracepoint_sdp_send,
        rust_do_trace_sdp_send(header: &[u8] => base!(header), credits: u16 => credits);
    /// A message has arrived; `credits` may be sent now.
    receive = __tracepoint_sdp_receive,
        rust_do_trace_sdp_receive(header: &[u8] => base!(header), credits: u16 => credits);
    /// `unsent` bytes begin to wait for credits.
    credit_stall = __tracepoint_sdp_credit_stall,
        rust_do_trace_sdp_credit_stall(credits: u16 => credits, unsent: usize => unsent.try_into().unwrap_or(u32::MAX));
    /// `len` bytes of a call's memory are its own again; `done` of them have gone directly.
    zero_copy = __tracepoint_sdp_zero_copy,
        rust_do_trace_sdp_zero_copy(way: ZeroCopy => way as u8, len: u32 => len, done: u32 => done);
}

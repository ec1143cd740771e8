// SPDX-License-Identifier: GPL-2.0-only

//! Tracepoints: what happens on which connection, as it happens, for perf, trace-cmd or
//! `/sys/kernel/tracing/events/sdp`. What is in each event is in `sys/trace.h`.

use crate::sys::net::sock::SockCore;
use crate::sys::trace;

/// An attempt to connect, or to accept, has ended; the socket's error tells how.
#[inline(always)]
pub(crate) fn connect(sk: &SockCore) {
    trace::connect(sk);
}

/// A connection ends; the socket is still in its last state.
#[inline(always)]
pub(crate) fn close(sk: &SockCore) {
    trace::close(sk);
}

/// A message was posted; `credits` more may follow.
#[inline(always)]
pub(crate) fn send(sk: &SockCore, header: &[u8], credits: u16) {
    if let Some(header) = header.first_chunk() {
        trace::send(sk, header, credits);
    }
}

/// A message has arrived; `credits` may be sent now.
#[inline(always)]
pub(crate) fn receive(sk: &SockCore, header: &[u8], credits: u16) {
    if let Some(header) = header.first_chunk() {
        trace::receive(sk, header, credits);
    }
}

/// Bytes begin to wait for credits.
#[inline(always)]
pub(crate) fn credit_stall(sk: &SockCore, credits: u16, unsent: usize) {
    trace::credit_stall(sk, credits, u32::try_from(unsent).unwrap_or(u32::MAX));
}

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

/// `len` bytes of a call's memory are its own again; `done` of them have gone directly.
#[inline(always)]
pub(crate) fn zero_copy(sk: &SockCore, way: ZeroCopy, len: u32, done: u32) {
    trace::zero_copy(sk, way as u8, len, done);
}

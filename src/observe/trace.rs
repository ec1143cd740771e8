// SPDX-License-Identifier: GPL-2.0-only

//! Tracepoints: what happens on which connection, as it happens, for perf, trace-cmd or
//! `/sys/kernel/tracing/events/sdp`. What is in each event is in `trace.h`.

use crate::socket::SdpSock;
use crate::sys::errno::Errno;
use crate::sys::trace;

/// An attempt to connect, or to accept, has ended.
#[inline(always)]
pub(crate) fn connect(sk: &SdpSock, result: Result<(), Errno>) {
    trace::connect(sk, result.map_or_else(|e| e.0, |()| 0));
}

/// A connection has ended: both streams in order, or by an error, or by this end's reset.
#[inline(always)]
pub(crate) fn close(sk: &SdpSock, result: Result<(), Errno>) {
    trace::close(sk, result.map_or_else(|e| e.0, |()| 0));
}

/// A message was posted; `credits` more may follow.
#[inline(always)]
pub(crate) fn send(sk: &SdpSock, header: &[u8], credits: u16) {
    if let Some(header) = header.first_chunk() {
        trace::send(sk, header, credits);
    }
}

/// A message has arrived; `credits` may be sent now.
#[inline(always)]
pub(crate) fn receive(sk: &SdpSock, header: &[u8], credits: u16) {
    if let Some(header) = header.first_chunk() {
        trace::receive(sk, header, credits);
    }
}

/// Bytes begin to wait for credits.
#[inline(always)]
pub(crate) fn credit_stall(sk: &SdpSock, credits: u16, unsent: usize) {
    trace::credit_stall(sk, credits, u32::try_from(unsent).unwrap_or(u32::MAX));
}

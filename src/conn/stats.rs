// SPDX-License-Identifier: GPL-2.0-only

//! Counters of connections.
//!
//! The lock of a connection protects its counters. The namespace keeps the sum of destroyed
//! connections. A read of `/proc/net/sdpstats` adds the counters of existing connections.

use super::FallbackReason;
use crate::memory::protect::Refusal;
use crate::protocol::{Mid, Violation};
use core::num::Wrapping;

const MIDS: usize = Mid::ALL.len();

/// Increments the counter with this index.
pub(super) fn count(counts: &mut [u64], at: usize) {
    if let Some(n) = counts.get_mut(at) {
        *n = n.wrapping_add(1);
    }
}

fn add_each(to: &mut [u64], from: &[u64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = to.wrapping_add(*from);
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one connection, or the sum of many.
        pub(crate) struct Stats {
            $($(#[$doc])* pub(crate) $name: Wrapping<u64>,)*
            /// Messages posted, by [`Mid::index`].
            pub(crate) sent: [u64; MIDS],
            /// Messages received, by [`Mid::index`].
            pub(crate) received: [u64; MIDS],
            /// Number of `IPPROTO_SDP` sockets with each result, by [`FallbackReason::index`].
            pub(crate) outcomes: [u64; FallbackReason::ALL.len()],
            /// Blocks that were not write-protected, by [`Refusal::index`].
            pub(crate) async_refused: [u64; Refusal::COUNT],
            /// Connections aborted for a protocol violation, by [`Violation::index`].
            pub(crate) violations: [u64; Violation::COUNT],
        }

        impl Stats {
            pub(crate) const fn new() -> Self {
                Stats {
                    $($name: Wrapping(0),)*
                    sent: [0; MIDS],
                    received: [0; MIDS],
                    outcomes: [0; FallbackReason::ALL.len()],
                    async_refused: [0; Refusal::COUNT],
                    violations: [0; Violation::COUNT],
                }
            }

            pub(crate) fn add(&mut self, o: &Stats) {
                $(self.$name += o.$name;)*
                add_each(&mut self.sent, &o.sent);
                add_each(&mut self.received, &o.received);
                add_each(&mut self.outcomes, &o.outcomes);
                add_each(&mut self.async_refused, &o.async_refused);
                add_each(&mut self.violations, &o.violations);
            }
        }
    };
}

counters! {
    send_calls,
    receive_calls,
    /// Stream bytes posted to the transport.
    bytes_sent,
    /// Stream bytes received.
    bytes_received,
    /// Received bytes whose pages went to a pipe (splice(2)).
    bytes_spliced,
    send_completions,
    receive_completions,
    /// Times that the sender waited for credits.
    credit_stalls,
    /// Times that a send call waited for space.
    memory_waits,
    /// Enlargements of the receive buffers on the peer's request.
    resizes,
    keepalive_probes,
    /// Connections closed because the peer has suspended them (SuspComm).
    suspended,
    /// Connections that the transport lost.
    transport_errors,
    /// Connections that the peer reset.
    resets,
    /// Connections whose peer did not reply, or received no bytes, for too long.
    timeouts,
    /// Connections aborted because the peer did not return memory.
    withheld,
    /// Connection requests rejected because of a full backlog.
    backlog_drops,
    /// Connection requests without a valid Hello.
    bad_hellos,
    /// Requests that exceeded the limits of a user or namespace.
    limit_drops,
    /// Bytes sent that the peer read from the program's memory by RDMA.
    direct_sent,
    /// Bytes sent in messages without a copy, from pages of a program, file or pipe.
    direct_in_messages,
    /// Bytes received by RDMA READ into the program's memory.
    direct_received,
    /// Bytes sent by RDMA WRITE to the peer's reader.
    direct_written,
    /// Bytes received that the peer wrote into a reader's memory by RDMA.
    direct_filled,
    /// RDMA WRITEs queued while another one was in flight.
    direct_queued,
    /// Times that blocks crossed a SinkAvail, and were written to its memory instead.
    direct_void,
    /// Blocks of this end that the peer did not read completely.
    direct_returned,
    /// Times that this end refused the peer's blocks.
    direct_refused,
    /// Times that a call's memory could not be pinned, for any reason.
    unpinnable,
    /// Write-protected blocks sent after their call had returned.
    async_blocks,
    /// Times that a task waited to write to a block in flight.
    async_touched,
    /// Blocks copied because a task waited to write to them.
    async_copied,
    /// Times that memory was not pinned because of the limit of pinned pages.
    pin_refusals,
    /// Times that memory was not pinned because of the user's `RLIMIT_MEMLOCK`.
    pin_unlockable,
    /// Times that memory was still pinned from an earlier call.
    pin_hits,
    /// Pages currently pinned for sending; used only in sums.
    pinned_send,
    /// Pages currently pinned for receiving; used only in sums.
    pinned_receive,
}

impl Stats {
    pub(crate) fn count_outcome(&mut self, o: FallbackReason) {
        count(&mut self.outcomes, o.index());
    }
}

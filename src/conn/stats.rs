// SPDX-License-Identifier: GPL-2.0-only

//! What is counted.
//!
//! Each connection counts for itself, under the lock that it holds anyway; the namespace adds up
//! those that are gone, and a reader of `/proc/net/sdpstats` adds those that are there.

use super::Outcome;
use crate::memory::protect::Refusal;
use crate::protocol::{Mid, Violation};

const MIDS: usize = Mid::ALL.len();

fn add_each(to: &mut [u64], from: &[u64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = to.wrapping_add(*from);
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one connection, or the sum of many.
        pub(crate) struct Stats {
            $($(#[$doc])* pub(crate) $name: u64,)*
            /// Messages posted, by [`Mid::index`].
            pub(crate) sent: [u64; MIDS],
            /// Messages received, by [`Mid::index`].
            pub(crate) received: [u64; MIDS],
            /// What became of `IPPROTO_SDP` sockets, by [`Outcome::index`].
            pub(crate) outcomes: [u64; Outcome::ALL.len()],
            /// Blocks that were not protected, by [`Refusal::index`].
            pub(crate) async_refused: [u64; Refusal::COUNT],
            /// Connections that were aborted for what the peer sent, by [`Violation::index`].
            pub(crate) violations: [u32; Violation::COUNT],
        }

        impl Stats {
            /// All zero.
            pub(crate) const fn new() -> Self {
                Stats {
                    $($name: 0,)*
                    sent: [0; MIDS],
                    received: [0; MIDS],
                    outcomes: [0; Outcome::ALL.len()],
                    async_refused: [0; Refusal::COUNT],
                    violations: [0; Violation::COUNT],
                }
            }

            /// Adds the counters of a connection.
            pub(crate) fn add(&mut self, o: &Stats) {
                $(self.$name = self.$name.wrapping_add(o.$name);)*
                add_each(&mut self.sent, &o.sent);
                add_each(&mut self.received, &o.received);
                add_each(&mut self.outcomes, &o.outcomes);
                add_each(&mut self.async_refused, &o.async_refused);
                for (to, from) in self.violations.iter_mut().zip(o.violations) {
                    *to = to.wrapping_add(from);
                }
            }
        }
    };
}

counters! {
    /// sendmsg(2) calls.
    send_calls,
    /// recvmsg(2) calls.
    receive_calls,
    /// Stream bytes posted to the transport.
    bytes_sent,
    /// Stream bytes received.
    bytes_received,
    /// Send completions seen.
    send_completions,
    /// Receive completions seen.
    receive_completions,
    /// Times that sending had to wait for credits.
    credit_stalls,
    /// Times that a send call had to wait for room.
    memory_waits,
    /// Receive buffers made larger on the peer's wish.
    resizes,
    /// Keepalive probes.
    keepalive_probes,
    /// Connections that were suspended by the peer, which ends them.
    suspended,
    /// Connections that the transport has lost.
    transport_errors,
    /// Connections that the peer has reset.
    resets,
    /// Connections whose peer was silent for too long, or took no bytes.
    timeouts,
    /// Connections that were lost because the peer did not give memory back.
    withheld,
    /// Requests to connect that came while the backlog was full.
    backlog_drops,
    /// Requests to connect that were no valid Hello.
    bad_hellos,
    /// Requests beyond the limits of a user or namespace.
    limit_drops,
    /// Those of the bytes sent that the peer read straight from the program's memory.
    direct_sent,
    /// Those of the bytes received that were read straight into the program's memory.
    direct_received,
    /// Those of the bytes sent that were written straight to the peer's reader.
    direct_written,
    /// Those of the bytes received that the peer has written straight to a reader's memory.
    direct_filled,
    /// Pieces to write that stood in line behind another one.
    direct_queued,
    /// Bytes that a task here copied for the peer's transfer, on one machine.
    direct_helped,
    /// Times that blocks of ours met memory of the peer's reader, to which they were written then.
    direct_void,
    /// Blocks of ours that were not read, or not to the end.
    direct_returned,
    /// Times that the peer's blocks were refused.
    direct_refused,
    /// Times that a call's memory was not pinned, for whatever reason.
    unpinnable,
    /// Blocks that went although their call had returned, protected.
    async_blocks,
    /// Times that somebody waited to write to one.
    async_touched,
    /// Blocks whose bytes were copied because somebody waited to write there.
    async_copied,
    /// Times that memory was not pinned because the budget was used up.
    pin_refusals,
    /// Times that the user's `RLIMIT_MEMLOCK` was.
    pin_unlockable,
    /// Times that memory was still pinned from the last time.
    pin_hits,
    /// Pages that are pinned now, for sending. Only in a sum.
    pinned_send,
    /// Pages that are pinned now, for receiving. Only in a sum.
    pinned_receive,
}

impl Stats {
    /// Counts a block that was not protected.
    pub(crate) fn count_unprotected(&mut self, why: usize) {
        if let Some(n) = self.async_refused.get_mut(why) {
            *n = n.wrapping_add(1);
        }
    }

    /// Counts a violation.
    pub(crate) fn violation(&mut self, v: Violation) {
        if let Some(n) = self.violations.get_mut(v.index()) {
            *n = n.wrapping_add(1);
        }
    }

    /// Counts what became of an `IPPROTO_SDP` socket.
    pub(crate) fn count_outcome(&mut self, o: Outcome) {
        if let Some(n) = self.outcomes.get_mut(o.index()) {
            *n = n.wrapping_add(1);
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! What is counted.
//!
//! Each connection counts for itself, under the lock that it holds anyway; the namespace adds up
//! those that are gone, and a reader of `/proc/net/sdpstats` adds those that are there.

use super::Outcome;
use crate::protocol::{Mid, Violation};

/// Counters of one connection, or the sum of many.
pub(crate) struct Stats {
    /// sendmsg(2) calls.
    pub(crate) send_calls: u64,
    /// recvmsg(2) calls.
    pub(crate) receive_calls: u64,
    /// Stream bytes posted to the transport.
    pub(crate) bytes_sent: u64,
    /// Stream bytes received.
    pub(crate) bytes_received: u64,
    /// Messages posted, by [`Mid::index`].
    pub(crate) sent: [u64; MIDS],
    /// Messages received, by [`Mid::index`].
    pub(crate) received: [u64; MIDS],
    /// Send completions seen.
    pub(crate) send_completions: u64,
    /// Receive completions seen.
    pub(crate) receive_completions: u64,
    /// Times that sending had to wait for credits.
    pub(crate) credit_stalls: u64,
    /// Times that a send call had to wait for room.
    pub(crate) memory_waits: u64,
    /// Receive buffers made larger on the peer's wish.
    pub(crate) resizes: u64,
    /// Keepalive probes.
    pub(crate) keepalive_probes: u64,
    /// Connections that were suspended by the peer, which ends them.
    pub(crate) suspended: u64,
    /// Connections that the transport has lost.
    pub(crate) transport_errors: u64,
    /// Requests to connect that came while the backlog was full.
    pub(crate) backlog_drops: u64,
    /// Requests to connect that were no valid Hello.
    pub(crate) bad_hellos: u64,
    /// Requests beyond the limits of a user or namespace.
    pub(crate) limit_drops: u64,
    /// Those of the bytes sent that the peer read straight from the program's memory.
    pub(crate) direct_sent: u64,
    /// Those of the bytes received that were read straight into the program's memory.
    pub(crate) direct_received: u64,
    /// Those of the bytes sent that were written straight to the peer's reader.
    pub(crate) direct_written: u64,
    /// Those of the bytes received that the peer has written straight to a reader's memory.
    pub(crate) direct_filled: u64,
    /// Pieces to write that stood in line behind another one.
    pub(crate) direct_queued: u64,
    /// Bytes that a task here copied for the peer's transfer, on one machine.
    pub(crate) direct_helped: u64,
    /// Times that blocks of ours met memory of the peer's reader, to which they were written then.
    pub(crate) direct_void: u64,
    /// Blocks of ours that were not read, or not to the end.
    pub(crate) direct_returned: u64,
    /// Times that the peer's blocks were refused.
    pub(crate) direct_refused: u64,
    /// Times that a call's memory was not pinned, for whatever reason.
    pub(crate) unpinnable: u64,
    /// Times that memory was not pinned because the budget was used up.
    pub(crate) pin_refusals: u64,
    /// Times that the user's `RLIMIT_MEMLOCK` was.
    pub(crate) pin_unlockable: u64,
    /// Times that memory was still pinned from the last time.
    pub(crate) pin_hits: u64,
    /// Pages that are pinned now, for sending. Only in a sum.
    pub(crate) pinned_send: u64,
    /// Pages that are pinned now, for receiving. Only in a sum.
    pub(crate) pinned_receive: u64,
    /// What became of `IPPROTO_SDP` sockets, by [`Outcome::index`].
    pub(crate) outcomes: [u64; Outcome::ALL.len()],
    /// Connections that were aborted for what the peer sent, by [`Violation::index`].
    pub(crate) violations: [u32; Violation::COUNT],
}

const MIDS: usize = Mid::ALL.len();

impl Stats {
    /// All zero.
    pub(crate) const fn new() -> Self {
        Stats {
            send_calls: 0,
            receive_calls: 0,
            bytes_sent: 0,
            bytes_received: 0,
            sent: [0; MIDS],
            received: [0; MIDS],
            send_completions: 0,
            receive_completions: 0,
            credit_stalls: 0,
            memory_waits: 0,
            resizes: 0,
            keepalive_probes: 0,
            suspended: 0,
            transport_errors: 0,
            backlog_drops: 0,
            bad_hellos: 0,
            limit_drops: 0,
            direct_sent: 0,
            direct_received: 0,
            direct_written: 0,
            direct_filled: 0,
            direct_queued: 0,
            direct_helped: 0,
            direct_void: 0,
            direct_returned: 0,
            direct_refused: 0,
            unpinnable: 0,
            pin_refusals: 0,
            pin_unlockable: 0,
            pin_hits: 0,
            pinned_send: 0,
            pinned_receive: 0,
            outcomes: [0; Outcome::ALL.len()],
            violations: [0; Violation::COUNT],
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

    /// Adds the counters of a connection.
    pub(crate) fn add(&mut self, o: &Stats) {
        let pairs = [
            (&mut self.send_calls, o.send_calls),
            (&mut self.receive_calls, o.receive_calls),
            (&mut self.bytes_sent, o.bytes_sent),
            (&mut self.bytes_received, o.bytes_received),
            (&mut self.send_completions, o.send_completions),
            (&mut self.receive_completions, o.receive_completions),
            (&mut self.credit_stalls, o.credit_stalls),
            (&mut self.memory_waits, o.memory_waits),
            (&mut self.resizes, o.resizes),
            (&mut self.keepalive_probes, o.keepalive_probes),
            (&mut self.suspended, o.suspended),
            (&mut self.transport_errors, o.transport_errors),
            (&mut self.backlog_drops, o.backlog_drops),
            (&mut self.bad_hellos, o.bad_hellos),
            (&mut self.limit_drops, o.limit_drops),
            (&mut self.direct_sent, o.direct_sent),
            (&mut self.direct_received, o.direct_received),
            (&mut self.direct_written, o.direct_written),
            (&mut self.direct_filled, o.direct_filled),
            (&mut self.direct_queued, o.direct_queued),
            (&mut self.direct_helped, o.direct_helped),
            (&mut self.direct_void, o.direct_void),
            (&mut self.direct_returned, o.direct_returned),
            (&mut self.direct_refused, o.direct_refused),
            (&mut self.unpinnable, o.unpinnable),
            (&mut self.pin_refusals, o.pin_refusals),
            (&mut self.pin_unlockable, o.pin_unlockable),
            (&mut self.pin_hits, o.pin_hits),
        ];
        let mids = self
            .sent
            .iter_mut()
            .zip(o.sent)
            .chain(self.received.iter_mut().zip(o.received))
            .chain(self.outcomes.iter_mut().zip(o.outcomes));
        for (to, from) in pairs.into_iter().chain(mids) {
            *to = to.wrapping_add(from);
        }
        for (to, from) in self.violations.iter_mut().zip(o.violations) {
            *to = to.wrapping_add(from);
        }
    }
}

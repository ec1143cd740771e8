// SPDX-License-Identifier: GPL-2.0-only

//! `/proc/net/sdp` has a row for each socket of the network namespace, `/proc/net/sdpstats` a row
//! for each counter. Both files have the columns and names of OFED's ib_sdp, for programs that
//! parse them. `/proc/net/sdp_ipproto` shows the protocol of each `IPPROTO_SDP` socket, for which
//! `sdp` and `sdpstats` have no column.

use super::peers::PeerCache;
use super::Netns;
use crate::conn::FallbackReason;
use crate::memory::pressure;
use crate::memory::protect::Refusal;
use crate::protocol::{Mid, Violation};
use crate::sys::address::Address;
use crate::sys::net::netns::ProcFile;
use core::fmt::{self, Write};
use core::net::IpAddr;
use core::num::Wrapping;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::seq_print;
use kernel::str::Formatter;

pub(super) const FILES: &[(&CStr, ProcFile<Netns>)] = &[
    (c"sdp", SOCKETS),
    (c"sdp_ipproto", CHOICES),
    (c"sdp_peers", PEERS),
    (c"sdpstats", STATISTICS),
];

const SOCKETS: ProcFile<Netns> = ProcFile::Rows {
    next: Netns::next,
    heading: |to| {
        let columns = "local_address rem_address        uid inode   rx_queue tx_queue state";
        line(to, format_args!("  sl  {columns}"));
    },
    show: |sk, slot, to| {
        let (rx, tx) = sk.connection().queues();
        let (local, remote) = (Hex(sk.local(), sk.is_v6()), Hex(sk.remote(), sk.is_v6()));
        let (uid, inode, state) = (sk.uid_for(to), sk.inode(), sk.state() as u8);
        line(
            to,
            format_args!("{slot:4}: {local} {remote} {uid:5} {inode}\t{rx:08X}:{tx:08X} {state:X}"),
        );
    },
};

/// Writes a line, padded to the width that readers expect.
fn line(to: &SeqFile, text: fmt::Arguments<'_>) {
    let mut buffer = [0; 200];
    let mut formatter = Formatter::new(&mut buffer);
    let _ = formatter.write_fmt(text);
    let bytes = buffer.get(..formatter.bytes_written()).unwrap_or_default();
    seq_print!(to, "{:<149}\n", core::str::from_utf8(bytes).unwrap_or(""));
}

/// Formats the address and port of a socket in hexadecimal digits, as `/proc/net/tcp` does, or
/// `/proc/net/tcp6` if true: 32-bit words in the machine's byte order.
struct Hex(Address, bool);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mapped = self.0.mapped();
        let octets: &[u8] = match &self.0.ip {
            IpAddr::V4(ip) if !self.1 => &ip.octets(),
            _ => &mapped,
        };
        for word in octets.chunks_exact(4) {
            write!(f, "{:08X}", word.try_into().map_or(0, u32::from_ne_bytes))?;
        }
        write!(f, ":{:04X}", self.0.port)
    }
}

/// A row for each open `IPPROTO_SDP` socket, with its protocol, and for TCP the reason. The
/// addresses of a socket are in the row with its inode in `sdp`, `tcp` or `tcp6`.
const CHOICES: ProcFile<Netns> = ProcFile::Rows {
    next: Netns::next_either,
    heading: |to| seq_print!(to, "inode uid choice\n"),
    show: |sk, _, to| {
        match sk.inode() {
            // the socket is closed, but not destroyed yet
            0 => {}
            inode => {
                let choice = sk.connection().choice();
                seq_print!(to, "{} {} {}\n", inode, sk.uid_for(to), choice)
            }
        }
    },
};

/// A row for each destination in the cache. Writing an address removes its
/// entries; an empty line removes all.
const PEERS: ProcFile<Netns> = ProcFile::Text {
    show: |netns, to| {
        seq_print!(to, "address port choice seconds_left\n");
        for slot in 0..PeerCache::SLOTS {
            let row = netns.peer_cache.lock().row(slot);
            if let Some((peer, left)) = row {
                let choice = if peer.answers { "SDP" } else { "TCP" };
                let (ip, port) = (peer.ip, peer.port);
                line(to, format_args!("{ip} {port} {choice} {left}"));
            }
        }
    },
    write: |netns, line| netns.peer_cache.lock().flush(line),
};

/// Any write clears the counters.
const STATISTICS: ProcFile<Netns> = ProcFile::Text {
    show: |netns, to| {
        let s = netns.stats();
        seq_print!(to, "SDP statistics:\n");
        counter(to, "rx_bytes", s.bytes_received);
        counter(to, "tx_bytes", s.bytes_sent);
        counter(to, "sdp_sendmsg() calls", s.send_calls);
        messages(to, "post_send", &s.sent);
        counter(to, "tx completions", s.send_completions);
        seq_print!(to, "\n");
        counter(to, "sdp_recvmsg() calls", s.receive_calls);
        messages(to, "received", &s.received);
        counter(to, "rx completions", s.receive_completions);
        counter(to, "send_wait_for_mem", s.memory_waits);
        counter(to, "send_miss_no_credits", s.credit_stalls);
        counter(to, "rcvbuf resizes", s.resizes);
        counter(to, "keepalive timer", s.keepalive_probes);
        counter(to, "zcopy tx_bytes", s.direct_sent + s.direct_written);
        counter(to, "zcopy rx_bytes", s.direct_received + s.direct_filled);
        counter(to, "zcopy spliced", s.bytes_spliced);
        counter(to, "zcopy in messages", s.direct_in_messages);
        counter(to, "zcopy written", s.direct_written);
        counter(to, "zcopy filled", s.direct_filled);
        counter(to, "zcopy queued", s.direct_queued);
        counter(to, "zcopy void", s.direct_void);
        counter(to, "zcopy returned", s.direct_returned);
        counter(to, "zcopy refused", s.direct_refused);
        counter(to, "zcopy unpinnable", s.unpinnable);
        // counts all namespaces, as TCP's `mem` in /proc/net/sockstat does
        counter(to, "buffer pages", Wrapping(pressure::pages_in_use()));
        counter(to, "async blocks", s.async_blocks);
        counter(to, "async touched", s.async_touched);
        counter(to, "async copied", s.async_copied);
        for (name, n) in Refusal::NAMES.split(' ').zip(s.async_refused) {
            if n > 0 {
                seq_print!(to, "async unprotected {:<14}\t: {}\n", name, n);
            }
        }
        counter(to, "pinned pages send", s.pinned_send);
        counter(to, "pinned pages recv", s.pinned_receive);
        counter(to, "pin over budget", s.pin_refusals);
        counter(to, "pin over memlock", s.pin_unlockable);
        counter(to, "pin cache hits", s.pin_hits);
        seq_print!(to, "Refused and lost:\n");
        counter(to, "- backlog full", s.backlog_drops);
        counter(to, "- limit reached", s.limit_drops);
        counter(to, "- bad hello", s.bad_hellos);
        counter(to, "- suspended by peer", s.suspended);
        counter(to, "- transport error", s.transport_errors);
        counter(to, "- reset by peer", s.resets);
        counter(to, "- timed out", s.timeouts);
        counter(to, "- memory withheld", s.withheld);
        for v in Violation::all() {
            let n = s.violations.get(v.index()).copied().unwrap_or(0);
            if n > 0 {
                seq_print!(to, "- aborted {:<24}\t: {}\n", v.name(), n);
            }
        }
        seq_print!(to, "IPPROTO_SDP:\n");
        for (o, n) in FallbackReason::ALL.into_iter().zip(s.outcomes) {
            seq_print!(to, "- {:<20}\t\t: {}\n", o.name(), n);
        }
    },
    write: |netns, _| {
        netns.clear_stats();
        Ok(())
    },
};

/// Writes a line with one counter.
fn counter(to: &SeqFile, name: &str, value: Wrapping<u64>) {
    seq_print!(to, "{:<19}\t\t: {}\n", name, value.0);
}

/// Writes a line for each kind of message.
fn messages(to: &SeqFile, what: &str, counts: &[u64; Mid::ALL.len()]) {
    for (name, n) in MESSAGES.split(' ').zip(counts) {
        seq_print!(to, "{} SDP_MID_{:<12}\t: {}\n", what, name, n);
    }
}

/// Names of the messages in OFED's ib_sdp, or in its style, in the order of [`Mid::ALL`].
const MESSAGES: &str = "HELLO HELLO_ACK DISCONN ABORT SENDSM RDMAWRCOMPL RDMARDCOMPL MODECHANGE \
    SRCAVAIL_CANCEL SINKAVAIL_CANCEL SINKCANCEL_ACK CHRCVBUF CHRCVBUF_ACK SUSPCOMM SUSPCOMM_ACK \
    SINKAVAIL SRCAVAIL DATA";

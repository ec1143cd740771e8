// SPDX-License-Identifier: GPL-2.0-only

//! `/proc/net/sdp` has a row for each socket of the network namespace, `/proc/net/sdpstats` a row
//! for each counter. Both files have the columns and names of OFED's ib_sdp, for programs that
//! parse them. `/proc/net/sdp_ipproto` shows the protocol of each `IPPROTO_SDP` socket, for which
//! the other two files have no column.

use super::Netns;
use crate::conn::{FallbackReason, SdpSock};
use crate::memory::pressure;
use crate::memory::protect::Refusal;
use crate::protocol::{Mid, Violation};
use crate::socket::ipproto::PeerCache;
use crate::sys::address::Address;
use crate::sys::net::netns::{ProcEntry, ProcFile, ProcRows};
use core::fmt::Write;
use core::net::IpAddr;
use core::num::Wrapping;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::seq_print;
use kernel::sync::aref::ARef;

pub(super) const FILES: &[ProcEntry<Netns>] = &[
    ProcEntry::rows::<Sockets>(),
    ProcEntry::rows::<Choices>(),
    ProcEntry::of::<Peers>(),
    ProcEntry::of::<Statistics>(),
];

/// `/proc/net/sdp`.
struct Sockets;

impl ProcRows for Sockets {
    type Of = Netns;
    type Row = SdpSock;
    const NAME: &'static CStr = c"sdp";

    fn heading(to: &SeqFile) {
        let mut line = Line::new();
        let _ = write!(
            line,
            "  sl  local_address rem_address        uid inode   rx_queue tx_queue state"
        );
        line.put(to);
    }

    fn next(netns: &Netns, least: usize) -> Option<ARef<SdpSock>> {
        netns.next(least)
    }

    fn show(sk: &SdpSock, slot: i64, to: &SeqFile) {
        let mut line = Line::new();
        let _ = row(&mut line, sk, slot, sk.uid_for(to));
        line.put(to);
    }
}

/// Writes a row of `/proc/net/sdp`.
fn row(line: &mut Line, sk: &SdpSock, slot: i64, uid: u32) -> core::fmt::Result {
    let (rx, tx) = sk.connection().queues();
    write!(line, "{slot:4}: ")?;
    address(line, &sk.local(), sk.is_v6())?;
    write!(line, " ")?;
    address(line, &sk.remote(), sk.is_v6())?;
    write!(
        line,
        " {uid:5} {}\t{rx:08X}:{tx:08X} {:X}",
        sk.inode(),
        sk.state() as u8
    )
}

/// Writes an address and port in hexadecimal digits, as in `/proc/net/tcp` and `/proc/net/tcp6`:
/// 32-bit words in the machine's byte order.
fn address(line: &mut Line, a: &Address, v6: bool) -> core::fmt::Result {
    let mapped = a.mapped();
    let octets: &[u8] = match &a.ip {
        IpAddr::V4(ip) if !v6 => &ip.octets(),
        _ => &mapped,
    };
    for word in octets.chunks_exact(4) {
        let word = word.try_into().map_or(0, u32::from_ne_bytes);
        write!(line, "{word:08X}")?;
    }
    write!(line, ":{:04X}", a.port)
}

/// A line of text under construction.
struct Line {
    text: [u8; 200],
    len: usize,
}

impl Line {
    fn new() -> Self {
        Line {
            text: [0; 200],
            len: 0,
        }
    }

    /// Writes the line, padded to the width that readers expect.
    fn put(self, to: &SeqFile) {
        let text = self
            .text
            .get(..self.len)
            .and_then(|t| core::str::from_utf8(t).ok());
        seq_print!(to, "{:<149}\n", text.unwrap_or(""));
    }
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        let end = self.len.saturating_add(s.len());
        self.text
            .get_mut(self.len..end)
            .ok_or(core::fmt::Error)?
            .copy_from_slice(s.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// `/proc/net/sdp_ipproto`: a row for each open `IPPROTO_SDP` socket, with its protocol, and the
/// reason if that is TCP. Addresses are in the row of the inode in `sdp`, `tcp` or `tcp6`.
struct Choices;

impl ProcRows for Choices {
    type Of = Netns;
    type Row = SdpSock;
    const NAME: &'static CStr = c"sdp_ipproto";

    fn heading(to: &SeqFile) {
        seq_print!(to, "inode uid choice\n");
    }

    fn next(netns: &Netns, least: usize) -> Option<ARef<SdpSock>> {
        netns.next_either(least)
    }

    fn show(sk: &SdpSock, _: i64, to: &SeqFile) {
        match sk.inode() {
            // closed, but not destroyed yet
            0 => {}
            inode => {
                let choice = sk.connection().choice();
                seq_print!(to, "{} {} {}\n", inode, sk.uid_for(to), choice)
            }
        }
    }
}

/// `/proc/net/sdp_peers`: a row for each destination in the cache. Writing an address removes its
/// entries; an empty line removes all.
struct Peers;

impl ProcFile for Peers {
    type Of = Netns;
    const NAME: &'static CStr = c"sdp_peers";
    const WRITABLE: bool = true;

    fn show(netns: &Netns, to: &SeqFile) {
        seq_print!(to, "address port choice seconds_left\n");
        for slot in 0..PeerCache::SLOTS {
            let row = netns.peer_cache.lock().row(slot);
            if let Some((peer, left)) = row {
                let mut line = Line::new();
                let choice = if peer.answers { "SDP" } else { "TCP" };
                let _ = write!(line, "{} {} {choice} {left}", peer.ip, peer.port);
                line.put(to);
            }
        }
    }

    fn written(netns: &Netns, line: &[u8]) -> Result {
        netns.peer_cache.lock().flush(line)
    }
}

/// `/proc/net/sdpstats`. `/proc/net/sdpstats`: any write clears the counters.
struct Statistics;

impl ProcFile for Statistics {
    type Of = Netns;
    const NAME: &'static CStr = c"sdpstats";
    const WRITABLE: bool = true;

    fn show(netns: &Netns, to: &SeqFile) {
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
        // of all namespaces, as TCP's `mem` in /proc/net/sockstat
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
    }

    fn written(netns: &Netns, _: &[u8]) -> Result {
        netns.clear_stats();
        Ok(())
    }
}

/// Writes a line with one counter.
fn counter(to: &SeqFile, name: &str, value: Wrapping<u64>) {
    seq_print!(to, "{:<19}\t\t: {}\n", name, value.0);
}

/// Writes a line for each kind of message.
fn messages(to: &SeqFile, what: &str, counts: &[u64; Mid::ALL.len()]) {
    for (mid, n) in Mid::ALL.into_iter().zip(counts) {
        seq_print!(to, "{} {:<20}\t: {}\n", what, ofed_name(mid), n);
    }
}

/// Returns the name of a message in OFED's ib_sdp, or in its style.
fn ofed_name(mid: Mid) -> &'static str {
    match mid {
        Mid::Hello => "SDP_MID_HELLO",
        Mid::HelloAck => "SDP_MID_HELLO_ACK",
        Mid::DisConn => "SDP_MID_DISCONN",
        Mid::AbortConn => "SDP_MID_ABORT",
        Mid::SendSm => "SDP_MID_SENDSM",
        Mid::RdmaWrCompl => "SDP_MID_RDMAWRCOMPL",
        Mid::RdmaRdCompl => "SDP_MID_RDMARDCOMPL",
        Mid::ModeChange => "SDP_MID_MODECHANGE",
        Mid::SrcAvailCancel => "SDP_MID_SRCAVAIL_CANCEL",
        Mid::SinkAvailCancel => "SDP_MID_SINKAVAIL_CANCEL",
        Mid::SinkCancelAck => "SDP_MID_SINKCANCEL_ACK",
        Mid::ChRcvBuf => "SDP_MID_CHRCVBUF",
        Mid::ChRcvBufAck => "SDP_MID_CHRCVBUF_ACK",
        Mid::SuspComm => "SDP_MID_SUSPCOMM",
        Mid::SuspCommAck => "SDP_MID_SUSPCOMM_ACK",
        Mid::SinkAvail => "SDP_MID_SINKAVAIL",
        Mid::SrcAvail => "SDP_MID_SRCAVAIL",
        Mid::Data => "SDP_MID_DATA",
    }
}

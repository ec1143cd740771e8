// SPDX-License-Identifier: GPL-2.0-only

//! `/proc/net/sdp`, a row per socket, and `/proc/net/sdpstats`, a row per counter, of the network
//! namespace. Their form is that of OFED's ib_sdp, for the programs that read it.

use crate::protocol::{Mid, Violation};
use crate::socket::stats::Stats;
use crate::socket::{Namespace, SdpSock, Socket};
use crate::sys::net::address::Address;
use crate::sys::net::family;
use crate::sys::net::proc::{self, ProcFile};
use crate::sys::rdma::Net;
use core::fmt::Write;
use core::net::IpAddr;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::seq_print;

/// Makes the files of a namespace.
pub(crate) fn create(net: &Net) -> Result {
    proc::create::<Sockets>(net)?;
    proc::create::<Statistics>(net).inspect_err(|_| proc::remove::<Sockets>(net))
}

/// Removes them.
pub(crate) fn remove(net: &Net) {
    proc::remove::<Statistics>(net);
    proc::remove::<Sockets>(net);
}

fn namespace(net: &Net) -> &Namespace {
    family::netns_of::<Socket>(net)
}

/// `/proc/net/sdp`.
struct Sockets;

impl ProcFile for Sockets {
    const NAME: &'static CStr = c"sdp";

    fn show(net: &Net, to: &SeqFile) {
        let mut line = Line::new();
        let _ = write!(
            line,
            "  sl  local_address                         remote_address                        \
             uid inode     rx_queue:tx_queue st"
        );
        line.put(to);
        let mut slot = 0;
        namespace(net).for_each(|sk| {
            let _ = row(&mut line, sk, slot);
            line.put(to);
            slot += 1;
        });
    }
}

/// A row of `/proc/net/sdp`.
fn row(line: &mut Line, sk: &SdpSock, slot: u32) -> core::fmt::Result {
    let (rx, tx) = sk.data().connection.lock().queues();
    write!(line, "{slot:4}: ")?;
    address(line, &sk.local())?;
    write!(line, " ")?;
    address(line, &sk.remote())?;
    write!(line, " {:5} {:<9} {rx:08X}:{tx:08X} {:02X}", sk.uid(), sk.inode(), sk.state() as u8)
}

/// An address and port in hexadecimal digits, as in `/proc/net/tcp` and `/proc/net/tcp6`: words of
/// the address in the machine's byte order.
fn address(line: &mut Line, a: &Address) -> core::fmt::Result {
    match a.ip {
        IpAddr::V4(ip) => write!(line, "{:08X}", u32::from_ne_bytes(ip.octets()))?,
        IpAddr::V6(ip) => {
            for w in ip.octets().chunks_exact(4) {
                write!(line, "{:08X}", u32::from_ne_bytes([w[0], w[1], w[2], w[3]]))?;
            }
        }
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
        Line { text: [0; 200], len: 0 }
    }

    /// Writes the line, padded to the width that readers expect, and begins a new one.
    fn put(&mut self, to: &SeqFile) {
        let text = self.text.get(..self.len).and_then(|t| core::str::from_utf8(t).ok());
        seq_print!(to, "{:<149}\n", text.unwrap_or(""));
        self.len = 0;
    }
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        let end = self.len + s.len();
        self.text.get_mut(self.len..end).ok_or(core::fmt::Error)?.copy_from_slice(s.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// `/proc/net/sdpstats`. Any write clears the counters.
struct Statistics;

impl ProcFile for Statistics {
    const NAME: &'static CStr = c"sdpstats";
    const WRITABLE: bool = true;

    fn show(net: &Net, to: &SeqFile) {
        let s = namespace(net).stats();
        seq_print!(to, "SDP statistics:\n");
        for (name, value) in plain(&s) {
            seq_print!(to, "{:<32}\t\t: {}\n", name, value);
        }
        for (what, counts) in [("posts", &s.sent), ("receives", &s.received)] {
            for mid in Mid::ALL {
                let n = counts.get(mid.index()).copied().unwrap_or(0);
                if n > 0 {
                    seq_print!(to, "{} {:<24}\t\t: {}\n", what, mid.name(), n);
                }
            }
        }
        for v in Violation::all() {
            let n = s.violations.get(v.index()).copied().unwrap_or(0);
            if n > 0 {
                seq_print!(to, "aborted: {:<24}\t\t: {}\n", v.name(), n);
            }
        }
    }

    fn written(net: &Net) {
        namespace(net).clear_stats();
    }
}

/// The counters that are plain numbers, by the names of ib_sdp where it has them.
fn plain(s: &Stats) -> [(&'static str, u64); 15] {
    [
        ("bytes_sent", s.bytes_sent),
        ("bytes_received", s.bytes_received),
        ("sendmsg() calls", s.send_calls),
        ("recvmsg() calls", s.receive_calls),
        ("send completions", s.send_completions),
        ("receive completions", s.receive_completions),
        ("waits for credits", s.credit_stalls),
        ("waits for memory", s.memory_waits),
        ("receive buffer resizes", s.resizes),
        ("keepalive probes", s.keepalive_probes),
        ("suspended by peer", s.suspended),
        ("transport errors", s.transport_errors),
        ("backlog drops", s.backlog_drops),
        ("bad hellos", s.bad_hellos),
        ("limit drops", s.limit_drops),
    ]
}


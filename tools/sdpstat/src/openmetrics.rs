// SPDX-License-Identifier: GPL-2.0-only

//! Writes sockets and counters for Prometheus: OpenMetrics 1.0, or version 0.0.4 of Prometheus's
//! own text format.

use crate::options::Format;
use crate::sockets::Socket;
use sdp_info::{Counter, Statistics};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Type of a metric.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Grows until it is cleared.
    Counter,
    /// Anything.
    Gauge,
}
use Kind::{Counter as Sum, Gauge};

/// Single lines of `/proc/net/sdpstats`: name in the file, name of the metric, kind and help text.
/// A metric whose name ends in `_bytes` has that unit. `make check` compares the names with those
/// that the module prints.
const LINES: &[(&str, &str, Kind, &str)] = &[
    (
        "rx_bytes",
        "sdp_received_bytes",
        Sum,
        "Bytes of streams received.",
    ),
    ("tx_bytes", "sdp_sent_bytes", Sum, "Bytes of streams sent."),
    (
        "sdp_sendmsg() calls",
        "sdp_send_calls",
        Sum,
        "Calls to send.",
    ),
    (
        "sdp_recvmsg() calls",
        "sdp_receive_calls",
        Sum,
        "Calls to receive.",
    ),
    (
        "tx completions",
        "sdp_send_completions",
        Sum,
        "Send completions polled.",
    ),
    (
        "rx completions",
        "sdp_receive_completions",
        Sum,
        "Receive completions polled.",
    ),
    (
        "send_wait_for_mem",
        "sdp_memory_waits",
        Sum,
        "Times that a send call waited for space in the send buffer.",
    ),
    (
        "send_miss_no_credits",
        "sdp_credit_stalls",
        Sum,
        "Times that bytes waited for credits of the peer.",
    ),
    (
        "rcvbuf resizes",
        "sdp_receive_buffer_resizes",
        Sum,
        "Times that receive buffers grew at the peer's request.",
    ),
    (
        "keepalive timer",
        "sdp_keepalive_probes",
        Sum,
        "Keepalive probes sent.",
    ),
    (
        "zcopy tx_bytes",
        "sdp_zcopy_sent_bytes",
        Sum,
        "Bytes sent without a copy.",
    ),
    (
        "zcopy rx_bytes",
        "sdp_zcopy_received_bytes",
        Sum,
        "Bytes received without a copy.",
    ),
    (
        "zcopy spliced",
        "sdp_zcopy_spliced_bytes",
        Sum,
        "Bytes received whose pages went to a pipe (splice).",
    ),
    (
        "zcopy in messages",
        "sdp_zcopy_in_messages_bytes",
        Sum,
        "Bytes sent in messages from pages of a program, file or pipe.",
    ),
    (
        "zcopy written",
        "sdp_zcopy_written_bytes",
        Sum,
        "Bytes written to the peer's memory by RDMA WRITE.",
    ),
    (
        "zcopy filled",
        "sdp_zcopy_filled_bytes",
        Sum,
        "Bytes that the peer wrote to memory of this host by RDMA WRITE.",
    ),
    (
        "zcopy queued",
        "sdp_zcopy_queued",
        Sum,
        "Blocks queued behind a block that was being written.",
    ),
    (
        "zcopy void",
        "sdp_zcopy_void",
        Sum,
        "Blocks whose advert crossed an advert of the peer, and that were written to its memory.",
    ),
    (
        "zcopy returned",
        "sdp_zcopy_returned",
        Sum,
        "Blocks that the peer did not read to the end.",
    ),
    (
        "zcopy refused",
        "sdp_zcopy_refused",
        Sum,
        "Blocks of the peer that this end refused to read.",
    ),
    (
        "zcopy unpinnable",
        "sdp_zcopy_unpinnable",
        Sum,
        "Times that memory of a call was not pinned.",
    ),
    (
        "async blocks",
        "sdp_async_blocks",
        Sum,
        "Blocks sent after their call had returned (SDP_ASYNC_SEND).",
    ),
    (
        "async touched",
        "sdp_async_touched",
        Sum,
        "Writes by programs to blocks in flight that waited (SDP_ASYNC_SEND).",
    ),
    (
        "async copied",
        "sdp_async_copied",
        Sum,
        "Blocks copied because a program wrote to a block in flight.",
    ),
    (
        "buffer pages",
        "sdp_buffer_pages",
        Gauge,
        "Pages in the buffers of all sockets of the machine.",
    ),
    (
        "pinned pages send",
        "sdp_pinned_send_pages",
        Gauge,
        "Pages pinned for sending.",
    ),
    (
        "pinned pages recv",
        "sdp_pinned_receive_pages",
        Gauge,
        "Pages pinned for receiving.",
    ),
    (
        "pin over budget",
        "sdp_pin_over_budget",
        Sum,
        "Times that memory was not pinned: over the budget.",
    ),
    (
        "pin over memlock",
        "sdp_pin_over_memlock",
        Sum,
        "Times that memory was not pinned: over RLIMIT_MEMLOCK.",
    ),
    (
        "pin cache hits",
        "sdp_pin_cache_hits",
        Sum,
        "Times that memory of a call was still pinned from an earlier call.",
    ),
];

/// Groups of lines: common prefix, metric, name of the label that distinguishes them, and help
/// text.
const GROUPS: &[(&str, &str, &str, &str)] = &[
    (
        "post_send ",
        "sdp_sent_messages",
        "message",
        "Messages posted.",
    ),
    (
        "received ",
        "sdp_received_messages",
        "message",
        "Messages received.",
    ),
    (
        "Refused and lost: ",
        "sdp_refused_and_lost",
        "reason",
        "Refused connection requests, and lost connections.",
    ),
    (
        "IPPROTO_SDP: ",
        "sdp_ipproto_sockets",
        "outcome",
        "Sockets of IPPROTO_SDP by protocol and reason.",
    ),
    (
        "",
        "sdp_other",
        "name",
        "Counters that this version of sdpstat has no name for.",
    ),
];

/// A metric and its samples: the label's value, if there is a label, and the number.
struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    label: &'static str,
    samples: Vec<(String, u64)>,
}

impl Metric {
    fn one(name: &'static str, kind: Kind, help: &'static str, value: u64) -> Self {
        Metric {
            name,
            kind,
            help,
            label: "",
            samples: vec![(String::new(), value)],
        }
    }

    fn write(&self, format: Format, out: &mut impl Write) -> io::Result<()> {
        let name = self.name;
        let (kind, suffix) = match self.kind {
            Sum => ("counter", "_total"),
            Gauge => ("gauge", ""),
        };
        // OpenMetrics names the metric family, version 0.0.4 the samples.
        let family = match format {
            Format::Openmetrics => name.to_string(),
            Format::Text => format!("{name}{suffix}"),
        };
        writeln!(out, "# TYPE {family} {kind}")?;
        if format == Format::Openmetrics && name.ends_with("_bytes") {
            writeln!(out, "# UNIT {name} bytes")?;
        }
        writeln!(out, "# HELP {family} {}", self.help)?;
        for (value, n) in &self.samples {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            match self.label {
                "" => writeln!(out, "{name}{suffix} {n}")?,
                label => writeln!(out, "{name}{suffix}{{{label}=\"{value}\"}} {n}")?,
            }
        }
        Ok(())
    }
}

fn of_sockets(sockets: &[Socket]) -> Vec<Metric> {
    let mut states = BTreeMap::new();
    let (mut unread, mut unsent, mut waiting) = (0u64, 0u64, 0u64);
    for s in sockets {
        *states.entry(s.state_name().to_string()).or_insert(0) += 1;
        unsent += u64::from(s.tx_queue);
        // Recv-Q of a listening socket counts connections
        *(if s.state_name() == "LISTEN" {
            &mut waiting
        } else {
            &mut unread
        }) += u64::from(s.rx_queue);
    }
    vec![
        Metric {
            name: "sdp_sockets",
            kind: Gauge,
            help: "SDP sockets by state.",
            label: "state",
            samples: states.into_iter().collect(),
        },
        Metric::one(
            "sdp_unread_bytes",
            Gauge,
            "Received bytes that programs have not read.",
            unread,
        ),
        Metric::one(
            "sdp_unsent_bytes",
            Gauge,
            "Sent bytes that the peers have not received.",
            unsent,
        ),
        Metric::one(
            "sdp_waiting_connections",
            Gauge,
            "Connections waiting for accept().",
            waiting,
        ),
    ]
}

fn of_statistics(statistics: &Statistics) -> Vec<Metric> {
    let mut all = Vec::new();
    let mut grouped: Vec<Vec<(String, u64)>> = GROUPS.iter().map(|_| Vec::new()).collect();
    for Counter {
        section,
        name,
        value,
    } in &statistics.0
    {
        let known = LINES.iter().find(|l| section.is_none() && l.0 == name);
        if let Some(&(_, name, kind, help)) = known {
            all.push(Metric::one(name, kind, help, *value));
            continue;
        }
        let name = match section {
            Some(section) => format!("{section}: {name}"),
            None => name.clone(),
        };
        for (group, samples) in GROUPS.iter().zip(&mut grouped) {
            if let Some(rest) = name.strip_prefix(group.0) {
                samples.push((rest.to_string(), *value));
                break;
            }
        }
    }
    let groups = GROUPS.iter().zip(grouped).map(|(group, samples)| Metric {
        name: group.1,
        kind: Sum,
        help: group.3,
        label: group.2,
        samples,
    });
    all.extend(groups.filter(|m| !m.samples.is_empty()));
    all
}

/// Writes all metrics.
pub fn write(
    sockets: Option<&[Socket]>,
    statistics: Option<&Statistics>,
    format: Format,
    out: &mut impl Write,
) -> io::Result<()> {
    for metric in sockets
        .map(of_sockets)
        .into_iter()
        .chain(statistics.map(of_statistics))
        .flatten()
    {
        metric.write(format, out)?;
    }
    match format {
        Format::Openmetrics => writeln!(out, "# EOF"),
        Format::Text => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// scripts/tests/test_openmetrics.py parses these files by Prometheus's own client.
    #[test]
    fn a_sample() {
        let sockets = crate::sockets::parse(crate::sockets::tests::SAMPLE).unwrap();
        let statistics = Statistics::parse(crate::statistics::tests::SAMPLE).unwrap();
        for (format, sample) in [
            (Format::Openmetrics, include_str!("sample.openmetrics")),
            (Format::Text, include_str!("sample.prometheus")),
        ] {
            let mut text = Vec::new();
            write(Some(&sockets), Some(&statistics), format, &mut text).unwrap();
            assert_eq!(String::from_utf8(text).unwrap(), sample);
        }
    }

    #[test]
    fn no_name_twice() {
        let names = LINES.iter().map(|l| l.1).chain(GROUPS.iter().map(|g| g.1));
        let mut seen = HashSet::new();
        for name in names {
            assert!(seen.insert(name), "{name}");
            // `_total` is OpenMetrics' suffix for samples
            assert!(!name.ends_with("_total"), "{name}");
        }
    }

    #[test]
    fn what_is_unknown_has_a_place() {
        let s = Statistics::parse(
            "SDP statistics:\nnew \\ \"one\"\t: 5\nCQ stats:\n- RX irq armed\t: 6\n",
        )
        .unwrap();
        let mut text = Vec::new();
        write(None, Some(&s), Format::Openmetrics, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains("sdp_other_total{name=\"new \\\\ \\\"one\\\"\"} 5\n"),
            "{text}"
        );
        assert!(
            text.contains("sdp_other_total{name=\"CQ stats: RX irq armed\"} 6\n# EOF\n"),
            "{text}"
        );
    }
}

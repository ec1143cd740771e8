// SPDX-License-Identifier: GPL-2.0-only

//! The command line. tools/completions generates the shells' completions from these definitions.

use clap::{Parser, ValueEnum, ValueHint};
use std::path::PathBuf;
use std::time::Duration;

/// Show SDP sockets and statistics.
#[derive(Parser)]
#[command(
    version,
    about,
    long_about = "Show SDP sockets and statistics.

Addresses are numeric. Recv-Q and Send-Q are bytes that the program has not read and bytes that \
the other end has not got; of a listening socket, Recv-Q counts connections that wait for accept().
For another network namespace: --pid, or `ip netns exec NAME sdpstat`."
)]
pub struct Options {
    /// Tables to show [default: sockets and statistics]
    pub what: Option<What>,
    /// Show the processes that hold each socket (all of them only for root)
    #[arg(short, long)]
    pub processes: bool,
    /// Show how the bytes of each connection were sent, from SDP_INFO (all of them only for root)
    #[arg(short, long)]
    pub details: bool,
    /// Show counters that are zero, too
    #[arg(short, long)]
    pub all: bool,
    /// Print JSON: one object, with --watch one a line
    #[arg(long)]
    pub json: bool,
    /// Print metrics for Prometheus
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "openmetrics",
        conflicts_with_all = ["json", "watch", "processes", "details"])]
    pub prometheus: Option<Format>,
    /// Write to a file that is replaced as a whole
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "watch")]
    pub output: Option<PathBuf>,
    /// Repeat after this number of seconds, with the increase of each counter per second
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub watch: Option<Duration>,
    /// Show the network namespace of this process
    #[arg(long)]
    pub pid: Option<u32>,
    /// Where procfs is mounted
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, default_value = "/proc")]
    pub proc: PathBuf,
}

/// A text format of Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Format {
    /// OpenMetrics 1.0
    Openmetrics,
    /// Version 0.0.4, which node_exporter's textfile collector takes
    Text,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum What {
    /// The sockets: addresses, queues, state
    Sockets,
    /// The counters
    Statistics,
    /// The ports of RDMA devices: GIDs, connections, queue pairs, memory regions, errors, retries
    Devices,
    /// The hosts at the other ends: connections, bytes each way, reasons for TCP
    Peers,
}

pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.1..=86400.0).contains(&s) => Ok(Duration::from_secs_f64(s)),
        Ok(_) => Err("must be from 0.1 to 86400".into()),
        Err(_) => Err("not a number of seconds".into()),
    }
}

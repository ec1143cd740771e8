// SPDX-License-Identifier: GPL-2.0-only

//! The command line. tools/completions generates the shells' completions from these definitions.

use clap::{Parser, ValueHint};
use std::path::PathBuf;

/// Default TCP port of `--serve`.
pub const PORT: u16 = 18515;
/// Maximum time to try the paths, in seconds: a server serves one client at a time.
pub const MOST_SECONDS: u64 = 600;

/// Check RDMA devices, and every path of SDP to another host.
#[derive(Parser)]
#[command(
    version,
    about,
    long_about = "Check RDMA devices, and every path of SDP to another host.

On one host `sdp-check --serve`, on the other `sdp-check HOST`, where HOST is an address of the \
first one's RDMA adapter; without HOST the program checks this host alone. Each check says PASS, \
FAIL or SKIP. The program writes a report that you can send to the maintainers. \
Whoever reaches the port of --serve can have it run checks, so stop it when you are done."
)]
pub struct Options {
    /// The host where `sdp-check --serve` runs, by its address on the RDMA network [default: none, only this host]
    #[arg(conflicts_with = "serve", value_hint = ValueHint::Hostname)]
    pub host: Option<String>,
    /// Wait for clients, one at a time, until interrupted
    #[arg(long)]
    pub serve: bool,
    /// With --serve, the address to listen at [default: all]
    #[arg(long, value_name = "ADDRESS", requires = "serve")]
    pub listen: Option<std::net::IpAddr>,
    /// The TCP port of --serve
    #[arg(short, long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Total time to try the paths
    #[arg(short, long, value_name = "SECONDS", default_value_t = 60, conflicts_with = "serve",
          value_parser = clap::value_parser!(u64).range(5..=MOST_SECONDS))]
    pub seconds: u64,
    /// The file to write the report to; an earlier report is replaced
    #[arg(short, long, value_name = "FILE", default_value = "sdp-check.txt", conflicts_with = "serve",
          value_hint = ValueHint::FilePath)]
    pub report: PathBuf,
    /// Keep names of hosts, addresses and GUIDs in the report; give the option to the server, too,
    /// for the server's names
    #[arg(long)]
    pub names: bool,
    /// Print JSON: one object at the end
    #[arg(long, conflicts_with = "serve")]
    pub json: bool,
    /// Do not start perftest's programs
    #[arg(long)]
    pub no_perftest: bool,
    /// Send wrong bytes, for the tests of this program
    #[arg(long, hide = true)]
    pub corrupt: bool,
}

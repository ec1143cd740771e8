// SPDX-License-Identifier: GPL-2.0-only

//! The command line. tools/completions generates the shells' completions from these definitions.

use clap::{Args, Parser, Subcommand, ValueHint};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Look after SDP for programs that were written for TCP.
#[derive(Parser)]
#[command(version, about)]
pub struct Options {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Read rules as libsdp.so does, and print their mistakes or their meaning
    Check(Check),
    /// Turn TCP sockets of unchanged programs into SDP sockets, in the kernel
    Map(Map),
    /// Have systemd map the TCP sockets of services, by a drop-in; they need a restart
    Enable(Units),
    /// Undo enable
    Disable(Units),
    /// Show the hosts and ports whose answer IPPROTO_SDP sockets remember
    Peers(Peers),
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Peers {
    #[command(subcommand)]
    pub command: Option<PeersCommand>,
    /// Print JSON: an array with an object for each
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum PeersCommand {
    /// Clear the cache, or the entries of these hosts, so that SDP is tried again
    Flush {
        #[arg(value_name = "ADDRESS")]
        addresses: Vec<IpAddr>,
    },
}

#[derive(Args)]
pub struct Units {
    /// Services, such as nginx or postgresql@.service
    #[arg(required = true, value_name = "UNIT")]
    pub units: Vec<String>,
    /// Change the files of the system below this directory, which is not running
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub root: Option<PathBuf>,
}

#[derive(Args)]
pub struct Check {
    /// The rules [default: $LIBSDP_CONFIG_FILE, or /etc/libsdp.conf]
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Print what the rules mean for this program only
    #[arg(short, long, value_name = "NAME", value_hint = ValueHint::CommandName)]
    pub program: Option<String>,
    /// Print the rule that decides when the program connects to this address
    #[arg(short, long, value_name = "ADDRESS:PORT", requires = "program")]
    pub connect: Vec<SocketAddr>,
    /// Print the rule that decides when the program listens at this address
    #[arg(short, long, value_name = "ADDRESS:PORT", requires = "program")]
    pub listen: Vec<SocketAddr>,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Map {
    #[command(subcommand)]
    pub command: MapCommand,
}

#[derive(Subcommand)]
pub enum MapCommand {
    /// Map the TCP sockets that programs make from now on, until this command ends (see --pin)
    Add(MapAdd),
    /// Show the existing mappings
    List(MapList),
    /// End mappings; existing sockets keep their protocol
    Remove(MapRemove),
}

#[derive(Args)]
#[command(group(clap::ArgGroup::new("whose").required(true).multiple(true)
    .args(["program", "user", "cgroup", "own_cgroup", "all"])))]
pub struct MapAdd {
    /// Programs of this name only, as ps -o comm shows it; a * may end it. May be repeated
    #[arg(short, long, value_name = "NAME", value_hint = ValueHint::CommandName)]
    pub program: Vec<String>,
    /// Programs of this user only, by name or number. May be repeated
    #[arg(short, long, value_name = "USER", value_hint = ValueHint::Username)]
    pub user: Vec<String>,
    /// Programs in this cgroup, or in one below it, only: a directory, below /sys/fs/cgroup if no
    /// path from the root is given. May be repeated
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cgroup: Vec<PathBuf>,
    /// Programs in the cgroup of this command only, as ExecStartPre= of a unit needs
    #[arg(long)]
    pub own_cgroup: bool,
    /// Every program of the machine
    #[arg(short, long, conflicts_with_all = ["program", "user", "cgroup", "own_cgroup"])]
    pub all: bool,
    /// End at once and leave the mapping in place, as /sys/fs/bpf/sdp/NAME, until it is removed
    #[arg(long, value_name = "NAME")]
    pub pin: Option<String>,
}

#[derive(Args)]
pub struct MapList {
    /// Print JSON: an array with an object for each
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["mapping", "all"])))]
pub struct MapRemove {
    /// The name of a pinned mapping, or the number that `sdpctl map list` shows
    #[arg(value_name = "NAME|NUMBER")]
    pub mapping: Vec<String>,
    /// All mappings
    #[arg(short, long)]
    pub all: bool,
}

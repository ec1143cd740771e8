// SPDX-License-Identifier: GPL-2.0-only

//! The command line. The completions of shells are made from it, too: see tools/completions.

use clap::{Args, Parser, Subcommand, ValueHint};
use std::net::SocketAddr;
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
    /// Read rules as libsdp.so does, and tell what is wrong with them or what they mean
    Check(Check),
}

#[derive(Args)]
pub struct Check {
    /// The rules [default: $LIBSDP_CONFIG_FILE, or /etc/libsdp.conf]
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Tell what they mean for this program only
    #[arg(short, long, value_name = "NAME", value_hint = ValueHint::CommandName)]
    pub program: Option<String>,
    /// Tell which rule decides when the program connects there
    #[arg(short, long, value_name = "ADDRESS:PORT", requires = "program")]
    pub connect: Vec<SocketAddr>,
    /// Tell which rule decides when the program listens there
    #[arg(short, long, value_name = "ADDRESS:PORT", requires = "program")]
    pub listen: Vec<SocketAddr>,
}

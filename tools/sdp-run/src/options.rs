// SPDX-License-Identifier: GPL-2.0-only

//! The command line. tools/completions generates the shells' completions from these definitions.

use clap::{Parser, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// Start a program whose TCP sockets are SDP where a peer and the rules allow it.
#[derive(Parser)]
#[command(
    version,
    about,
    long_about = "Start a program whose TCP sockets are SDP where a peer and the rules allow it.

The rules are those of libsdp.conf(5). Without any, servers take connections by SDP and by TCP, and \
clients try SDP before TCP.",
    after_help = "Status: that of PROGRAM; 125 if sdp-run itself fails, 126 if PROGRAM cannot be started, \
127 if there is none."
)]
pub struct Options {
    /// Use the rules of this file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "simple")]
    pub config: Option<PathBuf>,
    /// Use SDP for everything, with no fallback and no rules
    #[arg(short, long)]
    pub simple: bool,
    /// Log to stderr, syslog or a file, from that level up, whatever the rules say
    #[arg(short, long, value_name = "WHERE:LEVEL", value_parser = wish)]
    pub log: Option<OsString>,
    /// Print the outcome of each connection to stderr; twice: everything
    #[arg(short, long, action = clap::ArgAction::Count, conflicts_with = "log")]
    pub verbose: u8,
    /// Preload this library
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub library: Option<PathBuf>,
    /// The program to start, and what to start it with
    #[arg(
        value_names = ["PROGRAM", "ARGUMENT"],
        required = true,
        num_args = 1..,
        trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

fn wish(text: &str) -> Result<OsString, String> {
    match text.rsplit_once(':') {
        Some((to, level)) if !to.is_empty() && level.parse::<u32>().is_ok() => Ok(text.into()),
        _ => Err("must be stderr, syslog or a path, then ':' and a level from 1 to 9".into()),
    }
}

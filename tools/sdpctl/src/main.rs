// SPDX-License-Identifier: GPL-2.0-only

//! `sdpctl check` explains rules of libsdp.so. `sdpctl map` turns the TCP sockets of programs into
//! SDP sockets without a preloaded library, and `sdpctl enable` makes systemd map the sockets of a
//! service. `sdpctl peers` shows the peers that IPPROTO_SDP sockets remember.

mod check;
mod explain;
mod json;
mod map;
mod options;
mod peers;
mod unit;

use clap::Parser;
use options::{Command, Options};
use std::io::{self, Write};
use std::process::ExitCode;

/// Reason of a failure.
enum Error {
    /// Faults of the rules, one line each.
    Told(Vec<String>),
    Output(io::Error),
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Self {
        Error::Output(e)
    }
}

impl From<String> for Error {
    fn from(what: String) -> Self {
        Error::Told(vec![what])
    }
}

fn main() -> ExitCode {
    let mut text = Vec::new();
    let done = match Options::parse().command {
        Command::Check(o) => check::run(&o, &mut text),
        Command::Map(o) => map::run(&o.command, &mut text),
        Command::Enable(o) => unit::enable(&o, &mut text),
        Command::Disable(o) => unit::disable(&o, &mut text),
        Command::Peers(o) => peers::run(&o, &mut text),
    };
    let done = done.and_then(|()| Ok(io::stdout().write_all(&text)?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // the reader has closed the pipe
        Err(Error::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Error::Output(e)) => {
            let _ = writeln!(io::stderr(), "sdpctl: cannot write: {e}");
            ExitCode::FAILURE
        }
        Err(Error::Told(lines)) => {
            for line in lines {
                let _ = writeln!(io::stderr(), "sdpctl: {line}");
            }
            ExitCode::FAILURE
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! `sdpctl check` reads rules as libsdp.so does, and tells what they mean.

mod explain;
mod options;

use clap::Parser;
use options::{Check, Command, Options};
use sdp_rules::{Role, Rules};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where libsdp.so looks if the environment does not say.
const RULES: &str = match option_env!("SDP_RULES") {
    Some(path) => path,
    None => "/etc/libsdp.conf",
};

/// Why there is no answer.
enum Error {
    /// What is wrong, a line each.
    Told(Vec<String>),
    Output(io::Error),
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Self {
        Error::Output(e)
    }
}

fn read(path: &Path) -> Result<Rules, Error> {
    let text = fs::read(path).map_err(|e| Error::Told(vec![format!("{}: {e}", path.display())]))?;
    sdp_rules::parse(&text).map_err(|problems| {
        let mut told: Vec<_> = problems
            .iter()
            .map(|p| format!("{}: {p}", path.display()))
            .collect();
        if problems.len() == sdp_rules::MAX_PROBLEMS {
            told.push("and perhaps more".into());
        }
        told.push("nothing of this file holds: every socket stays TCP".into());
        Error::Told(told)
    })
}

fn check(o: &Check, out: &mut impl Write) -> Result<(), Error> {
    let named = std::env::var_os("LIBSDP_CONFIG_FILE").map(PathBuf::from);
    let path = o.file.clone().or(named).unwrap_or(RULES.into());
    let rules = read(&path)?;
    let Some(program) = &o.program else {
        explain::file(&path, &rules, out)?;
        return Ok(());
    };
    let asked = o.listen.iter().map(|a| (Role::Server, a));
    let asked: Vec<_> = asked
        .chain(o.connect.iter().map(|a| (Role::Client, a)))
        .collect();
    if asked.is_empty() {
        explain::program(program, &rules, out)?;
    }
    for (role, address) in asked {
        explain::decision(program, &rules, role, *address, out)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let Options {
        command: Command::Check(o),
    } = Options::parse();
    let mut text = Vec::new();
    let done = check(&o, &mut text).and_then(|()| Ok(io::stdout().write_all(&text)?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // whoever reads has seen enough
        Err(Error::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Error::Output(e)) => {
            eprintln!("sdpctl: cannot write: {e}");
            ExitCode::FAILURE
        }
        Err(Error::Told(lines)) => {
            for line in lines {
                eprintln!("sdpctl: {line}");
            }
            ExitCode::FAILURE
        }
    }
}

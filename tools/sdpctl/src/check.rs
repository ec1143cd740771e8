// SPDX-License-Identifier: GPL-2.0-only

//! `sdpctl check` parses rules as libsdp.so does, and explains them.

use crate::explain;
use crate::json;
use crate::options::Check;
use crate::Error;
use sdp_rules::{Role, Rules};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Default path of libsdp.so's rules.
const RULES: &str = match option_env!("SDP_RULES") {
    Some(path) => path,
    None => "/etc/libsdp.conf",
};

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
        told.push("no rule of this file applies: every socket stays TCP".into());
        Error::Told(told)
    })
}

pub fn run(o: &Check, out: &mut impl Write) -> Result<(), Error> {
    let named = std::env::var_os("LIBSDP_CONFIG_FILE").map(PathBuf::from);
    let path = o.file.clone().or(named).unwrap_or(RULES.into());
    let rules = read(&path)?;
    let Some(program) = &o.program else {
        match o.json {
            true => writeln!(out, "{}", json::file(&path, &rules))?,
            false => explain::file(&path, &rules, out)?,
        }
        return Ok(());
    };
    let asked = o.listen.iter().map(|a| (Role::Server, a));
    let asked: Vec<_> = asked
        .chain(o.connect.iter().map(|a| (Role::Client, a)))
        .collect();
    if o.json {
        writeln!(out, "{}", json::program(program, &rules, &asked))?;
        return Ok(());
    }
    if asked.is_empty() {
        explain::program(program, &rules, out)?;
    }
    for (role, address) in asked {
        explain::decision(program, &rules, role, *address, out)?;
    }
    Ok(())
}

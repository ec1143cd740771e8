// SPDX-License-Identifier: GPL-2.0-only

//! Explains rules in words.

use sdp_rules::{Destination, Mode, Network, Ports, Role, Rule, Rules, DEFAULT};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

/// Returns the text for what a mode lets a socket use.
fn by(mode: Mode, role: Role) -> &'static str {
    match (mode, role) {
        (Mode::Tcp, _) => "TCP only",
        (Mode::Sdp, _) => "SDP only",
        (Mode::Both, Role::Server) => "SDP and TCP",
        (Mode::Both, Role::Client) => "SDP, or TCP where that fails",
    }
}

fn program_of(rule: &Rule) -> String {
    match rule.program.is_any() {
        true => "any program".into(),
        false => rule.program.to_string(),
    }
}

/// Describes the sockets that a rule matches.
fn matches(rule: &Rule) -> String {
    let does = match rule.role {
        Role::Server => "listens on",
        Role::Client => "connects to",
    };
    let address = match rule.network {
        Network::Any => "any address".into(),
        Network::V4 {
            address,
            prefix: 32,
        } => address.to_string(),
        Network::V6 {
            address,
            prefix: 128,
        } => address.to_string(),
        net => net.to_string(),
    };
    let ports = match rule.ports {
        Ports::ANY => "any port".into(),
        p if p.first == p.last => format!("port {p}"),
        p => format!("ports {p}"),
    };
    format!("{} that {does} {address}, {ports}", program_of(rule))
}

/// Notes on rules that do not have their apparent effect.
fn notes(rules: &Rules, index: usize) -> Vec<String> {
    let rule = &rules.rules[index];
    let mut notes = Vec::new();
    if let Some(first) = rules.hidden_by(index) {
        notes.push(format!(
            "never decides: line {} matches all its sockets",
            first.line
        ));
    }
    if rule.program.as_bytes().contains(&b'/') {
        notes.push("matches nothing: a program is known by its name without a directory".into());
    }
    notes
}

fn rule(rules: &Rules, index: usize, out: &mut impl Write) -> io::Result<()> {
    let rule = &rules.rules[index];
    let how = by(rule.mode, rule.role);
    writeln!(out, "  line {}: {}: {how}", rule.line, matches(rule))?;
    for note in notes(rules, index) {
        writeln!(out, "    note: {note}")?;
    }
    Ok(())
}

/// Describes the default, where no rule matches.
fn otherwise() -> String {
    format!(
        "  otherwise: servers {}, clients {}",
        by(DEFAULT, Role::Server),
        by(DEFAULT, Role::Client)
    )
}

/// Explains the whole file.
pub fn file(path: &Path, rules: &Rules, out: &mut impl Write) -> io::Result<()> {
    let count = match rules.rules.len() {
        0 => "no rules".into(),
        1 => "one rule".into(),
        n => format!("{n} rules, the first that matches decides"),
    };
    writeln!(out, "{}: {count}", path.display())?;
    for index in 0..rules.rules.len() {
        rule(rules, index, out)?;
    }
    writeln!(out, "{}", otherwise())?;
    let level = rules.log.min_level.unwrap_or(9);
    let to = match &rules.log.destination {
        None | Some(Destination::Stderr) => "stderr".into(),
        Some(Destination::Syslog) => "syslog".into(),
        Some(Destination::File(name)) => place(&String::from_utf8_lossy(name)),
    };
    writeln!(out, "  log: messages from level {level} up, to {to}")?;
    if !(1..=9).contains(&level) {
        writeln!(
            out,
            "    note: levels are from 1 (everything) to 9 (errors)"
        )?;
    }
    Ok(())
}

/// Returns the path of a log file for root and for other users.
fn place(name: &str) -> String {
    let short = name.rsplit('/').next().unwrap_or(name);
    let directory = if name.contains('/') { "" } else { "/tmp/" };
    format!("/var/log/{short} for root, {directory}{name}.UID/log for others")
}

/// Explains the rules that can match a program.
pub fn program(name: &str, rules: &Rules, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{name}:")?;
    for (index, r) in rules.rules.iter().enumerate() {
        if r.program.matches(name.as_bytes()) {
            rule(rules, index, out)?;
        }
    }
    writeln!(out, "{}", otherwise())
}

/// Explains the decision for one address.
pub fn decision(
    name: &str,
    rules: &Rules,
    role: Role,
    address: SocketAddr,
    out: &mut impl Write,
) -> io::Result<()> {
    let verdict = rules.decide(name.as_bytes(), role, address.ip(), address.port());
    let does = match role {
        Role::Server => "listens on",
        Role::Client => "connects to",
    };
    let why = match verdict.rule {
        Some(r) => format!("line {}: {r}", r.line),
        None => "no rule matches".into(),
    };
    let how = by(verdict.mode, role);
    writeln!(out, "{name} {does} {address}: {how} ({why})")
}

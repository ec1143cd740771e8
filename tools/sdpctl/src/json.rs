// SPDX-License-Identifier: GPL-2.0-only

//! Formats rules as JSON.

use sdp_rules::{Mode, Role, Rule, Rules, DEFAULT};
use serde_json::{json, Value};
use std::net::SocketAddr;
use std::path::Path;

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Tcp => "tcp",
        Mode::Sdp => "sdp",
        Mode::Both => "both",
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Server => "server",
        Role::Client => "client",
    }
}

/// Returns a rule; `hidden_by` is the line of an earlier rule that covers it.
fn rule(rules: &Rules, index: usize, rule: &Rule) -> Value {
    json!({"line": rule.line, "rule": rule.to_string(), "mode": mode(rule.mode),
        "role": role(rule.role), "program": rule.program.to_string(),
        "hidden_by": rules.hidden_by(index).map(|first| first.line)})
}

fn list(rules: &Rules, chosen: impl Fn(&Rule) -> bool) -> Value {
    let all = rules.rules.iter().enumerate();
    let all = all.filter(|(_, r)| chosen(r));
    all.map(|(index, r)| rule(rules, index, r)).collect()
}

/// Returns the whole file.
pub fn file(path: &Path, rules: &Rules) -> Value {
    json!({"file": path.display().to_string(), "rules": list(rules, |_| true),
        "otherwise": mode(DEFAULT)})
}

/// Returns the rules that can match a program, or the decisions for its addresses.
pub fn program(name: &str, rules: &Rules, asked: &[(Role, &SocketAddr)]) -> Value {
    if asked.is_empty() {
        let matches = |r: &Rule| r.program.matches(name.as_bytes());
        return json!({"program": name, "rules": list(rules, matches), "otherwise": mode(DEFAULT)});
    }
    let decision = |(side, address): &(Role, &SocketAddr)| {
        let verdict = rules.decide(name.as_bytes(), *side, address.ip(), address.port());
        json!({"role": role(*side), "address": address.to_string(), "mode": mode(verdict.mode),
            "line": verdict.rule.map(|r| r.line)})
    };
    json!({"program": name, "decisions": asked.iter().map(decision).collect::<Value>()})
}

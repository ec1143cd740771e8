// SPDX-License-Identifier: GPL-2.0-only

//! `sdpctl peers`: destinations that IPPROTO_SDP sockets of this network namespace remember.

use crate::options::{Peers, PeersCommand};
use crate::Error;
use serde_json::{json, Value};
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;

const FILE: &str = "/proc/thread-self/net/sdp_peers";
const MODULE: &str = "/sys/module/ib_sdp";

#[derive(Debug, PartialEq)]
struct Peer {
    ip: IpAddr,
    /// `None` if the row is for all ports of the host.
    port: Option<u16>,
    choice: String,
    seconds_left: u64,
}

fn reason(e: io::Error) -> String {
    let why = match e.kind() {
        io::ErrorKind::NotFound if std::path::Path::new(MODULE).exists() => {
            " (the module ib_sdp that is loaded has no such file)"
        }
        io::ErrorKind::NotFound => " (is the module ib_sdp loaded?)",
        _ => "",
    };
    format!("{FILE}: {e}{why}")
}

/// Parses a row of the file.
fn peer(line: &str) -> Option<Peer> {
    let mut words = line.split_whitespace();
    Some(Peer {
        ip: words.next()?.parse().ok()?,
        port: Some(words.next()?.parse().ok()?).filter(|port| *port != 0),
        choice: words.next()?.into(),
        seconds_left: words.next()?.parse().ok()?,
    })
}

fn parse(text: &str) -> Result<Vec<Peer>, String> {
    let rows = text.lines().skip(1);
    rows.map(|line| peer(line).ok_or_else(|| format!("{FILE}: no row: {line:?}")))
        .collect()
}

fn to_json(all: &[Peer]) -> Value {
    let row = |p: &Peer| {
        json!({"address": p.ip.to_string(), "port": p.port, "choice": p.choice,
            "seconds_left": p.seconds_left})
    };
    all.iter().map(row).collect()
}

fn table(all: &[Peer], out: &mut impl Write) -> io::Result<()> {
    let address = |p: &Peer| p.ip.to_string();
    let width = all
        .iter()
        .map(|p| address(p).len())
        .max()
        .unwrap_or(0)
        .max(7);
    writeln!(
        out,
        "{:width$}  {:>5}  Choice  Seconds left",
        "Address", "Port"
    )?;
    for p in all {
        let port = p.port.map_or("all".into(), |port| port.to_string());
        let (choice, left) = (&p.choice, p.seconds_left);
        writeln!(out, "{:width$}  {port:>5}  {choice:6}  {left}", address(p))?;
    }
    Ok(())
}

pub fn run(o: &Peers, out: &mut impl Write) -> Result<(), Error> {
    if let Some(PeersCommand::Flush { addresses }) = &o.command {
        let lines: Vec<_> = match addresses.is_empty() {
            true => vec!["\n".to_string()],
            false => addresses.iter().map(|ip| format!("{ip}\n")).collect(),
        };
        for line in lines {
            // the file exists only while the module is loaded
            let file = fs::File::options().write(true).open(FILE);
            file.and_then(|mut file| file.write_all(line.as_bytes()))
                .map_err(reason)?;
        }
        return Ok(());
    }
    let all = parse(&fs::read_to_string(FILE).map_err(reason)?)?;
    match o.json {
        true => writeln!(out, "{}", to_json(&all))?,
        false => table(&all, out)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
address port choice seconds_left
10.7.0.2 0 SDP 59
fd77::2 9301 TCP 7
";

    #[test]
    fn rows() {
        let all = parse(SAMPLE).unwrap();
        let mut text = Vec::new();
        table(&all, &mut text).unwrap();
        let wanted = "\
Address    Port  Choice  Seconds left
10.7.0.2    all  SDP     59
fd77::2    9301  TCP     7
";
        assert_eq!(String::from_utf8(text).unwrap(), wanted);
        let json = to_json(&all);
        assert_eq!(
            (&json[0]["port"], &json[1]["port"]),
            (&Value::Null, &json!(9301))
        );
        assert_eq!(json[1]["address"], "fd77::2");
        assert!(parse("heading\n10.7.0.2 x TCP 1\n").is_err());
        assert_eq!(parse("heading\n"), Ok(vec![]));
    }
}

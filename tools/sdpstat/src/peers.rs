// SPDX-License-Identifier: GPL-2.0-only

//! `sdpstat peers`: connections, by the host at their other end.

use crate::sockets::{Socket, View};
use crate::table::Table;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Connections with one host.
#[derive(Debug, Default)]
pub struct Peer {
    /// Number of connections by SDP.
    sdp: u64,
    /// Number of IPPROTO_SDP sockets that have become TCP's, by reason.
    tcp: BTreeMap<String, u64>,
    /// Number of SDP connections whose bytes could be read.
    known: u64,
    sent: u64,
    sent_uncopied: u64,
    received: u64,
    received_uncopied: u64,
    /// Choices that IPPROTO_SDP sockets remember: port (0 is all), choice, seconds left.
    remembered: Vec<(u16, String, u64)>,
}

/// All hosts.
pub type Peers = BTreeMap<IpAddr, Peer>;

/// Sorts sockets by remote host. `cache` is the text of `/proc/net/sdp_peers`.
pub fn of(sockets: &[Socket], view: &View<'_>, cache: &str) -> Peers {
    let mut all = Peers::new();
    let connected = |s: &&Socket| !s.remote.ip().is_unspecified() && s.state_name() != "LISTEN";
    for s in sockets.iter().filter(connected) {
        let peer = all.entry(s.remote.ip().to_canonical()).or_default();
        let reason = s.choice.as_deref().and_then(|c| c.strip_prefix("TCP: "));
        if let Some(reason) = reason {
            *peer.tcp.entry(reason.into()).or_default() += 1;
            continue;
        }
        peer.sdp += 1;
        if let Some(info) = view.info(s.inode) {
            let sum = |names: [&str; 2]| names.iter().map(|n| info.get(n)).sum::<u64>();
            peer.known += 1;
            peer.sent += info.get("tx_bytes");
            peer.sent_uncopied += sum(["tx_read", "tx_written"]);
            peer.received += info.get("rx_bytes");
            peer.received_uncopied += sum(["rx_read", "rx_written"]);
        }
    }
    for row in cache.lines().skip(1) {
        let words: Vec<_> = row.split_whitespace().collect();
        let &[ip, port, choice, left] = words.as_slice() else {
            continue;
        };
        if let (Ok(ip), Ok(port), Ok(left)) = (ip.parse::<IpAddr>(), port.parse(), left.parse()) {
            let peer = all.entry(ip.to_canonical()).or_default();
            peer.remembered.push((port, choice.into(), left));
        }
    }
    all
}

pub fn to_json(all: &Peers) -> Value {
    let row = |(ip, p): (&IpAddr, &Peer)| {
        let choice = |(port, choice, left): &(u16, String, u64)| {
            let port = (*port != 0).then_some(port);
            json!({"port": port, "choice": choice, "seconds_left": left})
        };
        json!({
            "address": ip.to_string(),
            "connections": p.sdp,
            "with_info": p.known,
            "tx_bytes": p.sent,
            "tx_zero_copy": p.sent_uncopied,
            "rx_bytes": p.received,
            "rx_zero_copy": p.received_uncopied,
            "tcp": p.tcp,
            "remembered": p.remembered.iter().map(choice).collect::<Vec<_>>(),
        })
    };
    all.iter().map(row).collect()
}

pub fn table(all: &Peers) -> Table {
    let heading = [
        "Peer",
        "SDP",
        "TCP",
        "Sent",
        "Zero-copy",
        "Received",
        "Zero-copy",
    ];
    let mut t = Table::new(&heading, &[1, 2, 3, 4, 5, 6]);
    for (ip, p) in all {
        let bytes = |n: u64| match p.known {
            0 => "-".into(),
            _ => n.to_string(),
        };
        t.row(vec![
            ip.to_string(),
            p.sdp.to_string(),
            p.tcp.values().sum::<u64>().to_string(),
            bytes(p.sent),
            bytes(p.sent_uncopied),
            bytes(p.received),
            bytes(p.received_uncopied),
        ]);
        if (1..p.sdp).contains(&p.known) {
            t.below(format!("bytes of {} of {} connections", p.known, p.sdp));
        }
        for (reason, n) in &p.tcp {
            t.below(format!("TCP: {reason} {n}"));
        }
        for (port, choice, left) in &p.remembered {
            let port = match port {
                0 => "all ports".into(),
                port => format!("port {port}"),
            };
            t.below(format!("remembered for {left} s: {choice} at {port}"));
        }
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets;

    #[test]
    fn by_host() {
        let mut list = sockets::parse(sockets::tests::SAMPLE).unwrap();
        sockets::add_choices(&mut list, sockets::tests::CHOICES, sockets::tests::TCP).unwrap();
        let cache = "address port choice seconds_left\n10.7.0.9 0 SDP 59\n10.7.0.9 80 TCP 7\n";
        let all = of(&list, &View::default(), cache);
        let json = to_json(&all);
        let hosts = json.as_array().unwrap();
        let find = |ip: &str| hosts.iter().find(|h| h["address"] == ip).unwrap();
        let cached = find("10.7.0.9");
        assert_eq!(cached["connections"], 0);
        assert_eq!(
            cached["remembered"],
            json!([
                {"port": null, "choice": "SDP", "seconds_left": 59},
                {"port": 80, "choice": "TCP", "seconds_left": 7},
            ])
        );
        let connected: u64 = hosts.iter().filter_map(|h| h["connections"].as_u64()).sum();
        assert!(connected > 0, "{json}");
        assert!(
            hosts.iter().all(|h| h["address"] != "0.0.0.0"),
            "listeners have no peer: {json}"
        );
        let mut text = Vec::new();
        table(&all).write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains("remembered for 7 s: TCP at port 80"),
            "{text}"
        );
        assert!(text.contains("TCP: "), "{text}");
    }
}

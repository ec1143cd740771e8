// SPDX-License-Identifier: GPL-2.0-only

//! `sdpstat devices`: ports of RDMA devices, and the module's objects on them. Sysfs has the ports;
//! rdma(8) has the objects of all network namespaces, if it is installed.

use crate::table::Table;
use serde_json::{json, Map, Value};
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::process::{Command, Stdio};

/// Directory of the kernel's RDMA devices.
pub const CLASS: &str = "/sys/class/infiniband";

/// Objects of the module on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objects {
    queue_pairs: u64,
    regions: u64,
    region_bytes: u64,
}

/// A port of a device.
#[derive(Debug)]
pub struct Port {
    device: String,
    port: String,
    state: String,
    link_layer: String,
    gids: Vec<(Ipv6Addr, String)>,
    /// Number of sockets of this namespace with an address of the port's GIDs. `None` on
    /// InfiniBand, whose GIDs contain no IP address.
    connections: Option<u64>,
    /// `None` if rdma(8) is not installed.
    objects: Option<Objects>,
    /// Error counters that are not zero.
    errors: Vec<(String, u64)>,
    retries: Vec<(String, u64)>,
}

fn line(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_string())
}

fn entries(dir: impl AsRef<Path>) -> Vec<String> {
    let all = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> = all
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    names
}

/// Parts of the names of counters of errors and of retransmissions: of the InfiniBand
/// specification, and of rxe, mlx5, bnxt_re and irdma. A counter whose name has a part of both
/// lists counts retransmissions.
const ERRORS: &[&str] = &["err", "discard", "dropped", "downed", "recovery", "overrun"];
const RETRIES: &[&str] = &[
    "retry",
    "retrans",
    "timeout",
    "rnr",
    "seq",
    "duplicate",
    "nak",
];

impl Port {
    fn read(class: &Path, device: &str, port: &str, local: &[IpAddr]) -> Self {
        let dir = class.join(device).join("ports").join(port);
        let file = |name: &str| line(dir.join(name)).unwrap_or("-".into());
        let state = file("state");
        let gids: Vec<_> = entries(dir.join("gids"))
            .iter()
            .filter_map(|n| {
                let gid: Ipv6Addr = line(dir.join("gids").join(n))?.parse().ok()?;
                let kind = line(dir.join("gid_attrs/types").join(n));
                (!gid.is_unspecified()).then_some((gid, kind.unwrap_or("InfiniBand".into())))
            })
            .collect();
        let (mut errors, mut retries) = (vec![], vec![]);
        for kind in ["counters", "hw_counters"] {
            for name in entries(dir.join(kind)) {
                let n = line(dir.join(kind).join(&name)).and_then(|n| n.parse().ok());
                let Some(n) = n.filter(|n| *n > 0) else {
                    continue;
                };
                let is = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
                if is(RETRIES) {
                    retries.push((name, n));
                } else if is(ERRORS) {
                    errors.push((name, n));
                }
            }
        }
        let link_layer = file("link_layer");
        let own = |a: &&IpAddr| {
            gids.iter()
                .any(|(gid, _)| IpAddr::from(*gid).to_canonical() == **a)
        };
        let connections = local.iter().filter(own).count() as u64;
        Port {
            device: device.into(),
            port: port.into(),
            // the file contains "4: ACTIVE"
            state: state.split_once(": ").map_or(&*state, |s| s.1).into(),
            connections: (link_layer == "Ethernet").then_some(connections),
            link_layer,
            gids,
            objects: None,
            errors,
            retries,
        }
    }

    fn to_json(&self) -> Value {
        let counters = |all: &[(String, u64)]| -> Value {
            let all = all.iter().map(|(name, n)| (name.clone(), json!(n)));
            all.collect::<Map<_, _>>().into()
        };
        let gid = |(gid, kind): &(Ipv6Addr, String)| json!({"gid": gid.to_string(), "type": kind});
        json!({
            "device": self.device,
            "port": self.port.parse::<u32>().ok(),
            "state": self.state,
            "link_layer": self.link_layer,
            "gids": self.gids.iter().map(gid).collect::<Vec<_>>(),
            "connections": self.connections,
            "queue_pairs": self.objects.map(|o| o.queue_pairs),
            "regions": self.objects.map(|o| o.regions),
            "region_bytes": self.objects.map(|o| o.region_bytes),
            "errors": counters(&self.errors),
            "retries": counters(&self.retries),
        })
    }
}

/// Reads the ports below `class`. `local` contains the local address of each connection.
pub fn find(class: &Path, local: &[IpAddr]) -> Vec<Port> {
    let mut all = vec![];
    for device in entries(class) {
        for port in entries(class.join(&device).join("ports")) {
            all.push(Port::read(class, &device, &port, local));
        }
    }
    all
}

/// Adds the objects of the module, from the output of rdma(8) for queue pairs and regions.
pub fn add_objects(ports: &mut [Port], queue_pairs: &Value, regions: &Value) {
    for port in ports {
        let own = |all: &Value| -> Vec<Value> {
            let all = all.as_array().cloned().unwrap_or_default();
            let is = |o: &Value| {
                let comm = o["comm"].as_str().unwrap_or("");
                // a program may have the module's name, but the kernel's objects have no process
                o["pid"].is_null() && comm.trim_matches(['[', ']']) == "ib_sdp"
            };
            let mut all: Vec<_> = all.into_iter().filter(is).collect();
            all.retain(|o| o["ifname"] == *port.device);
            all
        };
        let (mut pairs, regions) = (own(queue_pairs), own(regions));
        let number = port.port.parse::<u64>().ok();
        pairs.retain(|o| o["port"].is_null() || o["port"].as_u64() == number);
        port.objects = Some(Objects {
            queue_pairs: pairs.len() as u64,
            regions: regions.len() as u64,
            region_bytes: regions.iter().filter_map(|o| o["mrlen"].as_u64()).sum(),
        });
    }
}

/// Returns the output of rdma(8) for one kind of object, if it is installed.
pub fn resource(kind: &str) -> Option<Value> {
    let mut command = Command::new("rdma");
    command.args(["-j", "resource", "show", kind]);
    let done = command.stderr(Stdio::null()).output().ok()?;
    serde_json::from_slice(&done.stdout).ok()
}

pub fn to_json(ports: &[Port]) -> Value {
    ports.iter().map(Port::to_json).collect()
}

pub fn table(ports: &[Port]) -> Table {
    let heading = [
        "Device",
        "Port",
        "State",
        "Link",
        "Connections",
        "QPs",
        "Regions",
        "Region bytes",
        "Errors",
        "Retries",
    ];
    let mut t = Table::new(&heading, &[4, 5, 6, 7, 8, 9]);
    let number = |n: Option<u64>| n.map_or("-".into(), |n| n.to_string());
    let sum = |all: &[(String, u64)]| {
        all.iter()
            .fold(0u64, |sum, (_, n)| sum.saturating_add(*n))
            .to_string()
    };
    for p in ports {
        t.row(vec![
            p.device.clone(),
            p.port.clone(),
            p.state.clone(),
            p.link_layer.clone(),
            number(p.connections),
            number(p.objects.map(|o| o.queue_pairs)),
            number(p.objects.map(|o| o.regions)),
            number(p.objects.map(|o| o.region_bytes)),
            sum(&p.errors),
            sum(&p.retries),
        ]);
        for (gid, kind) in &p.gids {
            t.below(format!("GID {gid} ({kind})"));
        }
        for (name, n) in p.errors.iter().chain(&p.retries) {
            t.below(format!("{name} {n}"));
        }
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port() {
        let dir = std::env::temp_dir().join(format!("sdpstat-devices-{}", std::process::id()));
        let port = dir.join("rxe0/ports/1");
        for (file, text) in [
            ("state", "4: ACTIVE\n"),
            ("link_layer", "Ethernet\n"),
            ("gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
            ("gids/1", "0000:0000:0000:0000:0000:ffff:0a4d:0001\n"),
            ("gid_attrs/types/1", "RoCE v2\n"),
            ("counters/symbol_error", "3\n"),
            ("counters/port_xmit_data", "5\n"),
            ("hw_counters/rcvd_seq_err", "7\n"),
            ("hw_counters/send_err", "0\n"),
        ] {
            fs::create_dir_all(port.join(file).parent().unwrap()).unwrap();
            fs::write(port.join(file), text).unwrap();
        }
        let local = ["10.77.0.1", "10.77.0.1", "10.9.9.9"].map(|a| a.parse().unwrap());
        let mut ports = find(&dir, &local);
        fs::remove_dir_all(dir).unwrap();
        let without = to_json(&ports);
        assert_eq!(without[0]["queue_pairs"], Value::Null);
        let pairs = json!([
            {"ifname": "rxe0", "port": 1, "comm": "ib_sdp"},
            {"ifname": "rxe0", "port": 1, "comm": "[ib_sdp]"},
            {"ifname": "rxe0", "port": 2, "comm": "ib_sdp"},
            {"ifname": "rxe0", "port": 1, "comm": "ib_core"},
            {"ifname": "rxe0", "port": 1, "comm": "ib_sdp", "pid": 7},
            {"ifname": "rxe1", "port": 1, "comm": "ib_sdp"},
        ]);
        let regions = json!([{"ifname": "rxe0", "mrlen": 2097152, "comm": "ib_sdp"}]);
        add_objects(&mut ports, &pairs, &regions);
        assert_eq!(
            to_json(&ports),
            json!([{
                "device": "rxe0", "port": 1, "state": "ACTIVE", "link_layer": "Ethernet",
                "gids": [{"gid": "::ffff:10.77.0.1", "type": "RoCE v2"}],
                "connections": 2, "queue_pairs": 2, "regions": 1, "region_bytes": 2097152,
                "errors": {"symbol_error": 3}, "retries": {"rcvd_seq_err": 7},
            }])
        );
        let mut text = Vec::new();
        table(&ports).write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let row: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
        let wanted = "rxe0 1 ACTIVE Ethernet 2 2 1 2097152 3 7";
        assert_eq!(row.join(" "), wanted);
        assert!(text.contains("    rcvd_seq_err 7\n"), "{text}");
    }
}

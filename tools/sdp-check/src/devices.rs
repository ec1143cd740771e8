// SPDX-License-Identifier: GPL-2.0-only

//! Describes RDMA devices from sysfs, and their limits from `ibv_devinfo` where it is installed.

use crate::perftest::{self, Gid};
use crate::verdict::{Check, Verdict};
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::process::{Command, Stdio};

/// Properties that identify one adapter. The properties of one adapter appear only in reports with
/// names.
const PRIVATE: [&str; 6] = ["guid", "GID[", "lid:", "gid", "serial", "node_desc"];

#[derive(Debug, Default)]
pub struct Found {
    pub text: Vec<String>,
    pub checks: Vec<Check>,
    /// GID of an active port that is derived from the address.
    pub gid: Option<Gid>,
    /// Addresses from which GIDs of active ports are derived, and the GIDs, those of RoCE v2 first.
    gids: Vec<(IpAddr, String)>,
}

/// Reads a file of one line, without the newline.
pub fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_string())
}

fn entries(dir: impl AsRef<Path>) -> Vec<String> {
    let all = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> = all
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    names
}

/// Directory of the kernel's RDMA devices.
pub const CLASS: &str = "/sys/class/infiniband";

/// Describes the devices below [`CLASS`], and finds the GID that is derived from the address.
pub fn find(class: &Path, address: Option<IpAddr>, names: bool) -> Found {
    let mut found = Found::default();
    for name in entries(class) {
        found.device(&class.join(&name), &name, address, names);
    }
    if found.checks.is_empty() {
        found
            .checks
            .push(Check::fail("RDMA device", "there is none").because(
            "no adapter, or its driver is not loaded (mlx5_ib, bnxt_re, irdma)",
            "rdma link shows devices; without an adapter: rdma link add rxe0 type rxe netdev eth0",
        ));
        return found;
    }
    // a second adapter that is not in use is no fault
    if found.checks.iter().any(|c| c.verdict == Verdict::Pass) {
        for check in &mut found.checks {
            if check.verdict == Verdict::Fail {
                check.verdict = Verdict::Skip;
            }
        }
    }
    match limits(names) {
        Ok(text) => found.text.extend(text),
        Err(why) => found.checks.push(Check::skip("limits of the devices", why)),
    }
    found
}

impl Found {
    fn device(&mut self, dir: &Path, name: &str, address: Option<IpAddr>, names: bool) {
        let file = |file: &str| {
            line(dir.join(file))
                .filter(|l| !l.is_empty())
                .unwrap_or("-".into())
        };
        let driver = fs::read_link(dir.join("device/driver")).ok();
        let driver = driver.as_ref().and_then(|d| d.file_name());
        self.text.push(format!(
            "device {name}: {}, driver {}, board {}, firmware {}",
            file("node_type"),
            driver.map_or("-".into(), |d| d.to_string_lossy()),
            file("board_id"),
            file("fw_ver")
        ));
        self.text.push(format!("device {name}: {}", bus(dir)));
        for text in adapter(dir, names) {
            self.text.push(format!("device {name}: {text}"));
        }
        let (mut active, mut states) = (0, vec![]);
        for port in entries(dir.join("ports")) {
            let dir = dir.join("ports").join(&port);
            let file = |file: &str| line(dir.join(file)).unwrap_or("-".into());
            let state = file("state");
            // the file contains "4: ACTIVE"
            let state = state.split_once(": ").map_or(&*state, |(_, word)| word);
            let is_active = state == "ACTIVE";
            active += usize::from(is_active);
            let gids = self.gids(name, &dir, is_active, address, names);
            let text = format!(
                "port {port} {state}, {}, {}, {gids}",
                file("link_layer"),
                file("rate")
            );
            self.text
                .push(format!("device {name}: {text}, {}", file("phys_state")));
            states.push(text);
        }
        let check = format!("device {name}");
        let states = states.join("; ");
        self.checks.push(if active > 0 {
            Check::pass(check, states)
        } else {
            Check::fail(check, format!("no port is active: {states}")).because(
                "no cable, the network device is down, or (InfiniBand) no subnet manager",
                "ip link set DEVICE up; on InfiniBand start opensm on one host",
            )
        });
    }

    /// Describes the RDMA device that carries connections of a local address.
    pub fn way(&self, link: &str, address: IpAddr, names: bool) -> String {
        let gid = self.gids.iter().find(|g| g.0 == address.to_canonical());
        let kind = line(format!("/sys/class/net/{link}/type"));
        let way = match (gid, kind.as_deref()) {
            (Some((_, gid)), _) => gid,
            // GIDs of IPoIB's adapter are derived from hardware addresses
            (None, Some("32")) => "the adapter of this interface (IPoIB)",
            _ => "no RDMA device, so TCP to other hosts",
        };
        let address = match (names, address.is_ipv4()) {
            (true, _) => address.to_string(),
            (false, true) => "an IPv4 address".into(),
            (false, false) => "an IPv6 address".into(),
        };
        format!("{address} on {link}: {way}")
    }

    /// Describes the number and kinds of a port's GIDs, and whether one of them belongs to the
    /// address.
    fn gids(
        &mut self,
        device: &str,
        port: &Path,
        active: bool,
        address: Option<IpAddr>,
        names: bool,
    ) -> String {
        let (mut count, mut kinds) = (0, vec![]);
        for n in entries(port.join("gids")) {
            let gid = line(port.join("gids").join(&n));
            let Some(gid) = gid.and_then(|g| g.parse::<Ipv6Addr>().ok()) else {
                continue;
            };
            if gid.is_unspecified() {
                continue;
            }
            count += 1;
            let kind = line(port.join("gid_attrs/types").join(&n)).unwrap_or("InfiniBand".into());
            let made_of = IpAddr::from(gid).to_canonical();
            if active {
                let port = port.file_name().unwrap_or_default().to_string_lossy();
                let text = format!("GID index {n} of {device} port {port}, {kind}");
                let at = if kind.contains("v2") {
                    0
                } else {
                    self.gids.len()
                };
                self.gids.insert(at, (made_of, text));
            }
            let is = active && address.is_some_and(|a| a.to_canonical() == made_of);
            // RoCE v2 is the version that all devices support
            if is && (self.gid.is_none() || kind.contains("v2")) {
                self.gid = Some(Gid {
                    device: device.into(),
                    port: port
                        .file_name()
                        .map_or(String::new(), |p| p.to_string_lossy().into()),
                    index: n.clone(),
                });
            }
            if names {
                self.text.push(format!("GID {n}: {gid} {kind}"));
            }
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        format!("{count} GIDs ({})", kinds.join(", "))
    }
}

/// Describes the bus of the adapter: model, speed of its slot, whether it is a virtual function,
/// and whether an IOMMU translates its accesses.
fn bus(dir: &Path) -> String {
    let file = |file: &str| line(dir.join("device").join(file)).unwrap_or("-".into());
    let domain = line(dir.join("device/iommu_group/type"));
    let part = fs::exists(dir.join("device/physfn")).unwrap_or(false);
    format!(
        "PCI {}:{}{}, {} x{}, NUMA node {}, IOMMU {}",
        file("vendor"),
        file("device"),
        if part { " (a virtual function)" } else { "" },
        file("current_link_speed"),
        file("current_link_width"),
        file("numa_node"),
        domain.unwrap_or("none".into())
    )
}

/// Returns the adapter's versions by devlink(8), and priorities of its network devices by dcb(8),
/// where these are installed.
fn adapter(dir: &Path, names: bool) -> Vec<String> {
    let mut all = vec![];
    let slot = fs::read_link(dir.join("device")).ok();
    if let Some(slot) = slot.as_deref().and_then(Path::file_name) {
        let slot = format!("pci/{}", slot.to_string_lossy());
        all.extend(output("devlink", &["dev", "info", &slot], names));
    }
    for link in entries(dir.join("device/net")) {
        for object in ["pfc", "ets", "app"] {
            let text = output("dcb", &[object, "show", "dev", &link], names);
            all.extend(text.iter().map(|l| format!("dcb {object} {link}: {l}")));
        }
    }
    all
}

/// Returns the lines of a program's output that may appear in the report.
fn output(program: &str, words: &[&str], names: bool) -> Vec<String> {
    let done = perftest::find(program).and_then(|program| {
        let mut c = Command::new(program);
        c.args(words).stdin(Stdio::null()).stderr(Stdio::null());
        c.output().ok()
    });
    done.map_or(vec![], |d| {
        telling(&String::from_utf8_lossy(&d.stdout), names)
    })
}

/// Returns the counters of the devices and their ports, by `DEVICE/PORT COUNTER`.
pub fn counters(class: &Path) -> Vec<(String, u64)> {
    let mut all = vec![];
    for device in entries(class) {
        let ports = class.join(&device).join("ports");
        for port in entries(&ports) {
            for kind in ["counters", "hw_counters"] {
                let dir = ports.join(&port).join(kind);
                for counter in entries(&dir) {
                    let n = line(dir.join(&counter)).and_then(|n| n.parse().ok());
                    all.extend(n.map(|n| (format!("{device}/{port} {counter}"), n)));
                }
            }
        }
    }
    all
}

/// Checks QP 1 of each port, by which the kernel's connection manager sends, where rdma(8) is
/// installed.
pub fn general_services() -> Vec<Check> {
    let shown = perftest::find("rdma").and_then(|rdma| {
        let mut rdma = Command::new(rdma);
        rdma.args(["resource", "show", "qp"]);
        rdma.stdin(Stdio::null()).stderr(Stdio::null());
        rdma.output().ok()
    });
    shown.map_or(vec![], |s| failed(&String::from_utf8_lossy(&s.stdout)))
}

/// Returns a failed check for each port whose QP 1 is in ERR, from the output of
/// `rdma resource show qp`.
fn failed(shown: &str) -> Vec<Check> {
    let in_error = |l: &&str| l.contains(" type GSI ") && l.contains(" state ERR ");
    let links = shown.lines().filter(in_error);
    links
        .filter_map(|l| {
            let port = l.strip_prefix("link ")?.split(' ').next()?;
            let device = port.split('/').next()?;
            Some(Check::fail(format!("QP 1 of {port}"), "in ERR: every connect fails").because(
                "rxe, after its address, its queue (tc qdisc) or the route of a packet of the connection manager went away",
                format!("rdma link delete {device}; rdma link add {device} type rxe netdev DEVICE"),
            ))
        })
        .collect()
}

/// Returns the output of `ibv_devinfo`, or the reason why there is none.
fn limits(names: bool) -> Result<Vec<String>, String> {
    let Some(program) = perftest::find("ibv_devinfo") else {
        return Err("ibv_devinfo is not installed (package ibverbs-utils)".into());
    };
    let done = Command::new(program)
        .arg("-v")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let text = done.map_err(|e| e.to_string())?.stdout;
    let text = telling(&String::from_utf8_lossy(&text), names);
    match text.is_empty() {
        true => Err("ibv_devinfo shows no device (is ib_uverbs loaded?)".into()),
        false => Ok(text),
    }
}

/// Returns the lines that may appear in the report.
fn telling(text: &str, names: bool) -> Vec<String> {
    let private = |l: &&str| names || !PRIVATE.iter().any(|p| l.trim_start().contains(p));
    let lines = text.lines().filter(|l| !l.trim().is_empty());
    lines
        .filter(private)
        .map(|l| l.replace('\t', "  ").trim_end().to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Creates a directory like /sys/class/infiniband, with one device.
    fn class(test: &str, state: &str, gid: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("sdp-check-{test}-{}", std::process::id()));
        let port = dir.join("mlx5_0/ports/1");
        fs::create_dir_all(port.join("gids")).unwrap();
        fs::create_dir_all(port.join("gid_attrs/types")).unwrap();
        fs::write(port.join("state"), format!("{state}\n")).unwrap();
        fs::write(port.join("link_layer"), "Ethernet\n").unwrap();
        fs::write(port.join("gids/0"), format!("{gid}\n")).unwrap();
        fs::write(
            port.join("gids/1"),
            "0000:0000:0000:0000:0000:0000:0000:0000\n",
        )
        .unwrap();
        fs::write(port.join("gid_attrs/types/0"), "RoCE v2\n").unwrap();
        dir
    }

    fn found(test: &str, state: &str, gid: &str, names: bool) -> Found {
        let dir = class(test, state, gid);
        let found = find(&dir, "10.0.0.1".parse().ok(), names);
        fs::remove_dir_all(dir).unwrap();
        found
    }

    #[test]
    fn what_is_counted() {
        let dir = class("counted", "4: ACTIVE", GID);
        let of = |kind: &str| dir.join("mlx5_0/ports/1").join(kind);
        for (kind, counter, n) in [
            ("counters", "port_rcv_errors", "3"),
            ("hw_counters", "out_of_sequence", "7"),
            ("hw_counters", "lifespan", "ten"),
        ] {
            fs::create_dir_all(of(kind)).unwrap();
            fs::write(of(kind).join(counter), n).unwrap();
        }
        let wanted = [
            ("mlx5_0/1 port_rcv_errors".into(), 3),
            ("mlx5_0/1 out_of_sequence".into(), 7),
        ];
        assert_eq!(counters(&dir), wanted);
        assert_eq!(
            bus(&dir.join("mlx5_0")),
            "PCI -:-, - x-, NUMA node -, IOMMU none"
        );
        fs::remove_dir_all(dir).unwrap();
    }

    const GID: &str = "0000:0000:0000:0000:0000:ffff:0a00:0001";

    #[test]
    fn a_device() {
        let f = found("good", "4: ACTIVE", GID, false);
        let gid = f.gid.as_ref().unwrap();
        assert_eq!(
            (gid.device.as_str(), gid.port.as_str(), gid.index.as_str()),
            ("mlx5_0", "1", "0")
        );
        let way = f.way("eth0", "10.0.0.1".parse().unwrap(), true);
        assert_eq!(
            way,
            "10.0.0.1 on eth0: GID index 0 of mlx5_0 port 1, RoCE v2"
        );
        let way = f.way("eth0", "10.0.0.2".parse().unwrap(), false);
        assert_eq!(
            way,
            "an IPv4 address on eth0: no RDMA device, so TCP to other hosts"
        );
        assert_eq!(f.checks[0].verdict, Verdict::Pass);
        assert_eq!(
            f.checks[0].found,
            "port 1 ACTIVE, Ethernet, -, 1 GIDs (RoCE v2)"
        );
        assert!(
            !f.text.iter().any(|t| t.contains("10.0.0.1")),
            "{:?}",
            f.text
        );
        assert!(found("named", "4: ACTIVE", GID, true)
            .text
            .iter()
            .any(|t| t.contains("10.0.0.1")));
    }

    #[test]
    fn what_is_wrong() {
        let down = found("down", "1: DOWN", GID, false);
        assert_eq!((down.gid, down.checks[0].verdict), (None, Verdict::Fail));
        let other = found("other", "4: ACTIVE", "fe80::1", false);
        assert_eq!(other.gid, None);
        let none = find("/nowhere".as_ref(), None, false);
        assert!(none.checks[0].found.contains("none") && none.checks[0].verdict == Verdict::Fail);
    }

    #[test]
    fn qp_1() {
        let shown = "link rxe0/1 lqpn 1 type GSI state ERR sq-psn 0 comm [ib_core] \n\
                     link rxe0/1 lqpn 17 rqpn 18 type RC state ERR rq-psn 5 comm [ib_sdp] \n\
                     link mlx5_0/1 lqpn 1 type GSI state RTS sq-psn 0 comm [ib_core] \n";
        let found = failed(shown);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "QP 1 of rxe0/1");
        assert!(found[0].remedy.starts_with("rdma link delete rxe0;"));
        assert!(failed("").is_empty());
    }

    #[test]
    fn what_may_be_told() {
        let text = "hca_id:\tmlx5_0\n\tfw_ver:\t1.2\n\tnode_guid:\t0002:c903\n\n\t\tactive_mtu:\t4096 (5)\n\t\tGID[ 0]:\tfe80::1\n";
        assert_eq!(
            telling(text, false),
            [
                "hca_id:  mlx5_0",
                "  fw_ver:  1.2",
                "    active_mtu:  4096 (5)"
            ]
        );
        assert_eq!(telling(text, true).len(), 5);
        let info = "fw 1.2\nserial_number 7\n";
        assert_eq!(output("printf", &[info], false), ["fw 1.2"]);
        assert_eq!(output("printf", &[info], true).len(), 2);
        assert!(output("no-such-program", &[], true).is_empty());
    }
}

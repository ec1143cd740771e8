// SPDX-License-Identifier: GPL-2.0-only

//! Describes this host and finds its faults before a byte is sent.

use crate::devices::{self, line};
use crate::facts::Facts;
use crate::link::{self, Link};
use crate::perftest;
use crate::sock::{self, Kind};
use crate::verdict::Check;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::time::UNIX_EPOCH;

/// Modules that SDP depends on, and drivers of adapters.
const RDMA_MODULES: [&str; 21] = [
    "ib_core",
    "ib_cm",
    "iw_cm",
    "rdma_cm",
    "ib_uverbs",
    "ib_ipoib",
    "mlx5_core",
    "mlx5_ib",
    "bnxt_en",
    "bnxt_re",
    "ice",
    "irdma",
    "mlx4_core",
    "mlx4_ib",
    "ionic_rdma",
    "erdma",
    "hns_roce_hw_v2",
    "qedr",
    "iw_cxgb4",
    "rdma_rxe",
    "siw",
];

impl Facts {
    /// Collects the facts about this host. `address` is the local address of the control
    /// connection.
    pub fn find(address: Option<IpAddr>, names: bool, with_perftest: bool) -> Self {
        let mut facts = Facts {
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            ..Self::default()
        };
        facts.text.push(kernel(&facts.kernel));
        facts.text.push(format!("booted with {}", boot()));
        facts.text.push(format!(
            "sdp-check {}, {} s since 1970",
            env!("CARGO_PKG_VERSION"),
            UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs())
        ));
        if names {
            let host = line("/proc/sys/kernel/hostname").unwrap_or_default();
            let address = address.map_or("none".into(), |a| a.to_string());
            facts.text.push(format!("host {host}, address {address}"));
        }
        facts.text.push(processors());
        facts.modules();
        facts.module(address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()));
        let mut found = devices::find(devices::CLASS.as_ref(), address, names);
        facts.text.append(&mut found.text);
        facts.checks.append(&mut found.checks);
        let others = link::addresses().into_iter().filter(|a| !a.2.is_loopback());
        let ways = others.map(|(link, _, address)| found.way(&link, address, names));
        facts.text.extend(ways);
        facts.checks.append(&mut devices::general_services());
        if let Some(address) = address {
            facts.link(address, found.gid.is_some());
        }
        facts.gid = found.gid;
        facts.memory();
        if with_perftest {
            let all = ["ib_send_bw", "ib_send_lat"];
            let there = all.iter().filter(|p| perftest::find(p).is_some());
            facts.perftest = there.map(|p| p.to_string()).collect();
        }
        facts
    }

    /// Lists the kernel's RDMA modules that are loaded, and modules that are not the kernel's own.
    fn modules(&mut self) {
        let is_there = |name: &&str| fs::exists(format!("/sys/module/{name}")).unwrap_or(false);
        let there: Vec<_> = RDMA_MODULES.into_iter().filter(is_there).collect();
        self.text.push(format!("modules {}", there.join(" ")));
        let mut foreign = vec![];
        for name in there {
            let taint = line(format!("/sys/module/{name}/taint"));
            if taint.is_some_and(|t| t.contains('O')) {
                let version = line(format!("/sys/module/{name}/version"));
                foreign.push(format!("{name} {}", version.unwrap_or_default()));
            }
        }
        if foreign.is_empty() {
            return;
        }
        let all = foreign.iter().map(|f| f.trim_end()).collect::<Vec<_>>();
        self.checks.push(
            Check::skip("modules of RDMA", format!("not the kernel's: {}", all.join(", "))).because(
                "drivers of a vendor (MLNX_OFED, DOCA) are in place of the kernel's; ib_sdp is built for the kernel's",
                "if ib_sdp does not load (unknown symbols), use the kernel's own drivers",
            ),
        );
    }

    fn module(&mut self, address: IpAddr) {
        // creating a socket has the kernel load the module
        let made = sock::new(Kind::Sdp, address);
        self.sdp = made.is_ok();
        let parameters = "/sys/module/ib_sdp/parameters";
        let mut all: Vec<_> = fs::read_dir(parameters)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|f| Some((f.file_name().into_string().ok()?, line(f.path())?)))
            .collect();
        all.sort();
        let find = |name: &str| all.iter().find(|p| p.0 == name).map(|p| p.1.clone());
        self.zcopy_ways = find("zcopy_ways").and_then(|w| w.parse().ok());
        let note = fs::read("/sys/module/ib_sdp/notes/.note.gnu.build-id").unwrap_or_default();
        let build = build_id(&note).unwrap_or("not known".into());
        let all: Vec<_> = all.iter().map(|(n, v)| format!("{n}={v}")).collect();
        self.text
            .push(format!("ib_sdp, build {build}: {}", all.join(" ")));
        let kernel = &self.kernel;
        self.checks.push(match made {
            Ok(_) => Check::pass("module ib_sdp", "loaded"),
            Err(e) if e.raw_os_error() == Some(libc::EAFNOSUPPORT) => Check::fail(
                "module ib_sdp",
                "not loaded, so there is no SDP",
            )
            .because(
                format!("it is not installed for kernel {kernel}, or not signed although that is required"),
                "modprobe ib_sdp (as root) shows why; make install, or the package ib-sdp-dkms",
            ),
            Err(e) => Check::fail("module ib_sdp", format!("no socket can be made: {e}"))
                .because("limits of sockets or memory", "max_sockets_per_user and max_sockets_per_net (sdp(7)), ulimit -n"),
        });
        if !fs::exists("/sys/module/rdma_cm").unwrap_or(false) {
            self.checks
                .push(Check::fail("module rdma_cm", "not loaded").because(
                    "no RDMA driver and no user of RDMA is loaded",
                    "modprobe rdma_cm",
                ));
        }
        if find("ipproto").as_deref() == Some("0") {
            self.checks.push(Check::skip(
                "IPPROTO_SDP",
                "ib_sdp was loaded with ipproto=0",
            ));
        }
    }

    fn link(&mut self, address: IpAddr, rdma: bool) {
        let Some(link) = Link::of(address) else {
            self.checks
                .push(Check::skip("link", "no network device has the address"));
            return;
        };
        let name = format!("link {}", link.name);
        self.checks.push(match link.running {
            true => Check::pass(&name, format!("up, MTU {}", link.mtu)),
            false => Check::fail(&name, "not running").because(
                "no cable, a switch's port that is down, or an interface that is down",
                format!("ip link set {} up", link.name),
            ),
        });
        let ib = line(format!("/sys/class/net/{}/type", link.name)).as_deref() == Some("32");
        // on InfiniBand the subnet manager chooses the MTU
        self.mtu = if ib { 0 } else { link.mtu };
        self.checks.push(if rdma || ib {
            Check::pass("address", "belongs to an RDMA device")
        } else {
            Check::fail("address", format!("no RDMA device has the address of {}", link.name)).because(
                "the connection goes by a network device without RDMA, or its GID is missing",
                "give the other host's address on the RDMA network as HOST; rdma link lists devices",
            )
        });
    }

    /// Checks the limit of memory that zero copy may pin: four blocks of a call are in flight at a
    /// time.
    fn memory(&mut self) {
        // SAFETY: the call fills a structure of numbers; the other passes only a number.
        let (limit, root) = unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit);
            (limit.rlim_cur, libc::geteuid() == 0)
        };
        self.checks.push(memlock(limit, root));
    }
}

/// Describes the kernel and the distribution.
fn kernel(release: &str) -> String {
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = system.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
    let build = line("/proc/sys/kernel/version").unwrap_or_default();
    let tainted = line("/proc/sys/kernel/tainted").unwrap_or_default();
    format!(
        "kernel {release} {build} {}, tainted {tainted}, {}",
        std::env::consts::ARCH,
        name.unwrap_or("of a distribution that is not known")
            .trim_matches('"')
    )
}

/// Returns the options of the kernel's command line that concern memory and DMA. Other options may
/// contain names.
fn boot() -> String {
    let all = line("/proc/cmdline").unwrap_or_default();
    let about = [
        "iommu",
        "swiotlb",
        "cma",
        "hugepages",
        "isolcpus",
        "nohz_full",
        "pcie_",
        "pci=",
    ];
    let words = all
        .split(' ')
        .filter(|w| about.iter().any(|a| w.contains(a)));
    let words: Vec<_> = words.collect();
    match words.is_empty() {
        true => "nothing about DMA or processors".into(),
        false => words.join(" "),
    }
}

/// Describes the processors, because figures depend on them.
fn processors() -> String {
    let count = std::thread::available_parallelism().map_or(0, |n| n.get());
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.lines().next().unwrap_or_default().to_string();
    let memory = memory
        .split_whitespace()
        .nth(1)
        .map_or(0, |kib| kib.parse().unwrap_or(0))
        >> 10;
    let load = line("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let governor = line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let governor = governor.unwrap_or("none".into());
    format!("{count} processors, load {load}, governor {governor}, {memory} MiB of memory")
}

/// Returns the build ID of an ELF note, which follows three words and the name "GNU".
fn build_id(note: &[u8]) -> Option<String> {
    let id = note.get(16..).filter(|id| !id.is_empty())?;
    let bytes: Vec<_> = id.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(bytes.concat())
}

fn memlock(limit: u64, root: bool) -> Check {
    let enough = 8 << 20;
    let text = match limit {
        libc::RLIM_INFINITY => "unlimited".to_string(),
        n => format!("{} KiB", n >> 10),
    };
    if limit >= enough || root {
        return Check::pass("RLIMIT_MEMLOCK", text);
    }
    Check::fail(
        "RLIMIT_MEMLOCK",
        format!("{text}; bytes beyond it are copied"),
    )
    .because(
        "the limit of this user's session",
        "ulimit -l 65536, or memlock in /etc/security/limits.conf, or LimitMEMLOCK= of a service",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    #[test]
    fn this_host() {
        let facts = Facts::find(Some(Ipv4Addr::LOCALHOST.into()), false, false);
        assert!(facts.mtu > 1000);
        assert!(facts.perftest.is_empty());
        assert!(facts.text.iter().any(|t| t.contains(" processors, load ")));
        assert!(!facts.text.iter().any(|t| t.contains("127.0.0.1")));
    }

    #[test]
    fn limits() {
        assert_eq!(memlock(64 << 10, false).verdict, Verdict::Fail);
        assert_eq!(memlock(64 << 10, true).verdict, Verdict::Pass);
        assert_eq!(memlock(libc::RLIM_INFINITY, false).found, "unlimited");
    }

    #[test]
    fn builds() {
        let note = b"\x04\0\0\0\x02\0\0\0\x03\0\0\0GNU\0\x0a\xff";
        assert_eq!(build_id(note).as_deref(), Some("0aff"));
        assert_eq!((build_id(&note[..16]), build_id(b"")), (None, None));
    }
}

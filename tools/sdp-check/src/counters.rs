// SPDX-License-Identifier: GPL-2.0-only

//! Increments of `/proc/net/sdpstats` and of the counters of RDMA devices since the start.

use crate::devices;
use crate::verdict::Check;
use sdp_info::{Counter, Statistics};
use std::fs;

pub struct Counters {
    module: Vec<Counter>,
    devices: Vec<(String, u64)>,
}

fn read() -> Vec<Counter> {
    let text = fs::read_to_string("/proc/thread-self/net/sdpstats");
    let read = text.ok().and_then(|t| Statistics::parse(&t).ok());
    read.map_or(vec![], |s| s.0)
}

impl Counters {
    pub fn now() -> Self {
        Counters {
            module: read(),
            devices: devices::counters(devices::CLASS.as_ref()),
        }
    }

    /// Returns the increments of the module's counters, then the increments of the devices'
    /// counters.
    pub fn gained(&self) -> Vec<(String, u64)> {
        let mut all = gained(&self.module, &read());
        for (name, n) in devices::counters(devices::CLASS.as_ref()) {
            let before = self.devices.iter().find(|(old, _)| *old == name);
            let n = n.saturating_sub(before.map_or(0, |b| b.1));
            all.extend((n > 0).then_some((name, n)));
        }
        all
    }
}

fn gained(old: &[Counter], new: &[Counter]) -> Vec<(String, u64)> {
    let before = |c: &Counter| {
        let same = |o: &&Counter| o.name == c.name && o.section == c.section;
        old.iter().find(same).map_or(0, |o| o.value)
    };
    new.iter()
        .map(|c| (name(c), c.value.saturating_sub(before(c))))
        .filter(|(_, n)| *n > 0)
        .collect()
}

fn name(c: &Counter) -> String {
    match &c.section {
        Some(section) => format!("{section}: {}", c.name),
        None => c.name.clone(),
    }
}

/// Checks the increments for connections that were lost by a fault.
pub fn faults(name: &str, gained: &[(String, u64)]) -> Check {
    let bad = [
        "aborted",
        "transport error",
        "bad hello",
        "timed out",
        "memory withheld",
    ];
    let all: Vec<_> = gained
        .iter()
        .filter(|(counter, _)| bad.iter().any(|b| counter.contains(b)))
        .map(|(counter, n)| format!("{counter} {n}"))
        .collect();
    if gained.is_empty() {
        return Check::skip(name, "no counter has changed");
    }
    if all.is_empty() {
        return Check::pass(name, "no connection was lost by a fault");
    }
    Check::fail(name, all.join(", ")).because(
        "the fabric lost packets or the link, or one end broke a rule of SDP",
        "check the counters of the devices in the report (and ethtool -S), \
         and send the report to the maintainers",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    fn all(text: &str) -> Vec<Counter> {
        Statistics::parse(&format!("SDP statistics:\n{text}"))
            .unwrap()
            .0
    }

    #[test]
    fn what_was_gained() {
        let old = all("tx_bytes : 5\nrx_bytes : 7\nRefused and lost:\n- bad hello : 1\n");
        let new = all(
            "tx_bytes : 9\nrx_bytes : 7\nRefused and lost:\n- bad hello : 1\n- aborted x : 2\n",
        );
        let gained = gained(&old, &new);
        assert_eq!(
            gained,
            [
                ("tx_bytes".into(), 4),
                ("Refused and lost: aborted x".into(), 2)
            ]
        );
        assert!(faults("x", &gained).found.contains("aborted x 2"));
        assert_eq!(faults("x", &gained[..1]).verdict, Verdict::Pass);
        let none = faults("x", &[]);
        assert_eq!(
            (none.verdict, none.found.contains("loaded")),
            (Verdict::Skip, false)
        );
    }
}

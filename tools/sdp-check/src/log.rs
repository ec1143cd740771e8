// SPDX-License-Identifier: GPL-2.0-only

//! Reads the kernel's log about SDP and the devices, and finds warnings in it.

use crate::devices;
use crate::facts::Facts;
use crate::sock::{self, Kind};
use crate::verdict::{without, Check};
use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// File that switches dynamic debug messages on and off.
const CONTROL: &str = "/proc/dynamic_debug/control";
/// True if this program has switched debug messages on.
static ASKED: AtomicBool = AtomicBool::new(false);
/// Maximum number of log lines in the report, counted from the end.
const MOST: usize = 200;
/// Number of records after the first line of a kernel report that may contain its call trace.
const TRACE: usize = 100;

/// Switches on the module's debug messages about failed connections until [`quiet`], if the caller
/// has the right to do so.
pub fn ask() {
    // creating a socket has the kernel load the module
    let _ = sock::new(Kind::Sdp, Ipv4Addr::UNSPECIFIED.into());
    let all = fs::read_to_string(CONTROL).unwrap_or_default();
    let mut ours = all.lines().filter(|line| line.contains("[ib_sdp]"));
    if ours.any(|line| line.contains("=_ ")) && fs::write(CONTROL, "module ib_sdp +p\n").is_ok() {
        ASKED.store(true, Ordering::Release);
    }
}

/// Restores the state that [`ask`] found.
pub fn quiet() {
    if ASKED.swap(false, Ordering::AcqRel) {
        let _ = fs::write(CONTROL, "module ib_sdp -p\n");
    }
}

/// Returns the module's log lines so far, for the report and the verdict.
pub fn find(names: bool) -> Facts {
    let mut facts = Facts::default();
    let Some(records) = read() else {
        let check = Check::skip("kernel log", "only root may read it");
        facts.checks.push(check.because(
            "",
            "run sdp-check as root, or send the output of dmesg to the maintainers",
        ));
        return facts;
    };
    let words = words(devices::CLASS.as_ref());
    let host = devices::line("/proc/sys/kernel/hostname").unwrap_or_default();
    let lines = about(&records, &words);
    facts.text = match names {
        true => lines,
        false => lines
            .iter()
            .map(|l| without(&anonymous(l), std::slice::from_ref(&host)))
            .collect(),
    };
    facts.checks.push(judged(&complaints(&records)));
    facts
}

/// Seconds since boot, and the message.
type Record = (String, String);

fn read() -> Option<Vec<Record>> {
    let mut options = fs::OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut file = options.open("/dev/kmsg").ok()?;
    let (mut all, mut record) = (vec![], [0; 8192]);
    loop {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(n) => all.extend(parse(&String::from_utf8_lossy(&record[..n]))),
            // the kernel has overwritten a record meanwhile
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
            Err(_) => break,
        }
    }
    Some(all)
}

/// Parses a record of /dev/kmsg.
fn parse(record: &str) -> Option<Record> {
    let (head, text) = record.split_once(';')?;
    let micros: u64 = head.split(',').nth(2)?.parse().ok()?;
    let time = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    Some((time, text.lines().next()?.to_string()))
}

/// Returns the words by which a log line is selected for the report: also the names of devices and
/// of their drivers.
fn words(class: &Path) -> Vec<String> {
    let always = [
        "ib_sdp",
        "infiniband",
        "rust_kernel",
        "IO_PAGE_FAULT",
        "DMAR: [",
        "DMA-API",
    ];
    let mut all: Vec<_> = always.map(str::to_string).into();
    for device in fs::read_dir(class).into_iter().flatten().flatten() {
        all.extend(device.file_name().into_string());
        let driver = fs::read_link(device.path().join("device/driver")).ok();
        let driver = driver.as_ref().and_then(|d| d.file_name());
        all.extend(driver.map(|d| d.to_string_lossy().into_owned()));
    }
    all
}

/// Returns the last lines with one of these words; repeated lines are counted.
fn about(records: &[Record], words: &[String]) -> Vec<String> {
    let mut found: Vec<(&Record, usize)> = vec![];
    for record in records {
        if !words.iter().any(|word| record.1.contains(word)) {
            continue;
        }
        match found.iter_mut().find(|(old, _)| old.1 == record.1) {
            Some((_, count)) => *count += 1,
            None => found.push((record, 1)),
        }
    }
    let line = |((time, text), count): &(&Record, usize)| match count {
        1 => format!("[{time}] {text}"),
        n => format!("[{time}] {text} ({n} times)"),
    };
    let from = found.len().saturating_sub(MOST);
    found[from..].iter().map(line).collect()
}

/// Returns the first line of each fault report that has the module's code in its call trace.
fn complaints(records: &[Record]) -> Vec<&str> {
    let telling = [
        "WARNING:",
        "BUG:",
        "kernel BUG at",
        "Oops",
        "panicked at",
        "general protection",
        "INFO: task",
    ];
    let mut found = vec![];
    let mut first: Option<(usize, &str)> = None;
    for (at, (_, text)) in records.iter().enumerate() {
        if telling.iter().any(|word| text.contains(word)) {
            first = first.filter(|f| at - f.0 < TRACE).or(Some((at, text)));
        }
        if text.contains("[ib_sdp]") {
            found.extend(first.take().filter(|f| at - f.0 < TRACE).map(|f| f.1));
        }
        if text.contains("---[ end trace") {
            first = None;
        }
    }
    found
}

fn judged(complaints: &[&str]) -> Check {
    let Some(first) = complaints.first() else {
        return Check::pass("kernel log", "no warning names ib_sdp");
    };
    let found = format!("{} warnings name ib_sdp: {first}", complaints.len());
    Check::fail("kernel log", found).because(
        "a fault of the module",
        "send the report to the maintainers, with the output of dmesg",
    )
}

/// Returns the text without addresses of hosts, adapters and the kernel.
fn anonymous(text: &str) -> String {
    let part = |c: char| c.is_ascii_hexdigit() || c == '.' || c == ':';
    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut done = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(part) {
        let (before, from) = rest.split_at(start);
        let (run, after) = from.split_at(from.find(|c| !part(c)).unwrap_or(from.len()));
        done += before;
        // a sentence may end behind the address
        let address = run.trim_end_matches(['.', ':']);
        let inside = word(done.chars().last()) || address == run && word(after.chars().next());
        done += match is_address(address) && !inside || is_number(address) {
            true => "(hidden)",
            false => address,
        };
        done += &run[address.len()..];
        rest = after;
    }
    done + rest
}

fn is_address(text: &str) -> bool {
    let mut pairs = text.split(':');
    let hardware = pairs.clone().count() >= 6 && pairs.all(|p| p.len() == 2);
    let socket = text.rsplit_once(':').map_or("", |(ip, _)| ip);
    hardware || text.parse::<IpAddr>().is_ok() || socket.parse::<Ipv4Addr>().is_ok()
}

/// Returns true for a GUID or a kernel address.
fn is_number(text: &str) -> bool {
    text.len() == 16 && text.chars().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    fn log(lines: &[&str]) -> Vec<Record> {
        let text = |line| parse(&format!("4,900,99000,-;{line}\n SUBSYSTEM=x\n")).unwrap();
        lines.iter().map(text).collect()
    }

    #[test]
    fn records() {
        let wanted = ("12.000034".to_string(), "a;b".to_string());
        assert_eq!(parse("6,1,12000034,-;a;b\n KEY=x\n"), Some(wanted));
        assert_eq!((parse(""), parse("6,1;x")), (None, None));
    }

    #[test]
    fn what_is_a_complaint() {
        let warning = "WARNING: CPU: 0 PID: 1 at x.rs:5 f+0x1/0x2 [ib_sdp]";
        assert_eq!(complaints(&log(&["cut here", warning])), [warning]);
        let panic = "rust_kernel: panicked at src/conn/tx.rs:5:6:";
        let trace = [
            "attempt to add with overflow",
            "kernel BUG at bug.c:7!",
            "Call Trace:",
            " f+0x1/0x2 [ib_sdp]",
        ];
        let all = [
            &[panic][..],
            &trace,
            &[" g+0x3/0x4 [ib_sdp]", "---[ end trace 0 ]---"],
        ]
        .concat();
        assert_eq!(complaints(&log(&all)), [panic], "once");
        for other in [
            &[
                "WARNING: x.c:5 f+0x1/0x2 [other]",
                "---[ end trace 0 ]---",
                "f [ib_sdp]",
            ][..],
            &["ib_sdp: loaded [ib_sdp]"],
            &["BUG: of others", "Modules linked in: ib_sdp ib_core"],
        ] {
            assert_eq!(complaints(&log(other)), [""; 0], "{other:?}");
        }
        assert_eq!(judged(&[]).verdict, Verdict::Pass);
        assert!(judged(&[panic]).found.ends_with(panic));
    }

    #[test]
    fn what_is_told() {
        let words = ["ib_sdp".to_string(), "mlx5_0".into()];
        let lines = ["ib_sdp: a", "usb: b", "mlx5_0: c", "ib_sdp: a"];
        let wanted = ["[0.099000] ib_sdp: a (2 times)", "[0.099000] mlx5_0: c"];
        assert_eq!(about(&log(&lines), &words), wanted);
        let many: Vec<_> = (0..500).map(|n| format!("ib_sdp: {n}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let told = about(&log(&many), &words);
        assert_eq!(
            (told.len(), told[0].as_str()),
            (MOST, "[0.099000] ib_sdp: 300")
        );
    }

    #[test]
    fn what_is_not_told() {
        for (text, wanted) in [
            (
                "10.7.0.1 port 80, fe80::1 port 9: errno 5",
                "(hidden) port 80, (hidden) port 9: errno 5",
            ),
            ("to 10.7.0.1:80.", "to (hidden)."),
            (
                "MAC 00:11:22:aa:bb:cc, GUID 0x0002c90300a1b2c3",
                "MAC (hidden), GUID 0x(hidden)",
            ),
            (
                "RIP: 0010:ib_sdp::conn::f+0x1a/0x2b [ib_sdp]",
                "RIP: 0010:ib_sdp::conn::f+0x1a/0x2b [ib_sdp]",
            ),
            (
                "mlx5_core 0000:41:00.0: firmware version: 26.38.1002",
                "mlx5_core 0000:41:00.0: firmware version: 26.38.1002",
            ),
            ("", ""),
        ] {
            assert_eq!(anonymous(text), wanted);
        }
    }
}

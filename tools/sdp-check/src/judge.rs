// SPDX-License-Identifier: GPL-2.0-only

//! Judges a path by the numbers of both ends. Correct bytes are not enough: SDP's counters have to
//! prove that the bytes took this path.

use crate::numbers::Numbers;
use crate::path::Path;
use crate::verdict::Check;

/// Remedy for a fault of the module.
const REPORT: &str = "send the report to the maintainers";

/// Formats `n` bytes for people.
fn size(n: u64) -> String {
    match n {
        0..=9_999 => format!("{n} bytes"),
        10_000..=9_999_999 => format!("{:.1} kB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}

fn part(of: u64, all: u64) -> String {
    format!(
        "{:.1} % of {}",
        of as f64 * 100.0 / all.max(1) as f64,
        size(all)
    )
}

/// Returns the likely reason why all bytes were copied. `ways` are the `zcopy_ways` parameters of
/// both ends.
fn why_copied(both: [&Numbers; 2], way: u64, ways: [Option<u64>; 2]) -> (String, String) {
    if both.iter().any(|n| n.get("unpinnable") > 0) {
        return (
            "memory could not be pinned".into(),
            "raise RLIMIT_MEMLOCK (ulimit -l) and max_pinned_send, max_pinned_receive (sdp(7))"
                .into(),
        );
    }
    if ways.iter().flatten().any(|w| w & way == 0) {
        return (
            "the module's zcopy_ways rules it out".into(),
            "echo 3 > /sys/module/ib_sdp/parameters/zcopy_ways, at both hosts".into(),
        );
    }
    if way == 1
        && both
            .iter()
            .all(|n| n.get("src_avail_sent") + n.get("src_avail_received") == 0)
    {
        return (
            "the sender has offered nothing: the adapter's limits, or no memory keys".into(),
            REPORT.into(),
        );
    }
    (
        "calls that never overlapped (a very slow or busy host), or an adapter that refuses zero copy"
            .into(),
        "try again with more --seconds; if the failure remains, \
         send the report to the maintainers"
            .into(),
    )
}

/// Returns true if the bytes of an end went by TCP.
pub fn is_tcp(numbers: &Numbers) -> bool {
    numbers.get("sdp") == 0
}

/// Returns the verdict on an IPPROTO_SDP socket that became TCP, by the counters' increments.
pub fn by_tcp(name: &str, gained: &[(String, u64)]) -> Check {
    let reason = |(counter, _): &(String, u64)| {
        Some(counter.strip_prefix("IPPROTO_SDP: TCP: ")?.to_string())
    };
    let reasons: Vec<_> = gained.iter().filter_map(reason).collect();
    let found = format!("the bytes went by TCP: {}", reasons.join(", "));
    let (cause, remedy) = match &*reasons {
        [one] if one == "no answer" => (
            "the other host did not answer by SDP within ipproto_wait: one of the two is slow or busy",
            "raise ipproto_wait (sdp(7)), or wait for ipproto_memory and try again",
        ),
        [one] if one == "remembered" => (
            "the other host did not answer by SDP a short time ago",
            "wait for ipproto_memory (sdp(7)) and try again",
        ),
        _ => ("the reason is explained in sdp(7)", "read sdp(7)"),
    };
    Check::fail(name, found).because(cause, remedy)
}

/// Returns the fault, cause and remedy if the transport is wrong, independent of the path.
fn transport(path: Path, numbers: &Numbers) -> Option<(String, String, String)> {
    if path == Path::Fallback {
        return (!is_tcp(numbers)).then(|| {
            (
                "a server of TCP was reached by SDP".into(),
                "another program of that host has the port by SDP".into(),
                "try again".into(),
            )
        });
    }
    if numbers.get("local") == 1 {
        return Some((
            "no device carried it: both ends are on one host".into(),
            "HOST is an address of this host".into(),
            "run sdp-check --serve on another host, or set local_transport to 0".into(),
        ));
    }
    (numbers.get("rdma") == 0).then(|| {
        (
            "no RDMA device carries it".into(),
            "the connection was lost at once".into(),
            "look at the kernel's log and the counters in the report".into(),
        )
    })
}

/// Returns the verdict on a path that ran without an error.
pub fn path(
    path: Path,
    name: &str,
    sender: &Numbers,
    receiver: &Numbers,
    ways: [Option<u64>; 2],
) -> Check {
    if let Some((found, cause, remedy)) =
        transport(path, sender).or_else(|| transport(path, receiver))
    {
        return Check::fail(name, found).because(cause, remedy);
    }
    let sent = sender.get("bytes");
    let copied_not = sender.get("tx_read") + sender.get("tx_written");
    let both = [sender, receiver];
    match path {
        Path::Copied | Path::Either if copied_not > 0 => {
            Check::fail(name, format!("{} were not copied", size(copied_not)))
                .because("SDP_ZCOPY_THRESH 0 had no effect", REPORT)
        }
        Path::Copied | Path::Either => {
            let counted = (sender.get("tx_bytes"), receiver.get("rx_bytes"));
            if counted != (sent, sent) {
                let found = format!("{sent} bytes were sent, SDP counts {counted:?}");
                return Check::fail(name, found).because("SDP's counters are wrong", REPORT);
            }
            Check::pass(name, format!("{}, right, by SDP over RDMA", size(sent)))
        }
        Path::Read | Path::Write => {
            let (way, tx, rx) = match path {
                Path::Read => (1, "tx_read", "rx_read"),
                _ => (2, "tx_written", "rx_written"),
            };
            if ways.iter().flatten().any(|w| w & way == 0) {
                return Check::skip(name, "the module's zcopy_ways rules it out");
            }
            let (sent_so, came_so) = (sender.get(tx), receiver.get(rx));
            if sent_so == 0 || came_so == 0 {
                let (cause, remedy) = why_copied(both, way, ways);
                return Check::fail(name, format!("{}, right, but copied", size(sent)))
                    .because(cause, remedy);
            }
            Check::pass(
                name,
                format!("{} without a copy, right", part(sent_so, sent)),
            )
        }
        Path::Cancel => {
            let back = sender.get("src_avail_returned");
            if back == 0 {
                let (cause, remedy) = why_copied(both, 1, ways);
                return Check::fail(name, "no block was taken back").because(cause, remedy);
            }
            let rounds = sender.get("rounds");
            let text = format!(
                "{rounds} calls, {back} blocks taken back, {} right",
                size(sent)
            );
            Check::pass(name, text)
        }
        Path::Many => {
            let count = sender.get("connections");
            Check::pass(name, format!("{count} at a time, each with its own bytes"))
        }
        Path::Fallback => Check::pass(name, format!("{}, right, by TCP", size(sent))),
        _ => Check::pass(name, format!("{}, right", size(sent))),
    }
}

/// Returns the cause and remedy of an error of a trial.
pub fn failure(name: &str, error: &str) -> Check {
    let check = Check::fail(name, error);
    if error.contains("WRONG DATA") {
        return check.because(
            "bytes were changed, lost or exchanged on the way: adapter, IOMMU, or the module",
            "do not use SDP on these hosts; send the report to the maintainers",
        );
    }
    let saying = |e: i32| error.contains(&format!("(os error {e})"));
    if error.starts_with("connect:") && saying(libc::ECONNREFUSED) {
        return check.because(
            "the other host answers by RDMA, and refuses: another SDP has its requests, or another host has the address",
            "the report has the kernel's log of both hosts, if sdp-check was run as root",
        );
    }
    if error.starts_with("connect:") && (saying(libc::ENETUNREACH) || saying(libc::EHOSTUNREACH)) {
        return check.because(
            "no RDMA device of this host leads to HOST, or HOST's hardware address is not found",
            "ip route get HOST has to name the network device of an adapter (rdma link); ip neigh; give an address of that network",
        );
    }
    let refused = [
        libc::EINVAL,
        libc::ENOMEM,
        libc::ENOSPC,
        libc::ENOBUFS,
        libc::EOPNOTSUPP,
        libc::EIO,
    ];
    if error.starts_with("connect:") && refused.into_iter().any(saying) {
        return check.because(
            "the adapter's driver cannot create the objects of a connection, or memory, queue pairs or sockets are used up",
            "send the report to the maintainers; if run as root, the report has the requests to the driver \
             and the adapter's limits",
        );
    }
    if error.starts_with("connect:") {
        return check.because(
            "the other host does not answer by RDMA: a firewall drops it (UDP 4791 for RoCE), a switch's VLAN or \
             MTU, no subnet manager, or another partition",
            "try rping or ib_send_bw -R between the hosts; the report has the kernel's log, if sdp-check was run as root",
        );
    }
    if error.contains("the other end") || error.contains("lost") {
        return check.because(
            "the other sdp-check has ended",
            "start the other sdp-check again, and read its messages",
        );
    }
    check.because(
        "the connection failed on the way: see the kernel's log and the counters in the report",
        "send the report to the maintainers; run sdp-check as root at both hosts, \
         so that the report has the log",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    fn sdp(words: &str) -> Numbers {
        Numbers::from_line(&format!("sdp=1 rdma=1 {words}"))
    }

    fn verdict(p: Path, sender: &Numbers, receiver: &Numbers) -> Verdict {
        path(p, "x", sender, receiver, [Some(3), None]).verdict
    }

    #[test]
    fn what_carried_it() {
        let (s, r) = (sdp("bytes=9 tx_bytes=9"), sdp("bytes=9 rx_bytes=9"));
        assert_eq!(verdict(Path::Copied, &s, &r), Verdict::Pass);
        assert_eq!(verdict(Path::Fallback, &s, &r), Verdict::Fail);
        let tcp = Numbers::from_line("bytes=9");
        assert_eq!(verdict(Path::Fallback, &tcp, &tcp), Verdict::Pass);
        assert!(is_tcp(&tcp) && !is_tcp(&s));
        let gained = [
            ("tx_bytes".into(), 9),
            ("IPPROTO_SDP: TCP: no answer".into(), 1),
        ];
        let told = by_tcp("x", &gained);
        assert_eq!(told.found, "the bytes went by TCP: no answer");
        assert!(told.cause.contains("busy") && told.verdict == Verdict::Fail);
        assert_eq!(verdict(Path::HalfClose, &s, &r), Verdict::Pass);
        let here = Numbers::from_line("sdp=1 local=1 bytes=9 tx_bytes=9");
        let told = path(Path::Copied, "x", &here, &r, [None; 2]);
        assert!(told.cause.contains("this host"), "{told:?}");
        let short = sdp("bytes=9 rx_bytes=8");
        assert_eq!(verdict(Path::Copied, &s, &short), Verdict::Fail);
        let zero = sdp("bytes=9 tx_bytes=9 tx_read=4");
        assert_eq!(verdict(Path::Copied, &zero, &r), Verdict::Fail);
    }

    #[test]
    fn without_a_copy() {
        let s = sdp("bytes=20000 tx_read=10000 src_avail_sent=1");
        let r = sdp("bytes=20000 rx_read=10000");
        let good = path(Path::Read, "x", &s, &r, [Some(3), Some(3)]);
        assert!(
            good.verdict == Verdict::Pass && good.found.starts_with("50.0 % of 20.0 kB"),
            "{good:?}"
        );
        assert_eq!(verdict(Path::Write, &s, &r), Verdict::Fail, "not so");
        let ruled_out = path(Path::Read, "x", &s, &r, [Some(2), Some(3)]);
        assert_eq!(ruled_out.verdict, Verdict::Skip);
        let pinned = path(Path::Read, "x", &sdp("unpinnable=1"), &r, [None; 2]);
        assert!(pinned.remedy.contains("ulimit"), "{pinned:?}");
        assert!(path(Path::Read, "x", &sdp(""), &sdp(""), [None; 2])
            .cause
            .contains("offered nothing"));
        assert_eq!(verdict(Path::Cancel, &s, &r), Verdict::Fail);
        assert_eq!(
            verdict(Path::Cancel, &sdp("src_avail_returned=1"), &r),
            Verdict::Pass
        );
    }

    #[test]
    fn errors_have_a_cause() {
        assert!(failure("x", "there: WRONG DATA: byte 5")
            .remedy
            .contains("do not use"));
        assert!(failure("x", "connect: timed out").cause.contains("4791"));
        let connect = |e| {
            failure(
                "x",
                &format!("connect: {}", std::io::Error::from_raw_os_error(e)),
            )
        };
        assert!(connect(libc::ECONNREFUSED).cause.contains("refuses"));
        assert!(connect(libc::ENETUNREACH).cause.contains("no RDMA device"));
        assert!(connect(libc::ETIMEDOUT).cause.contains("4791"));
        for refused in [libc::EINVAL, libc::ENOMEM] {
            assert!(connect(refused).cause.contains("driver"));
        }
        assert!(failure("x", "the other end has closed")
            .cause
            .contains("has ended"));
        assert_eq!(failure("x", "recv: EPROTO").verdict, Verdict::Fail);
    }
}

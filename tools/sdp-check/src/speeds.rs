// SPDX-License-Identifier: GPL-2.0-only

//! How fast SDP is, beside TCP and raw verbs.

use crate::client::{Client, Outcome, ANSWER};
use crate::facts::Facts;
use crate::judge;
use crate::numbers::Numbers;
use crate::path::Path;
use crate::perftest::{self, Job, Running, Test};
use crate::verdict::{clean, Check};
use std::time::Duration;

/// What raw verbs may take longer than SDP did.
const GRACE: Duration = Duration::from_secs(90);

/// The part of raw verbs' throughput, or of their speed in latency, below which something is wrong;
/// and below which it is worth a look.
const BROKEN: f64 = 0.1;
const SLOW: f64 = 0.5;

impl Client<'_> {
    /// How fast a trial was: a number of the sender's or receiver's.
    fn speed(
        &mut self,
        path: Path,
        value: impl Fn(&Numbers, &Numbers) -> f64,
    ) -> Outcome<Option<f64>> {
        match self.trial(path, true, 1)? {
            Ok((sender, receiver)) => Ok(Some(value(&sender, &receiver))),
            Err(e) => {
                self.check(&judge::failure(path.name(), &e));
                Ok(None)
            }
        }
    }

    pub fn speeds(&mut self, ours: &Facts, theirs: &Facts) -> Outcome<()> {
        let rate =
            |_: &Numbers, r: &Numbers| r.get("bytes") as f64 * 1e6 / r.get("micros").max(1) as f64;
        let time = |s: &Numbers, _: &Numbers| s.get("nanos") as f64 / 1e3;
        let copied = self.speed(Path::Stream, rate)?;
        let zero = self.speed(Path::StreamZero, rate)?;
        let tcp = self.speed(Path::StreamTcp, rate)?;
        let verbs = self.perftest(
            Test::Throughput,
            copied.unwrap_or(0.0) / 65536.0,
            ours,
            theirs,
        )?;
        if let (Some(copied), Some(zero)) = (copied, zero) {
            self.check(&throughput(copied, zero, tcp, verbs));
        }
        let sdp = self.speed(Path::Pong, time)?;
        let tcp = self.speed(Path::PongTcp, time)?;
        let verbs = self.perftest(Test::Latency, sdp.map_or(0.0, |us| 5e5 / us), ours, theirs)?;
        if let Some(sdp) = sdp {
            self.check(&latency(sdp, tcp, verbs));
        }
        Ok(())
    }

    /// What a program of perftest tells, where both hosts have it. `pace`: messages a second that SDP
    /// has sent of that size.
    fn perftest(
        &mut self,
        test: Test,
        pace: f64,
        ours: &Facts,
        theirs: &Facts,
    ) -> Outcome<Option<f64>> {
        let name = test.program();
        let has = |facts: &Facts| facts.perftest.iter().any(|p| p == name);
        if self.options.no_perftest || !has(ours) || !has(theirs) {
            self.check(&Check::skip(
                name,
                "not installed on both hosts (package perftest)",
            ));
            return Ok(None);
        }
        let count = ((pace * self.part.as_secs_f64()) as u64).clamp(200, perftest::MOST);
        self.control.begin();
        self.control.say(&format!("perftest {name} {count}"))?;
        let port = match self.control.expect("port", ANSWER) {
            Ok(port) => port
                .parse()
                .map_err(|_| "the other end's port is no number")?,
            Err(e) => {
                self.check(&Check::skip(name, e));
                return Ok(None);
            }
        };
        let here = self
            .control
            .local()
            .map_err(|e| e.to_string())?
            .ip()
            .to_canonical();
        let job = Job {
            test,
            count,
            port,
            here,
        };
        let to = self.to.ip().to_canonical();
        let said = Running::start(&job, ours.gid.as_ref(), Some(to))
            .and_then(|mut running| running.output(self.part + GRACE));
        self.control.say("stop")?;
        self.control.expect("end", ANSWER)?;
        let result = said.and_then(|text| {
            perftest::result(test, &text).ok_or("its result was not understood".into())
        });
        match result {
            Ok(value) => Ok(Some(value)),
            Err(e) => {
                self.check(&Check::fail(name, clean(&e)).because(
                    "raw verbs do not work between the hosts",
                    format!("try {name} by hand, at both hosts, before SDP"),
                ));
                Ok(None)
            }
        }
    }
}

/// Throughputs, in bytes a second.
fn throughput(copied: f64, zero: f64, tcp: Option<f64>, verbs: Option<f64>) -> Check {
    let mb = |rate: f64| format!("{:.1} MB/s", rate / 1e6);
    let other = |name: &str, rate: Option<f64>| {
        rate.map_or(String::new(), |r| format!("; {name} {}", mb(r)))
    };
    let found = format!(
        "SDP {} by copy, {} without{}{}",
        mb(copied),
        mb(zero),
        other("ib_send_bw", verbs),
        other("TCP", tcp)
    );
    compared(
        "throughput",
        found,
        verbs.map(|v| copied.max(zero) / v.max(1.0)),
    )
}

/// Latencies, in microseconds.
fn latency(sdp: f64, tcp: Option<f64>, verbs: Option<f64>) -> Check {
    let other =
        |name: &str, us: Option<f64>| us.map_or(String::new(), |us| format!("; {name} {us:.1} us"));
    let found = format!(
        "64 bytes in {sdp:.1} us by SDP{}{}",
        other("ib_send_lat", verbs),
        other("TCP", tcp)
    );
    compared("latency", found, verbs.map(|v| v / sdp.max(0.001)))
}

fn compared(name: &str, found: String, ratio: Option<f64>) -> Check {
    let cause = "power saving, interrupts on a distant node, or a busy host";
    let remedy = "set the governor to performance, look at recv_poll (sdp(7)), and measure again";
    match ratio {
        None => Check::pass(name, found),
        Some(r) if r < BROKEN => {
            let text = format!("{found}; only {r:.2} of raw verbs");
            Check::fail(name, text).because(cause, remedy)
        }
        Some(r) if r < SLOW => {
            let text = format!("{found}; {r:.2} of raw verbs");
            Check::pass(name, text).because(cause, remedy)
        }
        Some(r) => Check::pass(name, format!("{found}; {r:.2} of raw verbs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    #[test]
    fn speeds() {
        let of = |verbs| throughput(10e6, 40e6, Some(50e6), verbs);
        assert_eq!(of(None).verdict, Verdict::Pass);
        assert_eq!(
            (of(Some(50e6)).verdict, of(Some(50e6)).cause.as_str()),
            (Verdict::Pass, "")
        );
        assert!(of(Some(100e6)).cause.contains("busy"), "worth a look");
        assert_eq!(of(Some(1e9)).verdict, Verdict::Fail);
        assert!(of(Some(50e6)).found.ends_with("0.80 of raw verbs"));
        assert_eq!(
            latency(10.0, None, Some(2.0)).found,
            "64 bytes in 10.0 us by SDP; ib_send_lat 2.0 us; 0.20 of raw verbs"
        );
        assert_eq!(latency(100.0, None, Some(2.0)).verdict, Verdict::Fail);
    }
}

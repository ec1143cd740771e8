// SPDX-License-Identifier: GPL-2.0-only

//! Measures the speed of SDP next to TCP and raw verbs.

use crate::client::{Client, Outcome, ANSWER};
use crate::facts::Facts;
use crate::judge;
use crate::numbers::Numbers;
use crate::path::Path;
use crate::perftest::{self, Job, Running, Test};
use crate::verdict::{clean, Check, Verdict};
use std::time::Duration;

/// Time that raw verbs may take beyond the time of SDP.
const GRACE: Duration = Duration::from_secs(90);

/// Ratio to raw verbs, in throughput or inverse latency, below which the check fails; and ratio
/// below which the check prints a hint.
const BROKEN: f64 = 0.1;
const SLOW: f64 = 0.5;
/// Maximum number of measurements of a result that looks slow. SDP and verbs are measured one after
/// the other, and load on the host affects each differently. A fault of SDP shows in each
/// measurement.
const TRIES: u32 = 3;

/// A comparison with raw verbs.
struct Compared {
    /// Result in words.
    found: String,
    /// Ratio of SDP to raw verbs, if verbs were measured.
    ratio: Option<f64>,
}

/// Returns the best of several comparisons. Stops at the first run that succeeds.
fn best<E>(
    mut compare: impl FnMut() -> Result<Option<Compared>, E>,
) -> Result<Option<Compared>, E> {
    let mut best: Option<Compared> = None;
    for _ in 0..TRIES {
        let Some(one) = compare()? else { break };
        let good = one.ratio.is_none_or(|r| r >= SLOW);
        if best.as_ref().is_none_or(|b| one.ratio > b.ratio) {
            best = Some(one);
        }
        if good {
            break;
        }
    }
    Ok(best)
}

impl Client<'_> {
    /// Returns the speed of a trial: a number of the sender or of the receiver.
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
        if let Some(found) = best(|| self.throughput(ours, theirs))? {
            self.check(&judged("throughput", found));
        }
        if let Some(found) = best(|| self.latency(ours, theirs))? {
            self.check(&judged("latency", found));
        }
        Ok(())
    }

    fn throughput(&mut self, ours: &Facts, theirs: &Facts) -> Outcome<Option<Compared>> {
        let rate =
            |_: &Numbers, r: &Numbers| r.get("bytes") as f64 * 1e6 / r.get("micros").max(1) as f64;
        let copied = self.speed(Path::Stream, rate)?;
        let zero = self.speed(Path::StreamZero, rate)?;
        let tcp = self.speed(Path::StreamTcp, rate)?;
        let verbs = self.perftest(
            Test::Throughput,
            copied.unwrap_or(0.0) / 65536.0,
            ours,
            theirs,
        )?;
        Ok(copied
            .zip(zero)
            .map(|(copied, zero)| throughput(copied, zero, tcp, verbs)))
    }

    fn latency(&mut self, ours: &Facts, theirs: &Facts) -> Outcome<Option<Compared>> {
        let time = |s: &Numbers, _: &Numbers| s.get("nanos") as f64 / 1e3;
        let sdp = self.speed(Path::Pong, time)?;
        let tcp = self.speed(Path::PongTcp, time)?;
        let verbs = self.perftest(Test::Latency, sdp.map_or(0.0, |us| 5e5 / us), ours, theirs)?;
        Ok(sdp.map(|sdp| latency(sdp, tcp, verbs)))
    }

    /// Measures raw verbs by a perftest program, if both hosts have it. `pace` is the number of
    /// messages of that size that SDP has sent per second.
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
        let mut said = self.perftest_once(test, count, ours)?;
        if said.as_ref().is_err_and(|c| c.verdict == Verdict::Fail) {
            // the host was busy at the wrong time
            said = self.perftest_once(test, count, ours)?;
        }
        match said {
            Ok(value) => Ok(Some(value)),
            Err(check) => {
                self.check(&check);
                Ok(None)
            }
        }
    }

    /// Measures once. The inner error is the reason why no figure was measured. The outer error
    /// belongs to the control connection and ends the run.
    fn perftest_once(
        &mut self,
        test: Test,
        count: u64,
        ours: &Facts,
    ) -> Outcome<Result<f64, Check>> {
        let name = test.program();
        self.control.begin();
        self.control.say(&format!("perftest {name} {count}"))?;
        let port = match self.control.expect("port", ANSWER) {
            Ok(port) => port
                .parse()
                .map_err(|_| "the other end's port is no number")?,
            Err(e) => return Ok(Err(Check::skip(name, e))),
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
        Ok(result.map_err(|e| {
            Check::fail(name, clean(&e)).because(
                "raw verbs do not work between the hosts, or one is too busy to answer",
                format!("try {name} by hand, at both hosts, before SDP"),
            )
        }))
    }
}

/// Compares throughputs, in bytes a second.
fn throughput(copied: f64, zero: f64, tcp: Option<f64>, verbs: Option<f64>) -> Compared {
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
    Compared {
        found,
        ratio: verbs.map(|v| copied.max(zero) / v.max(1.0)),
    }
}

/// Compares latencies, in microseconds.
fn latency(sdp: f64, tcp: Option<f64>, verbs: Option<f64>) -> Compared {
    let other =
        |name: &str, us: Option<f64>| us.map_or(String::new(), |us| format!("; {name} {us:.1} us"));
    let found = format!(
        "64 bytes in {sdp:.1} us by SDP{}{}",
        other("ib_send_lat", verbs),
        other("TCP", tcp)
    );
    Compared {
        found,
        ratio: verbs.map(|v| v / sdp.max(0.001)),
    }
}

fn judged(name: &str, Compared { found, ratio }: Compared) -> Check {
    let cause = "power saving, interrupts on a distant node, or a busy host";
    let remedy = "set the governor to performance, check recv_poll (sdp(7)), and measure again";
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

    #[test]
    fn speeds() {
        let of = |verbs| judged("throughput", throughput(10e6, 40e6, Some(50e6), verbs));
        assert_eq!(of(None).verdict, Verdict::Pass);
        assert_eq!(
            (of(Some(50e6)).verdict, of(Some(50e6)).cause.as_str()),
            (Verdict::Pass, "")
        );
        assert!(of(Some(100e6)).cause.contains("busy"), "worth a look");
        assert_eq!(of(Some(1e9)).verdict, Verdict::Fail);
        assert!(of(Some(50e6)).found.ends_with("0.80 of raw verbs"));
        let of = |sdp| judged("latency", latency(sdp, None, Some(2.0)));
        assert_eq!(
            of(10.0).found,
            "64 bytes in 10.0 us by SDP; ib_send_lat 2.0 us; 0.20 of raw verbs"
        );
        assert_eq!(of(100.0).verdict, Verdict::Fail);
    }

    /// Returns the number of measurements, and the ratio that was kept.
    fn measured(verbs: &[Option<f64>]) -> (usize, Option<f64>) {
        let mut times = 0;
        let found = best(|| {
            times += 1;
            Ok::<_, ()>(Some(latency(10.0, None, verbs[times - 1])))
        });
        (times, found.unwrap().unwrap().ratio)
    }

    #[test]
    fn what_looks_slow_is_measured_again() {
        assert_eq!(measured(&[Some(8.0)]), (1, Some(0.8)));
        assert_eq!(measured(&[None]), (1, None), "nothing to compare with");
        // the host was busy at the wrong time
        assert_eq!(measured(&[Some(0.01), Some(9.0)]), (2, Some(0.9)));
        assert_eq!(
            measured(&[Some(0.5), Some(4.0), Some(0.2)]),
            (3, Some(0.4)),
            "the best"
        );
        // SDP was slow in each measurement
        assert_eq!(
            measured(&[Some(0.5), Some(0.4), Some(0.3)]),
            (3, Some(0.05))
        );
        let none: Result<_, ()> = best(|| Ok(None));
        assert!(none.unwrap().is_none());
    }
}

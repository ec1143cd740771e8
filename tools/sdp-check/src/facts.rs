// SPDX-License-Identifier: GPL-2.0-only

//! Facts that each host reports about itself, locally and over the control connection.

use crate::control::Control;
use crate::perftest::Gid;
use crate::verdict::{clean, Check};
use std::time::Duration;

#[derive(Debug, Default, PartialEq)]
pub struct Facts {
    /// Lines for the report.
    pub text: Vec<String>,
    pub checks: Vec<Check>,
    /// True if SDP sockets can be created.
    pub sdp: bool,
    /// MTU of the network device that has the address; 0 if there is none.
    pub mtu: u32,
    /// The parameter.
    pub zcopy_ways: Option<u64>,
    /// Installed programs of perftest.
    pub perftest: Vec<String>,
    pub kernel: String,
    /// GID of the address. The GID is not sent to the other end.
    pub gid: Option<Gid>,
}

/// Maximum number of lines of a reply: a host with many adapters sends some hundred.
const MOST: usize = 5000;
/// Time that the other host may take to collect its facts.
const LOOKING: Duration = Duration::from_secs(60);

impl Facts {
    pub fn tell(&self, to: &mut Control) -> Result<(), String> {
        for line in self.lines() {
            to.say(&line)?;
        }
        to.say("end")
    }

    fn lines(&self) -> Vec<String> {
        let mut all: Vec<_> = self
            .text
            .iter()
            .map(|t| format!("text {}", clean(t)))
            .collect();
        all.extend(self.checks.iter().map(|c| format!("check {}", c.to_line())));
        all.extend(self.perftest.iter().map(|p| format!("perftest {p}")));
        all.extend(self.zcopy_ways.map(|w| format!("ways {w}")));
        all.push(format!("sdp {}", u8::from(self.sdp)));
        all.push(format!("mtu {}", self.mtu));
        all.push(format!("kernel {}", clean(&self.kernel)));
        all
    }

    pub fn hear(from: &mut Control) -> Result<Self, String> {
        let mut facts = Facts::default();
        for _ in 0..MOST {
            let line = from.line(LOOKING)?;
            if line == "end" {
                return Ok(facts);
            }
            facts.take(&line)?;
        }
        Err("the report of the other end is too long".into())
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let wrong = || format!("the other end sent {:?}", clean(line));
        match word {
            "text" => self.text.push(clean(rest)),
            "check" => self.checks.push(Check::from_line(rest).ok_or_else(wrong)?),
            "perftest" => self.perftest.push(clean(rest)),
            "ways" => self.zcopy_ways = Some(rest.parse().map_err(|_| wrong())?),
            "sdp" => self.sdp = rest == "1",
            "mtu" => self.mtu = rest.parse().map_err(|_| wrong())?,
            "kernel" => self.kernel = clean(rest),
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

/// Checks that both hosts have the same MTU.
pub fn mtu(here: u32, there: u32) -> Check {
    let name = "MTU of both hosts";
    match (here, there) {
        (0, _) | (_, 0) => Check::skip(name, "not known, or chosen by the subnet manager (InfiniBand)"),
        (a, b) if a == b => Check::pass(name, a.to_string()),
        (a, b) => Check::fail(name, format!("{a} here, {b} there")).because(
            "settings of the two differ; what one sends may be too large for the other or the switch",
            format!("ip link set DEVICE mtu {}, at both and the switch", a.min(b)),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    #[test]
    fn told_and_heard() {
        let facts = Facts {
            text: vec!["device x".into()],
            checks: vec![Check::pass("a", "b")],
            sdp: true,
            mtu: 9000,
            zcopy_ways: Some(3),
            perftest: vec!["ib_send_bw".into()],
            kernel: "7.3".into(),
            gid: None,
        };
        let mut heard = Facts::default();
        for line in facts.lines() {
            heard.take(&line).unwrap();
        }
        assert_eq!(heard, facts);
        for wrong in ["", "mtu x", "mtu -1", "ways", "check PASS", "rm -r"] {
            assert!(heard.take(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mtus() {
        assert_eq!(mtu(9000, 9000).verdict, Verdict::Pass);
        let differ = mtu(1500, 9000);
        assert!(differ.verdict == Verdict::Fail && differ.remedy.contains("mtu 1500"));
        assert_eq!(mtu(0, 9000).verdict, Verdict::Skip);
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! The lines of `/proc/net/sdpstats`.

use serde_json::{Map, Number, Value};

/// A counter. A counter of a section is printed with the section's heading before its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// Heading of the counter's section, without the colon.
    pub section: Option<String>,
    /// Name as in the file, without spaces around it.
    pub name: String,
    /// Count since the module was loaded, or since a write to the file.
    pub value: u64,
}

/// All counters of `/proc/net/sdpstats`, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics(pub Vec<Counter>);

impl Statistics {
    /// Reads `NAME : VALUE` lines. A heading begins a section, whose lines start with a dash, or
    /// are the rows of a histogram (`VALUE | ***** - COUNT`), which OFED's ib_sdp has.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate();
        match lines.next() {
            Some((_, "SDP statistics:")) => {}
            Some((_, other)) => return Err(format!("line 1 is no heading: {other:?}")),
            None => return Err("the file is empty".into()),
        }
        let mut all = Vec::new();
        let mut section = None;
        for (number, line) in lines {
            let wrong = |what: &str| format!("line {}: {what}: {line:?}", number + 1);
            if line.trim().is_empty() {
                section = None;
            } else if line.trim() == "- all values are 0" {
                // an empty histogram
            } else if let Some(heading) = line.strip_suffix(':') {
                section = Some(heading.trim().to_string());
            } else {
                let (name, value) = match line.split_once('|') {
                    Some((value, bar)) => (value, bar.rsplit_once('-').map(|(_, count)| count)),
                    None => match line.rsplit_once(':') {
                        Some((name, value)) => (name, Some(value)),
                        None => return Err(wrong("neither a counter nor a heading")),
                    },
                };
                let inside = line.contains('|') || line.starts_with("- ");
                let name = name.strip_prefix("- ").unwrap_or(name).trim();
                if name.is_empty() {
                    return Err(wrong("a counter without a name"));
                }
                if inside && section.is_none() {
                    return Err(wrong("belongs to no section"));
                }
                let value = value
                    .and_then(|v| v.trim().parse().ok())
                    .ok_or_else(|| wrong("the value is no number"))?;
                let section = if inside { section.clone() } else { None };
                all.push(Counter {
                    section,
                    name: name.into(),
                    value,
                });
            }
        }
        Ok(Statistics(all))
    }

    /// Returns each counter's increase per second since a reading `seconds` earlier. A counter that
    /// has decreased was cleared between the two readings.
    pub fn rates(&self, before: &Statistics, seconds: f64) -> Vec<f64> {
        let gained = |c: &Counter| {
            let old = before
                .0
                .iter()
                .find(|o| o.name == c.name && o.section == c.section)
                .map_or(0, |o| o.value);
            c.value.checked_sub(old).unwrap_or(c.value)
        };
        self.0
            .iter()
            .map(|c| {
                if seconds > 0.0 {
                    gained(c) as f64 / seconds
                } else {
                    0.0
                }
            })
            .collect()
    }

    /// Returns all counters by name; the counters of a section are in an object of their own.
    pub fn to_json(&self) -> Value {
        self.object(self.0.iter().map(|c| c.value.into()))
    }

    /// Returns the result of `rates` in the form of `to_json`.
    pub fn rates_to_json(&self, rates: &[f64]) -> Value {
        // tenths are as exact as the reading
        let rounded = |r: &f64| {
            Number::from_f64((r * 10.0).round() / 10.0).map_or(Value::Null, Value::Number)
        };
        self.object(rates.iter().map(rounded))
    }

    /// Returns an object with a value for each counter; the counters of a section are in an object
    /// of their own.
    fn object(&self, values: impl Iterator<Item = Value>) -> Value {
        let mut all = Map::new();
        for (c, v) in self.0.iter().zip(values) {
            let Some(section) = &c.section else {
                all.insert(c.name.clone(), v);
                continue;
            };
            let inner = all
                .entry(section.as_str())
                .or_insert_with(|| Value::Object(Map::new()));
            if let Some(inner) = inner.as_object_mut() {
                inner.insert(c.name.clone(), v);
            }
        }
        Value::Object(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Output of a guest, shortened.
    const SAMPLE: &str = "SDP statistics:\nrx_bytes           \t\t: 0\ntx_bytes           \t\t: 83916800\nsdp_sendmsg() calls\t\t: 161\npost_send SDP_MID_DISCONN     \t: 1\npost_send SDP_MID_DATA        \t: 2562\ntx completions     \t\t: 400\n\nsdp_recvmsg() calls\t\t: 1\nreceived SDP_MID_DATA        \t: 77\nsend_miss_no_credits\t\t: 12\nRefused and lost:\n- backlog full     \t\t: 0\n- aborted sequence                \t: 3\n";

    /// Some lines of OFED's ib_sdp.
    const OFED: &str = "SDP statistics:\nrx_bytes\t\t: 1\nsendmsg_seglen:\n - all values are 0\nsend_size:\n      2048 | **************************************************  - 7\n      4096 | ***                                                 - 1\nsdp_sendmsg() calls\t\t: 8\n\nCQ stats:\n- RX irq armed  \t\t: 5\nZCopy stats:\n- TX timeout\t\t: 0\n";

    #[test]
    fn a_sample() {
        let s = Statistics::parse(SAMPLE).unwrap();
        assert_eq!(
            s.to_json(),
            json!({
                "rx_bytes": 0, "tx_bytes": 83916800, "sdp_sendmsg() calls": 161, "post_send SDP_MID_DISCONN": 1,
                "post_send SDP_MID_DATA": 2562, "tx completions": 400, "sdp_recvmsg() calls": 1,
                "received SDP_MID_DATA": 77, "send_miss_no_credits": 12,
                "Refused and lost": { "backlog full": 0, "aborted sequence": 3 },
            })
        );
    }

    #[test]
    fn ofeds_histograms() {
        let s = Statistics::parse(OFED).unwrap();
        assert_eq!(
            s.to_json(),
            json!({
                "rx_bytes": 1, "send_size": { "2048": 7, "4096": 1 }, "sdp_sendmsg() calls": 8,
                "CQ stats": { "RX irq armed": 5 }, "ZCopy stats": { "TX timeout": 0 },
            })
        );
    }

    #[test]
    fn rates() {
        let old = Statistics::parse(SAMPLE).unwrap();
        let text = SAMPLE
            .replace("161", "171")
            .replace("83916800", "5")
            .replace("2562", "2563");
        let new = Statistics::parse(&(text + "- aborted too_long\t: 4\n")).unwrap();
        let rates = new.rates(&old, 2.0);
        let v = new.rates_to_json(&rates);
        assert_eq!(v["sdp_sendmsg() calls"], 5.0);
        assert_eq!(v["post_send SDP_MID_DATA"], 0.5);
        assert_eq!(v["tx_bytes"], 2.5, "was cleared");
        assert_eq!(v["Refused and lost"]["aborted too_long"], 2.0, "is new");
        assert!(new.rates(&old, 0.0).iter().all(|&r| r == 0.0));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (lines, complaint) in [
            ("rx_bytes 5\n", "line 2: neither a counter nor a heading"),
            ("rx_bytes : x\n", "line 2: the value is no number"),
            ("rx_bytes : -1\n", "the value is no number"),
            (
                "rx_bytes : 99999999999999999999\n",
                "the value is no number",
            ),
            ("a : 1\n- b : 2\n", "line 3: belongs to no section"),
            ("  : 1\n", "without a name"),
            ("sizes:\n  5 | **\n", "the value is no number"),
        ] {
            let e = Statistics::parse(&format!("SDP statistics:\n{lines}")).expect_err(lines);
            assert!(e.contains(complaint), "{e} should have {complaint}");
        }
        assert_eq!(Statistics::parse("").unwrap_err(), "the file is empty");
        assert!(Statistics::parse("rx_bytes : 1\n")
            .unwrap_err()
            .starts_with("line 1 is no heading"));
        assert_eq!(
            Statistics::parse("SDP statistics:\n"),
            Ok(Statistics(vec![]))
        );
    }
}

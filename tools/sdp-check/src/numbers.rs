// SPDX-License-Identifier: GPL-2.0-only

//! Counters of one end of a trial, sent as `NAME=NUMBER` words over the control connection.

use sdp_info::Info;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers(BTreeMap<String, u64>);

/// Maximum number of words parsed in a reply.
const MOST: usize = 64;

impl Numbers {
    pub fn new(name: &str, value: u64) -> Self {
        Self::default().with(name, value)
    }

    pub fn with(mut self, name: &str, value: u64) -> Self {
        self.0.insert(name.into(), value);
        self
    }

    /// Adds SDP_INFO: the transport, read at the beginning, and the counters, read at the end. A
    /// connection without SDP has no number `sdp`.
    pub fn with_info(self, begun: Option<&Info>, ended: Option<&Info>) -> Self {
        let (Some(begun), Some(ended)) = (begun, ended) else {
            return self;
        };
        let is = |name| u64::from(begun.transport() == name);
        let all = self
            .with("sdp", 1)
            .with("rdma", is("rdma"))
            .with("local", is("local"));
        ended.fields().fold(all, |all, (name, n)| all.with(name, n))
    }

    /// Returns the number of that name, 0 if it was not sent.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub fn to_line(&self) -> String {
        let words: Vec<_> = self.0.iter().map(|(n, v)| format!("{n}={v}")).collect();
        words.join(" ")
    }

    pub fn from_line(line: &str) -> Self {
        let word = |w: &str| {
            let (name, value) = w.split_once('=')?;
            Some((name.to_string(), value.parse().ok()?))
        };
        Numbers(line.split(' ').take(MOST).filter_map(word).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_and_fro() {
        let n = Numbers::new("bytes", 5).with("tx_read", 7);
        assert_eq!(n.to_line(), "bytes=5 tx_read=7");
        assert_eq!(Numbers::from_line(&n.to_line()), n);
        assert_eq!(n.get("nothing"), 0);
        let odd = Numbers::from_line("a=1 b c=x =4 d=-1 e=2");
        assert_eq!((odd.get("a"), odd.get("c"), odd.get("e")), (1, 0, 2));
        let many: Vec<_> = (0..100).map(|n| format!("n{n}=1")).collect();
        assert_eq!(Numbers::from_line(&many.join(" ")).0.len(), MOST);
    }
}

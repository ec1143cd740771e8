// SPDX-License-Identifier: GPL-2.0-only

//! Formats the counters of `/proc/net/sdpstats` for people.

use crate::table::Table;
use sdp_info::Statistics;

pub fn table(of: &Statistics, rates: Option<&[f64]>, zeros: bool) -> Table {
    let mut heading = vec!["Counter", "Total"];
    heading.extend(rates.map(|_| "Per second"));
    let mut t = Table::new(&heading, &[1, 2]);
    for (n, c) in
        of.0.iter()
            .enumerate()
            .filter(|(_, c)| zeros || c.value > 0)
    {
        let name = match &c.section {
            Some(s) => format!("{s}: {}", c.name),
            None => c.name.clone(),
        };
        let mut row = vec![name, c.value.to_string()];
        row.extend(rates.and_then(|r| r.get(n)).map(|r| format!("{r:.1}")));
        t.row(row);
    }
    t
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Output of a guest, shortened.
    pub const SAMPLE: &str = "SDP statistics:\nrx_bytes           \t\t: 0\ntx_bytes           \t\t: 83916800\nsdp_sendmsg() calls\t\t: 161\npost_send SDP_MID_DISCONN     \t: 1\npost_send SDP_MID_DATA        \t: 2562\ntx completions     \t\t: 400\n\nsdp_recvmsg() calls\t\t: 1\nreceived SDP_MID_DATA        \t: 77\nsend_miss_no_credits\t\t: 12\nRefused and lost:\n- backlog full     \t\t: 0\n- aborted sequence                \t: 3\n";

    fn rows(t: Table) -> String {
        let mut text = Vec::new();
        t.write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn zeros_are_shown_only_when_asked_for() {
        let s = Statistics::parse(SAMPLE).unwrap();
        assert!(!rows(table(&s, None, false)).contains("rx_bytes"));
        assert!(rows(table(&s, None, true)).contains("rx_bytes"));
        assert!(rows(table(&s, None, false)).contains("Refused and lost: aborted sequence"));
    }

    #[test]
    fn rates_have_a_column() {
        let s = Statistics::parse(SAMPLE).unwrap();
        let shown = rows(table(&s, Some(&s.rates(&s, 2.0)), false));
        assert!(shown.contains("Per second") && shown.contains("0.0"));
    }
}

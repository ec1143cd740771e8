// SPDX-License-Identifier: GPL-2.0-only

//! The rows of `/proc/net/sdp`, completed from `/proc/net/sdp_ipproto`.

use crate::info;
use crate::processes::Processes;
use crate::table::Table;
use sdp_info::Info;
use serde_json::{json, Value};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A socket.
#[derive(Debug, PartialEq)]
pub struct Socket {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub uid: u32,
    pub inode: u64,
    pub rx_queue: u32,
    pub tx_queue: u32,
    pub state: u8,
    /// Choice of an `IPPROTO_SDP` socket, and the reason if it is TCP.
    pub choice: Option<String>,
}

/// Optional columns.
#[derive(Default)]
pub struct View<'a> {
    /// Processes that hold the sockets.
    pub processes: Option<&'a Processes>,
    /// Processes through which SDP_INFO of the sockets is read.
    pub details: Option<&'a Processes>,
}

impl View<'_> {
    pub fn info(&self, inode: u64) -> Option<Info> {
        info::of(self.details?.of(inode), inode)
    }
}

/// Names of the states, by number, as ss(8) writes them.
const STATES: [&str; 12] = [
    "0",
    "ESTAB",
    "SYN-SENT",
    "SYN-RECV",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "TIME-WAIT",
    "UNCONN",
    "CLOSE-WAIT",
    "LAST-ACK",
    "LISTEN",
    "CLOSING",
];

/// Parses all sockets of the file. The error describes a fault in the file.
pub fn parse(text: &str) -> Result<Vec<Socket>, String> {
    let mut lines = text.lines().enumerate();
    match lines.next() {
        Some((_, heading)) if heading.trim_start().starts_with("sl ") => {}
        Some((_, other)) => return Err(format!("line 1 is no heading: {:?}", other.trim_end())),
        None => return Err("the file is empty".into()),
    }
    let row = |(number, line): (usize, &str)| {
        socket(line).map_err(|e| format!("line {}: {e}: {:?}", number + 1, line.trim_end()))
    };
    lines.map(row).collect()
}

fn socket(line: &str) -> Result<Socket, String> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let &[slot, local, remote, uid, inode, queues, state] = fields.as_slice() else {
        return Err(format!("{} columns instead of 7", fields.len()));
    };
    let what = |name, text: &str| format!("{name} {text:?} makes no sense");
    if slot
        .strip_suffix(':')
        .is_none_or(|n| n.parse::<u32>().is_err())
    {
        return Err(what("slot", slot));
    }
    let (rx, tx) = queues
        .split_once(':')
        .ok_or_else(|| what("queues", queues))?;
    let queue = |text| hex(text, 8).ok_or_else(|| what("queue", text));
    let state = hex(state, 2)
        .filter(|&s| STATES.get(s as usize).is_some_and(|_| s > 0))
        .ok_or_else(|| what("state", state))?;
    Ok(Socket {
        local: address(local).ok_or_else(|| what("address", local))?,
        remote: address(remote).ok_or_else(|| what("address", remote))?,
        uid: uid.parse().map_err(|_| what("uid", uid))?,
        inode: inode.parse().map_err(|_| what("inode", inode))?,
        rx_queue: queue(rx)?,
        tx_queue: queue(tx)?,
        state: state as u8,
        choice: None,
    })
}

/// Adds the choices of `IPPROTO_SDP` sockets from the text of `/proc/net/sdp_ipproto`. Sockets that
/// became TCP are completed from `/proc/net/tcp` and `/proc/net/tcp6`.
pub fn add_choices(sockets: &mut Vec<Socket>, text: &str, tcp: &str) -> Result<(), String> {
    for line in text.lines().skip(1) {
        let fields = |line: &str| {
            let (inode, rest) = line.split_once(' ')?;
            let (uid, choice) = rest.split_once(' ')?;
            Some((inode.parse().ok()?, uid.parse().ok()?, choice.to_string()))
        };
        let (inode, uid, choice): (u64, u32, String) =
            fields(line).ok_or_else(|| format!("{line:?} makes no sense"))?;
        match sockets.iter_mut().find(|s| s.inode == inode) {
            Some(socket) => socket.choice = Some(choice),
            None => {
                let row = tcp.lines().find_map(|row| tcp_socket(row, inode));
                let mut socket = row.unwrap_or(Socket::unconnected(inode));
                (socket.uid, socket.choice) = (uid, Some(choice));
                sockets.push(socket);
            }
        }
    }
    Ok(())
}

/// Returns the socket of a row of `/proc/net/tcp` if it has this inode.
fn tcp_socket(line: &str, inode: u64) -> Option<Socket> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let &[slot, local, remote, state, queues, _, _, uid, _, number, ..] = fields.as_slice() else {
        return None;
    };
    if number.parse() != Ok(inode) {
        return None;
    }
    let (tx, rx) = queues.split_once(':')?;
    let queues = format!("{rx}:{tx}");
    socket(&[slot, local, remote, uid, number, &queues, state].join(" ")).ok()
}

/// Parses a number of at most `digits` hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u32> {
    let good = (1..=digits).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    if good {
        u32::from_str_radix(text, 16).ok()
    } else {
        None
    }
}

/// Parses an address: words of 32 bits in the machine's byte order, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    if port.len() != 4 || !ip.is_ascii() {
        return None;
    }
    let word = |at: usize| Some(hex(ip.get(at..at + 8)?, 8)?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut octets = [0; 16];
            for (n, four) in octets.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(8 * n)?);
            }
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, hex(port, 4)? as u16))
}

impl Socket {
    /// Returns an unconnected socket with this inode.
    fn unconnected(inode: u64) -> Self {
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        Socket {
            local: any,
            remote: any,
            uid: 0,
            inode,
            rx_queue: 0,
            tx_queue: 0,
            state: 7,
            choice: None,
        }
    }

    /// Returns the value of `SO_DOMAIN`.
    fn family(&self) -> i32 {
        match (self.local.is_ipv4(), &self.choice) {
            (true, None) => 27,
            (false, None) => 28,
            (true, Some(_)) => libc::AF_INET,
            (false, Some(_)) => libc::AF_INET6,
        }
    }

    pub fn state_name(&self) -> &'static str {
        STATES.get(usize::from(self.state)).copied().unwrap_or("?")
    }

    pub fn to_json(&self, view: &View<'_>) -> Value {
        let end = |a: SocketAddr| json!({ "address": a.ip().to_string(), "port": a.port() });
        let mut v = json!({
            "family": self.family(),
            "state": self.state_name(),
            "rx_queue": self.rx_queue,
            "tx_queue": self.tx_queue,
            "local": end(self.local),
            "remote": end(self.remote),
            "uid": self.uid,
            "inode": self.inode,
        });
        if let Some(fields) = v.as_object_mut() {
            if let Some(choice) = &self.choice {
                fields.insert("ipproto".into(), json!(choice));
            }
            if let Some(p) = view.processes {
                fields.insert("processes".into(), p.to_json(self.inode));
            }
            if let Some(info) = view.info(self.inode) {
                fields.insert("info".into(), info.to_json());
            }
        }
        v
    }
}

/// Formats an end of a connection as ss(8) does: 0 is any port, an unspecified address any address.
fn end(a: SocketAddr) -> String {
    let port = if a.port() == 0 {
        "*".into()
    } else {
        a.port().to_string()
    };
    match a.ip() {
        ip if ip.is_unspecified() && ip.is_ipv6() => format!("[::]:{port}"),
        IpAddr::V6(ip) => format!("[{ip}]:{port}"),
        IpAddr::V4(ip) => format!("{ip}:{port}"),
    }
}

pub fn table(sockets: &[Socket], view: &View<'_>) -> Table {
    let mut heading = vec![
        "State", "Recv-Q", "Send-Q", "Local", "Remote", "User", "Inode",
    ];
    let either = sockets.iter().any(|s| s.choice.is_some());
    heading.extend(either.then_some("IPPROTO_SDP"));
    heading.extend(view.processes.map(|_| "Processes"));
    let mut t = Table::new(&heading, &[1, 2, 5, 6]);
    for s in sockets {
        let mut row = vec![
            s.state_name().into(),
            s.rx_queue.to_string(),
            s.tx_queue.to_string(),
            end(s.local),
            end(s.remote),
            s.uid.to_string(),
            s.inode.to_string(),
        ];
        row.extend(either.then(|| s.choice.clone().unwrap_or("-".into())));
        row.extend(view.processes.map(|p| p.text(s.inode)));
        t.row(row);
        if let Some(info) = view.info(s.inode) {
            t.below(info.text());
        }
    }
    t
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Output of a guest: a listener, a connection of each family, a connection without owner.
    pub const SAMPLE: &str = "  sl  local_address rem_address        uid inode   rx_queue tx_queue state                                                                             \n   0: 00000000:2455 00000000:0000     0 2514\t00000000:00000000 A                                                                                          \n   1: 01004D0A:9C41 02004D0A:2455     0 2515\t0000001A:00010000 1                                                                                          \n   2: 000077FD000000000000000001000000:9C42 000077FD000000000000000002000000:2455 65534 2516\t00000000:00000000 8                                  \n   3: 0000000000000000FFFF000001004D0A:9C43 00000000000000000000000000000000:0000     0 0\t00000000:00000000 7                                   \n";

    #[test]
    fn a_sample() {
        let all = parse(SAMPLE).unwrap();
        assert_eq!(all.len(), 4);
        assert_eq!(all[0].state_name(), "LISTEN");
        assert_eq!(all[0].local, "0.0.0.0:9301".parse().unwrap());
        assert_eq!(
            all[1],
            Socket {
                local: "10.77.0.1:40001".parse().unwrap(),
                remote: "10.77.0.2:9301".parse().unwrap(),
                uid: 0,
                inode: 2515,
                rx_queue: 26,
                tx_queue: 65536,
                state: 1,
                choice: None,
            }
        );
        assert_eq!(all[2].local, "[fd77::1]:40002".parse().unwrap());
        assert_eq!((all[2].uid, all[2].state_name()), (65534, "CLOSE-WAIT"));
        assert_eq!(all[3].local, "[::ffff:10.77.0.1]:40003".parse().unwrap());
    }

    #[test]
    fn two_digits_of_state_and_other_spacing_are_as_good() {
        let text = SAMPLE.replace(" A ", " 0A ").replace('\t', "   ");
        assert_eq!(parse(&text), parse(SAMPLE));
    }

    #[test]
    fn no_sockets() {
        assert_eq!(parse(SAMPLE.lines().next().unwrap()), Ok(vec![]));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let row = SAMPLE.lines().nth(2).unwrap();
        let with = |from: &str, to: &str| format!("  sl  heading\n{}\n", row.replace(from, to));
        for (text, complaint) in [
            (String::new(), "the file is empty"),
            ("nonsense\n".into(), "line 1 is no heading"),
            (
                with("0000001A:00010000 1", ""),
                "line 2: 5 columns instead of 7",
            ),
            (with("1: ", "x: "), "slot \"x:\""),
            (
                with("01004D0A:9C41", "01004D0A9C41"),
                "address \"01004D0A9C41\"",
            ),
            (with("01004D0A", "01004D0"), "address \"01004D0:9C41\""),
            (with("01004D0A", "+1004D0A"), "address \"+1004D0A:9C41\""),
            (with("01004D0A", "é1004D"), "address"),
            (with("9C41", "9C4"), "address"),
            (with(" 0 ", " -1 "), "uid \"-1\""),
            (with("2515", "25x"), "inode \"25x\""),
            (with("0000001A:", "0000001A;"), "queues"),
            (with("0000001A:", "100000000:"), "queue \"100000000\""),
            (with("00010000 1", "00010000 C"), "state \"C\""),
            (with("00010000 1", "00010000 0"), "state \"0\""),
        ] {
            let e = parse(&text).expect_err(&text);
            assert!(e.contains(complaint), "{e} should have {complaint}");
        }
    }

    /// Two sockets that became SDP, and two that became TCP.
    pub const CHOICES: &str =
        "inode uid choice\n2514 0 open\n2515 0 SDP\n2517 1000 TCP: refused\n2518 5 TCP: option\n";
    pub const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: 0100007F:0035 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 9 1 0000000000000000 100 0 0 10 0\n   1: 01004D0A:9C44 02004D0A:2455 01 00000005:00000007 00:00000000 00000000  1000        0 2517 1 0000000000000000 20 4 30 10 -1\n";

    #[test]
    fn what_became_of_them() {
        let mut all = parse(SAMPLE).unwrap();
        add_choices(&mut all, CHOICES, TCP).unwrap();
        let families: Vec<_> = all.iter().map(Socket::family).collect();
        assert_eq!(families, [2, 2, 28, 28, 2, 2]);
        let refused = &all[4];
        assert_eq!(refused.local, "10.77.0.1:40004".parse().unwrap());
        assert_eq!(
            (refused.rx_queue, refused.tx_queue, refused.uid),
            (7, 5, 1000)
        );
        assert_eq!(refused.to_json(&View::default())["ipproto"], "TCP: refused");
        let mut text = Vec::new();
        table(&all, &View::default()).write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lasts: Vec<_> = text
            .lines()
            .map(|l| l.split("  ").last().unwrap().trim())
            .collect();
        let wanted = [
            "IPPROTO_SDP",
            "open",
            "SDP",
            "-",
            "-",
            "TCP: refused",
            "TCP: option",
        ];
        assert_eq!(lasts, wanted);
        assert_eq!(
            all[5],
            Socket {
                uid: 5,
                choice: Some("TCP: option".into()),
                ..Socket::unconnected(2518)
            }
        );
        for wrong in ["x", "1 2", "x 0 SDP", "1 -1 SDP"] {
            let text = format!("inode uid choice\n{wrong}\n");
            assert!(add_choices(&mut all, &text, TCP).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_table() {
        let mut text = Vec::new();
        table(&parse(SAMPLE).unwrap(), &View::default())
            .write(&mut text)
            .unwrap();
        let wanted = "\
State       Recv-Q  Send-Q  Local                     Remote           User  Inode
LISTEN           0       0  0.0.0.0:9301              0.0.0.0:*           0   2514
ESTAB           26   65536  10.77.0.1:40001           10.77.0.2:9301      0   2515
CLOSE-WAIT       0       0  [fd77::1]:40002           [fd77::2]:9301  65534   2516
UNCONN           0       0  [::ffff:10.77.0.1]:40003  [::]:*              0      0
";
        assert_eq!(String::from_utf8(text).unwrap(), wanted);
    }
}

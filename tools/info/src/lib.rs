// SPDX-License-Identifier: GPL-2.0-only

//! Statistics that the module exports to its users, as the tools read them: `SDP_INFO` of a socket
//! (`include/uapi/sdp.h`), and the counters of `/proc/net/sdpstats`.

mod statistics;

pub use statistics::{Counter, Statistics};

use serde_json::{json, Map, Value};
use std::io;
use std::os::fd::AsRawFd;

const SDP_INFO: i32 = 82;

const HEADER: &str = include_str!("../../../include/uapi/sdp.h");

/// Returns the names of the structure's fields in their order; each field is a number of 64 bits.
fn names() -> impl Iterator<Item = &'static str> {
    let body = HEADER.split_once("struct sdp_info {").map_or("", |s| s.1);
    let body = body.split_once("\n};").map_or("", |s| s.0);
    body.lines()
        .filter_map(|l| l.trim().strip_prefix("__u64")?.trim().strip_suffix(';'))
}

/// Names of the transports, by number.
const TRANSPORTS: [&str; 3] = ["none", "rdma", "local"];

/// Counters of one socket's connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Info {
    transport: u64,
    /// As many counters as the module has; an older module may have fewer.
    counts: Vec<u64>,
}

impl Info {
    /// Reads the statistics of a socket.
    ///
    /// # Errors
    ///
    /// Errors are those of getsockopt(2): `ENOPROTOOPT` if the socket is not an SDP socket.
    pub fn of(socket: &impl AsRawFd) -> io::Result<Self> {
        let mut bytes = vec![0u8; 8 * names().count()];
        let mut size = bytes.len() as libc::socklen_t;
        // SAFETY: `size` is the number of valid bytes.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_TCP,
                SDP_INFO,
                bytes.as_mut_ptr().cast(),
                &mut size,
            )
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        bytes
            .get(..size as usize)
            .and_then(Self::parse)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes
            .chunks_exact(8)
            .filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes));
        let transport = words.next()?;
        Some(Info {
            transport,
            counts: words.collect(),
        })
    }

    /// `none`, `rdma`, `local`, or `unknown`.
    pub fn transport(&self) -> &'static str {
        let n = usize::try_from(self.transport).unwrap_or(usize::MAX);
        TRANSPORTS.get(n).copied().unwrap_or("unknown")
    }

    /// Returns all counters that the module has, by their names in the structure.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        names().skip(1).zip(self.counts.iter().copied())
    }

    /// Returns the counter of that name, 0 if the module does not have it.
    pub fn get(&self, name: &str) -> u64 {
        self.fields().find(|(n, _)| *n == name).map_or(0, |f| f.1)
    }

    /// Returns the fields that are not zero, as text.
    pub fn text(&self) -> String {
        let some = self.fields().filter(|(_, n)| *n > 0);
        let some: Vec<_> = some.map(|(name, n)| format!(" {name}:{n}")).collect();
        self.transport().to_string() + &some.concat()
    }

    /// Returns all fields, by name.
    pub fn to_json(&self) -> Value {
        let mut all = Map::new();
        all.insert("transport".into(), json!(self.transport()));
        all.extend(self.fields().map(|(name, n)| (name.into(), json!(n))));
        Value::Object(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    #[test]
    fn as_the_header_has_it() {
        let names: Vec<_> = names().collect();
        assert_eq!(names[..3], ["transport", "tx_bytes", "tx_read"]);
        assert_eq!(names[15], "credit_stalls");
        for (n, name) in TRANSPORTS.iter().enumerate() {
            let line = format!("#define SDP_TRANSPORT_{}\t{n}", name.to_uppercase());
            assert!(HEADER.contains(&line), "{line}");
        }
        assert!(HEADER.contains(&format!("SDP_INFO\t\t{SDP_INFO}")));
    }

    #[test]
    fn in_words() {
        let mut words = vec![1, 1000, 0, 200];
        words.resize(16, 0);
        let info = Info::parse(&bytes(&words)).unwrap();
        assert_eq!(info.text(), "rdma tx_bytes:1000 tx_written:200");
        assert_eq!((info.get("tx_written"), info.get("nothing")), (200, 0));
        let json = info.to_json();
        assert_eq!(json["transport"], "rdma");
        assert_eq!(
            (&json["tx_bytes"], &json["rx_read"]),
            (&json!(1000), &json!(0))
        );
    }

    #[test]
    fn shorter_ones() {
        let info = Info::parse(&bytes(&[2, 5])).unwrap();
        assert_eq!(info.text(), "local tx_bytes:5");
        assert_eq!(info.to_json().as_object().unwrap().len(), 2);
        assert_eq!(Info::parse(&bytes(&[7])).unwrap().text(), "unknown");
        assert_eq!(Info::parse(&[0; 7]), None);
    }

    #[test]
    fn other_sockets_have_none() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(
            Info::of(&tcp).unwrap_err().raw_os_error(),
            Some(libc::ENOPROTOOPT)
        );
    }
}

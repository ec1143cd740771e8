// SPDX-License-Identifier: GPL-2.0-only

//! What a socket tells of its connection, `SDP_INFO` of `include/uapi/sdp.h`. Only who has the
//! socket can ask it, so a descriptor of the holder's is borrowed for the question.

use crate::processes::Holder;
use serde_json::{json, Map, Value};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SDP_INFO: i32 = 82;

const HEADER: &str = include_str!("../../../include/uapi/sdp.h");

/// The names of the structure's fields, each a number of 64 bits, in their order.
fn names() -> impl Iterator<Item = &'static str> {
    let body = HEADER.split_once("struct sdp_info {").map_or("", |s| s.1);
    let body = body.split_once("\n};").map_or("", |s| s.0);
    body.lines()
        .filter_map(|l| l.trim().strip_prefix("__u64")?.trim().strip_suffix(';'))
}

/// The names of what carries a connection, by number.
const TRANSPORTS: [&str; 3] = ["none", "rdma", "local"];

#[derive(Debug, PartialEq)]
pub struct Info {
    transport: u64,
    /// As many as the module has; an older one may have fewer.
    counts: Vec<u64>,
}

impl Info {
    /// Asks the socket that one of these processes holds; those that may not be looked into, or
    /// have closed it meanwhile, have no answer.
    pub fn of(holders: &[Holder], inode: u64) -> Option<Self> {
        holders
            .iter()
            .filter_map(|h| borrow(h.pid, h.fd))
            .filter(|fd| inode_of(fd) == Some(inode))
            .find_map(|fd| ask(&fd))
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

    fn transport(&self) -> &'static str {
        let n = usize::try_from(self.transport).unwrap_or(usize::MAX);
        TRANSPORTS.get(n).copied().unwrap_or("unknown")
    }

    fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        names().skip(1).zip(self.counts.iter().copied())
    }

    /// What is not zero.
    pub fn text(&self) -> String {
        let some = self.fields().filter(|(_, n)| *n > 0);
        let some: Vec<_> = some.map(|(name, n)| format!(" {name}:{n}")).collect();
        self.transport().to_string() + &some.concat()
    }

    pub fn to_json(&self) -> Value {
        let mut all = Map::new();
        all.insert("transport".into(), json!(self.transport()));
        all.extend(self.fields().map(|(name, n)| (name.into(), json!(n))));
        Value::Object(all)
    }
}

/// A descriptor of another process, as one of this one.
fn borrow(pid: u32, fd: u32) -> Option<OwnedFd> {
    // SAFETY: two numbers.
    let process = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: a descriptor and two numbers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) })
}

fn owned(fd: i64) -> Option<OwnedFd> {
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: a system call has just made it for us.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn inode_of(fd: &OwnedFd) -> Option<u64> {
    // SAFETY: a structure of numbers, which the call fills.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        (libc::fstat(fd.as_raw_fd(), &mut found) == 0).then_some(found.st_ino)
    }
}

fn ask(fd: &impl AsRawFd) -> Option<Info> {
    let mut bytes = vec![0u8; 8 * names().count()];
    let mut size = bytes.len() as libc::socklen_t;
    // SAFETY: as many bytes as `size` says.
    let done = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_TCP,
            SDP_INFO,
            bytes.as_mut_ptr().cast(),
            &mut size,
        )
    };
    match done {
        0 => Info::parse(bytes.get(..size as usize)?),
        _ => None,
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
        assert_eq!(ask(&tcp), None);
        let holder = Holder {
            name: String::new(),
            pid: std::process::id(),
            fd: tcp.as_raw_fd() as u32,
        };
        assert_eq!(Info::of(&[holder], 0), None, "another inode");
    }
}

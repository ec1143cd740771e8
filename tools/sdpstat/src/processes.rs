// SPDX-License-Identifier: GPL-2.0-only

//! Finds the processes that hold a socket, as ss(8) and netstat(8) do, by the links in
//! `/proc/PID/fd`.

use serde_json::{json, Value};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// A process that holds a socket, and the descriptor.
#[derive(Clone, PartialEq, Debug)]
pub struct Holder {
    pub name: String,
    pub pid: u32,
    pub fd: u32,
}

/// The holders of all sockets, by inode.
#[derive(Default)]
pub struct Processes(HashMap<u64, Vec<Holder>>);

impl Processes {
    /// Searches all processes. Processes that start, end, or may not be inspected are left out.
    pub fn find(proc: &Path) -> Self {
        let mut all = Processes::default();
        let Ok(entries) = fs::read_dir(proc) else {
            return all;
        };
        for process in entries.flatten() {
            let Some(pid) = number(&process.file_name()) else {
                continue;
            };
            let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else {
                continue;
            };
            for descriptor in descriptors.flatten() {
                let Some(fd) = number(&descriptor.file_name()) else {
                    continue;
                };
                let Ok(target) = fs::read_link(descriptor.path()) else {
                    continue;
                };
                let Some(inode) = target.to_str().and_then(socket_inode) else {
                    continue;
                };
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                let holder = Holder {
                    name: name.trim_end().into(),
                    pid,
                    fd,
                };
                all.0.entry(inode).or_default().push(holder);
            }
        }
        for holders in all.0.values_mut() {
            holders.sort_by_key(|h| (h.pid, h.fd));
        }
        all
    }

    pub fn of(&self, inode: u64) -> &[Holder] {
        self.0.get(&inode).map_or(&[], Vec::as_slice)
    }

    /// Formats the holders as ss(8) does.
    pub fn text(&self, inode: u64) -> String {
        let one = |h: &Holder| format!("{},pid={},fd={}", h.name, h.pid, h.fd);
        self.of(inode).iter().map(one).collect::<Vec<_>>().join(" ")
    }

    pub fn to_json(&self, inode: u64) -> Value {
        self.of(inode)
            .iter()
            .map(|h| json!({ "name": h.name, "pid": h.pid, "fd": h.fd }))
            .collect()
    }
}

fn number(name: &std::ffi::OsStr) -> Option<u32> {
    name.to_str()?.parse().ok()
}

/// Parses the inode in `socket:[123]`.
fn socket_inode(target: &str) -> Option<u64> {
    target
        .strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    #[test]
    fn links() {
        assert_eq!(socket_inode("socket:[4711]"), Some(4711));
        for other in [
            "pipe:[4711]",
            "socket:[]",
            "socket:[x]",
            "/tmp/socket:[1]",
            "socket:[1",
        ] {
            assert_eq!(socket_inode(other), None, "{other}");
        }
    }

    #[test]
    fn our_own_socket_is_found() {
        let (one, _other) = UnixStream::pair().unwrap();
        let fd = one.as_raw_fd();
        let link = fs::metadata(format!("/proc/self/fd/{fd}")).unwrap();
        let found = Processes::find(Path::new("/proc"));
        let me = std::process::id();
        let holders = found.of(link.ino());
        assert!(
            holders.iter().any(|h| h.pid == me && h.fd == fd as u32),
            "{holders:?}"
        );
        assert!(found
            .text(link.ino())
            .contains(&format!("pid={me},fd={fd}")));
        assert_eq!(found.text(u64::MAX), "");
        assert_eq!(found.to_json(u64::MAX), json!([]));
    }
}

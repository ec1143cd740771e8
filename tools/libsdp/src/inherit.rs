// SPDX-License-Identifier: GPL-2.0-only

//! Listeners on both that come from a program before this one, by execve(2).
//!
//! Nothing is handed on beside the descriptors themselves: a joint epoll descriptor is told by the
//! marks of what it watches, which the kernel shows in `/proc/self/fdinfo`, with the inodes.

use crate::calls::{MARK, OF_SDP, OF_TCP};
use crate::log::{self, Level};
use crate::sys;
use crate::table::{self, Entry, Kind, Table};
use libc::c_int;

/// More descriptors than this one program does not hand to another.
const MOST: usize = 256;

/// The inodes that a joint descriptor watches: TCP's and SDP's.
fn watched(joint: c_int) -> Option<(u64, u64)> {
    let path = format!("/proc/self/fdinfo/{joint}\0");
    let fd = sys::open(libc::AT_FDCWD, path.as_bytes(), libc::O_RDONLY, 0).ok()?;
    let mut text = [0; 1024];
    let length = sys::read(fd, &mut text);
    sys::close(fd);
    parse(std::str::from_utf8(&text[..length.ok()?]).ok()?)
}

/// Reads the lines `tfd: N events: N data: HEX pos:N ino:HEX sdev:HEX`.
fn parse(text: &str) -> Option<(u64, u64)> {
    let (mut tcp, mut sdp) = (None, None);
    for line in text.lines().filter(|l| l.starts_with("tfd:")) {
        let after = |name: &str| {
            let rest = &line[line.find(name)? + name.len()..];
            let word = rest.split_whitespace().next()?;
            u64::from_str_radix(word, 16).ok()
        };
        let inode = after("ino:")?;
        match after("data:")? {
            OF_TCP => tcp = Some(inode),
            OF_SDP => sdp = Some(inode),
            _ => return None,
        }
    }
    tcp.zip(sdp)
}

/// The numbers of all descriptors.
fn descriptors() -> Vec<c_int> {
    let mut all = Vec::new();
    let Ok(fd) = sys::open(
        libc::AT_FDCWD,
        b"/proc/self/fd\0",
        libc::O_RDONLY | libc::O_DIRECTORY,
        0,
    ) else {
        return all;
    };
    let mut records = [0u8; 4096];
    while let Ok(length @ 1..) = sys::directory(fd, &mut records) {
        let mut at = 0;
        // struct linux_dirent64: inode, offset, length of the record, type, name
        while at + 19 < length && all.len() < MOST {
            let size = usize::from(u16::from_ne_bytes([records[at + 16], records[at + 17]]));
            let name = &records[at + 19..length.min(at + size)];
            let end = name.iter().position(|&c| c == 0).unwrap_or(0);
            let number = std::str::from_utf8(&name[..end]).ok();
            if let Some(number) = number.and_then(|n| n.parse().ok()) {
                all.push(number);
            }
            if size == 0 {
                break;
            }
            at += size;
        }
    }
    sys::close(fd);
    all.retain(|&other| other != fd);
    all
}

/// Remembers listeners that were handed over.
pub fn listeners() {
    let all = descriptors();
    let mut joints = Vec::new();
    for &fd in &all {
        // Anonymous inodes are neither sockets nor anything else that stat(2) has a type for.
        if sys::stat(fd).is_some_and(|s| s.st_mode & libc::S_IFMT == 0) {
            if let Some(inodes) = watched(fd) {
                joints.push((fd, inodes));
            }
        }
    }
    if joints.is_empty() {
        return;
    }
    let Some(mut table) = table::lock() else {
        return;
    };
    for (joint, (tcp, sdp)) in joints {
        let free = |table: &Table, inode| {
            let unknown = |&&fd: &&c_int| table.get(fd).0 == Kind::Other;
            let mut own = all.iter().filter(unknown);
            own.find(|&&fd| sys::inode(fd) == Some(inode)).copied()
        };
        let (Some(fd), Some(shadow)) = (free(&table, tcp), free(&table, sdp)) else {
            continue;
        };
        let six = sys::get_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_INET6);
        let entry = Entry {
            six,
            shadow: Some(shadow),
            joint: Some(joint),
            inode: tcp,
            ..Entry::NONE
        };
        table.set(fd, Kind::Listening, entry);
        for hidden in [shadow, joint] {
            let entry = Entry {
                owner: fd,
                inode: sys::inode(hidden).unwrap_or(0),
                ..Entry::NONE
            };
            table.set(hidden, Kind::Hidden, entry);
        }
        log::write(
            Level::Calls,
            format_args!("descriptor {fd} listens by SDP and TCP already"),
        );
    }
}

const _: () = assert!(OF_TCP & !0xffff == MARK && OF_SDP & !0xffff == MARK);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_shows() {
        let epoll = sys::epoll_create(libc::EPOLL_CLOEXEC).unwrap();
        let one = sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        let two = sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        let watch =
            |fd, data| sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN as u32, data);
        watch(one, OF_TCP).unwrap();
        assert_eq!(watched(epoll), None, "one listener only");
        watch(two, OF_SDP).unwrap();
        let inodes = (sys::inode(one).unwrap(), sys::inode(two).unwrap());
        assert_eq!(watched(epoll), Some(inodes));
        let all = descriptors();
        for fd in [epoll, one, two] {
            assert!(all.contains(&fd), "{fd} of {all:?}");
            sys::close(fd);
        }
    }

    #[test]
    fn other_epoll_descriptors_are_left_alone() {
        let line = |data: &str| {
            format!("tfd:        5 events:       19 data: {data}  pos:0 ino:{data} sdev:8\n")
        };
        assert_eq!(parse(&line("6962736470 5f0001")), None);
        assert_eq!(parse(&format!("pos:\t0\n{}", line("7"))), None);
        assert_eq!(parse(""), None);
    }
}

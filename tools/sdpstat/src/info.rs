// SPDX-License-Identifier: GPL-2.0-only

//! Reads `SDP_INFO` of other processes' sockets. getsockopt(2) needs a descriptor, so the holder's
//! descriptor is duplicated (pidfd_getfd(2)).

use crate::processes::Holder;
use sdp_info::Info;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Reads `SDP_INFO` of the socket that one of these processes holds. Returns `None` if no process
/// may be inspected, or all have closed the socket.
pub fn of(holders: &[Holder], inode: u64) -> Option<Info> {
    holders
        .iter()
        .filter_map(|h| borrow(h.pid, h.fd))
        .filter(|fd| inode_of(fd) == Some(inode))
        .find_map(|fd| Info::of(&fd).ok())
}

/// Duplicates a descriptor of another process.
fn borrow(pid: u32, fd: u32) -> Option<OwnedFd> {
    // SAFETY: passes two numbers only.
    let process = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: a descriptor and two numbers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) })
}

fn owned(fd: i64) -> Option<OwnedFd> {
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: a system call has just created the descriptor.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn inode_of(fd: &OwnedFd) -> Option<u64> {
    // SAFETY: the call fills a structure of numbers.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        (libc::fstat(fd.as_raw_fd(), &mut found) == 0).then_some(found.st_ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn other_sockets_have_none() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let holder = Holder {
            name: String::new(),
            pid: std::process::id(),
            fd: tcp.as_raw_fd() as u32,
        };
        assert_eq!(of(&[holder], 0), None, "another inode");
    }
}

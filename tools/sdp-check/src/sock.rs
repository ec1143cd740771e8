// SPDX-License-Identifier: GPL-2.0-only

//! Sockets of SDP and of TCP, with a time limit for each call.

use sdp_info::Info;
use std::fs;
use std::io::{self, ErrorKind};
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

const AF_INET_SDP: i32 = 27;
const AF_INET6_SDP: i32 = 28;
pub const IPPROTO_SDP: i32 = 257;
const SDP_ZCOPY_THRESH: i32 = 80;
/// Maximum time that a call waits without progress. An adapter retransmits for some seconds, and
/// SDP takes an unread advert back after one second.
pub const STALL: Duration = Duration::from_secs(30);

/// Kind of socket to create.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Families 27 and 28: SDP alone.
    Sdp,
    /// `IPPROTO_SDP`: SDP or TCP.
    Either,
    Tcp,
}

/// Converts the result of a system call.
pub fn checked(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Returns the number of `IPPROTO_SDP`, a module parameter; 0 if there is none.
fn protocol() -> i32 {
    let told = fs::read_to_string("/sys/module/ib_sdp/parameters/ipproto");
    let told = told.ok().and_then(|t| t.trim().parse().ok());
    told.unwrap_or(IPPROTO_SDP)
}

/// Creates a socket for addresses of this family.
pub fn new(kind: Kind, like: IpAddr) -> io::Result<OwnedFd> {
    let (own, sdp) = match like {
        IpAddr::V4(_) => (libc::AF_INET, AF_INET_SDP),
        IpAddr::V6(_) => (libc::AF_INET6, AF_INET6_SDP),
    };
    let (family, protocol) = match kind {
        Kind::Sdp => (sdp, 0),
        Kind::Either => match protocol() {
            0 => return Err(io::Error::from_raw_os_error(libc::EPROTONOSUPPORT)),
            number => (own, number),
        },
        Kind::Tcp => (own, 0),
    };
    // SAFETY: passes three numbers only.
    let fd =
        checked(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the call has just created the descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set<T>(fd: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let size = mem::size_of::<T>() as libc::socklen_t;
    let value = (value as *const T).cast();
    // SAFETY: the length is that of `T`.
    checked(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, size) }).map(drop)
}

/// Returns true if both addresses are of the same host. An IPv4 address may be written as IPv6.
pub fn same_host(a: IpAddr, b: IpAddr) -> bool {
    a.to_canonical() == b.to_canonical()
}

/// Returns the first descriptor that has one of the events of poll(2) within that time.
pub fn poll(fds: &[RawFd], events: i16, time: Duration) -> io::Result<Option<usize>> {
    let one = |fd: &RawFd| libc::pollfd {
        fd: *fd,
        events,
        revents: 0,
    };
    let mut all: Vec<_> = fds.iter().map(one).collect();
    // rounds up, so that the wait is not shorter than `time`
    let time = i32::try_from(time.as_millis() + 1).unwrap_or(i32::MAX);
    // SAFETY: the count is the length of the array.
    checked(unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, time) })?;
    Ok(all.iter().position(|p| p.revents != 0))
}

/// A connection whose bytes are checked.
pub struct Data {
    pub fd: OwnedFd,
    /// Deadline of the whole trial.
    pub until: Instant,
}

impl Data {
    pub fn connect(kind: Kind, to: &SocketAddr, until: Instant) -> io::Result<Self> {
        let data = Data {
            fd: new(kind, to.ip())?,
            until,
        };
        data.bound()?;
        with_address(to, |a, size| {
            // SAFETY: the address has that size.
            unsafe { libc::connect(data.fd.as_raw_fd(), a, size) }
        })
        // the error of a blocking connect after SO_SNDTIMEO
        .map_err(|e| match e.raw_os_error() {
            Some(libc::EINPROGRESS) => ErrorKind::TimedOut.into(),
            _ => e,
        })?;
        Ok(data)
    }

    /// Limits the wait of later calls to the time left of the trial.
    pub fn bound(&self) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let left = left.min(STALL);
        let time = libc::timeval {
            tv_sec: left.as_secs() as libc::time_t,
            // zero would mean no limit
            tv_usec: libc::suseconds_t::from(left.subsec_micros().max(1)),
        };
        set(&self.fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time)?;
        set(&self.fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &time)
    }

    /// Sets the size from which sends go without a copy; 0 is never.
    pub fn zero_copy(&self, from: i32) -> io::Result<()> {
        set(&self.fd, libc::SOL_TCP, SDP_ZCOPY_THRESH, &from)
    }

    pub fn no_delay(&self) -> io::Result<()> {
        set(&self.fd, libc::SOL_TCP, libc::TCP_NODELAY, &1)
    }

    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub fn info(&self) -> io::Result<Info> {
        Info::of(&self.fd)
    }

    /// One call of send(2).
    pub fn send(&self, bytes: &[u8], flags: i32) -> io::Result<usize> {
        let flags = flags | libc::MSG_NOSIGNAL;
        // SAFETY: the length is that of the slice.
        let n = unsafe { libc::send(self.fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
        usize::try_from(n).map_err(|_| late(io::Error::last_os_error()))
    }

    pub fn send_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        self.bound()?;
        while !bytes.is_empty() {
            let n = self.send(bytes, 0)?;
            bytes = bytes.get(n..).unwrap_or_default();
        }
        Ok(())
    }

    /// One call of recv(2).
    pub fn recv(&self, to: &mut [u8], flags: i32) -> io::Result<usize> {
        // SAFETY: the length is that of the slice.
        let n = unsafe { libc::recv(self.fd(), to.as_mut_ptr().cast(), to.len(), flags) };
        usize::try_from(n).map_err(|_| late(io::Error::last_os_error()))
    }

    /// Fills the buffer, or a part of it at the end of the stream.
    pub fn recv_all(&self, to: &mut [u8]) -> io::Result<usize> {
        self.bound()?;
        let mut got = 0;
        while got < to.len() {
            match self.recv(&mut to[got..], libc::MSG_WAITALL)? {
                0 => break,
                n => got += n,
            }
        }
        Ok(got)
    }

    /// Waits for events of poll(2).
    pub fn wait(&self, events: i16) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        match poll(&[self.fd()], events, left.min(STALL))? {
            Some(_) => Ok(()),
            None => Err(ErrorKind::TimedOut.into()),
        }
    }

    pub fn end_sending(&self) -> io::Result<()> {
        // SAFETY: passes two numbers only.
        checked(unsafe { libc::shutdown(self.fd(), libc::SHUT_WR) }).map(drop)
    }

    /// Returns true if the next byte follows an urgent byte (SIOCATMARK).
    pub fn at_mark(&self) -> io::Result<bool> {
        const SIOCATMARK: libc::Ioctl = 0x8905;
        let mut is: i32 = 0;
        // SAFETY: a number, which the call fills.
        checked(unsafe { libc::ioctl(self.fd(), SIOCATMARK, &raw mut is) })?;
        Ok(is != 0)
    }
}

/// Runs a call with the address as a C structure.
pub fn with_address(
    a: &SocketAddr,
    call: impl Fn(*const libc::sockaddr, libc::socklen_t) -> i32,
) -> io::Result<()> {
    let size = |n: usize| n as libc::socklen_t;
    let done = match a {
        SocketAddr::V4(a) => {
            // SAFETY: a structure of numbers, for which zeros are valid.
            let mut c: libc::sockaddr_in = unsafe { mem::zeroed() };
            c.sin_family = libc::AF_INET as libc::sa_family_t;
            c.sin_port = a.port().to_be();
            c.sin_addr.s_addr = u32::from_ne_bytes(a.ip().octets());
            call((&raw const c).cast(), size(mem::size_of_val(&c)))
        }
        SocketAddr::V6(a) => {
            // SAFETY: a structure of numbers, for which zeros are valid.
            let mut c: libc::sockaddr_in6 = unsafe { mem::zeroed() };
            c.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            c.sin6_port = a.port().to_be();
            c.sin6_addr.s6_addr = a.ip().octets();
            c.sin6_scope_id = a.scope_id();
            call((&raw const c).cast(), size(mem::size_of_val(&c)))
        }
    };
    checked(done).map(drop)
}

/// Turns EAGAIN of a call that waits into a timeout.
fn late(e: io::Error) -> io::Error {
    match e.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => e,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_compare_by_host() {
        let four: IpAddr = "10.0.0.1".parse().unwrap();
        assert!(same_host(four, "::ffff:10.0.0.1".parse().unwrap()));
        assert!(!same_host(four, "::1".parse().unwrap()));
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Listening sockets of SDP and TCP, and addresses as C has them.

use crate::sock::{checked, new, poll, same_host, with_address, Data, Kind, STALL};
use std::io::{self, ErrorKind};
use std::mem;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Instant;

/// Converts the address with which accept(2) or getsockname(2) has filled the structure.
fn address(c: &libc::sockaddr_in6) -> SocketAddr {
    let port = u16::from_be(c.sin6_port);
    if i32::from(c.sin6_family) == libc::AF_INET {
        // the address in a sockaddr_in has the offset of the flow label in a sockaddr_in6
        return SocketAddr::new(c.sin6_flowinfo.to_ne_bytes().into(), port);
    }
    let ip = Ipv6Addr::from(c.sin6_addr.s6_addr);
    SocketAddrV6::new(ip, port, 0, c.sin6_scope_id).into()
}

/// A listening socket.
pub struct Listener(OwnedFd);

impl Listener {
    /// Listens at a port of the kernel's choice, and returns that port.
    pub fn new(kind: Kind, at: &SocketAddr) -> io::Result<(Self, u16)> {
        let fd = new(kind, at.ip())?;
        let mut at = *at;
        at.set_port(0);
        with_address(&at, |a, size| {
            // SAFETY: the address has that size.
            unsafe { libc::bind(fd.as_raw_fd(), a, size) }
        })?;
        // SAFETY: passes two numbers only.
        checked(unsafe { libc::listen(fd.as_raw_fd(), 64) })?;
        // SAFETY: a structure of numbers, for which zeros are valid.
        let mut c: libc::sockaddr_in6 = unsafe { mem::zeroed() };
        let mut size = mem::size_of_val(&c) as libc::socklen_t;
        // SAFETY: `size` is the number of valid bytes.
        checked(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut c).cast(), &raw mut size) })?;
        Ok((Listener(fd), address(&c).port()))
    }

    /// Accepts the next connection of the expected host, and closes connections of other hosts.
    /// `instead` is a descriptor that becomes readable when no connection comes any more.
    pub fn accept(&self, from: IpAddr, until: Instant, instead: RawFd) -> io::Result<Data> {
        let until_here = until.min(Instant::now() + STALL);
        loop {
            let left = until_here.saturating_duration_since(Instant::now());
            match poll(&[self.0.as_raw_fd(), instead], libc::POLLIN, left)? {
                None => return Err(ErrorKind::TimedOut.into()),
                Some(0) => {}
                Some(_) => return Err(ErrorKind::Interrupted.into()),
            }
            // SAFETY: a structure of numbers, for which zeros are valid.
            let mut c: libc::sockaddr_in6 = unsafe { mem::zeroed() };
            let mut size = mem::size_of_val(&c) as libc::socklen_t;
            // SAFETY: `size` is the number of valid bytes.
            let fd = checked(unsafe {
                libc::accept4(
                    self.0.as_raw_fd(),
                    (&raw mut c).cast(),
                    &raw mut size,
                    libc::SOCK_CLOEXEC,
                )
            })?;
            // SAFETY: the call has just created the descriptor.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            if same_host(address(&c).ip(), from) {
                return Ok(Data { fd, until });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn strangers_and_time() {
        let at = "127.0.0.1:0".parse().unwrap();
        let (listener, port) = Listener::new(Kind::Tcp, &at).unwrap();
        let until = Instant::now() + Duration::from_millis(200);
        let near = Data::connect(
            Kind::Tcp,
            &SocketAddr::new(at.ip(), port),
            Instant::now() + STALL,
        )
        .unwrap();
        let none = listener.accept("10.0.0.1".parse().unwrap(), until, -1);
        assert_eq!(none.err().unwrap().kind(), ErrorKind::TimedOut);
        assert_eq!(near.recv_all(&mut [0]).unwrap_or(0), 0, "it was closed");
        let over = Data { until, ..near };
        assert_eq!(over.bound().unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn a_connection() {
        let until = Instant::now() + STALL;
        let at = "127.0.0.1:0".parse().unwrap();
        let (listener, port) = Listener::new(Kind::Tcp, &at).unwrap();
        let to = SocketAddr::new(at.ip(), port);
        let near = Data::connect(Kind::Tcp, &to, until).unwrap();
        let far = listener.accept(at.ip(), until, -1).unwrap();
        near.send_all(b"abc").unwrap();
        near.end_sending().unwrap();
        let mut got = [0; 5];
        assert_eq!(far.recv_all(&mut got).unwrap(), 3);
        assert_eq!(&got[..3], b"abc");
        assert_eq!(
            near.info().unwrap_err().raw_os_error(),
            Some(libc::ENOPROTOOPT)
        );
    }
}

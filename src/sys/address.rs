// SPDX-License-Identifier: GPL-2.0-only

//! Parses a `struct sockaddr` of any form that programs pass to an SDP socket.

use super::bindings as c;
use super::errno::{EAFNOSUPPORT, EINVAL};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use kernel::prelude::*;

/// `AF_INET_SDP`, the IPv4 family of SDP sockets.
pub(crate) const AF_INET_SDP: u16 = 27;
/// `AF_INET6_SDP`, the IPv6 family of SDP sockets.
pub(crate) const AF_INET6_SDP: u16 = 28;
pub(super) const AF_UNSPEC: u16 = 0;
pub(super) const AF_INET: u16 = 2;
pub(super) const AF_INET6: u16 = 10;

/// Length of `struct sockaddr_in`.
const SOCKADDR_IN_LEN: usize = 16;
/// Length of `struct sockaddr_in6` without its scope id (RFC 2133).
const SOCKADDR_IN6_MIN_LEN: usize = 24;
/// Length of `struct sockaddr_in6`.
const SOCKADDR_IN6_LEN: usize = 28;

/// An IP address with a port, in host byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    /// IPv4 or IPv6; a v4-mapped IPv6 address is stored as IPv4.
    pub(crate) ip: IpAddr,
    /// The port, 0 for none.
    pub(crate) port: u16,
    /// Scope id of a link-local IPv6 address, 0 for none.
    pub(crate) scope: u32,
}

impl Address {
    /// Returns the unspecified IPv6 or IPv4 address, with port 0.
    pub(crate) const fn any(v6: bool) -> Self {
        Address {
            ip: if v6 {
                IpAddr::V6(Ipv6Addr::UNSPECIFIED)
            } else {
                IpAddr::V4(Ipv4Addr::UNSPECIFIED)
            },
            port: 0,
            scope: 0,
        }
    }

    /// Returns the address as 16 bytes, IPv4 in v4-mapped form.
    pub(crate) fn mapped(&self) -> [u8; 16] {
        match self.ip {
            IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
            IpAddr::V6(a) => a.octets(),
        }
    }

    /// Returns address and port as bytes, for a hash.
    pub(crate) fn bytes(&self) -> [u8; 18] {
        let mut b = [0; 18];
        b[..16].copy_from_slice(&self.mapped());
        b[16..].copy_from_slice(&self.port.to_be_bytes());
        b
    }

    /// Converts 16 address bytes; an address in the v4-mapped range becomes IPv4.
    pub(crate) fn from_mapped(ip: [u8; 16], port: u16) -> Self {
        let ip = Ipv6Addr::from(ip);
        let ip = match ip.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(ip),
        };
        Address { ip, port, scope: 0 }
    }

    /// Returns the C form in network byte order.
    pub(super) fn to_c(self) -> c::sdp_h_addr {
        let mut a = c::sdp_h_addr::default();
        a.ip.in6_u.u6_addr8 = self.mapped();
        a.port = self.port.to_be();
        a
    }

    /// Converts the C form; `v6` selects the IP version if the address is unspecified.
    pub(super) fn from_c(a: &c::sdp_h_addr, v6: bool) -> Self {
        // SAFETY: Every view of the union is plain bytes, so reading `u6_addr8` is always valid.
        let ip = unsafe { a.ip.in6_u.u6_addr8 };
        let r = Self::from_mapped(ip, u16::from_be(a.port));
        if !v6 && r.ip.is_unspecified() {
            return Address {
                port: r.port,
                ..Self::any(false)
            };
        }
        r
    }
}

/// System call that an address is parsed for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Bind,
    Connect,
}

/// Parses the address of bind(2) or connect(2) on a socket of family 27 (`v6` false) or 28.
///
/// Accepts the forms that programs are known to pass (AF_INET, AF_INET6 and the SDP families' own
/// numbers), and those of inet(7). `None`: connect(2) to `AF_UNSPEC`, which disconnects.
///
/// # Errors
///
/// `EINVAL`: the address is too short for its family. `EAFNOSUPPORT`: wrong family for the socket.
pub(crate) fn read(bytes: &[u8], v6: bool, purpose: Purpose) -> Result<Option<Address>> {
    let family = u16::from_ne_bytes(*bytes.first_chunk().ok_or(Error::from(EINVAL))?);
    let address = match family {
        AF_UNSPEC if purpose == Purpose::Connect => return Ok(None),
        // AF_UNSPEC with a wildcard address is accepted, as in inet_bind()
        AF_UNSPEC if !v6 => Some(read_in(bytes)?).filter(|a| a.ip.is_unspecified()),
        AF_INET | AF_INET_SDP if !v6 => Some(read_in(bytes)?),
        AF_INET6 | AF_INET6_SDP => {
            let a = read_in6(bytes)?;
            match a.ip {
                IpAddr::V6(ip) if !v6 => ip.is_unspecified().then(|| Address {
                    port: a.port,
                    ..Address::any(false)
                }),
                _ => Some(a),
            }
        }
        // check the length before the family, as TCP does
        _ if v6 && bytes.len() < SOCKADDR_IN6_MIN_LEN => return Err(EINVAL.into()),
        _ => None,
    };
    address.map(Some).ok_or(EAFNOSUPPORT.into())
}

/// Parses a `struct sockaddr_in`.
pub(super) fn read_in(bytes: &[u8]) -> Result<Address> {
    let b: &[u8; SOCKADDR_IN_LEN] = bytes.first_chunk().ok_or(Error::from(EINVAL))?;
    Ok(Address {
        ip: IpAddr::V4(Ipv4Addr::new(b[4], b[5], b[6], b[7])),
        port: u16::from_be_bytes([b[2], b[3]]),
        scope: 0,
    })
}

/// Parses a `struct sockaddr_in6`; the scope id may be missing.
pub(super) fn read_in6(bytes: &[u8]) -> Result<Address> {
    let b: &[u8; SOCKADDR_IN6_MIN_LEN] = bytes.first_chunk().ok_or(Error::from(EINVAL))?;
    let mut ip = [0; 16];
    ip.copy_from_slice(&b[8..24]);
    let mut a = Address::from_mapped(ip, u16::from_be_bytes([b[2], b[3]]));
    if let Some([s0, s1, s2, s3]) = bytes.get(SOCKADDR_IN6_MIN_LEN..SOCKADDR_IN6_LEN) {
        a.scope = u32::from_ne_bytes([*s0, *s1, *s2, *s3]);
    }
    Ok(a)
}

/// Returns `a` as the `struct sockaddr_in` for IPv4's generic bind.
pub(super) fn write_in(a: &Address) -> [u8; SOCKADDR_IN_LEN] {
    let mut b = [0; SOCKADDR_IN_LEN];
    b[..2].copy_from_slice(&AF_INET.to_ne_bytes());
    b[2..4].copy_from_slice(&a.port.to_be_bytes());
    if let IpAddr::V4(ip) = a.ip {
        b[4..8].copy_from_slice(&ip.octets());
    }
    b
}

/// Returns `a` as the `struct sockaddr_in6` for IPv6's generic bind.
pub(super) fn write_in6(a: &Address) -> [u8; SOCKADDR_IN6_LEN] {
    let mut b = [0; SOCKADDR_IN6_LEN];
    b[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
    b[2..4].copy_from_slice(&a.port.to_be_bytes());
    b[8..24].copy_from_slice(&a.mapped());
    b[24..28].copy_from_slice(&a.scope.to_ne_bytes());
    b
}

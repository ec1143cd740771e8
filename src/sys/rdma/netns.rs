// SPDX-License-Identifier: GPL-2.0-only

//! Network namespaces and addresses for RDMA.

use super::super::bindings as c;
use crate::sys::address::{write_in, write_in6, Address, AF_INET, AF_INET6};
use crate::sys::netns::Net;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use kernel::error::to_result;
use kernel::prelude::*;

/// `struct sockaddr_storage`, which is a macro in C.
type Storage = c::__kernel_sockaddr_storage;

impl Net {
    /// Returns true if packets from `local` to `remote` leave through the interface. Otherwise a
    /// request from `remote` that arrived on this interface is not trustworthy.
    pub(crate) fn reverse_route(&self, ifindex: u32, local: &Address, remote: &Address) -> bool {
        let (local, remote) = (sockaddr(local), sockaddr(remote));
        let Ok(ifindex) = i32::try_from(ifindex) else {
            return false;
        };
        // SAFETY: The namespace is alive, and both addresses are readable.
        unsafe { c::sdp_h_reverse_route(self.as_raw(), ifindex, &local, &remote) }
    }

    /// Checks that the address is on an RDMA port of this host that supports connections. Sleeps.
    ///
    /// # Errors
    ///
    /// Errors: those of `rdma_bind_addr()`. `ENODEV`: the device has no such port. `EADDRNOTAVAIL`.
    pub(crate) fn has_rdma(&self, address: &Address) -> Result {
        let mut local = sockaddr(address);
        // SAFETY: The namespace is alive and the address is readable and writable.
        to_result(unsafe { c::sdp_h_rdma_bind_test(self.as_raw(), &mut local) })
    }
}

/// Returns the C form of an address, with port 0: RDMA has its own port space.
pub(super) fn sockaddr(a: &Address) -> Storage {
    sockaddr_with_port(&Address { port: 0, ..*a })
}

/// Returns the C form of an address.
pub(super) fn sockaddr_with_port(a: &Address) -> Storage {
    let mut storage = Storage::default();
    let p = &raw mut storage;
    // SAFETY: A `sockaddr_storage` has space for each kind of address.
    unsafe {
        match a.ip {
            IpAddr::V4(_) => p.cast::<[u8; 16]>().write(write_in(a)),
            IpAddr::V6(_) => p.cast::<[u8; 28]>().write(write_in6(a)),
        }
    }
    storage
}

/// Returns the address in a C form; `None` for another family.
pub(super) fn address(storage: &Storage) -> Option<Address> {
    let p = core::ptr::from_ref(storage);
    // SAFETY: Every address begins with its family; all bytes of `storage` are initialised.
    let family = unsafe { p.cast::<u16>().read() };
    match family {
        AF_INET => {
            // SAFETY: The family shows that this is a `sockaddr_in`, which is plain data.
            let sin = unsafe { p.cast::<c::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(sin.sin_addr.s_addr.to_ne_bytes());
            Some(Address {
                ip: IpAddr::V4(ip),
                port: u16::from_be(sin.sin_port),
                scope: 0,
            })
        }
        AF_INET6 => {
            // SAFETY: The family shows that this is a `sockaddr_in6`, which is plain data.
            let sin6 = unsafe { p.cast::<c::sockaddr_in6>().read() };
            // SAFETY: Every view of the union is plain bytes.
            let ip = Ipv6Addr::from(unsafe { sin6.sin6_addr.in6_u.u6_addr8 });
            Some(Address {
                ip: IpAddr::V6(ip),
                port: u16::from_be(sin6.sin6_port),
                scope: sin6.sin6_scope_id,
            })
        }
        _ => None,
    }
}

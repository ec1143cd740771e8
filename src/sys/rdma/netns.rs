// SPDX-License-Identifier: GPL-2.0-only

//! Network namespaces and addresses for RDMA.

use super::super::bindings as c;
use crate::sys::address::{read_in, read_in6, write_in, write_in6, Address, AF_INET, AF_INET6};
use crate::sys::netns::Net;
use core::net::IpAddr;
use kernel::error::to_result;
use kernel::prelude::*;

/// `struct sockaddr_storage`, which is a macro in C.
type Storage = c::__kernel_sockaddr_storage;

impl Net {
    /// Returns true if packets from `local` to `remote` leave through the interface. A request from
    /// `remote` that arrived on another interface is not trustworthy.
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
    /// Errors: those of `rdma_bind_addr()`. `ENODEV`: no port has this address. `EADDRNOTAVAIL`.
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
    // SAFETY: A `sockaddr_storage` is longer than the result, and all its bytes are initialised.
    let bytes = unsafe { &*core::ptr::from_ref(storage).cast::<[u8; 28]>() };
    match u16::from_ne_bytes([bytes[0], bytes[1]]) {
        AF_INET => read_in(bytes).ok(),
        AF_INET6 => read_in6(bytes).ok(),
        _ => None,
    }
}

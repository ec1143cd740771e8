// SPDX-License-Identifier: GPL-2.0-only

//! IP routes to an address.

use super::super::address::Address;
use super::super::bindings as c;
use super::super::errno::{Errno, ENOBUFS, ENOMEM};
use super::super::netns::Net;
use super::sock::SockCore;
use core::ptr;
use kernel::error::to_result;
use kernel::prelude::*;

#[derive(Clone, Copy)]
pub(crate) struct IpRoute {
    pub(crate) source: Address,
    /// Index of the outgoing interface. For a local address, this is the interface that has the
    /// address. Packets to a local address count as received by the address's interface, not by lo.
    pub(crate) ifindex: u32,
    /// True if the destination is an address of this namespace.
    pub(crate) is_local: bool,
}

fn route(net: &Net, sk: *mut c::sock, from: Option<&Address>, to: &Address) -> Result<IpRoute> {
    let v6 = to.ip.is_ipv6();
    let any = Address::any(v6);
    let mut route = c::sdp_h_route {
        from: from.unwrap_or(&any).to_c(),
        ..Default::default()
    };
    // SAFETY: The namespace is alive. The sock is null or alive, and is an IPv6 sock if the address
    // is IPv6. `route` may be read and written.
    to_result(unsafe {
        c::sdp_h_route(net.as_raw(), sk, &to.to_c(), to.scope as i32, &mut route)
    })?;
    Ok(IpRoute {
        source: Address {
            port: 0,
            ..Address::from_c(&route.from, v6)
        },
        ifindex: route.ifindex as u32,
        is_local: route.local,
    })
}

impl Net {
    /// Returns true if a listener on interface `bound` (0: all) gets requests from `ifindex`.
    pub(crate) fn bound_dev_eq(&self, bound: i32, ifindex: u32) -> bool {
        // SAFETY: The namespace is alive.
        unsafe { c::sdp_h_bound_dev_eq(self.as_raw(), bound, ifindex as i32) }
    }

    /// Returns true if packets to this address stay in the namespace, for any socket.
    pub(crate) fn is_local(&self, to: &Address) -> Result<bool> {
        match route(self, ptr::null_mut(), None, to) {
            Ok(route) => Ok(route.is_local),
            Err(e) if [ENOMEM, ENOBUFS].contains(&Errno::of(e)) => Err(ENOMEM.into()),
            Err(_) => Ok(false),
        }
    }
}

impl SockCore {
    /// Returns the current route of the socket's packets to an address, from `source` if given.
    pub(crate) fn route(&self, source: Option<&Address>, to: &Address) -> Result<IpRoute> {
        route(self.net(), self.raw(), source, to)
    }
}

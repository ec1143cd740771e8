// SPDX-License-Identifier: GPL-2.0-only

//! Addresses of this machine.

use super::super::address::Address;
use super::super::bindings as c;
use super::super::netns::Net;
use kernel::prelude::*;

/// Route between two addresses of one network namespace.
#[derive(Clone, Copy)]
pub(crate) struct LocalRoute {
    /// Source address, with port 0.
    pub(crate) source: Address,
    /// Interface of the address: IP treats packets on the loopback as received by it.
    pub(crate) ifindex: u32,
}

impl Net {
    /// Returns true if a listener bound to `bound`, 0 for none, takes what comes by `ifindex`.
    pub(crate) fn bound_dev_eq(&self, bound: i32, ifindex: u32) -> bool {
        // SAFETY: The namespace is alive.
        unsafe { c::sdp_h_bound_dev_eq(self.as_raw(), bound, ifindex as i32) }
    }

    /// Returns the route to an address, if it is one of this namespace. `source`: source address,
    /// otherwise by the routes.
    pub(crate) fn local_route(
        &self,
        source: Option<&Address>,
        to: &Address,
    ) -> Result<Option<LocalRoute>> {
        let v6 = to.ip.is_ipv6();
        let any = Address::any(v6);
        let mut from = source.unwrap_or(&any).to_c();
        // SAFETY: The namespace is alive; `from` may be read and written.
        let ifindex =
            unsafe { c::sdp_h_local_route(self.as_raw(), &to.to_c(), to.scope as i32, &mut from) };
        let ifindex = u32::try_from(ifindex).map_err(|_| ENOMEM)?;
        Ok((ifindex != 0).then(|| LocalRoute {
            source: Address {
                port: 0,
                ..Address::from_c(&from, v6)
            },
            ifindex,
        }))
    }
}

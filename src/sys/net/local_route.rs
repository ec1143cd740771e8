// SPDX-License-Identifier: GPL-2.0-only

//! Which addresses are this machine's own.

use super::super::address::Address;
use super::super::bindings as c;
use super::super::netns::Net;
use kernel::prelude::*;

/// The way from one address of a network namespace to another one of it.
#[derive(Clone, Copy)]
pub(crate) struct LocalRoute {
    /// Where it begins, with port 0.
    pub(crate) source: Address,
    /// The interface that the address belongs to: IP takes for received by it what goes by the
    /// loopback.
    pub(crate) ifindex: u32,
}

impl Net {
    /// Returns true if a listener bound to `bound`, 0 for none, takes what comes by `ifindex`.
    pub(crate) fn bound_dev_eq(&self, bound: i32, ifindex: u32) -> bool {
        // SAFETY: The namespace is alive.
        unsafe { c::sdp_h_bound_dev_eq(self.as_raw(), bound, ifindex as i32) }
    }

    /// The way to an address, if it is one of this namespace's own. `source` is where it is to
    /// begin, if not where the routes say.
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

// SPDX-License-Identifier: GPL-2.0-only

//! Registration of the families and of `IPPROTO_SDP` with the network core.

use super::super::address::{AF_INET, AF_INET6, AF_INET6_SDP, AF_INET_SDP};
use super::super::bindings as c;
use super::super::errno::EINVAL;
use super::calls::fill_ops;
use super::family::Family;
use super::proto::{create, fill_proto};
use super::splice::splice_read;
use super::{netns, params};
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::str::CStr;

/// The families and `IPPROTO_SDP`, registered with the network core.
///
/// # Invariants
///
/// The first `protos` of `sdp_h_proto` and the first `families` of `sdp_h_family` are registered,
/// and `IPPROTO_SDP` if `ipproto` is set. The object is unique, like its `_namespaces`.
pub(crate) struct Families<T: Family> {
    protos: usize,
    families: usize,
    ipproto: bool,
    _namespaces: netns::Registration<T::Net>,
}

// SAFETY: The object is only made and dropped, and both may happen on any thread.
unsafe impl<T: Family> Send for Families<T> {}

// SAFETY: The type has no methods that take a shared reference.
unsafe impl<T: Family> Sync for Families<T> {}

const FAMILIES: [u16; 2] = [AF_INET_SDP, AF_INET6_SDP];
/// Protocols in `/proc/net/protocols`: those of the families, and those of `IPPROTO_SDP`.
const NAMES: [(&CStr, u16); 4] = [
    (c"SDP", AF_INET_SDP),
    (c"SDPv6", AF_INET6_SDP),
    (c"IPPROTO_SDP", AF_INET),
    (c"IPPROTO_SDPv6", AF_INET6),
];

impl<T: Family> Families<T> {
    /// Registers the families of the available IP versions, and `IPPROTO_SDP`, for programs.
    ///
    /// # Errors
    ///
    /// `EBUSY`: a registration exists. `EEXIST`: another module uses a family number. Other errors:
    /// from [`register_ipproto`] and the registration functions.
    pub(crate) fn new(module: &'static ThisModule) -> Result<Self> {
        // SAFETY: Dropped only after all users of namespace data: `drop` closes the sockets and
        // stops requests, which require a listener.
        let namespaces = unsafe { netns::Registration::new() }?;
        // INVARIANT: Nothing is registered yet.
        let mut me = Families {
            protos: 0,
            families: 0,
            ipproto: false,
            _namespaces: namespaces,
        };
        let (protos, ops) = (&raw mut c::sdp_h_proto, &raw mut c::sdp_h_ops);
        let families = &raw mut c::sdp_h_family;
        // SAFETY: Nothing is registered yet, so nothing else uses the statics.
        let (protos, ops, families) = unsafe { (&mut *protos, &mut *ops, &mut *families) };
        for (n, ((p, ops), (name, family))) in (1..).zip(protos.iter_mut().zip(ops).zip(NAMES)) {
            fill_proto::<T>(p, family, module, name);
            fill_ops::<T>(ops, family, module);
            ops.splice_read = Some(splice_read::<T>);
            // SAFETY: `p` is complete and not registered yet.
            to_result(unsafe { c::proto_register(p, 1) })?;
            // INVARIANT: One more protocol is registered.
            me.protos = n;
        }
        // With ipv6.disable=1, IPv6 has no addresses and routes. SAFETY: Reads a kernel setting.
        let six = unsafe { c::ipv6_mod_enabled() };
        let versions = if six { 2 } else { 1 };
        for (n, (f, number)) in (1..=versions).zip(families.iter_mut().zip(FAMILIES)) {
            f.family = number.into();
            f.create = Some(match number {
                AF_INET_SDP => create::<T, false>,
                _ => create::<T, true>,
            });
            f.owner = module.as_ptr();
            // SAFETY: `f` is complete and not registered yet.
            let e = unsafe { c::sock_register(f) };
            if e < 0 {
                pr_err!("socket family {} is taken by another module\n", number);
                return Err(Error::from_errno(e));
            }
            // INVARIANT: One more family is registered.
            me.families = n;
        }
        // SAFETY: All protocols are registered; `drop` unregisters `IPPROTO_SDP` first. `Families`
        // is unique. INVARIANT: `sdp_h_ipproto_register` has returned true.
        me.ipproto = unsafe { register_ipproto() }?;
        Ok(me)
    }
}

impl<T: Family> Drop for Families<T> {
    fn drop(&mut self) {
        if self.ipproto {
            // SAFETY: By the invariants `IPPROTO_SDP` is registered.
            unsafe { c::sdp_h_ipproto_unregister() }
        }
        for number in FAMILIES.into_iter().take(self.families) {
            // SAFETY: By the invariants the family of `number` is registered.
            unsafe { c::sock_unregister(number.into()) };
        }
        // Workers may still drop the last references of closed sockets. SAFETY: The workqueue
        // exists until all other objects of the module are dropped. No remaining socket can queue
        // work: each holds a reference to the module, or is freed with its last work item.
        unsafe { kernel::bindings::drain_workqueue(c::sdp_h_wq) };
        for i in 0..self.protos {
            // SAFETY: By the invariants the protocol is registered; no sock of the protocol exists.
            unsafe { c::proto_unregister((&raw mut c::sdp_h_proto).cast::<c::proto>().add(i)) };
        }
    }
}

/// Registers `IPPROTO_SDP` with the number in the module's parameter. False: disabled.
///
/// # Safety
///
/// The protocol is not registered. The proto structures outlive the registration.
///
/// # Errors
///
/// `EINVAL`: Linux uses the number for another protocol, or cannot use it. `EBUSY`:
/// another module uses the number.
unsafe fn register_ipproto() -> Result<bool> {
    let number = params::ipproto();
    if number == 0 {
        return Ok(false);
    }
    // lower numbers are values of the protocol byte in the IP header, and 256 is SMC
    if !(257..=262).contains(&number) {
        pr_err!(
            "ipproto={} is no number for IPPROTO_SDP: 257 to 262, or 0 for none\n",
            number
        );
        return Err(EINVAL.into());
    }
    // SAFETY: By the requirements.
    to_result(unsafe { c::sdp_h_ipproto_register(number) })?;
    Ok(true)
}

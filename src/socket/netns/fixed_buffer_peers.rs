// SPDX-License-Identifier: GPL-2.0-only

//! Services whose SDP never requests larger receive buffers: OFED peers, recognised by the
//! MaxAdverts of 1 in their HelloAck. A host may have services of both kinds.
//!
//! A Hello to such a service announces large buffers, since their size cannot be changed later.
//! Received Hellos are not recorded, because their sender may fake another host's address.

use crate::sys::address::Address;
use crate::sys::vec;
use core::net::IpAddr;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;

/// Maximum number of services recorded for one namespace; another one replaces the oldest.
const MOST: usize = 64;

/// The services of one namespace, by address and port.
pub(in crate::socket) struct FixedBufferPeers(KVec<(IpAddr, u16)>);

impl FixedBufferPeers {
    pub(in crate::socket) fn new() -> Result<Self> {
        Ok(FixedBufferPeers(vec::with_capacity(MOST, GFP_KERNEL)?))
    }

    /// Returns true if the service is in the table.
    pub(in crate::socket) fn has(&self, service: &Address) -> bool {
        self.0.contains(&(service.ip, service.port))
    }

    /// Records the MaxAdverts that a service has announced.
    pub(in crate::socket) fn record(&mut self, service: &Address, adverts: u16) {
        let service = (service.ip, service.port);
        match self.0.iter().position(|s| *s == service) {
            Some(at) if adverts > 1 => drop(self.0.remove(at)),
            None if adverts == 1 => {
                if self.0.len() == MOST {
                    let _ = self.0.remove(0);
                }
                let _ = self.0.push_within_capacity(service);
            }
            _ => {}
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Services whose SDP never requests larger receive buffers: OFED's line, by the MaxAdverts of 1 in
//! its HelloAck. A host may have both kinds of service.
//!
//! A Hello to one announces large buffers, since nothing can be changed later. Received Hellos are
//! not recorded: their sender may name another host's address.

use crate::sys::address::Address;
use core::net::IpAddr;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;

/// Number of services recorded for one namespace; then the one that came first is dropped.
const MOST: usize = 64;

/// The services of one namespace, by address and port.
pub(in crate::socket) struct FixedBufferPeers {
    services: KVec<(IpAddr, u16)>,
    /// The place of the next one, when all are taken.
    next: usize,
}

impl FixedBufferPeers {
    pub(in crate::socket) fn new() -> Result<Self> {
        Ok(FixedBufferPeers {
            services: KVec::with_capacity(MOST, GFP_KERNEL)?,
            next: 0,
        })
    }

    /// Returns true if the service is known to be one.
    pub(in crate::socket) fn has(&self, service: &Address) -> bool {
        self.services.contains(&(service.ip, service.port))
    }

    /// Records the MaxAdverts that a service has announced.
    pub(in crate::socket) fn record(&mut self, service: &Address, adverts: u16) {
        let service = (service.ip, service.port);
        match self.services.iter().position(|s| *s == service) {
            Some(at) if adverts > 1 => {
                let _ = self.services.remove(at);
                self.next = 0;
            }
            None if adverts == 1 => self.add(service),
            _ => {}
        }
    }

    fn add(&mut self, service: (IpAddr, u16)) {
        if self.services.len() < MOST {
            let _ = self.services.push_within_capacity(service);
        } else if let Some(place) = self.services.get_mut(self.next) {
            *place = service;
            self.next = self.next.wrapping_add(1) % MOST;
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Hosts whose SDP never asks for larger receive buffers: OFED's line, by the MaxAdverts of 1 in its
//! HelloAck.
//!
//! Who connects to one announces large buffers in its Hello, since nothing can be changed later. What a
//! Hello says is not remembered: its sender may name another host's address.

use core::net::IpAddr;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;

/// How many hosts of one namespace are known; then the one that came first is forgotten.
const MOST: usize = 64;

/// The hosts of one namespace.
pub(in crate::socket) struct NeverAsk {
    hosts: KVec<IpAddr>,
    /// The place of the next one, when all are taken.
    next: usize,
}

impl NeverAsk {
    /// None.
    pub(in crate::socket) fn new() -> Result<Self> {
        Ok(NeverAsk {
            hosts: KVec::with_capacity(MOST, GFP_KERNEL)?,
            next: 0,
        })
    }

    /// Whether the host is known to be one.
    pub(in crate::socket) fn has(&self, host: &IpAddr) -> bool {
        self.hosts.contains(host)
    }

    /// The host has announced so many adverts.
    pub(in crate::socket) fn heard(&mut self, host: &IpAddr, adverts: u16) {
        match self.hosts.iter().position(|h| h == host) {
            Some(at) if adverts > 1 => {
                let _ = self.hosts.remove(at);
                self.next = 0;
            }
            None if adverts == 1 => self.add(*host),
            _ => {}
        }
    }

    fn add(&mut self, host: IpAddr) {
        if self.hosts.len() < MOST {
            let _ = self.hosts.push_within_capacity(host);
        } else if let Some(place) = self.hosts.get_mut(self.next) {
            *place = host;
            self.next = (self.next + 1) % MOST;
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Destinations at which SDP has not answered, so that it need not be tried again for a while.
//!
//! Each has one slot of a small table, which it shares with others: the last one counts.

use super::Outcome;
use crate::sys::time::{jiffies, Jiffies};
use core::net::IpAddr;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;

/// Slots of the table.
const SLOTS: usize = 128;

/// A port of a host, or all of them for 0.
struct Destination {
    ip: IpAddr,
    port: u16,
    until: Jiffies,
}

/// The table of one namespace.
pub(in crate::socket) struct Remembered {
    slots: KVec<Option<Destination>>,
}

impl Remembered {
    /// Nothing.
    pub(in crate::socket) fn new() -> Result<Self> {
        let mut slots = KVec::with_capacity(SLOTS, GFP_KERNEL)?;
        for _ in 0..SLOTS {
            slots.push(None, GFP_KERNEL)?;
        }
        Ok(Remembered { slots })
    }

    fn slot(ip: &IpAddr, port: u16) -> usize {
        let mut sum = u32::from(port).wrapping_mul(0x9e37_79b1);
        let mut add = |octets: &[u8]| {
            for o in octets {
                sum = (sum ^ u32::from(*o)).wrapping_mul(0x0100_0193);
            }
        };
        match ip {
            IpAddr::V4(a) => add(&a.octets()),
            IpAddr::V6(a) => add(&a.octets()),
        }
        (sum >> 16) as usize % SLOTS
    }

    fn has(&self, ip: &IpAddr, port: u16) -> bool {
        let found = self.slots.get(Self::slot(ip, port));
        found.and_then(|d| d.as_ref()).is_some_and(|d| {
            // jiffies wrap
            let left = d.until.wrapping_sub(jiffies());
            d.ip == *ip && d.port == port && left != 0 && left <= Jiffies::MAX / 2
        })
    }

    /// Whether SDP need not be tried there.
    pub(super) fn knows(&self, ip: &IpAddr, port: u16) -> bool {
        self.has(ip, port) || self.has(ip, 0)
    }

    /// Remembers for so many jiffies why it has failed there, if that is of the kind that stays.
    pub(super) fn add(&mut self, ip: &IpAddr, port: u16, why: Outcome, time: Jiffies) {
        let port = match why {
            Outcome::Refused => port,
            Outcome::Unreachable | Outcome::NoAnswer => 0,
            _ => return,
        };
        if let Some(slot) = self.slots.get_mut(Self::slot(ip, port)) {
            *slot = Some(Destination {
                ip: *ip,
                port,
                until: jiffies().wrapping_add(time),
            });
        }
    }

    /// Forgets what is known of there.
    pub(super) fn forget(&mut self, ip: &IpAddr, port: u16) {
        for port in [port, 0] {
            if self.has(ip, port) {
                if let Some(slot) = self.slots.get_mut(Self::slot(ip, port)) {
                    *slot = None;
                }
            }
        }
    }
}

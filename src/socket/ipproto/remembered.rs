// SPDX-License-Identifier: GPL-2.0-only

//! What is known of destinations for a while: where SDP has not answered, so that it need not be
//! tried again, and which hosts have answered by it, be it to refuse, so that silence there is no
//! sign of TCP alone.
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
    /// Somebody there has answered by SDP.
    answers: bool,
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

    /// What is known of it: whether it answers.
    fn get(&self, ip: &IpAddr, port: u16) -> Option<bool> {
        let found = self.slots.get(Self::slot(ip, port))?.as_ref()?;
        // jiffies wrap
        let left = found.until.wrapping_sub(jiffies());
        let known = found.ip == *ip && found.port == port && left != 0 && left <= Jiffies::MAX / 2;
        known.then_some(found.answers)
    }

    /// Whether SDP need not be tried there.
    pub(super) fn knows(&self, ip: &IpAddr, port: u16) -> bool {
        self.get(ip, port) == Some(false) || self.get(ip, 0) == Some(false)
    }

    /// Whether the host has answered by SDP lately.
    pub(super) fn answers(&self, ip: &IpAddr) -> bool {
        self.get(ip, 0) == Some(true)
    }

    /// Remembers for so many jiffies what came of it there, if that is of the kind that stays.
    pub(super) fn add(&mut self, ip: &IpAddr, port: u16, why: Outcome, time: Jiffies) {
        match why {
            Outcome::Refused => {
                self.set(ip, 0, true, time);
                self.set(ip, port, false, time);
            }
            Outcome::Unreachable | Outcome::NoAnswer => self.set(ip, 0, false, time),
            Outcome::Connected => self.set(ip, 0, true, time),
            _ => {}
        }
    }

    fn set(&mut self, ip: &IpAddr, port: u16, answers: bool, time: Jiffies) {
        if let Some(slot) = self.slots.get_mut(Self::slot(ip, port)) {
            *slot = Some(Destination {
                ip: *ip,
                port,
                answers,
                until: jiffies().wrapping_add(time),
            });
        }
    }

    /// Forgets what is known of there.
    pub(super) fn forget(&mut self, ip: &IpAddr, port: u16) {
        for port in [port, 0] {
            if self.get(ip, port).is_some() {
                if let Some(slot) = self.slots.get_mut(Self::slot(ip, port)) {
                    *slot = None;
                }
            }
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Tables of peers: the cache of destinations for `IPPROTO_SDP`, and services of OFED peers.
//!
//! Cache of destinations. The cache contains destinations without an SDP reply, where SDP is not
//! tried again for a while. The cache also contains hosts that have replied by SDP, even by a
//! refusal: silence of such a host does not mean a lack of SDP.
//!
//! Each destination has a slot of a small table; a later entry replaces an earlier one.

use crate::conn::{FallbackReason, SdpSock};
use crate::sys::address::Address;
use crate::sys::net::params::Params;
use crate::sys::time::{jiffies, milliseconds, seconds, Jiffies};
use crate::sys::vec;
use core::net::IpAddr;
use core::str;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Timeout for a host that has replied recently, in units of `ipproto_wait`: by default enough to
/// repeat a request, which takes 1.5 s.
const KNOWN: u32 = 8;

/// Port of a host, 0 for all ports.
#[derive(Clone, Copy)]
pub(in crate::socket) struct Peer {
    pub(in crate::socket) ip: IpAddr,
    pub(in crate::socket) port: u16,
    /// Set if the host has replied by SDP.
    pub(in crate::socket) answers: bool,
    since: Jiffies,
    /// Value of [`Params::forgotten`] when the entry was made.
    forgotten: i32,
}

impl Peer {
    /// Returns the time until the entry expires, if it is valid.
    fn left(&self, params: &Params) -> Option<Jiffies> {
        // the lifetime is the parameter's current value
        let left = seconds(params.ipproto_memory().max(0) as u32)
            .checked_sub(jiffies().wrapping_sub(self.since))?;
        (left > 0 && self.forgotten == params.forgotten()).then_some(left)
    }
}

/// Cache of one network namespace.
pub(in crate::socket) struct PeerCache {
    slots: KVec<Option<Peer>>,
    params: Arc<Params>,
}

impl PeerCache {
    pub(in crate::socket) const SLOTS: usize = 128;

    pub(in crate::socket) fn new(params: Arc<Params>) -> Result<Self> {
        let slots = vec::filled(Self::SLOTS, GFP_KERNEL, || None)?;
        Ok(PeerCache { slots, params })
    }

    fn slot(ip: &IpAddr, port: u16) -> usize {
        let (ip, scope) = (*ip, 0);
        // FNV-1a
        let next = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let hash = Address { ip, port, scope }
            .bytes()
            .into_iter()
            .fold(0x811c_9dc5, next);
        (hash >> 16) as usize % Self::SLOTS
    }

    /// Returns the valid entry of a destination, if any.
    fn get(&self, ip: &IpAddr, port: u16) -> Option<bool> {
        let (peer, _) = self.row(Self::slot(ip, port))?;
        (peer.ip == *ip && peer.port == port).then_some(peer.answers)
    }

    /// Returns the valid entry of a slot, and the seconds until it expires.
    pub(in crate::socket) fn row(&self, slot: usize) -> Option<(Peer, Jiffies)> {
        let peer = (*self.slots.get(slot)?)?;
        Some((peer, peer.left(&self.params)?.checked_div(seconds(1))?))
    }

    /// Drops a host's entries, or all if the line is empty. `EINVAL`: the line is no address.
    pub(in crate::socket) fn flush(&mut self, line: &[u8]) -> Result {
        let line = str::from_utf8(line).map_err(|_| EINVAL)?.trim();
        let ip = match line {
            "" => None,
            ip => Some(ip.parse::<IpAddr>().map_err(|_| EINVAL)?.to_canonical()),
        };
        for slot in self.slots.iter_mut() {
            let _ = slot.take_if(|peer| ip.is_none_or(|ip| peer.ip == ip));
        }
        Ok(())
    }

    /// Returns true if SDP need not be tried for this destination.
    pub(in crate::socket) fn knows(&self, ip: &IpAddr, port: u16) -> bool {
        self.get(ip, port) == Some(false) || self.get(ip, 0) == Some(false)
    }

    /// Returns true if the host has recently replied by SDP.
    pub(in crate::socket) fn answers(&self, ip: &IpAddr) -> bool {
        self.get(ip, 0) == Some(true)
    }

    /// Records the result of an attempt to connect by SDP, if the result is likely to last.
    pub(in crate::socket) fn add(&mut self, ip: &IpAddr, port: u16, why: FallbackReason) {
        match why {
            FallbackReason::Refused => {
                self.set(ip, 0, true);
                self.set(ip, port, false);
            }
            // the host has replied recently, so its listener's backlog is full
            FallbackReason::NoAnswer if self.answers(ip) => self.set(ip, port, false),
            FallbackReason::Unreachable | FallbackReason::NoAnswer => self.set(ip, 0, false),
            FallbackReason::Connected => self.set(ip, 0, true),
            _ => {}
        }
    }

    fn set(&mut self, ip: &IpAddr, port: u16, answers: bool) {
        if let Some(slot) = self.slots.get_mut(Self::slot(ip, port)) {
            *slot = Some(Peer {
                ip: *ip,
                port,
                answers,
                since: jiffies(),
                forgotten: self.params.forgotten(),
            });
        }
    }

    /// Removes the entry of a destination.
    pub(in crate::socket) fn forget(&mut self, ip: &IpAddr, port: u16) {
        for port in [port, 0] {
            if let Some(slot) = self.slots.get_mut(Self::slot(ip, port)) {
                let _ = slot.take_if(|peer| peer.ip == *ip && peer.port == port);
            }
        }
    }
}

/// Returns the parameter `ipproto_wait` multiplied by `times`.
pub(in crate::socket) fn patience(sk: &SdpSock, times: u32) -> Jiffies {
    let wait = sk.params().ipproto_wait().max(1) as u32;
    milliseconds(wait.saturating_mul(times))
}

/// Returns the timeout of the SDP reply for a socket's destination, by the host's cache entry.
pub(in crate::socket) fn timeout_for(sk: &SdpSock) -> Jiffies {
    let to = sk.connection().fallback.to;
    let answers = to.is_some_and(|to| sk.netns().peer_cache.lock().answers(&to.ip));
    patience(sk, if answers { KNOWN } else { 1 })
}

/// Stores the result of an attempt to connect by SDP, if it concerns the host. The result is not
/// stored if the program chose the interface or source address: its route may differ from the
/// routes of other sockets, or not exist.
pub(in crate::socket) fn remember(sk: &SdpSock, why: FallbackReason) {
    let (to, requested) = {
        let c = sk.connection();
        (c.fallback.to, c.fallback.requested)
    };
    let tells = |to: &Address| {
        let by_interface = to.scope != 0 || sk.bound_interface() != 0;
        sk.params().ipproto_memory() > 0
            && !by_interface
            && (requested || !sk.address_is_bound())
            && !sk.is_own_address(to)
    };
    if let Some(to) = to.filter(tells) {
        sk.netns().peer_cache.lock().add(&to.ip, to.port, why);
    }
}

/// Maximum number of services recorded for one namespace. A further service replaces the oldest.
const MOST_SERVICES: usize = 64;

/// Services whose SDP never requests larger receive buffers: OFED peers, recognised by the
/// MaxAdverts of 1 in their HelloAck. One host may have services of OFED and of this module.
///
/// A Hello to an OFED service announces large buffers, since their size cannot be changed later.
/// Received Hellos are not recorded, because their sender may fake another host's address.
///
/// The services of one namespace, by address and port.
pub(in crate::socket) struct FixedBufferPeers(KVec<(IpAddr, u16)>);

impl FixedBufferPeers {
    pub(in crate::socket) fn new() -> Result<Self> {
        Ok(FixedBufferPeers(vec::with_capacity(
            MOST_SERVICES,
            GFP_KERNEL,
        )?))
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
                if self.0.len() == MOST_SERVICES {
                    let _ = self.0.remove(0);
                }
                let _ = self.0.push_within_capacity(service);
            }
            _ => {}
        }
    }
}

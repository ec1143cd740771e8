// SPDX-License-Identifier: GPL-2.0-only

//! Who holds which port in a network namespace.
//!
//! SDP has its own port space, in which families 27 and 28 share one table. The rules are those of
//! TCP (`SO_REUSEADDR`, `SO_REUSEPORT`, wildcards, `IPV6_V6ONLY`, ephemeral and reserved ports).

use super::SdpSock;
use crate::sys::errno::{EADDRINUSE, EINVAL};
use crate::sys::net::sock::State;
use crate::sys::random::random_below;
use core::net::IpAddr;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNode};
use kernel::sync::aref::ARef;

/// One socket's claim to a port.
struct Holder {
    /// The socket, by [`SdpSock::id`].
    id: usize,
    /// Its local address.
    ip: IpAddr,
    /// An IPv6 wildcard that does not take IPv4.
    v6_only: bool,
    /// The interface it is bound to, 0 for any.
    interface: i32,
    reuse_address: bool,
    reuse_port: bool,
    uid: u32,
    /// The socket, if it listens.
    listener: Option<ARef<SdpSock>>,
}

impl Holder {
    fn new(sk: &SdpSock) -> Self {
        Holder {
            id: sk.id(),
            ip: sk.local().ip,
            v6_only: sk.v6_only(),
            interface: sk.bound_interface(),
            reuse_address: sk.reuse_address(),
            reuse_port: sk.reuse_port(),
            uid: sk.uid(),
            listener: (sk.state() == State::Listen).then(|| sk.into()),
        }
    }

    /// Whether both could be meant by one local address.
    fn overlaps(&self, other: &Holder) -> bool {
        if self.interface != 0 && other.interface != 0 && self.interface != other.interface {
            return false;
        }
        match (self.ip, other.ip) {
            (a, b) if a == b => true,
            (IpAddr::V4(a), IpAddr::V4(b)) => a.is_unspecified() || b.is_unspecified(),
            (IpAddr::V6(a), IpAddr::V6(b)) => a.is_unspecified() || b.is_unspecified(),
            (IpAddr::V6(a), IpAddr::V4(_)) => a.is_unspecified() && !self.v6_only,
            (IpAddr::V4(_), IpAddr::V6(b)) => b.is_unspecified() && !other.v6_only,
        }
    }

    /// Whether both may hold the port at the same time.
    fn gets_along(&self, other: &Holder) -> bool {
        (self.reuse_address && other.reuse_address && other.listener.is_none())
            || (self.reuse_port && other.reuse_port && self.uid == other.uid)
            || !self.overlaps(other)
    }

    /// How well a listener fits a connection to `ip` by `interface`: none, or more is better.
    fn fits(&self, ip: IpAddr, interface: i32) -> Option<u32> {
        if self.interface != 0 && self.interface != interface {
            return None;
        }
        let address = match (self.ip, ip) {
            (a, b) if a == b => 2,
            (IpAddr::V4(a), IpAddr::V4(_)) if a.is_unspecified() => 1,
            (IpAddr::V6(a), IpAddr::V6(_)) if a.is_unspecified() => 0,
            (IpAddr::V6(a), IpAddr::V4(_)) if a.is_unspecified() && !self.v6_only => 0,
            _ => return None,
        };
        Some(address * 2 + u32::from(self.interface != 0))
    }
}

/// The table of one namespace.
pub(super) struct Ports {
    table: RBTree<u16, KVec<Holder>>,
}

impl Ports {
    /// An empty table.
    pub(super) fn new() -> Self {
        Ports {
            table: RBTree::new(),
        }
    }

    /// Gives `port` to a socket, or for 0 any that is free at its address. As TCP's, the two halves of
    /// the range are for different calls first: those with the parity of its begin for connect(2), the
    /// others for bind(2) and listen(2).
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`; `ENOMEM`.
    pub(super) fn take(&mut self, sk: &SdpSock, port: u16, connects: bool) -> Result<u16> {
        let holder = Holder::new(sk);
        if port != 0 {
            self.claim(port, holder, false)?;
            return Ok(port);
        }
        let (low, high) = sk.port_range();
        let all = u32::from(high).saturating_sub(low.into()) + 1;
        for odd in [u32::from(!connects), u32::from(connects)] {
            let half = (all + 1 - odd) / 2;
            // like TCP's, the next port cannot be guessed from the last
            let start = random_below(half);
            for i in 0..half {
                let at = (start + i).checked_rem(half).unwrap_or(0) * 2 + odd;
                let candidate = low.saturating_add(at as u16);
                // at another address it may be somebody's; what two agree to share is shared by number only
                let free = |holders: &KVec<Holder>| !holders.iter().any(|h| holder.overlaps(h));
                if self.table.get(&candidate).is_none_or(free) && !sk.port_is_reserved(candidate) {
                    self.claim(candidate, holder, false)?;
                    return Ok(candidate);
                }
            }
        }
        Err(EADDRINUSE.into())
    }

    /// Adds a connection that a listener's port was used for.
    pub(super) fn join(&mut self, sk: &SdpSock, port: u16) -> Result {
        self.claim(port, Holder::new(sk), true)
    }

    /// Enters a holder.
    fn claim(&mut self, port: u16, holder: Holder, always: bool) -> Result {
        if let Some(holders) = self.table.get_mut(&port) {
            if !always
                && holders
                    .iter()
                    .any(|h| h.id != holder.id && !holder.gets_along(h))
            {
                return Err(EADDRINUSE.into());
            }
            holders.push(holder, GFP_KERNEL)?;
            return Ok(());
        }
        let mut holders = KVec::new();
        holders.push(holder, GFP_KERNEL)?;
        self.table
            .insert(RBTreeNode::new(port, holders, GFP_KERNEL)?);
        Ok(())
    }

    /// The socket listens now, or no longer.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if somebody else listens there.
    pub(super) fn listening(&mut self, sk: &SdpSock) -> Result {
        let Some(holders) = self.table.get_mut(&sk.port()) else {
            return Err(EINVAL.into());
        };
        let new = Holder::new(sk);
        if new.listener.is_some() && holders.iter().any(|h| h.id != new.id && !new.gets_along(h)) {
            return Err(EADDRINUSE.into());
        }
        if let Some(h) = holders.iter_mut().find(|h| h.id == new.id) {
            *h = new;
        }
        Ok(())
    }

    /// Takes back what a socket holds.
    pub(super) fn release(&mut self, id: usize, port: u16) {
        let Some(holders) = self.table.get_mut(&port) else {
            return;
        };
        holders.retain(|h| h.id != id);
        if holders.is_empty() {
            self.table.remove(&port);
        }
    }

    /// Who listens for connections to `ip` and `port` that come by `interface`. Where several do
    /// (`SO_REUSEPORT`), `hash` chooses, all values of which are equally likely.
    pub(super) fn listener(
        &self,
        port: u16,
        ip: IpAddr,
        interface: i32,
        hash: u32,
    ) -> Option<ARef<SdpSock>> {
        let holders = self.table.get(&port)?;
        let fit = |h: &Holder| h.listener.as_ref().and_then(|_| h.fits(ip, interface));
        let best = holders.iter().filter_map(fit).max()?;
        let equal = || holders.iter().filter(|h| fit(h) == Some(best));
        // the high half of the product is hash / 2^32 of the count
        let nth = (u64::from(hash) * equal().count() as u64) >> 32;
        equal().nth(nth as usize).and_then(|h| h.listener.clone())
    }
}

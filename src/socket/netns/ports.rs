// SPDX-License-Identifier: GPL-2.0-only

//! Who holds which port in a network namespace.
//!
//! SDP has its own port space, in which families 27 and 28 share one table. The rules are those of
//! TCP (`SO_REUSEADDR`, `SO_REUSEPORT`, wildcards, `IPV6_V6ONLY`, ephemeral and reserved ports).
//!
//! A port that connect(2) has chosen is shared by connections to different destinations. TCP's port
//! of that number is then held by the TCP sockets of those that have one, and is free for others of
//! TCP when the last of them lets go of it.

use crate::conn::SdpSock;
use crate::sys::address::Address;
use crate::sys::errno::{EADDRINUSE, EINVAL, ENOMEM};
use crate::sys::net::sock::State;
use crate::sys::net::tcp::Ports as TcpPorts;
use crate::sys::random::random_below;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNode};
use kernel::sync::aref::ARef;

/// Where a port is claimed, and with whom it may be shared.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Claim {
    /// The local address.
    ip: IpAddr,
    /// An IPv6 wildcard that does not take IPv4.
    v6_only: bool,
    /// The interface it is bound to, 0 for any.
    interface: i32,
    reuse_address: bool,
    reuse_port: bool,
    uid: u32,
    /// Host and port that it connects to, if it has its own port for that alone.
    to: Option<(IpAddr, u16)>,
}

impl Claim {
    fn new(sk: &SdpSock) -> Self {
        Claim {
            ip: sk.local().ip,
            v6_only: sk.v6_only(),
            interface: sk.bound_interface(),
            reuse_address: sk.reuse_address(),
            reuse_port: sk.reuse_port(),
            uid: sk.uid(),
            to: None,
        }
    }

    /// Whether both could be meant by one local address.
    fn overlaps(&self, other: &Claim) -> bool {
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

    /// Whether no connection of the one could be taken for one of the other.
    fn is_apart(&self, other: &Claim) -> bool {
        let elsewhere = self.to.is_some() && other.to.is_some() && self.to != other.to;
        elsewhere || !self.overlaps(other)
    }

    /// Whether both may hold the port at the same time; `listens`: the other one's socket does.
    fn gets_along(&self, other: &Claim, listens: bool) -> bool {
        (self.reuse_address && other.reuse_address && !listens)
            || (self.reuse_port && other.reuse_port && self.uid == other.uid)
            || self.is_apart(other)
    }

    /// Returns a score, the higher the better, if a listener takes a connection to `ip`.
    fn fits(&self, ip: IpAddr, takes: impl Fn(i32) -> bool) -> Option<u32> {
        if !takes(self.interface) {
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

/// A socket that holds a port.
struct Holder {
    /// The socket, by [`SdpSock::id`](crate::sys::net::sock::SockCore::id).
    id: usize,
    claim: Claim,
    /// Its TCP socket has TCP's port of that number.
    holds_tcp: bool,
    /// The socket, if it listens.
    listener: Option<ARef<SdpSock>>,
}

impl Holder {
    fn new(sk: &SdpSock) -> Self {
        Holder {
            id: sk.id(),
            claim: Claim::new(sk),
            holds_tcp: false,
            listener: (sk.state() == State::Listen).then(|| sk.into()),
        }
    }

    /// Whether its hold on TCP's port keeps away all that one of this claim would.
    fn covers(&self, claim: &Claim) -> bool {
        let at = |c: &Claim| (c.ip, c.v6_only, c.interface);
        self.holds_tcp && at(&self.claim) == at(claim)
    }
}

/// Who holds one port.
struct Port {
    /// Those that have asked for it.
    holders: KVec<Holder>,
    /// What accepted connections claim, and how many of them: they are many, and alike.
    accepted: KVec<(Claim, usize)>,
}

impl Port {
    const fn new() -> Self {
        Port {
            holders: KVec::new(),
            accepted: KVec::new(),
        }
    }

    /// Whether nobody but the socket `id` keeps the claim away.
    fn admits(&self, id: usize, claim: &Claim) -> bool {
        let others = self.holders.iter().filter(|h| h.id != id);
        let mut others = others.map(|h| (&h.claim, h.listener.is_some()));
        let mut accepted = self.accepted.iter().map(|(c, _)| (c, false));
        others.all(|(c, listens)| claim.gets_along(c, listens))
            && accepted.all(|(c, listens)| claim.gets_along(c, listens))
    }

    /// Whether no connection of the claim could be taken for one that is there.
    fn is_apart(&self, claim: &Claim) -> bool {
        let mut holders = self.holders.iter().map(|h| &h.claim);
        holders.all(|c| claim.is_apart(c)) && self.accepted.iter().all(|(c, _)| claim.is_apart(c))
    }

    /// One accepted connection less of that claim.
    fn left(&mut self, claim: &Claim) {
        if let Some((_, count)) = self.accepted.iter_mut().find(|(c, _)| c == claim) {
            *count -= 1;
        }
        self.accepted.retain(|(_, count)| *count > 0);
    }
}

/// The table of one namespace.
pub(in crate::socket) struct Ports {
    table: RBTree<u16, Port>,
    /// What each accepted connection claims, by the socket's id.
    accepted: RBTree<usize, Claim>,
}

impl Ports {
    /// An empty table.
    pub(in crate::socket) fn new() -> Self {
        Ports {
            table: RBTree::new(),
            accepted: RBTree::new(),
        }
    }

    /// Gives `port` to a socket.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`; `ENOMEM`.
    pub(in crate::socket) fn take(&mut self, sk: &SdpSock, port: u16) -> Result {
        self.claim(port, Holder::new(sk))
    }

    /// Gives a socket any port that is free at its address, or that has connections to other
    /// destinations alone, if it is to connect. With `tcp` its TCP socket has TCP's as well. As
    /// TCP's, the two halves of the range are for different calls first: those with the parity of
    /// its begin for connect(2), the others for bind(2) and listen(2).
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`; `ENOMEM`.
    pub(in crate::socket) fn choose(
        &mut self,
        sk: &SdpSock,
        to: Option<&Address>,
        tcp: Option<&TcpPorts<'_>>,
    ) -> Result<u16> {
        let mut holder = Holder::new(sk);
        holder.claim.to = to.map(|a| (host(a.ip), a.port));
        holder.holds_tcp = tcp.is_some();
        let connects = to.is_some();
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
                let others = self.table.get(&candidate);
                if !others.is_none_or(|p| p.is_apart(&holder.claim))
                    || sk.port_is_reserved(candidate)
                {
                    continue;
                }
                let covered =
                    others.is_some_and(|p| p.holders.iter().any(|h| h.covers(&holder.claim)));
                if !tcp.is_none_or(|tcp| tcp.take(candidate, covered)) {
                    continue;
                }
                let r = self.claim(candidate, holder);
                if let (Err(_), Some(tcp)) = (&r, tcp) {
                    tcp.give();
                }
                return r.map(|()| candidate);
            }
        }
        Err(EADDRINUSE.into())
    }

    /// Adds a connection that a listener's port was used for.
    pub(in crate::socket) fn join(&mut self, sk: &SdpSock, port: u16) -> Result {
        let claim = Claim::new(sk);
        let node = RBTreeNode::new(sk.id(), claim, GFP_KERNEL)?;
        let at = self.port(port)?;
        match at.accepted.iter_mut().find(|(c, _)| *c == claim) {
            Some((_, count)) => *count += 1,
            None => at.accepted.push((claim, 1), GFP_KERNEL)?,
        }
        self.accepted.insert(node);
        Ok(())
    }

    /// The port's entry. One without a holder may stay if the caller fails: it keeps nobody away.
    fn port(&mut self, port: u16) -> Result<&mut Port> {
        if self.table.get(&port).is_none() {
            self.table
                .insert(RBTreeNode::new(port, Port::new(), GFP_KERNEL)?);
        }
        self.table.get_mut(&port).ok_or(ENOMEM.into())
    }

    /// Enters a holder.
    fn claim(&mut self, port: u16, holder: Holder) -> Result {
        let at = self.port(port)?;
        if !at.admits(holder.id, &holder.claim) {
            return Err(EADDRINUSE.into());
        }
        at.holders.push(holder, GFP_KERNEL)?;
        Ok(())
    }

    /// The socket listens now, or no longer.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if somebody else listens there; `ENOMEM`.
    pub(in crate::socket) fn listening(&mut self, sk: &SdpSock) -> Result {
        let (id, port) = (sk.id(), sk.port());
        let new = Holder::new(sk);
        let Some(at) = self.table.get_mut(&port) else {
            return Err(EINVAL.into());
        };
        if new.listener.is_some() {
            // a connection that was accepted has ended, and its socket listens itself
            if self.accepted.get(&id).is_some() {
                at.holders.push(Holder::new(sk), GFP_KERNEL)?;
                let claim = self.accepted.remove(&id);
                claim.iter().for_each(|claim| at.left(claim));
            }
            if !at.admits(id, &new.claim) {
                return Err(EADDRINUSE.into());
            }
        }
        if let Some(h) = at.holders.iter_mut().find(|h| h.id == id) {
            *h = new;
        }
        Ok(())
    }

    /// Takes back what a socket holds.
    pub(in crate::socket) fn release(&mut self, id: usize, port: u16) {
        if let (Some(claim), Some(at)) = (self.accepted.remove(&id), self.table.get_mut(&port)) {
            at.left(&claim);
        }
        self.retain(port, |h| h.id != id)
    }

    /// A socket has become TCP's. If it connects, it keeps its destination by this port from others:
    /// no peer is to see two connections that come from one address and port.
    pub(in crate::socket) fn crossed(&mut self, id: usize, port: u16) {
        self.let_go_of_tcp(id, port);
        self.retain(port, |h| h.id != id || h.claim.to.is_some())
    }

    /// The TCP socket of a socket is going to have TCP's port no more, or to be somebody else's.
    pub(in crate::socket) fn let_go_of_tcp(&mut self, id: usize, port: u16) {
        let holders = self
            .table
            .get_mut(&port)
            .into_iter()
            .flat_map(|p| &mut p.holders);
        holders
            .filter(|h| h.id == id)
            .for_each(|h| h.holds_tcp = false);
    }

    fn retain(&mut self, port: u16, keep: impl Fn(&Holder) -> bool) {
        let Some(at) = self.table.get_mut(&port) else {
            return;
        };
        at.holders.retain(|h| keep(h));
        if at.holders.is_empty() && at.accepted.is_empty() {
            self.table.remove(&port);
        }
    }

    /// Returns the listener for connections to `ip` and `port` by what its interface takes. Of several
    /// (`SO_REUSEPORT`), `hash` chooses, all values of which are equally likely.
    pub(in crate::socket) fn listener(
        &self,
        port: u16,
        ip: IpAddr,
        takes: impl Fn(i32) -> bool,
        hash: u32,
    ) -> Option<ARef<SdpSock>> {
        let holders = &self.table.get(&port)?.holders;
        let fit = |h: &Holder| h.listener.as_ref().and_then(|_| h.claim.fits(ip, &takes));
        let best = holders.iter().filter_map(fit).max()?;
        let equal = || holders.iter().filter(|h| fit(h) == Some(best));
        // the high half of the product is hash / 2^32 of the count
        let nth = (u64::from(hash) * equal().count() as u64) >> 32;
        equal().nth(nth as usize).and_then(|h| h.listener.clone())
    }
}

/// The host that a connection to an address goes to: to no address is to this one, as on TCP.
fn host(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(a) if a.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(a) if a.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

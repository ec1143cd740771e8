// SPDX-License-Identifier: GPL-2.0-only

//! Ports of a network namespace and their holders.
//!
//! SDP has its own port space, in which families 27 and 28 share one table. The rules for ports are
//! TCP's (`SO_REUSEADDR`, `SO_REUSEPORT`, wildcards, `IPV6_V6ONLY`, ephemeral and reserved ports).
//!
//! A port that connect(2) has chosen is shared by connections to different destinations, whose TCP
//! sockets hold the same port number in TCP. TCP can reuse a shared port once its last holder
//! releases it.

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

/// Claim to a port: the local address, and the conditions for sharing the port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    ip: IpAddr,
    /// True for an IPv6 wildcard that excludes IPv4.
    v6_only: bool,
    /// Index of the bound interface, 0 for any.
    interface: i32,
    reuse_address: bool,
    reuse_port: bool,
    uid: u32,
    /// True for a socket of messages.
    messages: bool,
    /// Host and port of the destination, if connect(2) has chosen the port for it alone.
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
            messages: sk.is_seqpacket(),
            to: None,
        }
    }

    /// Returns true if one local address can match both claims.
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

    /// Returns true if no connection can match both claims.
    fn is_apart(&self, other: &Claim) -> bool {
        let elsewhere = self.to.is_some() && other.to.is_some() && self.to != other.to;
        elsewhere || !self.overlaps(other)
    }

    /// Returns true if both claims may share the port. `listens`: the other socket listens.
    fn gets_along(&self, other: &Claim, listens: bool) -> bool {
        (self.reuse_address && other.reuse_address && !listens)
            || (self.reuse_port && other.reuse_port && self.uid == other.uid)
            || self.is_apart(other)
    }

    /// Returns a score if a listener accepts connections to `ip`; a higher score is a better match.
    fn fits(&self, ip: IpAddr, takes: impl Fn(i32) -> bool) -> Option<(u8, bool)> {
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
        Some((address, self.interface != 0))
    }
}

/// A socket that holds a port.
struct Holder {
    port: u16,
    claim: Claim,
    /// True if the socket's TCP socket holds the same port number in TCP.
    holds_tcp: bool,
    listens: bool,
}

/// Sockets of one port with equal claims. One user may have any number of sockets in a group.
#[derive(Default)]
struct Group {
    sockets: usize,
    /// Number of sockets with `holds_tcp`.
    tcp: usize,
    /// Number of listening sockets; `listeners` contains these sockets by id.
    listening: usize,
    listeners: RBTree<usize, ARef<SdpSock>>,
}

/// Sockets of one port.
type Port = RBTree<Claim, Group>;

/// Returns true if TCP's port is held by a socket with a claim to the same local address.
fn is_covered(port: &Port, claim: &Claim) -> bool {
    let at = |c: &Claim| (c.ip, c.v6_only, c.interface);
    port.iter().any(|(c, g)| g.tcp > 0 && at(c) == at(claim))
}

/// Ports of one namespace.
#[derive(Default)]
pub(in crate::socket) struct Ports {
    table: RBTree<u16, Port>,
    /// Sockets by their id.
    holders: RBTree<usize, Holder>,
}

impl Ports {
    pub(in crate::socket) fn take(&mut self, sk: &SdpSock, port: u16) -> Result {
        self.claim(sk, port, Claim::new(sk), false)
    }

    /// Assigns a free port to a socket; for connect(2), also a port used only by connections to
    /// other destinations. With `tcp`, the socket's TCP socket gets the same port number. As on
    /// TCP, connect(2) first tries ports with the parity of the range's start; bind(2) and
    /// listen(2) first try the other ports.
    pub(in crate::socket) fn choose(
        &mut self,
        sk: &SdpSock,
        to: Option<&Address>,
        tcp: Option<&TcpPorts<'_>>,
    ) -> Result<u16> {
        let mut claim = Claim::new(sk);
        claim.to = to.map(|a| (host(a.ip), a.port));
        let connects = to.is_some();
        let (low, high) = sk.port_range();
        for odd in [usize::from(!connects), usize::from(connects)] {
            let half = (low..=high).skip(odd).step_by(2);
            // as on TCP, the next port cannot be guessed from the last one
            let start = random_below(half.len() as u32) as usize;
            let later = half.clone().skip(start);
            for candidate in Iterator::chain(later, half.take(start)) {
                // sharing depends on the port number alone, not on the address
                let others = self.table.get(&candidate);
                if !others.is_none_or(|p| p.keys().all(|c| claim.is_apart(c)))
                    || sk.port_is_reserved(candidate)
                {
                    continue;
                }
                let covered = others.is_some_and(|p| is_covered(p, &claim));
                if !tcp.is_none_or(|tcp| tcp.take(candidate, covered)) {
                    continue;
                }
                let r = self.claim(sk, candidate, claim, tcp.is_some());
                if let (Err(_), Some(tcp)) = (&r, tcp) {
                    tcp.give();
                }
                return r.map(|()| candidate);
            }
        }
        Err(EADDRINUSE.into())
    }

    /// Adds a connection that uses a listener's port.
    pub(in crate::socket) fn join(&mut self, sk: &SdpSock, port: u16) -> Result {
        self.enter(sk, port, Claim::new(sk), false)
    }

    /// Adds a socket to a port unless another socket excludes it.
    fn claim(&mut self, sk: &SdpSock, port: u16, claim: Claim, holds_tcp: bool) -> Result {
        if !self.admits(sk.id(), port, &claim) {
            return Err(EADDRINUSE.into());
        }
        self.enter(sk, port, claim, holds_tcp)
    }

    /// Returns true if no socket except `id` excludes the claim.
    fn admits(&self, id: usize, port: u16, claim: &Claim) -> bool {
        let own = self.holders.get(&id).filter(|h| h.port == port);
        let mut groups = self.table.get(&port).into_iter().flatten();
        groups.all(|(c, g)| {
            let own = own.filter(|h| h.claim == *c);
            let listens = own.is_some_and(|h| h.listens);
            g.sockets <= usize::from(own.is_some())
                || claim.gets_along(c, g.listening > usize::from(listens))
        })
    }

    /// Adds a socket to a port, replacing its former claim.
    ///
    /// `ENOMEM`: the socket keeps its former claim.
    fn enter(&mut self, sk: &SdpSock, port: u16, claim: Claim, holds_tcp: bool) -> Result {
        let (id, listens) = (sk.id(), sk.state() == State::Listen);
        let holder = Holder {
            port,
            claim,
            holds_tcp,
            listens,
        };
        let holder = RBTreeNode::new(id, holder, GFP_KERNEL)?;
        let listener = RBTreeNode::new(id, sk.into(), GFP_KERNEL)?;
        // the new claim is counted before the old entry and its group are removed
        let group = self.group(port, &claim)?;
        group.sockets = group.sockets.saturating_add(1);
        self.release(id);
        let group = self.group(port, &claim)?;
        group.tcp = group.tcp.saturating_add(holds_tcp.into());
        if listens {
            group.listening = group.listening.saturating_add(1);
            group.listeners.insert(listener);
        }
        self.holders.insert(holder);
        Ok(())
    }

    /// Returns the group of a claim. An empty group, left if the caller fails, is harmless.
    fn group(&mut self, port: u16, claim: &Claim) -> Result<&mut Group> {
        if self.table.get(&port).is_none() {
            self.table
                .insert(RBTreeNode::new(port, Port::new(), GFP_KERNEL)?);
        }
        let at = self.table.get_mut(&port).ok_or(ENOMEM)?;
        if at.get(claim).is_none() {
            at.insert(RBTreeNode::new(*claim, Group::default(), GFP_KERNEL)?);
        }
        at.get_mut(claim).ok_or(ENOMEM.into())
    }

    /// Returns the entry of a socket, and its group.
    fn held(&mut self, id: usize) -> Option<(&mut Holder, &mut Group)> {
        let holder = self.holders.get_mut(&id)?;
        let group = self.table.get_mut(&holder.port)?.get_mut(&holder.claim)?;
        Some((holder, group))
    }

    /// Records whether the socket listens.
    ///
    /// `EADDRINUSE`: the port has another listener. `ENOMEM`.
    pub(in crate::socket) fn listening(&mut self, sk: &SdpSock) -> Result {
        let id = sk.id();
        if sk.state() != State::Listen {
            self.ends_listening(id);
            return Ok(());
        }
        let held = self.holders.get(&id).map(|h| (h.port, h.holds_tcp));
        let (port, holds_tcp) = held.ok_or(EINVAL)?;
        self.claim(sk, port, Claim::new(sk), holds_tcp)
    }

    fn ends_listening(&mut self, id: usize) {
        if let Some((holder, group)) = self.held(id).filter(|(h, _)| h.listens) {
            holder.listens = false;
            group.listening = group.listening.saturating_sub(1);
            group.listeners.remove(&id);
        }
    }

    pub(in crate::socket) fn release(&mut self, id: usize) {
        self.ends_listening(id);
        self.let_go_of_tcp(id);
        let Some((_, group)) = self.held(id) else {
            return;
        };
        group.sockets = group.sockets.saturating_sub(1);
        let last = group.sockets == 0;
        let Some(Holder { port, claim, .. }) = self.holders.remove(&id) else {
            return;
        };
        let Some(at) = self.table.get_mut(&port).filter(|_| last) else {
            return;
        };
        at.remove(&claim);
        if at.is_empty() {
            self.table.remove(&port);
        }
    }

    /// Marks a socket as switched to TCP. While the socket connects, its port and destination stay
    /// reserved: a peer must not see two connections from one address and port.
    pub(in crate::socket) fn crossed(&mut self, id: usize) {
        self.let_go_of_tcp(id);
        let connects = |h: &Holder| h.claim.to.is_some();
        if !self.holders.get(&id).is_some_and(connects) {
            self.release(id);
        }
    }

    /// Records that the TCP socket no longer holds TCP's port.
    pub(in crate::socket) fn let_go_of_tcp(&mut self, id: usize) {
        if let Some((holder, group)) = self.held(id).filter(|(h, _)| h.holds_tcp) {
            holder.holds_tcp = false;
            group.tcp = group.tcp.saturating_sub(1);
        }
    }

    /// Returns the listener for connections to this address on an interface that `takes` accepts.
    /// `messages`: a listener of `SOCK_SEQPACKET`. With `SO_REUSEPORT`, selects a listener by
    /// `hash`, which must be uniformly distributed.
    pub(in crate::socket) fn listener(
        &self,
        Address { ip, port, .. }: Address,
        messages: bool,
        takes: impl Fn(i32) -> bool,
        hash: u32,
    ) -> Option<ARef<SdpSock>> {
        let port = self.table.get(&port)?;
        let listens = |c: &Claim, g: &Group| g.listening > 0 && c.messages == messages;
        let listening = || port.iter().filter(|(c, g)| listens(c, g));
        let fit = |c: &Claim| c.fits(ip, &takes);
        let best = listening().filter_map(|(c, _)| fit(c)).max()?;
        let equal = || listening().filter(|(c, _)| fit(c) == Some(best));
        let count: u64 = equal().map(|(_, g)| g.listening as u64).sum();
        // the high half of the product is the count times hash / 2^32
        let nth = u64::from(hash).saturating_mul(count) >> 32;
        let mut each = equal().flat_map(|(_, g)| g.listeners.values());
        each.nth(nth as usize).cloned()
    }
}

/// Returns the host of a destination: the unspecified address is this host, as on TCP.
fn host(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(a) if a.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(a) if a.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Connection manager part of a connection. Checks that an upcall belongs to the current
//! connection, since the socket may have begun another connection before a late upcall.

use super::local::{Local, LocalLink, LocalRequest};
use super::timers::Timer;
use super::zcopy::Zcopy;
use super::{Connection, SdpSock, JOB_FINISH};
use crate::sys::address::Address;
use crate::sys::errno::{Errno, EAGAIN, ECONNABORTED, EMSGSIZE, ETIMEDOUT};
use crate::sys::time::{jiffies, Jiffies};
use crate::transport::{CmLink, Endpoint, LinkId, Resolver, Upcalls};
use kernel::sync::Arc;

/// Maximum number of rejects for stale connections in one connect attempt. Each reject destroys one
/// stale connection at the peer.
const MOST_STALE: u8 = 64;
/// Maximum number of retries with a smaller path MTU: five sizes exist, 256 to 4096 bytes.
const MOST_MTU_STEPS: u8 = 4;
/// Maximum number of retries of requests whose connection ended without a reply.
const MOST_RESETS: u8 = 4;

/// Address resolver and CM link of a connection. Protected by the connection's spinlock.
#[derive(Default)]
pub(crate) struct Cm {
    /// CM link of the connection request or reply.
    pub(crate) link: Option<Arc<CmLink<SdpSock>>>,
    /// Resolver of the peer's address and route, until the connection request is sent.
    pub(crate) resolver: Option<Arc<Resolver<SdpSock>>>,
    /// Request to repeat, since the backlog of the listener in this namespace was full.
    pub(crate) repeated: Option<LocalRequest>,
    /// Destination and interface of the last connect(2).
    target: Option<Address>,
    /// Time of the last connect(2).
    since: Jiffies,
    /// Number of rejects because of stale connections.
    stale: u8,
    /// Number of rejects of the path MTU: steps of the next request's MTU below the route's MTU.
    pub(super) mtu_steps: u8,
    /// Number of requests that ended without a reply.
    resets: u8,
}

/// Objects of a closed connection that are still to be destroyed.
#[must_use]
pub(crate) struct Detached {
    _endpoint: Option<Endpoint>,
    local: Option<Arc<LocalLink>>,
    _resolver: Option<Arc<Resolver<SdpSock>>>,
    link: Option<Arc<CmLink<SdpSock>>>,
}

impl Detached {
    /// Allows the drop to complete without the reply to DREQ ([`CmLink::give_up`]).
    pub(crate) fn give_up(&self) {
        if let Some(link) = &self.link {
            link.give_up();
        }
    }

    /// Drops the detached objects. Context: process, without the locks that upcalls take.
    pub(crate) fn destroy(self) {
        if let Some(link) = self.local {
            link.peer.disconnected(link.id, true);
        }
    }
}

impl Cm {
    /// Starts resolving the peer's address, for connect(2).
    pub(crate) fn search(&mut self, to: Address, resolver: Option<Arc<Resolver<SdpSock>>>) {
        (self.target, self.since) = (Some(to), jiffies());
        (self.stale, self.mtu_steps, self.resets) = (0, 0, 0);
        self.resolver = resolver;
    }

    /// Returns the rest of the `time` after connect(2).
    pub(crate) fn time_left(&self, time: Jiffies) -> Jiffies {
        time.saturating_sub(jiffies().wrapping_sub(self.since))
    }

    /// Returns the index of the interface to connect through, 0 for any.
    pub(crate) fn device(&self) -> u32 {
        self.target.map_or(0, |to| to.scope)
    }

    /// Counts a reject because of the path MTU (`EMSGSIZE`), a full backlog (`EAGAIN`), a stale
    /// connection, or a request without a reply (`ECONNABORTED`). `time` limits all retries of a
    /// connect(2). Returns the destination of the next request, if any.
    pub(crate) fn retry_with(&mut self, why: Errno, time: Jiffies) -> Option<Address> {
        let (count, most) = match why {
            EMSGSIZE => (&mut self.mtu_steps, MOST_MTU_STEPS),
            EAGAIN | ETIMEDOUT => (&mut 0, u8::MAX),
            ECONNABORTED => (&mut self.resets, MOST_RESETS),
            _ => (&mut self.stale, MOST_STALE),
        };
        let may = *count < most;
        *count = count.saturating_add(1);
        self.target.filter(|_| may && self.time_left(time) > 0)
    }

    /// Returns the socket's current resolver, if `search` is the ID of this resolver.
    pub(crate) fn resolver(&self, search: LinkId) -> Option<Arc<Resolver<SdpSock>>> {
        self.resolver.as_ref().filter(|r| r.id() == search).cloned()
    }

    /// Returns true if the link belongs to the current connection.
    pub(crate) fn is_of(&self, link: LinkId) -> bool {
        self.link.as_ref().is_some_and(|l| l.id() == link)
    }

    /// Returns true if the resolver belongs to the current connect attempt.
    pub(crate) fn is_by(&self, search: LinkId) -> bool {
        self.resolver.as_ref().is_some_and(|r| r.id() == search)
    }

    /// Returns true if the link or resolver belongs to the current connection or attempt.
    pub(crate) fn is_at(&self, id: LinkId) -> bool {
        self.is_by(id) || self.is_of(id)
    }
}

impl SdpSock {
    /// Handles the end of a local stream, once all bytes of the stream are in the peer's buffer.
    pub(super) fn fin_arrives(&self, link: LinkId) {
        let mut c = self.connection();
        let (connection, wakeups, sk) = c.split();
        let link = connection.living_link().filter(|l| l.id == link);
        let arrived = link.is_some_and(|l| l.has_arrived());
        if arrived && !connection.closing.fin_acked {
            connection.fin_acked(sk, wakeups);
        }
    }
}

impl Connection {
    /// Returns the local link while the connection lives.
    pub(crate) fn living_link(&self) -> Option<&Arc<LocalLink>> {
        self.local.as_ref().and_then(Local::living)
    }

    /// Returns true if the link belongs to the current connection.
    pub(crate) fn is_of(&self, link: LinkId) -> bool {
        self.cm.is_of(link) || self.living_link().is_some_and(|l| l.id == link)
    }

    /// Returns true if neither a connection nor an attempt to connect is left.
    pub(crate) fn is_idle(&self) -> bool {
        let cm = &self.cm;
        cm.link.is_none()
            && cm.resolver.is_none()
            && cm.repeated.is_none()
            && self.living_link().is_none()
    }

    /// Removes all objects of the connection, which the caller destroys without the lock.
    pub(crate) fn detach(&mut self) -> Detached {
        self.zcopy.with(Zcopy::lost);
        self.rx_buffers.clear();
        self.tx.clear();
        self.timers.clear(Timer::Cork);
        self.cm.repeated = None;
        Detached {
            _endpoint: self.endpoint.take(),
            local: self.local.as_mut().and_then(Local::end),
            _resolver: self.cm.resolver.take(),
            link: self.cm.link.take(),
        }
    }
}

impl SdpSock {
    /// Disconnects after the end of both streams, or at close. Context: process, lock not held.
    pub(super) fn start_disconnect(&self) {
        let (link, local) = {
            let c = self.connection();
            let local = c.living_link().map(|l| l.id);
            if (c.cm.link.is_some() || local.is_some()) && !c.closing.has_begun() {
                // the socket has another connection already
                return;
            }
            (c.cm.link.clone(), local)
        };
        match (link, local) {
            (Some(link), _) => link.disconnect(),
            (None, Some(id)) => self.disconnected(id, false),
            (None, None) => self.schedule(JOB_FINISH),
        }
    }

    /// Notifies the peer of a local stream's end. Context: process, connection's lock not held.
    pub(super) fn send_fin(&self) {
        let Some(link) = self.with(|c| c.living_link().cloned()) else {
            return;
        };
        self.fin_arrives(link.id);
        let peer = &link.peer;
        let mut c = peer.connection();
        if c.is_of(link.id) {
            let (connection, wakeups, _) = c.split();
            connection.take_fin(peer, wakeups);
        }
    }
}

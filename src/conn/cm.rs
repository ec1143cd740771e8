// SPDX-License-Identifier: GPL-2.0-only

//! The connection manager's side of a connection. Checks that an upcall belongs to the current
//! connection: the socket may have begun another one before a late upcall.

use super::timers::Timer;
use super::zcopy::Zcopy;
use super::{Connection, SdpSock, JOB_FINISH};
use crate::sys::address::Address;
use crate::sys::time::{is_past, jiffies, seconds, Jiffies};
use crate::transport::{Attempt, CmLink, Endpoint, LinkId, Resolver, ResolverId};

/// Maximum number of rejects because of a stale connection in one connect attempt. Each reject
/// destroys one stale connection at the peer.
const MOST_STALE: u8 = 64;
/// Maximum number of retries with a smaller path MTU: five sizes exist, 256 to 4096 bytes.
const MOST_MTU_STEPS: u8 = 4;
/// Time limit of all requests of one attempt.
const STALE_TIME: Jiffies = seconds(24);

/// Resolver and link of a connection. Protected by the connection's spinlock.
pub(crate) struct Cm {
    /// Dropped when no longer needed.
    link: Option<CmLink<SdpSock>>,
    /// Resolves address and route of the peer, until the request is sent.
    resolver: Option<Resolver<SdpSock>>,
    /// Destination of the last connect(2), with its interface.
    target: Option<Address>,
    /// Time of the last connect(2).
    since: Jiffies,
    /// Number of rejects because of stale connections.
    stale: u8,
    /// Number of times that the peer has refused the path MTU.
    mtu_steps: u8,
}

/// Objects of a closed connection that remain below the socket.
#[must_use]
pub(crate) struct Detached {
    endpoint: Option<Endpoint>,
    resolver: Option<Resolver<SdpSock>>,
    link: Option<CmLink<SdpSock>>,
}

impl Detached {
    /// See [`CmLink::give_up`].
    pub(crate) fn give_up(&self) {
        if let Some(link) = &self.link {
            link.give_up();
        }
    }

    /// Drops them. Context: process, without the locks that upcalls take.
    pub(crate) fn destroy(self) {
        drop(self.resolver);
        if let Some(endpoint) = self.endpoint {
            endpoint.destroy();
        }
        if let Some(link) = self.link {
            link.destroy();
        }
    }
}

impl Cm {
    pub(super) const fn new() -> Self {
        Cm {
            link: None,
            resolver: None,
            target: None,
            since: 0,
            stale: 0,
            mtu_steps: 0,
        }
    }

    /// Starts resolving the peer's address, for connect(2).
    pub(crate) fn search(&mut self, to: Address, resolver: Resolver<SdpSock>) {
        (self.target, self.since) = (Some(to), jiffies());
        (self.stale, self.mtu_steps) = (0, 0);
        self.resolver = Some(resolver);
    }

    /// Returns the index of the interface to connect through, 0 for any.
    pub(crate) fn device(&self) -> u32 {
        self.target.map_or(0, |to| to.scope)
    }

    /// Resolves the same address again.
    pub(crate) fn search_again(&mut self, resolver: Resolver<SdpSock>) {
        self.resolver = Some(resolver);
    }

    /// Counts a reject because of a stale connection or, with `mtu`, because of the path MTU.
    /// Returns the destination of the next request; `None` after too many rejects.
    pub(crate) fn retry_with(&mut self, mtu: bool) -> Option<Address> {
        let (count, most) = match mtu {
            true => (&mut self.mtu_steps, MOST_MTU_STEPS),
            false => (&mut self.stale, MOST_STALE),
        };
        if *count >= most || is_past(self.since.wrapping_add(STALE_TIME)) {
            return None;
        }
        *count = count.saturating_add(1);
        self.target
    }

    /// Returns the number of steps by which the next request's path MTU is below the route's.
    pub(crate) fn mtu_steps(&self) -> u8 {
        self.mtu_steps
    }

    /// Returns the resolver with this id, if it is still the socket's.
    pub(crate) fn resolver(&self, search: ResolverId) -> Option<Resolver<SdpSock>> {
        self.resolver.as_ref().filter(|r| r.id() == search).cloned()
    }

    /// Cancels the resolver.
    #[must_use]
    pub(crate) fn end_search(&mut self) -> Option<Resolver<SdpSock>> {
        self.resolver.take()
    }

    /// Stores the link of a request or reply.
    pub(crate) fn begin(&mut self, link: CmLink<SdpSock>) {
        self.link = Some(link);
    }

    pub(crate) fn link(&self) -> Option<&CmLink<SdpSock>> {
        self.link.as_ref()
    }

    /// Returns true if the link is closed.
    pub(crate) fn is_idle(&self) -> bool {
        self.link.is_none() && self.resolver.is_none()
    }

    /// Returns true if the link belongs to the current connection.
    pub(crate) fn is_of(&self, link: LinkId) -> bool {
        self.link.as_ref().is_some_and(|l| l.id() == link)
    }

    /// Returns true if the resolver belongs to the current connect attempt.
    pub(crate) fn is_by(&self, search: ResolverId) -> bool {
        self.resolver.as_ref().is_some_and(|r| r.id() == search)
    }

    /// Returns true if a device-removal upcall is about the current connection or attempt.
    pub(crate) fn is_at(&self, attempt: Attempt) -> bool {
        match attempt {
            Attempt::Search(search) => self.is_by(search),
            Attempt::Link(link) => self.is_of(link),
        }
    }
}

impl Connection {
    /// Takes all objects of the connection out of the socket, to be destroyed without the lock.
    pub(crate) fn detach(&mut self) -> Detached {
        self.zcopy.with(Zcopy::lost);
        self.rx_buffers.clear();
        self.tx.clear();
        self.timers.clear(Timer::Cork);
        self.timers.clear(Timer::Kick);
        Detached {
            endpoint: self.endpoint.take(),
            resolver: self.cm.resolver.take(),
            link: self.cm.link.take(),
        }
    }
}

impl SdpSock {
    /// Disconnects once both streams have ended, or the socket is closed. Context: process, without
    /// the lock.
    pub(super) fn start_disconnect(&self) {
        let link = {
            let c = self.connection();
            if c.cm.link().is_some() && !c.closing.has_begun() {
                // the socket has another connection already
                return;
            }
            c.cm.link().cloned()
        };
        match link {
            Some(link) => link.disconnect(),
            None => self.schedule(JOB_FINISH),
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! The connection manager's side of a connection, and whether news are of this one: they may come when the
//! socket has begun another by then.

use super::timers::Timer;
use super::{Connection, SdpSock, JOB_FINISH};
use crate::sys::net::address::Address;
use crate::sys::time::{is_past, jiffies, seconds, Jiffies};
use crate::transport::{Attempt, CmLink, Endpoint, LinkId, Resolver, ResolverId};

/// Requests of one attempt that a peer may refuse because of connections from before a crash. Each
/// refusal ends one of those.
const MOST_STALE: u8 = 64;
/// And the time that they may take.
const STALE_TIME: Jiffies = seconds(24);

/// What finds the peer, asks it and is told of the end. Protected by the connection's spinlock.
pub(crate) struct Cm {
    /// Dropped when it has nothing more to do.
    link: Option<CmLink<SdpSock>>,
    /// Finds address and route of the peer, until the request was sent.
    resolver: Option<Resolver<SdpSock>>,
    /// Where the last connect(2) was to go, with its interface.
    target: Option<Address>,
    /// When it was asked for.
    since: Jiffies,
    /// How often the peer has refused because of a connection from before.
    stale: u8,
}

/// What there is of a connection below the socket.
#[must_use]
pub(crate) struct Below {
    endpoint: Option<Endpoint>,
    resolver: Option<Resolver<SdpSock>>,
    link: Option<CmLink<SdpSock>>,
}

impl Below {
    /// See [`CmLink::give_up`].
    pub(crate) fn give_up(&self) {
        if let Some(link) = &self.link {
            link.give_up();
        }
    }

    /// Lets go of it, in process context. Of the locks that events take none is held.
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
    /// Of a socket that was never connected.
    pub(super) const fn new() -> Self {
        Cm {
            link: None,
            resolver: None,
            target: None,
            since: 0,
            stale: 0,
        }
    }

    /// Looks for a peer, for connect(2).
    pub(crate) fn search(&mut self, to: Address, resolver: Resolver<SdpSock>) {
        (self.target, self.since, self.stale) = (Some(to), jiffies(), 0);
        self.resolver = Some(resolver);
    }

    /// Looks for the same peer once more.
    pub(crate) fn search_again(&mut self, resolver: Resolver<SdpSock>) {
        self.resolver = Some(resolver);
    }

    /// The peer has a connection from before: where to ask it again; `None` if that was done too often.
    pub(crate) fn ask_anew(&mut self) -> Option<Address> {
        if self.stale >= MOST_STALE || is_past(self.since.wrapping_add(STALE_TIME)) {
            return None;
        }
        self.stale += 1;
        self.target
    }

    /// The search with this number, if it is still the socket's.
    pub(crate) fn resolver(&self, search: ResolverId) -> Option<Resolver<SdpSock>> {
        self.resolver.as_ref().filter(|r| r.id() == search).cloned()
    }

    /// Gives up the search.
    #[must_use]
    pub(crate) fn end_search(&mut self) -> Option<Resolver<SdpSock>> {
        self.resolver.take()
    }

    /// A request or its answer goes out by this link.
    pub(crate) fn begin(&mut self, link: CmLink<SdpSock>) {
        self.link = Some(link);
    }

    /// The link.
    pub(crate) fn link(&self) -> Option<&CmLink<SdpSock>> {
        self.link.as_ref()
    }

    /// Whether nothing will come of it any more.
    pub(crate) fn is_idle(&self) -> bool {
        self.link.is_none() && self.resolver.is_none()
    }

    /// Whether news of a link are of this connection, and not of one that the socket had before.
    pub(crate) fn is_of(&self, link: LinkId) -> bool {
        self.link.as_ref().is_some_and(|l| l.id() == link)
    }

    /// Whether what a resolver has found is for this attempt to connect, and not for one before.
    pub(crate) fn is_by(&self, search: ResolverId) -> bool {
        self.resolver.as_ref().is_some_and(|r| r.id() == search)
    }

    /// Whether a device's removal ends this connection or attempt, and not one before.
    pub(crate) fn is_at(&self, attempt: Attempt) -> bool {
        match attempt {
            Attempt::Search(search) => self.is_by(search),
            Attempt::Link(link) => self.is_of(link),
        }
    }
}

impl Connection {
    /// Gives away everything of the connection below the socket, to be destroyed without the lock.
    pub(crate) fn detach(&mut self) -> Below {
        self.direct.lost();
        self.rx_buffers.clear();
        self.tx.clear();
        self.timers.clear(Timer::Cork);
        self.timers.clear(Timer::Kick);
        Below {
            endpoint: self.endpoint.take(),
            resolver: self.cm.resolver.take(),
            link: self.cm.link.take(),
        }
    }
}

impl SdpSock {
    /// Takes the connection down: both streams have ended, or nobody waits for that any more. In process
    /// context, without the lock.
    pub(super) fn start_disconnect(&self) {
        let link = {
            let c = self.connection();
            if c.cm.link().is_some() && !c.closing.has_begun() {
                // the socket has another connection by now
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

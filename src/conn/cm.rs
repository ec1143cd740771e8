// SPDX-License-Identifier: GPL-2.0-only

//! The connection manager's side of a connection, and whether news are of this one: they may come when the
//! socket has begun another by then.

use super::timers::Timer;
use super::{Connection, SdpSock};
use crate::sys::net::address::Address;
use crate::sys::time::Jiffies;
use crate::transport::{Attempt, Channel, Link, LinkId, Resolver, SearchId};

/// Where the last connect(2) was to go. Protected by the connection's spinlock.
pub(crate) struct Target {
    /// With its interface.
    pub(crate) address: Option<Address>,
    /// When it was asked for.
    pub(crate) since: Jiffies,
    /// How often it has refused because of a connection from before.
    pub(crate) stale: u8,
}

impl Target {
    /// Of a socket that was never connected.
    pub(crate) const fn new() -> Self {
        Target {
            address: None,
            since: 0,
            stale: 0,
        }
    }
}

/// What there is of a connection below the socket.
pub(crate) type Below = (
    Option<Channel>,
    Option<Resolver<SdpSock>>,
    Option<Link<SdpSock>>,
);

impl Connection {
    /// Whether news of a link are of this connection, and not of one that the socket had before.
    pub(crate) fn is_of(&self, link: LinkId) -> bool {
        self.link.as_ref().is_some_and(|l| l.id() == link)
    }

    /// Whether what a resolver has found is for this attempt to connect, and not for one before.
    pub(crate) fn is_by(&self, search: SearchId) -> bool {
        self.resolver.as_ref().is_some_and(|r| r.id() == search)
    }

    /// Whether a device's removal ends this connection or attempt, and not one before.
    pub(crate) fn is_at(&self, attempt: Attempt) -> bool {
        match attempt {
            Attempt::Search(search) => self.is_by(search),
            Attempt::Link(link) => self.is_of(link),
        }
    }

    /// Gives away everything of the connection below the socket, to be dropped without the lock.
    #[must_use]
    pub(crate) fn let_go(&mut self) -> Below {
        self.direct.lost();
        self.rx_buffers.clear();
        self.tx.clear();
        self.timers.clear(Timer::Cork);
        self.timers.clear(Timer::Kick);
        (self.channel.take(), self.resolver.take(), self.link.take())
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Connections as they are made and ended, whichever transport does it.

use super::super::rdma::Service;
use super::super::{
    local, rdma, Config, LinkId, Net, ResolverId, Upcalls, Verdict, REPLY_DATA, REQUEST_DATA,
};
use super::Endpoint;
use crate::sys::address::Address;
use crate::sys::net::ip_route::IpRoute;
use crate::sys::net::params;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

/// `$call` of whichever transport it is.
macro_rules! either {
    ($self:expr, $c:ident => $call:expr) => {
        match $self {
            Self::Rdma($c) => $call,
            Self::Local($c) => $call,
        }
    };
}

/// One end of a connection as long as it is being made, is there, or is being ended. May be dropped
/// in any context; what is left to do then is done elsewhere.
pub(crate) enum CmLink<O: Upcalls> {
    /// By an RDMA device.
    Rdma(Arc<rdma::CmLink<O>>),
    /// Within this kernel.
    Local(Arc<local::CmLink<O>>),
}

impl<O: Upcalls> Clone for CmLink<O> {
    fn clone(&self) -> Self {
        match self {
            Self::Rdma(l) => Self::Rdma(l.clone()),
            Self::Local(l) => Self::Local(l.clone()),
        }
    }
}

impl<O: Upcalls> CmLink<O> {
    fn by_device(
        (endpoint, link): (rdma::Endpoint, Arc<rdma::CmLink<O>>),
    ) -> (Endpoint, CmLink<O>) {
        (Endpoint::by_device(endpoint), Self::Rdma(link))
    }

    fn here((endpoint, link): (local::Endpoint, Arc<local::CmLink<O>>)) -> (Endpoint, CmLink<O>) {
        (Endpoint::here(endpoint), Self::Local(link))
    }

    /// A message has come before [`Upcalls::established`]. May be called in any context.
    pub(crate) fn heard(&self) {
        match self {
            Self::Rdma(l) => l.heard(),
            // Nothing gets lost here: what tells that the peer is ready is under way.
            Self::Local(_) => (),
        }
    }

    /// Ends the connection at once, soon. May be called in any context.
    pub(crate) fn fail(&self) {
        either!(self, l => l.fail())
    }

    /// Ends the connection; [`Upcalls::disconnected`] follows. What was posted and is not complete
    /// may still complete until then. Process context.
    pub(crate) fn disconnect(&self) {
        either!(self, l => l.disconnect())
    }

    /// Drops it where one may sleep, without locks: what need not be left to a worker is done here.
    pub(crate) fn destroy(self) {
        match self {
            Self::Rdma(l) => drop(l),
            Self::Local(l) => l.destroy(),
        }
    }

    /// The peer's answer to the end was waited for long enough: the drop of the link does not wait for
    /// it any more, for as long as the peer itself has said that this may take.
    pub(crate) fn give_up(&self) {
        match self {
            Self::Rdma(l) => l.give_up(),
            // the peer is here
            Self::Local(_) => (),
        }
    }

    /// Which link this is, in upcalls to the owner.
    pub(crate) fn id(&self) -> LinkId {
        either!(self, l => l.id())
    }

    /// Whether its device is being removed. Whoever keeps a link asks once it is where
    /// [`Upcalls::device_removed`] finds it, because that may have come before.
    pub(crate) fn is_removing(&self) -> bool {
        match self {
            Self::Rdma(l) => l.is_removing(),
            Self::Local(_) => false,
        }
    }
}

/// One attempt to find the way to an address. May be dropped in any context.
pub(crate) enum Resolver<O: Upcalls> {
    /// By RDMA devices.
    Rdma(Arc<rdma::Resolver<O>>),
    /// It is known: the address is here.
    Local(Arc<local::Resolver<O>>),
}

impl<O: Upcalls> Clone for Resolver<O> {
    fn clone(&self) -> Self {
        match self {
            Self::Rdma(r) => Self::Rdma(r.clone()),
            Self::Local(r) => Self::Local(r.clone()),
        }
    }
}

impl<O: Upcalls> Resolver<O> {
    /// A resolver that has not begun, for a connection whose packets IP would send by `route`.
    pub(crate) fn new(net: &Net, owner: ARef<O>, route: IpRoute) -> Result<Self> {
        if route.is_local && params::local_transport() != 0 {
            return Ok(Self::Local(local::Resolver::new(net, owner, route)?));
        }
        Ok(Self::Rdma(rdma::Resolver::new(net, owner)?))
    }

    /// Which one this is, in upcalls to the owner.
    pub(crate) fn id(&self) -> ResolverId {
        either!(self, r => r.id())
    }

    /// Begins, once. `source` is where the connection comes from, if not from what the route says;
    /// ports do not matter. The result is told by
    /// [`Upcalls::resolved`], possibly before this returns.
    ///
    /// Either half of the search has `timeout_ms`. `tos` are the DSCP and ECN bits.
    pub(crate) fn start(
        &self,
        source: Option<&Address>,
        destination: &Address,
        timeout_ms: u32,
        tos: Option<u8>,
    ) -> Result {
        match self {
            Self::Rdma(r) => r.start(source, destination, timeout_ms, tos),
            Self::Local(r) => {
                r.start();
                Ok(())
            }
        }
    }

    /// The address that the connection comes from, with port 0. Known when resolved.
    pub(crate) fn source(&self) -> Result<Address> {
        match self {
            Self::Rdma(r) => r.source(),
            Self::Local(r) => Ok(r.source()),
        }
    }

    /// The interface by which the peer is reached, 0 if that is not known.
    pub(crate) fn ifindex(&self) -> u32 {
        either!(self, r => r.ifindex())
    }

    /// Whether the way goes over Ethernet (else it is InfiniBand, or none). Known when resolved.
    pub(crate) fn is_ethernet(&self) -> Result<bool> {
        match self {
            Self::Rdma(r) => Ok(!r.is_infiniband()?),
            Self::Local(_) => Ok(false),
        }
    }

    /// Makes the two halves of a connection that can be asked for. Receives can be posted.
    pub(crate) fn create(&self, config: &Config, owner: ARef<O>) -> Result<(Endpoint, CmLink<O>)> {
        match self {
            Self::Rdma(r) => Ok(CmLink::by_device(r.create(config, owner)?)),
            Self::Local(r) => Ok(CmLink::here(r.create(config, owner)?)),
        }
    }

    /// Asks the peer for the connection. The answer comes by [`Upcalls::replied`] or
    /// [`Upcalls::refused`], possibly before this returns. A `priority` chooses the service level.
    pub(crate) fn connect(
        &self,
        link: &CmLink<O>,
        port: u16,
        priority: Option<i32>,
        hello: &[u8; REQUEST_DATA],
    ) -> Result
    where
        O::Acceptor: Acceptor<O>,
    {
        match (self, link) {
            (Self::Rdma(r), CmLink::Rdma(l)) => r.connect(l, port, priority, hello),
            (Self::Local(r), CmLink::Local(l)) => r.connect::<O::Acceptor>(l, port, hello),
            _ => Err(EINVAL),
        }
    }
}

/// Who decides on requests.
pub(crate) trait Acceptor<O: Upcalls>: 'static {
    /// A connection is asked for. Called in process context, without locks but the socket lock of who asks from
    /// here; may sleep, but all connections of the host wait meanwhile.
    fn request(request: &Request<'_, O>) -> Verdict;
}

impl<O: Upcalls, A: Acceptor<O>> rdma::Acceptor<O> for A {
    fn request(request: &rdma::Request<'_, O>) -> Verdict {
        A::request(&Request::Rdma(request))
    }
}

impl<O: Upcalls, A: Acceptor<O>> local::Acceptor<O> for A {
    fn request(request: &local::Request<O>) -> Verdict {
        A::request(&Request::Local(request))
    }
}

/// A request for a connection, while the acceptor looks at it.
pub(crate) enum Request<'a, O: Upcalls> {
    /// By an RDMA device.
    Rdma(&'a rdma::Request<'a, O>),
    /// From within this kernel.
    Local(&'a local::Request<O>),
}

impl<O: Upcalls> Request<'_, O> {
    /// The network namespace that it is for.
    pub(crate) fn net(&self) -> &Net {
        either!(self, r => r.net())
    }

    /// The port that it is for.
    pub(crate) fn port(&self) -> u16 {
        either!(self, r => r.port())
    }

    /// The interface that it came in by.
    pub(crate) fn ifindex(&self) -> u32 {
        either!(self, r => r.ifindex())
    }

    /// What the peer says.
    pub(crate) fn hello(&self) -> &[u8; REQUEST_DATA] {
        either!(self, r => r.hello())
    }

    /// Whether it came over Ethernet (else by InfiniBand, or from here).
    pub(crate) fn is_ethernet(&self) -> bool {
        match self {
            Self::Rdma(r) => !r.is_infiniband(),
            Self::Local(_) => false,
        }
    }

    /// Would what we send from `local` to `remote` leave by the interface that this came in by?
    pub(crate) fn plausible(&self, local: &Address, remote: &Address) -> bool {
        match self {
            Self::Rdma(r) => r.plausible(local, remote),
            // It is ourselves who say so.
            Self::Local(_) => true,
        }
    }

    /// Makes both halves of the connection, once. Receives can be posted. Then comes
    /// [`Request::reply`].
    pub(crate) fn create(&self, config: &Config, owner: ARef<O>) -> Result<(Endpoint, CmLink<O>)> {
        match self {
            Self::Rdma(r) => Ok(CmLink::by_device(r.create(config, owner)?)),
            Self::Local(r) => Ok(CmLink::here(r.create(config, owner)?)),
        }
    }

    /// Accepts the connection. What comes of it is told by [`Upcalls::established`] or
    /// [`Upcalls::refused`]. Process context.
    pub(crate) fn reply(&self, link: &CmLink<O>, data: &[u8; REPLY_DATA]) -> Result {
        match link {
            CmLink::Rdma(l) => l.reply(data),
            CmLink::Local(l) => l.reply(data),
        }
    }
}

/// Goes into business, for the module's one kind of owner.
pub(crate) fn start<O: Upcalls>() -> Result<Service>
where
    O::Acceptor: Acceptor<O>,
{
    rdma::start::<O, O::Acceptor>()
}

/// Can connections be made from and to this address of the machine? Sleeps.
///
/// # Errors
///
/// What an RDMA device that does not have it says, such as `ENODEV` or `EADDRNOTAVAIL`; `ENOMEM`.
pub(crate) fn usable_address(net: &Net, address: &Address) -> Result {
    if params::local_transport() != 0 && net.is_local(address)? {
        return Ok(());
    }
    net.has_rdma(address)
}

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

/// One end of a connection, from its creation to its end. May be dropped in any context; a
/// workqueue does the rest.
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

    /// Records a message that arrived before [`Upcalls::established`]. Context: any.
    pub(crate) fn message_arrived(&self) {
        match self {
            Self::Rdma(l) => l.message_arrived(),
            // The other end always sends the event that replaces the RTU.
            Self::Local(_) => (),
        }
    }

    /// Schedules the end of the connection. Context: any.
    pub(crate) fn fail(&self) {
        either!(self, l => l.fail())
    }

    /// Ends the connection; [`Upcalls::disconnected`] follows. Posted requests may still complete
    /// until then. Context: process.
    pub(crate) fn disconnect(&self) {
        either!(self, l => l.disconnect())
    }

    /// Drops the link without leaving work to a worker, where possible. Context: process, may
    /// sleep, no locks.
    pub(crate) fn destroy(self) {
        match self {
            Self::Rdma(l) => drop(l),
            Self::Local(l) => l.destroy(),
        }
    }

    /// Stops the wait for the peer's reply to the disconnect. The drop of the link otherwise waits
    /// as long as the peer's CM timeout.
    pub(crate) fn give_up(&self) {
        match self {
            Self::Rdma(l) => l.give_up(),
            Self::Local(_) => (),
        }
    }

    pub(crate) fn id(&self) -> LinkId {
        either!(self, l => l.id())
    }

    /// Returns true if the device is being removed. The owner checks it once after storing the
    /// link: [`Upcalls::device_removed`] may have been called before.
    pub(crate) fn is_removing(&self) -> bool {
        match self {
            Self::Rdma(l) => l.is_removing(),
            Self::Local(_) => false,
        }
    }
}

/// Resolution of an address to a route. May be dropped in any context.
pub(crate) enum Resolver<O: Upcalls> {
    Rdma(Arc<rdma::Resolver<O>>),
    /// A local address.
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

    pub(crate) fn id(&self) -> ResolverId {
        either!(self, r => r.id())
    }

    /// Starts, once. `source` overrides the source address of the route; ports do not matter.
    /// [`Upcalls::resolved`] reports the result, possibly before this returns.
    ///
    /// Either half of the search has `timeout_ms`. `tos` are the DSCP and ECN bits.
    /// Begins after `pause` ms.
    pub(crate) fn start(
        &self,
        source: Option<&Address>,
        destination: &Address,
        timeout_ms: u32,
        tos: Option<u8>,
        pause: u32,
    ) -> Result {
        match self {
            Self::Rdma(r) => r.start(source, destination, timeout_ms, tos, pause),
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

    /// Returns true if the route uses Ethernet, false for InfiniBand or none. Valid once resolved.
    pub(crate) fn is_ethernet(&self) -> Result<bool> {
        match self {
            Self::Rdma(r) => Ok(!r.is_infiniband()?),
            Self::Local(_) => Ok(false),
        }
    }

    /// Creates both halves of a connection, for [`Resolver::connect`]. Receives can be posted.
    pub(crate) fn create(&self, config: &Config, owner: ARef<O>) -> Result<(Endpoint, CmLink<O>)> {
        match self {
            Self::Rdma(r) => Ok(CmLink::by_device(r.create(config, owner)?)),
            Self::Local(r) => Ok(CmLink::here(r.create(config, owner)?)),
        }
    }

    /// Sends the connection request. The reply arrives by [`Upcalls::replied`] or
    /// [`Upcalls::refused`], possibly before this returns. `priority` selects the service level.
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

/// Decides on connection requests.
pub(crate) trait Acceptor<O: Upcalls>: 'static {
    /// Handles a connection request. Context: process, may sleep, but stalls all connections of
    /// the host meanwhile. No locks, except the socket lock of a local requester.
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
    pub(crate) fn net(&self) -> &Net {
        either!(self, r => r.net())
    }

    pub(crate) fn port(&self) -> u16 {
        either!(self, r => r.port())
    }

    pub(crate) fn ifindex(&self) -> u32 {
        either!(self, r => r.ifindex())
    }

    /// Returns the peer's Hello.
    pub(crate) fn hello(&self) -> &[u8; REQUEST_DATA] {
        either!(self, r => r.hello())
    }

    /// Returns true if the request arrived over Ethernet, false for InfiniBand and local requests.
    pub(crate) fn is_ethernet(&self) -> bool {
        match self {
            Self::Rdma(r) => !r.is_infiniband(),
            Self::Local(_) => false,
        }
    }

    /// Returns true if packets from `local` to `remote` would leave by the interface of the
    /// request.
    pub(crate) fn plausible(&self, local: &Address, remote: &Address) -> bool {
        match self {
            Self::Rdma(r) => r.plausible(local, remote),
            // A local request has no interface to check.
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

    /// Accepts the connection. [`Upcalls::established`] or [`Upcalls::refused`] reports the
    /// result. Context: process.
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
/// `ENODEV`, `EADDRNOTAVAIL`: no RDMA device has the address. `ENOMEM`: out of memory.
pub(crate) fn usable_address(net: &Net, address: &Address) -> Result {
    if params::local_transport() != 0 && net.is_local(address)? {
        return Ok(());
    }
    net.has_rdma(address)
}

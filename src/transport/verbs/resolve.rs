// SPDX-License-Identifier: GPL-2.0-only

//! From an IP address to a connection that can be asked for.
//!
//! A [`Resolver`] is one attempt to find the way to an address. What it finds is good for
//! [`Resolver::create`] and [`Resolver::connect`]; then it can be dropped.

use super::{Channel, Config, Link, Net, Owner, REQUEST_DATA};
use crate::sys::errno::{Errno, EADDRNOTAVAIL, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENODEV as NO_DEVICE, ETIMEDOUT};
use crate::sys::net::address::Address;
use crate::sys::rdma::device::DeviceRef;
use crate::sys::rdma::route::{Event, Events, Route, RouteId};
use crate::sys::rdma::{registry, work};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex};
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};

/// What the callbacks of a search get at, and what the workqueue destroys.
#[pin_data]
struct Search<O: Owner> {
    owner: ARef<O>,
    /// The time for either half of the search.
    timeout_ms: Atomic<u32>,
    /// Whether the owner was told a result.
    told: Atomic<u32>,
    #[pin]
    id: Mutex<Option<RouteId>>,
    #[pin]
    end: Work<Search<O>>,
}

impl_has_work! {
    impl{O: Owner} HasWork<Search<O>> for Search<O> { self.end }
}

impl<O: Owner> WorkItem for Search<O> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // Waits for callbacks, which take the lock; so not under it.
        let id = this.id.lock().take();
        drop(id);
    }
}

impl<O: Owner> Search<O> {
    fn tell(&self, result: Result) {
        if self.told.xchg(1, Full) == 0 {
            self.owner.resolved(result);
        }
    }
}

impl<O: Owner> Events for Search<O> {
    fn event(&self, route: &Route, event: Event) {
        match event {
            Event::AddressFound => {
                if let Err(e) = route.find_path(self.timeout_ms.load(Relaxed)) {
                    self.tell(Err(error(e)));
                }
            }
            Event::RouteFound => self.tell(usable(route).map(|_| ())),
            Event::NoAddress(e) => self.tell(Err(error(e))),
            Event::NoRoute(e) => self.tell(Err(error(e))),
            Event::DeviceGoes => {
                if self.told.xchg(1, Full) == 0 {
                    self.owner.resolved(Err(ENETDOWN.into()));
                } else {
                    self.owner.device_removed();
                }
            }
        }
    }
}

/// The errno that connect(2) of TCP has for it.
fn error(e: Error) -> Error {
    match Errno::of(e) {
        NO_DEVICE | EADDRNOTAVAIL => ENETUNREACH.into(),
        // No neighbour answers.
        ETIMEDOUT => EHOSTUNREACH.into(),
        _ => e,
    }
}

/// The device of a route, if connections can be made from there.
fn usable(route: &Route) -> Result<DeviceRef> {
    let device = registry::lock()?.find(|d| route.is_at(d)).ok_or(ENETDOWN)?;
    if !device.port_has_cm(route.device_port()?) {
        // iWARP: another connection manager, other rules.
        return Err(ENETUNREACH.into());
    }
    Ok(device)
}

/// One attempt to find the way to an address. May be dropped in any context.
pub(crate) struct Resolver<O: Owner> {
    search: Arc<Search<O>>,
}

impl<O: Owner> Resolver<O> {
    /// A resolver that has not begun.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(net: &Net, owner: ARef<O>) -> Result<Arc<Self>> {
        let search = Arc::pin_init(
            pin_init!(Search {
                owner,
                timeout_ms: Atomic::new(0),
                told: Atomic::new(0),
                id <- new_mutex!(None, "ib_sdp_resolver"),
                end <- new_work!("ib_sdp_resolver"),
            }),
            GFP_KERNEL,
        )?;
        let id = RouteId::new(net, search.clone())?;
        *search.id.lock() = Some(id);
        // From here on the search has an end: `Drop`, or, if there is no memory, this.
        let resolver = Resolver { search };
        Ok(Arc::new(resolver, GFP_KERNEL)?)
    }

    /// Begins, once. The result is told by [`Owner::resolved`], possibly before this returns.
    ///
    /// `source` is where the connection comes from, if not from what the route says; ports do not
    /// matter. Either half of the search has `timeout_ms`. `tos` are the DSCP and ECN bits.
    ///
    /// # Errors
    ///
    /// What can be told at once. Then nothing is told by `resolved`.
    pub(crate) fn start(
        &self,
        source: Option<&Address>,
        destination: &Address,
        timeout_ms: u32,
        tos: Option<u8>,
    ) -> Result {
        self.search.timeout_ms.store(timeout_ms, Relaxed);
        let mut id = self.search.id.lock();
        let id = Option::as_mut(&mut *id).ok_or(ENODEV)?;
        id.begin(source, destination, tos, timeout_ms).map_err(error)
    }

    fn with<R>(&self, f: impl FnOnce(&RouteId) -> Result<R>) -> Result<R> {
        f(self.search.id.lock().as_ref().ok_or(ENODEV)?)
    }

    /// The address that the connection comes from, with port 0. Known when resolved.
    pub(crate) fn source(&self) -> Result<Address> {
        self.with(|id| id.source())
    }

    /// The interface by which the peer is reached, 0 if that is not known.
    pub(crate) fn ifindex(&self) -> u32 {
        self.with(|id| Ok(id.ifindex())).unwrap_or(0)
    }

    /// Whether the link is InfiniBand (else it is Ethernet). Known when resolved.
    pub(crate) fn is_infiniband(&self) -> Result<bool> {
        self.with(|id| Ok(usable(id)?.port_is_infiniband(id.device_port()?)))
    }

    /// Makes the two halves of a connection that can be asked for. Receives can be posted.
    ///
    /// # Errors
    ///
    /// `EINVAL` when not resolved, `ENETDOWN` when the device goes, `ENOMEM`.
    pub(crate) fn create(
        &self,
        config: &Config,
        owner: ARef<O>,
    ) -> Result<(Channel, Arc<Link<O>>)> {
        let (device, port, pkey_index) = self.with(|id| {
            let device = usable(id)?;
            let port = id.device_port()?;
            let pkey_index = device.find_pkey(port, id.pkey()?)?;
            Ok((device, port, pkey_index))
        })?;
        Link::active(&device, config, owner, port, pkey_index)
    }

    /// Asks the peer for the connection. The answer comes by [`Owner::replied`] or
    /// [`Owner::refused`], possibly before this returns.
    ///
    /// # Errors
    ///
    /// `EINVAL` when not resolved or asked already, or what sending says.
    pub(crate) fn connect(&self, link: &Link<O>, port: u16, hello: &[u8; REQUEST_DATA]) -> Result {
        self.with(|id| link.request(id, port, hello))
    }
}

impl<O: Owner> Drop for Resolver<O> {
    fn drop(&mut self) {
        work::defer::<Arc<Search<O>>, 0>(self.search.clone());
    }
}

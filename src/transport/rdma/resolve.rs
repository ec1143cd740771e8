// SPDX-License-Identifier: GPL-2.0-only

//! From an IP address to a connection that can be asked for.
//!
//! A [`Resolver`] is one attempt to find the way to an address. What it finds is good for
//! [`Resolver::create`] and [`Resolver::connect`]; then it can be dropped.

use super::registry;
use super::{Attempt, CmLink, Config, Endpoint, Net, ResolverId, Upcalls, REQUEST_DATA};
use crate::sys::errno::{
    Errno, EADDRNOTAVAIL, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENODEV as NO_DEVICE, ETIMEDOUT,
};
use crate::sys::net::address::Address;
use crate::sys::rdma::device::DeviceRef;
use crate::sys::rdma::route::{Event, Events, Route, RouteId};
use crate::sys::rdma::work;
use crate::sys::rdma::work::ModuleRef;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{AtomicFlag, Full};
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};
use kernel::time::{Instant, Monotonic};
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};

/// The time for the first try to find a neighbour, in milliseconds; each further one has four times
/// as much. `rdma_cm` misses a neighbour that answers before it has begun to wait, as one on the
/// same host does, and then finds it only when its time is over.
const FIRST_TRY: u32 = 10;

/// What is looked for.
struct Query {
    source: Option<Address>,
    destination: Address,
    tos: Option<u8>,
    /// The time for either half of the search.
    timeout_ms: u32,
    began: Instant<Monotonic>,
    next_try: u32,
}

/// How far it is.
enum LookupState {
    /// Not begun, or between two tries.
    Nothing,
    /// Here it is looked for, or was found.
    By(RouteId),
    /// Not wanted any more.
    Over,
}

/// What the callbacks of a search get at, and what the workqueue destroys.
#[pin_data]
struct Lookup<O: Upcalls> {
    owner: ARef<O>,
    net: ARef<Net>,
    _module: ModuleRef,
    /// Whether the owner was told a result.
    told: AtomicFlag,
    /// Set once, before the search begins. Taken inside the lock of `found`.
    #[pin]
    query: SpinLock<Option<Query>>,
    /// Not held when an id is dropped.
    #[pin]
    found: Mutex<LookupState>,
    #[pin]
    again: Work<Lookup<O>, 0>,
    #[pin]
    end: Work<Lookup<O>, 1>,
}

impl_has_work! {
    impl{O: Upcalls} HasWork<Lookup<O>, 0> for Lookup<O> { self.again }
    impl{O: Upcalls} HasWork<Lookup<O>, 1> for Lookup<O> { self.end }
}

impl<O: Upcalls> WorkItem<0> for Lookup<O> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Err(e) = this.look() {
            this.tell(Err(e));
        }
    }
}

impl<O: Upcalls> WorkItem<1> for Lookup<O> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let last = core::mem::replace(&mut *this.found.lock(), LookupState::Over);
        // Waits for callbacks, which take the lock; so not under it.
        drop(last);
    }
}

impl<O: Upcalls> Lookup<O> {
    fn tell(&self, result: Result) {
        if !self.told.xchg(true, Full) {
            self.owner.resolved(self.id(), result);
        }
    }

    fn id(&self) -> ResolverId {
        ResolverId::of(self)
    }

    /// Tries to find the neighbour, not in a callback.
    ///
    /// Each time with a new id: one that is used again waits for its own last callback, and that
    /// would be under the lock here.
    fn look(self: &Arc<Self>) -> Result {
        let mut new = RouteId::new(&self.net, self.clone())?;
        let mut query = self.query.lock();
        let w = Option::as_mut(&mut *query).ok_or(EINVAL)?;
        let time = w.next_try.min(w.timeout_ms).max(1);
        w.next_try = w.next_try.saturating_mul(4);
        let (source, destination, tos) = (w.source, w.destination, w.tos);
        drop(query);

        let last = self.put(LookupState::Nothing)?;
        drop(last);
        let mut id = self.found.lock();
        if let LookupState::Over = &*id {
            return Err(ENODEV);
        }
        // Callbacks may come at once; they find the id when the lock is free.
        let begun = new.begin(source.as_ref(), &destination, tos, time);
        if begun.is_ok() {
            *id = LookupState::By(new);
        }
        drop(id);
        begun.map_err(error)
    }

    /// Changes how far it is, unless it is over.
    fn put(&self, to: LookupState) -> Result<LookupState> {
        let mut id = self.found.lock();
        match &*id {
            LookupState::Over => Err(ENODEV),
            _ => Ok(core::mem::replace(&mut *id, to)),
        }
    }

    /// Whether there is time for one more try.
    fn has_time(&self) -> bool {
        self.query
            .lock()
            .as_ref()
            .is_some_and(|w| w.began.elapsed().as_millis() < i64::from(w.timeout_ms))
    }
}

impl<O: Upcalls> Events for Lookup<O> {
    fn event(self: Arc<Self>, route: &Route, event: Event) {
        match event {
            Event::AddressFound => {
                let time = self.query.lock().as_ref().map_or(0, |w| w.timeout_ms);
                if let Err(e) = route.find_path(time) {
                    self.tell(Err(error(e)));
                }
            }
            Event::RouteFound => self.tell(usable(route).map(|_| ())),
            Event::NoAddress(e) if Errno::of(e) == ETIMEDOUT && self.has_time() => {
                // Not from in here: a new try begins with the end of this one.
                work::defer::<Arc<Self>, 0>(self);
            }
            Event::NoAddress(e) | Event::NoRoute(e) => self.tell(Err(error(e))),
            Event::DeviceGoes => {
                if !self.told.xchg(true, Full) {
                    self.owner.resolved(self.id(), Err(ENETDOWN.into()));
                } else {
                    self.owner.device_removed(Attempt::Search(self.id()));
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
pub(crate) struct Resolver<O: Upcalls> {
    search: Arc<Lookup<O>>,
}

impl<O: Upcalls> Resolver<O> {
    /// A resolver that has not begun.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(net: &Net, owner: ARef<O>) -> Result<Arc<Self>> {
        let search = Arc::pin_init(
            pin_init!(Lookup {
                owner,
                net: net.into(),
                _module: ModuleRef::new(),
                told: AtomicFlag::new(false),
                query <- new_spinlock!(None, "ib_sdp_query"),
                found <- new_mutex!(LookupState::Nothing, "ib_sdp_resolver"),
                again <- new_work!("ib_sdp_resolver"),
                end <- new_work!("ib_sdp_resolver_end"),
            }),
            GFP_KERNEL,
        )?;
        Ok(Arc::new(Resolver { search }, GFP_KERNEL)?)
    }

    /// Which one this is, in upcalls to the owner.
    pub(crate) fn id(&self) -> ResolverId {
        self.search.id()
    }

    /// Begins, once. The result is told by [`Upcalls::resolved`], possibly before this returns.
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
        *self.search.query.lock() = Some(Query {
            source: source.copied(),
            destination: *destination,
            tos,
            timeout_ms,
            began: Instant::now(),
            next_try: FIRST_TRY,
        });
        self.search.look()
    }

    fn with<R>(&self, f: impl FnOnce(&RouteId) -> Result<R>) -> Result<R> {
        match &*self.search.found.lock() {
            LookupState::By(id) => f(id),
            _ => Err(EINVAL),
        }
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
    ) -> Result<(Endpoint, Arc<CmLink<O>>)> {
        let (device, port, pkey_index) = self.with(|id| {
            let device = usable(id)?;
            let port = id.device_port()?;
            // the port is not in the path's partition
            let pkey_index = device
                .find_pkey(port, id.pkey()?)
                .map_err(|_| ENETUNREACH)?;
            Ok((device, port, pkey_index))
        })?;
        CmLink::active(&device, config, owner, port, pkey_index)
    }

    /// Asks the peer for the connection. The answer comes by [`Upcalls::replied`] or
    /// [`Upcalls::refused`], possibly before this returns. A `priority` chooses the service level.
    ///
    /// # Errors
    ///
    /// `EINVAL` when not resolved or asked already, or what sending says.
    pub(crate) fn connect(
        &self,
        link: &CmLink<O>,
        port: u16,
        priority: Option<i32>,
        hello: &[u8; REQUEST_DATA],
    ) -> Result {
        self.with(|id| link.request(id, port, priority, hello))
    }
}

impl<O: Upcalls> Drop for Resolver<O> {
    fn drop(&mut self) {
        work::defer::<Arc<Lookup<O>>, 1>(self.search.clone());
    }
}

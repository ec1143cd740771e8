// SPDX-License-Identifier: GPL-2.0-only

//! Address and route resolution, and the connection request (active side).
//!
//! A [`Resolver`] is one attempt to resolve an address. [`Resolver::create`] and
//! [`Resolver::connect`] use the result. Afterwards, the owner can drop the resolver.

use super::cm_link::Inner;
use super::registry;
use super::upcalls::Phase;
use super::{tcp_port, CmLink, Config, Endpoint, LinkId, Net, Upcalls};
use super::{REPLY_DATA, REQUEST_DATA, SERVICE_ID};
use crate::sys::address::Address;
use crate::sys::deferred::{Destroy, DropInWorker};
use crate::sys::errno::{
    Errno, EADDRNOTAVAIL, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENODEV as NO_DEVICE, ETIMEDOUT,
};
use crate::sys::rdma::cm::{reason, CmId, OwnedCmId, RequestParameters};
use crate::sys::rdma::device::DeviceRef;
use crate::sys::rdma::route::{Route, RouteEvent, RouteEvents, RouteId};
use crate::sys::work;
use crate::sys::work::ModuleRef;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{Atomic, AtomicFlag, Full, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex, SetOnce};
use kernel::time::{Instant, Monotonic};
use kernel::workqueue::{impl_has_delayed_work, new_delayed_work, DelayedWork, WorkItem};

/// Timeout of the first attempt to resolve a neighbour (ms). Each further attempt has four times
/// the timeout. `rdma_cm` misses a neighbour's reply that arrives before the wait for the reply
/// begins, as on the same host. The next attempt then finds the neighbour.
const FIRST_TRY: u32 = 10;

/// Parameters of a search.
struct Query {
    source: Option<Address>,
    destination: Address,
    tos: Option<u8>,
    /// Time limit for the address, and again for the route (ms).
    timeout_ms: u32,
    began: Instant<Monotonic>,
    /// Delay before the search begins (ms).
    pause: u32,
}

enum LookupState {
    /// No search has started, or the next attempt has not started yet.
    Nothing,
    /// The search with this ID is in progress, or has found a route.
    By(RouteId),
    /// The search is cancelled.
    Over,
}

/// State that the callbacks of a search use, and that the workqueue destroys.
#[pin_data]
struct Lookup<O: Upcalls> {
    owner: ARef<O>,
    net: ARef<Net>,
    _module: ModuleRef,
    /// Set once the owner was notified of a result.
    notified: AtomicFlag,
    /// Parameters, set before the search begins.
    query: SetOnce<Query>,
    /// Timeout of the next attempt (ms). Attempts do not run concurrently.
    next_try: Atomic<u32>,
    /// Current search. The mutex is never held during the drop of an ID.
    #[pin]
    found: Mutex<LookupState>,
    #[pin]
    again: DelayedWork<Lookup<O>>,
}

impl_has_delayed_work! {
    impl{O: Upcalls} HasDelayedWork<Lookup<O>> for Lookup<O> { self.again }
}

impl<O: Upcalls> WorkItem for Lookup<O> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Err(e) = this.look() {
            this.notify(Err(e));
        }
    }
}

impl<O: Upcalls> Destroy for Arc<Lookup<O>> {
    /// Cancels the search.
    fn destroy(self) -> Result<(), (Self, u32)> {
        let last = core::mem::replace(&mut *self.found.lock(), LookupState::Over);
        // The drop waits for callbacks, which take the lock, so the lock is not held.
        drop(last);
        Ok(())
    }
}

impl<O: Upcalls> Lookup<O> {
    fn notify(&self, result: Result) {
        if !self.notified.xchg(true, Full) {
            self.owner.resolved(self.id(), result);
        }
    }

    fn id(&self) -> LinkId {
        LinkId::of(self)
    }

    /// Tries to resolve the neighbour. Not to be called from a callback of the resolver.
    ///
    /// Each attempt uses a new ID: a reused ID would wait for its own last callback under the lock.
    fn look(self: &Arc<Self>) -> Result {
        let mut new = RouteId::new(&self.net, self.clone())?;
        let query = self.query.as_ref().ok_or(EINVAL)?;
        let next = self.next_try.load(Relaxed);
        self.next_try.store(next.saturating_mul(4), Relaxed);
        let time = next.min(query.timeout_ms).max(1);

        let mut last = LookupState::Nothing;
        let mut id = self.found.lock();
        if let LookupState::Over = &*id {
            return Err(ENODEV);
        }
        // Callbacks may run at once, and find the ID when the lock is released.
        let begun = new.begin(query.source.as_ref(), &query.destination, query.tos, time);
        if begun.is_ok() {
            last = core::mem::replace(&mut *id, LookupState::By(new));
        }
        drop(id);
        // drops the last ID without the lock, since the drop waits for callbacks
        drop(last);
        begun.map_err(error)
    }

    /// Returns true if the time limit allows another attempt.
    fn has_time(&self) -> bool {
        self.query.as_ref().is_some_and(|w| {
            w.began.elapsed().as_millis() < i64::from(w.timeout_ms.saturating_add(w.pause))
        })
    }
}

impl<O: Upcalls> RouteEvents for Lookup<O> {
    fn event(self: Arc<Self>, route: &Route, event: RouteEvent) {
        match event {
            RouteEvent::AddressFound => {
                let time = self.query.as_ref().map_or(0, |w| w.timeout_ms);
                if let Err(e) = route.find_path(time) {
                    self.notify(Err(error(e)));
                }
            }
            RouteEvent::RouteFound => self.notify(usable(route, &self.net).map(|_| ())),
            RouteEvent::NoAddress(e) if Errno::of(e) == ETIMEDOUT && self.has_time() => {
                // The attempt is deferred, because it destroys the ID of the running callback.
                work::defer_by(self, 0);
            }
            RouteEvent::NoAddress(e) | RouteEvent::NoRoute(e) => self.notify(Err(error(e))),
            RouteEvent::DeviceGoes => {
                if !self.notified.xchg(true, Full) {
                    self.owner.resolved(self.id(), Err(ENETDOWN.into()));
                } else {
                    self.owner.device_removed(self.id());
                }
            }
        }
    }
}

/// Returns the errno of TCP's connect(2) for an error of the resolver.
fn error(e: Error) -> Error {
    match Errno::of(e) {
        NO_DEVICE | EADDRNOTAVAIL => ENETUNREACH.into(),
        // the neighbour does not reply
        ETIMEDOUT => EHOSTUNREACH.into(),
        _ => e,
    }
}

/// Returns the device of a route, if it supports SDP connections.
fn usable(route: &Route, net: &Net) -> Result<DeviceRef> {
    let device = registry::lock()?.find(|d| route.is_at(d)).ok_or(ENETDOWN)?;
    if !device.can_connect(route.device_port()?, net) {
        return Err(ENETUNREACH.into());
    }
    Ok(device)
}

/// Attempt to resolve an address to a route. May be dropped in any context.
pub(crate) struct Resolver<O: Upcalls> {
    search: DropInWorker<Arc<Lookup<O>>>,
}

impl<O: Upcalls> Resolver<O> {
    pub(crate) fn new(net: &Net, owner: ARef<O>) -> Result<Arc<Self>> {
        let lookup = Arc::pin_init(
            pin_init!(Lookup {
                owner,
                net: net.into(),
                _module: ModuleRef::new(),
                notified: AtomicFlag::new(false),
                query: SetOnce::new(),
                next_try: Atomic::new(FIRST_TRY),
                found <- new_mutex!(LookupState::Nothing, "ib_sdp_resolver"),
                again <- new_delayed_work!("ib_sdp_resolver"),
            }),
            GFP_KERNEL,
        )?;
        let search = DropInWorker::new(|| Ok(lookup))?;
        Ok(Arc::new(Resolver { search }, GFP_KERNEL)?)
    }

    pub(crate) fn id(&self) -> LinkId {
        self.search.id()
    }

    /// Starts the search, once. [`Upcalls::resolved`] reports the result, perhaps before the
    /// return.
    ///
    /// `source` is the local address, or `None` for the route's own; ports are ignored.
    /// `timeout_ms` limits each half of the search. `tos` contains the DSCP and ECN bits. `pause`
    /// is the delay before the search (ms). Fails with immediate errors, for which `resolved` is
    /// not called.
    pub(crate) fn start(
        &self,
        source: Option<&Address>,
        destination: &Address,
        timeout_ms: u32,
        tos: Option<u8>,
        pause: u32,
    ) -> Result {
        self.search.query.populate(Query {
            source: source.copied(),
            destination: *destination,
            tos,
            timeout_ms,
            began: Instant::now(),
            pause,
        });
        if pause > 0 {
            work::defer_by((*self.search).clone(), pause);
            return Ok(());
        }
        self.search.look()
    }

    fn with<R>(&self, f: impl FnOnce(&RouteId) -> Result<R>) -> Result<R> {
        match &*self.search.found.lock() {
            LookupState::By(id) => f(id),
            _ => Err(EINVAL),
        }
    }

    /// Returns the local address, with port 0. Valid once the address is resolved.
    pub(crate) fn source(&self) -> Result<Address> {
        self.with(|id| Ok(id.addresses()?.0))
    }

    /// Returns the index of the interface to the peer, or 0 if unknown.
    pub(crate) fn ifindex(&self) -> u32 {
        self.with(|id| Ok(id.ifindex())).unwrap_or(0)
    }

    /// Returns true for an InfiniBand link, false for Ethernet. Valid once the address is resolved.
    pub(crate) fn is_infiniband(&self) -> Result<bool> {
        self.with(|id| Ok(usable(id, &self.search.net)?.port_is_infiniband(id.device_port()?)))
    }

    /// Creates the two halves of a connection. The caller can then post receives.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the address is not resolved. `ENETDOWN`: the device is being removed. `ENOMEM`.
    pub(crate) fn create(
        &self,
        config: &Config,
        owner: ARef<O>,
    ) -> Result<(Endpoint, Arc<CmLink<O>>)> {
        let (device, port, pkey_index) = self.with(|id| {
            let device = usable(id, &self.search.net)?;
            let port = id.device_port()?;
            let pkey_index = match device.is_iwarp() {
                true => 0,
                // fails if the port is not a member of the path's partition
                false => device
                    .find_pkey(port, id.pkey()?)
                    .map_err(|_| ENETUNREACH)?,
            };
            Ok((device, port, pkey_index))
        })?;
        let (endpoint, link) = CmLink::make(&device, config, owner, u8::MAX, u8::MAX)?;
        let inner = &link.inner;
        inner.qp()?.to_init(port, pkey_index)?;
        *inner.id.lock() = Some(OwnedCmId::new(&device, inner.clone())?);
        Ok((endpoint, link))
    }

    /// Sends the connection request. [`Upcalls::replied`] or [`Upcalls::refused`] follows,
    /// possibly before the call returns. `priority` selects the service level.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the address is not resolved, or the request is already sent. Others: sending
    /// failed.
    pub(crate) fn connect(
        &self,
        link: &CmLink<O>,
        port: u16,
        priority: Option<i32>,
        hello: &[u8; REQUEST_DATA],
    ) -> Result {
        let inner = &link.inner;
        let parameters = RequestParameters {
            service: SERVICE_ID | u64::from(port),
            data: hello,
            config: &inner.config,
            priority,
            tcp_port: tcp_port(port),
        };
        let own = inner.own()?;
        self.with(|route| {
            let mut id = inner.id.lock();
            let id = Option::as_mut(&mut *id).ok_or(ENODEV)?;
            // The reply may arrive before `request` returns, so the phase changes first.
            if !inner.advance(Phase::New, Phase::Requested) {
                return Err(EINVAL);
            }
            let waits = id.request(route, &own, &parameters).inspect_err(|_| {
                inner.advance(Phase::Requested, Phase::New);
            })?;
            if waits {
                inner.start_connect();
            }
            Ok(())
        })
    }
}

impl<O: Upcalls> Inner<O> {
    pub(super) fn replied(
        self: &Arc<Self>,
        connection: &CmId,
        data: &[u8; REPLY_DATA],
        reads_out: u8,
        reads_in: u8,
    ) {
        // Without an owner, the workqueue destroys the ID, which rejects the peer's reply.
        let Some(owner) = self.owner() else { return };
        if self.phase() != Phase::Requested {
            return;
        }
        let replied = owner.replied(self.link_id(), data);
        let accepted = replied.and_then(|()| {
            let reads_in = reads_in.min(self.reads_in);
            let reads_out = reads_out.min(self.reads_out);
            self.qp()?.to_ready(connection, reads_in, reads_out, None)?;
            connection.ready()
        });
        match accepted {
            Ok(()) => {
                if self.advance(Phase::Requested, Phase::Established) {
                    owner.established(self.link_id());
                }
            }
            Err(e) => {
                self.close();
                let _ = connection.reject(reason::CONSUMER);
                if replied.is_ok() {
                    owner.refused(self.link_id(), e);
                }
            }
        }
    }
}

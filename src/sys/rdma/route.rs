// SPDX-License-Identifier: GPL-2.0-only

//! Routes to IP addresses.
//!
//! A [`RouteId`] is one search for the RDMA device, port, GIDs and path to an address. A search is
//! an `rdma_cm_id` with no other use: `rdma_cm` cannot make SDP connections, but handles IP routes,
//! neighbours, bonds, VLANs and InfiniBand's SA.

use super::super::bindings as c;
use super::super::work::ModuleRef;
use super::netns;
use crate::sys::address::Address;
use crate::sys::netns::Net;
use core::ptr::NonNull;
use kernel::error::{from_err_ptr, to_result};
use kernel::ffi::{c_int, c_ulong};
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, AtomicFlag, Release};
use kernel::sync::Arc;

/// Events of a search.
pub(crate) enum RouteEvent {
    /// Device, port and GIDs are found.
    AddressFound,
    /// Device, port and GIDs were not found.
    NoAddress(Error),
    /// The path is found.
    RouteFound,
    /// No path exists.
    NoRoute(Error),
    /// The device is being removed; the owner has to drop the search.
    DeviceGoes,
}

pub(crate) trait RouteEvents: Send + Sync + 'static {
    /// Handles an event. Context: process, may sleep. Must not drop the [`RouteId`].
    fn event(self: Arc<Self>, route: &Route, event: RouteEvent);
}

/// Reference to a search that has another owner.
///
/// # Invariants
///
/// `raw` is a live `rdma_cm_id`, whose context is a [`Found`].
#[repr(transparent)]
pub(crate) struct Route {
    raw: NonNull<c::rdma_cm_id>,
}

/// Context of an id's callbacks.
struct Found {
    events: Arc<dyn RouteEvents>,
    /// Set when the path is found. The path stays unchanged until the id is destroyed.
    found: AtomicFlag,
}

impl Route {
    fn raw(&self) -> *mut c::rdma_cm_id {
        self.raw.as_ptr()
    }

    fn context(&self) -> &Found {
        // SAFETY: By the invariants the id is alive and has a context, which is freed after the id.
        unsafe { &*(*self.raw()).context.cast::<Found>() }
    }

    /// Returns the id once the path is found.
    fn found(&self) -> Result<&c::rdma_cm_id> {
        match self.context().found.load(Acquire) {
            // SAFETY: By the invariants the id is alive. From now on `rdma_cm` writes to the id
            // only when the id is destroyed.
            true => Ok(unsafe { self.raw.as_ref() }),
            false => Err(EINVAL),
        }
    }

    /// Resolves the path, after [`RouteEvent::AddressFound`].
    pub(crate) fn find_path(&self, timeout_ms: u32) -> Result {
        // SAFETY: By the invariants the id is alive; the function refuses a wrong state.
        to_result(unsafe { c::rdma_resolve_route(self.raw(), timeout_ms.max(1) as c_ulong) })
    }

    /// Returns true if this device has the path.
    ///
    /// The device stays at least until the id is destroyed, but only `rdma_cm` may use it.
    pub(crate) fn is_at(&self, device: &super::device::DeviceRef) -> bool {
        self.found().is_ok_and(|id| device.is(id.device))
    }

    /// Returns the port of the device, once the path is found.
    pub(crate) fn device_port(&self) -> Result<u32> {
        Ok(self.found()?.port_num)
    }

    /// Returns the P_Key of the path, once the path is found.
    pub(crate) fn pkey(&self) -> Result<u16> {
        // SAFETY: The path record is valid as long as the id, and does not change any more.
        Ok(u16::from_be(unsafe { (*self.path()?.path_rec).pkey }))
    }

    /// Returns the local address and the peer's address, with port 0, once the path is found.
    pub(crate) fn addresses(&self) -> Result<(Address, Address)> {
        let a = &self.found()?.route.addr;
        let address = |a| netns::address(a).map(|a| Address { port: 0, ..a });
        address(&a.src_addr).zip(address(&a.dst_addr)).ok_or(EINVAL)
    }

    /// Returns the interface index, or 0 before the path is found.
    pub(crate) fn ifindex(&self) -> u32 {
        let of = |id: &c::rdma_cm_id| id.route.addr.dev_addr.bound_dev_if;
        self.found()
            .map_or(0, |id| u32::try_from(of(id)).unwrap_or(0))
    }

    /// Returns the service level for a priority (`SO_PRIORITY`).
    ///
    /// # Errors
    ///
    /// `EINVAL`: the route is not found yet.
    pub(super) fn service_level(&self, priority: i32) -> Result<u8> {
        self.path()?;
        // SAFETY: By the invariants the id is alive, and its route is known, with device and GID.
        Ok(unsafe { c::sdp_h_service_level(self.raw(), priority) })
    }

    /// Returns the route with its path records and GID, once the path is found.
    pub(super) fn path(&self) -> Result<&c::rdma_route> {
        let route = &self.found()?.route;
        match route.num_pri_alt_paths < 1 || route.path_rec.is_null() {
            true => Err(EINVAL),
            false => Ok(route),
        }
    }
}

/// Owner of a search. Dropping a search ends it and waits for running callbacks, so a search must
/// not be dropped in one of its callbacks.
///
/// # Invariants
///
/// The id is alive until [`Drop`] destroys it, and its context is in `_context`, unchanged.
pub(crate) struct RouteId {
    route: Route,
    _context: KBox<Found>,
    _module: ModuleRef,
}

// SAFETY: An `rdma_cm_id` may be used by any thread.
unsafe impl Send for RouteId {}
// SAFETY: Fields read through a shared reference do not change after resolution. The remaining
// functions take `&mut self`, or `rdma_cm` refuses them in the wrong state.
unsafe impl Sync for RouteId {}

impl core::ops::Deref for RouteId {
    type Target = Route;

    fn deref(&self) -> &Route {
        &self.route
    }
}

impl RouteId {
    /// Makes a search that has not started.
    pub(crate) fn new(net: &Net, events: Arc<dyn RouteEvents>) -> Result<Self> {
        let found = AtomicFlag::new(false);
        let context = KBox::new(Found { events, found }, GFP_KERNEL)?;
        // SAFETY: The namespace is alive; the context lives as long as the id.
        let id = unsafe {
            c::__rdma_create_kernel_id(
                net.as_raw(),
                Some(on_event),
                core::ptr::from_ref(&*context).cast_mut().cast(),
                c::rdma_ucm_port_space_RDMA_PS_TCP,
                c::ib_qp_type_IB_QPT_RC,
                super::name(),
            )
        };
        let raw = NonNull::new(from_err_ptr(id)?).ok_or(ENOMEM)?;
        // INVARIANT: The id was made above.
        Ok(RouteId {
            route: Route { raw },
            _context: context,
            _module: ModuleRef::new(),
        })
    }

    /// Starts the search, once. `tos`: DSCP and ECN bits for InfiniBand and RoCE.
    ///
    /// # Errors
    ///
    /// Errors of `rdma_resolve_addr()`, such as `ENODEV` or `EADDRNOTAVAIL` for a source address
    /// without an RDMA port.
    pub(crate) fn begin(
        &mut self,
        source: Option<&Address>,
        destination: &Address,
        tos: Option<u8>,
        timeout_ms: u32,
    ) -> Result {
        if let Some(tos) = tos {
            // SAFETY: By the invariants the id is alive.
            unsafe { c::rdma_set_service_type(self.raw(), c_int::from(tos)) };
        }
        let mut from = source.map(netns::sockaddr).unwrap_or_default();
        let to = netns::sockaddr(destination);
        // SAFETY: By the invariants the id is alive. The call copies both addresses.
        to_result(unsafe {
            c::sdp_h_rdma_resolve(
                self.raw(),
                destination.scope as c_int,
                &mut from,
                &to,
                timeout_ms.max(1) as c_ulong,
            )
        })
    }
}

impl Drop for RouteId {
    fn drop(&mut self) {
        // SAFETY: By the invariants the id is alive and owned. The call waits for callbacks.
        unsafe { c::rdma_destroy_id(self.route.raw()) };
        // The context is a field, so the compiler drops it after this function.
    }
}

extern "C" fn on_event(id: *mut c::rdma_cm_id, event: *mut c::rdma_cm_event) -> c_int {
    let Some(raw) = NonNull::new(id) else {
        return 0;
    };
    // INVARIANT: `rdma_cm` passes an id with the context of `RouteId::new`. The context is
    // destroyed after the id, and destroying the id waits for this call.
    let route = Route { raw };
    // SAFETY: `rdma_cm` passes an event that is valid during the call.
    let event = unsafe { &*event };
    let status = if event.status < 0 {
        Error::from_errno(event.status)
    } else {
        EIO
    };
    let what = match event.event {
        c::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED => RouteEvent::AddressFound,
        c::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR => RouteEvent::NoAddress(status),
        c::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => {
            route.context().found.store(true, Release);
            RouteEvent::RouteFound
        }
        c::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR
        | c::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE => RouteEvent::NoRoute(status),
        c::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => RouteEvent::DeviceGoes,
        _ => return 0,
    };
    route.context().events.clone().event(&route, what);
    // 0: `rdma_cm` must not destroy the id; the `RouteId` destroys it.
    0
}

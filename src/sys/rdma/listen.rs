// SPDX-License-Identifier: GPL-2.0-only

//! Connection requests of peers.
//!
//! A [`ListenId`] accepts REQs for one service ID at one device. An [`Incoming`] is a received REQ,
//! during the callback that reports it.

use super::super::bindings as c;
use super::cm::OwnedCmId;
use super::cm_id::{reason, CmEvents, CmId, RawId, REQUEST_DATA, SERVICE_ID};
use super::device::DeviceRef;
use super::iw_cm;
use super::netns;
use crate::sys::address::Address;
use crate::sys::netns::Net;
use core::cell::Cell;
use core::net::IpAddr;
use core::ptr::NonNull;
use kernel::error::to_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

pub(crate) trait Listener: 'static {
    /// Handles a request. Context: process, may sleep; all connection setup of the host waits for
    /// the call. Returns the reason to reject the request; `None`: no reply, so that the peer
    /// repeats it. The result is ignored if the request was adopted and not given back.
    fn request(request: &Incoming<'_>) -> Option<u32>;
}

/// A listening service ID at one device.
///
/// # Invariants
///
/// Each id counts one listen, which [`Drop`] ends.
pub(crate) struct ListenId {
    ids: [Option<CmId>; 2],
    _device: DeviceRef,
}

// SAFETY: An `ib_cm_id` may be used by any thread.
unsafe impl Send for ListenId {}
// SAFETY: The type has no methods.
unsafe impl Sync for ListenId {}

impl ListenId {
    /// Starts listening, on iWARP at `tcp_port`. All listeners of one service ID have the same `L`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the service has another listener. `ENOMEM`.
    pub(crate) fn new<L: Listener>(
        device: &DeviceRef,
        service: u64,
        tcp_port: u16,
    ) -> Result<Self> {
        let mut this = ListenId {
            ids: [None, None],
            _device: device.clone(),
        };
        if device.is_iwarp() {
            for (place, ip) in this.ids.iter_mut().zip(iw_cm::ANY) {
                let id = iw_cm::listen(device, on_iw_request::<L>, ip, service as u16, tcp_port)?;
                // SAFETY: The id was made above, and `Drop` destroys it. INVARIANT: The id listens.
                *place = id.map(|id| unsafe { CmId::new(RawId::Iw(id)) });
            }
        } else {
            // SAFETY: The device is in use.
            let id = unsafe {
                c::ib_cm_insert_listen(device.raw(), Some(on_request::<L>), service.to_be())
            };
            let id = NonNull::new(kernel::error::from_err_ptr(id)?).ok_or(ENOMEM)?;
            // SAFETY: The id lives until `Drop` has ended this listen.
            // INVARIANT: `ib_cm` has counted this listen.
            this.ids[0] = Some(unsafe { CmId::new(RawId::Ib(id)) });
        }
        Ok(this)
    }
}

impl Drop for ListenId {
    fn drop(&mut self) {
        for id in self.ids.iter().flatten() {
            // SAFETY: By the invariants this listen has not ended. The call that ends the last
            // listen waits for callbacks.
            unsafe { id.destroy() };
        }
    }
}

/// A connection request.
///
/// # Invariants
///
/// `id` is the new id that its manager made for the request, and `ib` is the `ib_cm` request, if
/// the manager is `ib_cm`. Unless `adopted`, this callback decides on the id.
pub(crate) struct Incoming<'a> {
    id: CmId,
    ib: Option<&'a c::ib_cm_event>,
    device: *mut c::ib_device,
    pub(crate) service: u64,
    /// Private data of the peer's consumer.
    pub(crate) data: &'a [u8; REQUEST_DATA],
    /// Maximum number of the peer's RDMA READs in flight.
    pub(crate) reads_in: u8,
    /// Maximum number of own RDMA READs in flight.
    pub(crate) reads_out: u8,
    pub(crate) device_port: u32,
    /// Code of the path MTU that the peer chose.
    pub(crate) path_mtu: u8,
    /// Address of the peer, if TCP proves that address.
    pub(crate) peer: Option<IpAddr>,
    adopted: Cell<bool>,
}

impl Incoming<'_> {
    /// Returns true if the request arrived at this device.
    pub(crate) fn is_at(&self, device: &DeviceRef) -> bool {
        device.is(self.device)
    }

    /// Returns the network namespace and the interface of the request.
    ///
    /// # Errors
    ///
    /// `ENODEV`, `EHOSTUNREACH`: the interface is missing or down, or the namespace has no access.
    pub(crate) fn net(&self, local: &Address) -> Result<(ARef<Net>, u32)> {
        let mut local = netns::sockaddr(local);
        let (mut net, mut ifindex) = (core::ptr::null_mut(), 0);
        let event = self.ib.map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: By the invariants the event is a request, if there is an event. The device of an
        // id in its callback is registered, and all results are writable.
        to_result(unsafe {
            c::sdp_h_cm_request_net(self.device, event, &mut local, &mut net, &mut ifindex)
        })?;
        let net = NonNull::new(net).ok_or(ENODEV)?;
        // SAFETY: The function has taken a reference for this caller; `Net` is transparent.
        let net = unsafe { ARef::from_raw(net.cast::<Net>()) };
        Ok((net, u32::try_from(ifindex).map_err(|_| ENODEV)?))
    }

    /// Adopts the connection.
    ///
    /// # Errors
    ///
    /// `EBUSY`: the connection is already adopted. `ENOMEM`.
    pub(crate) fn adopt(&self, device: &DeviceRef, events: Arc<dyn CmEvents>) -> Result<OwnedCmId> {
        if self.adopted.get() || !self.is_at(device) {
            return Err(EBUSY);
        }
        // SAFETY: By the invariants this call runs in the request's callback, which owns the id.
        let id = unsafe { OwnedCmId::adopt(&self.id, device, events) }?;
        // INVARIANT: From now on the `OwnedCmId` owns the id.
        self.adopted.set(true);
        Ok(id)
    }

    /// Reverses the adoption: the callback decides on the id again.
    ///
    /// # Errors
    ///
    /// Returns the id if [`Incoming::adopt`] has adopted another id, or if a REP was sent.
    pub(crate) fn give_back(&self, id: OwnedCmId) -> Result<(), OwnedCmId> {
        if !self.adopted.get() || *id != self.id {
            return Err(id);
        }
        // SAFETY: `Incoming` exists only within the callback, so the callback is still running.
        unsafe { id.give_back() }?;
        // INVARIANT: The id belongs to the callback again.
        self.adopted.set(false);
        Ok(())
    }
}

extern "C" fn on_request<L: Listener>(id: *mut c::ib_cm_id, event: *const c::ib_cm_event) -> c_int {
    // SAFETY: `ib_cm` passes an event that is valid during the call.
    let event = unsafe { &*event };
    let Some(id) = NonNull::new(id) else {
        return EINVAL.to_errno();
    };
    if event.event != c::ib_cm_event_type_IB_CM_REQ_RECEIVED {
        // SIDR requests: SDP has no datagrams. A non-zero result makes `ib_cm` destroy the id.
        return EINVAL.to_errno();
    }
    // SAFETY: The kind of event shows that this field is in use.
    let p = unsafe { &event.param.req_rcvd };
    // INVARIANT: `ib_cm` makes the id for this callback, which decides on the id.
    let incoming = Incoming {
        // SAFETY: `ib_cm` passes an id that outlives the callback, and so outlives `incoming`.
        id: unsafe { CmId::new(RawId::Ib(id)) },
        ib: Some(event),
        // SAFETY: `ib_cm` passes a live id, whose device never changes.
        device: unsafe { (*id.as_ptr()).device },
        // SAFETY: By the calling convention of `ib_cm` the id is alive.
        service: u64::from_be(unsafe { (*id.as_ptr()).service_id }),
        // SAFETY: A REQ has `REQUEST_DATA` bytes of private data, valid in the callback.
        data: unsafe { &*event.private_data.cast::<[u8; REQUEST_DATA]>() },
        reads_in: p.responder_resources,
        reads_out: p.initiator_depth,
        device_port: u32::from(p.port),
        // SAFETY: `ib_cm` passes a primary path with each request, valid during the callback.
        path_mtu: unsafe { (*p.primary_path).mtu },
        peer: None,
        adopted: Cell::new(false),
    };
    let rejected = L::request(&incoming);
    if incoming.adopted.get() {
        return 0;
    }
    let Some(why) = rejected else {
        // The non-zero result makes `ib_cm` drop the request without a reply.
        return ENOMEM.to_errno();
    };
    if why != reason::CONSUMER {
        // An error is ignored, since `ib_cm` then rejects with the consumer's reason (next line).
        let _ = incoming.id.reject(why);
    }
    // Destroys the id. `ib_cm` first rejects an unanswered request with the consumer's reason.
    EACCES.to_errno()
}

extern "C" fn on_iw_request<L: Listener>(
    id: *mut c::iw_cm_id,
    event: *mut c::iw_cm_event,
) -> c_int {
    // SAFETY: `iw_cm` passes an event that is valid during the call.
    let event = unsafe { &*event };
    let Some(id) = NonNull::new(id) else {
        return EINVAL.to_errno();
    };
    if event.event != c::iw_cm_event_type_IW_CM_EVENT_CONNECT_REQUEST {
        return 0;
    }
    // SAFETY: `iw_cm` passes a live id with the listener's context.
    let (device, port) = unsafe { ((*id.as_ptr()).device, (*id.as_ptr()).context.addr()) };
    // drivers report the peer's value or that of this end: the smaller one fits both
    let reads = event.ird.min(event.ord);
    // INVARIANT: `iw_cm` makes the id for this callback, which decides on the id.
    let incoming = Incoming {
        // SAFETY: `iw_cm` passes an id that outlives the callback, and so outlives `incoming`.
        id: unsafe { CmId::new(RawId::Iw(id)) },
        ib: None,
        device,
        service: SERVICE_ID | port as u64,
        data: &iw_cm::data(event),
        reads_in: reads,
        reads_out: reads,
        device_port: 1,
        path_mtu: 0,
        peer: netns::address(&event.remote_addr).map(|a| a.ip),
        adopted: Cell::new(false),
    };
    let rejected = L::request(&incoming);
    if incoming.adopted.get() {
        return 0;
    }
    let why = rejected.unwrap_or(reason::BUSY).to_be_bytes();
    let len = why.len() as u8;
    // SAFETY: The id is alive and not adopted. After an error the peer finds a closed connection.
    let _ = unsafe { c::iw_cm_reject(id.as_ptr(), why.as_ptr().cast(), len) };
    // the non-zero result makes `iw_cm` destroy the id
    EACCES.to_errno()
}

// SPDX-License-Identifier: GPL-2.0-only

//! Connection requests of peers.
//!
//! A [`ListenId`] accepts REQs for one service ID at one device. An [`Incoming`] is such a REQ,
//! during the callback that reports it.

use super::super::bindings as c;
use super::cm::{reason, CmEvents, OwnedCmId, REQUEST_DATA};
use super::device::DeviceRef;
use super::netns;
use crate::sys::address::Address;
use crate::sys::netns::Net;
use core::cell::Cell;
use core::ptr::NonNull;
use kernel::error::to_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

/// Decision on a request that was not adopted.
pub(crate) enum Answer {
    /// REJ with this reason.
    Reject(u32),
    /// No reply, so that the peer repeats the request.
    Silence,
}

pub(crate) trait Listener: 'static {
    /// Handles a request. Context: process, may sleep; all connection setup of the host waits
    /// meanwhile. The result is ignored if the request was adopted and not given back.
    fn request(request: &Incoming<'_>) -> Answer;
}

/// A listening service ID at one device.
///
/// # Invariants
///
/// `raw` counts for one listen of that id, which [`Drop`] ends.
pub(crate) struct ListenId {
    raw: NonNull<c::ib_cm_id>,
    _device: DeviceRef,
}

// SAFETY: An `ib_cm_id` may be used by any thread.
unsafe impl Send for ListenId {}
// SAFETY: The type has no methods.
unsafe impl Sync for ListenId {}

impl ListenId {
    /// Starts listening. All listeners of one service ID have the same `L`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: another listener exists. `ENOMEM`.
    pub(crate) fn new<L: Listener>(device: &DeviceRef, service: u64) -> Result<Self> {
        // SAFETY: The device is in use.
        let id =
            unsafe { c::ib_cm_insert_listen(device.raw(), Some(on_request::<L>), service.to_be()) };
        let raw = NonNull::new(kernel::error::from_err_ptr(id)?).ok_or(ENOMEM)?;
        Ok(ListenId {
            raw,
            _device: device.clone(),
        })
    }
}

impl Drop for ListenId {
    fn drop(&mut self) {
        // SAFETY: By the invariants this listen was not ended yet. The last one waits for
        // callbacks.
        unsafe { c::ib_destroy_cm_id(self.raw.as_ptr()) }
    }
}

/// A connection request.
///
/// # Invariants
///
/// `id` is the new id that `ib_cm` made for the request, and `event` is the request. Unless
/// `adopted`, this callback decides on the id.
pub(crate) struct Incoming<'a> {
    id: NonNull<c::ib_cm_id>,
    event: &'a c::ib_cm_event,
    adopted: Cell<bool>,
}

impl<'a> Incoming<'a> {
    fn parameters(&self) -> &'a c::ib_cm_req_event_param {
        // SAFETY: By the invariants the event is a request, so this field is in use.
        unsafe { &self.event.param.req_rcvd }
    }

    /// Returns true if the request arrived at this device.
    pub(crate) fn is_at(&self, device: &DeviceRef) -> bool {
        // SAFETY: By the invariants the id is alive; its device never changes.
        device.is(unsafe { (*self.id.as_ptr()).device })
    }

    pub(crate) fn service(&self) -> u64 {
        // SAFETY: By the invariants the id is alive; its service never changes.
        u64::from_be(unsafe { (*self.id.as_ptr()).service_id })
    }

    /// Returns the private data of the peer's consumer.
    pub(crate) fn data(&self) -> &'a [u8; REQUEST_DATA] {
        // SAFETY: The private data of a REQ always has this length, whatever the peer has sent, and
        // is valid during the callback.
        unsafe { &*self.event.private_data.cast::<[u8; REQUEST_DATA]>() }
    }

    pub(crate) fn reads_in(&self) -> u8 {
        self.parameters().responder_resources
    }

    /// Returns the maximum number of RDMA READs that this end may have in flight.
    pub(crate) fn reads_out(&self) -> u8 {
        self.parameters().initiator_depth
    }

    pub(crate) fn device_port(&self) -> u32 {
        u32::from(self.parameters().port)
    }

    /// Returns the code of the path MTU that the peer chose.
    pub(crate) fn path_mtu(&self) -> u8 {
        // SAFETY: `ib_cm` passes a primary path with each request, valid during the callback.
        unsafe { (*self.parameters().primary_path).mtu }
    }

    /// Returns the network namespace and the interface of the request.
    ///
    /// # Errors
    ///
    /// `ENODEV`, `EHOSTUNREACH`: the interface does not exist or is down, or the namespace may not
    /// use the device.
    pub(crate) fn net(&self, local: &Address) -> Result<(ARef<Net>, u32)> {
        let mut local = netns::sockaddr(local);
        let (mut net, mut ifindex) = (core::ptr::null_mut(), 0);
        // SAFETY: By the invariants the event is a request; all results are writable.
        to_result(unsafe {
            c::sdp_h_cm_request_net(self.event, &mut local, &mut net, &mut ifindex)
        })?;
        let net = NonNull::new(net).ok_or(ENODEV)?;
        // SAFETY: The function has taken a reference for this caller.
        let net = unsafe { crate::sys::netns::owned(net) };
        Ok((net, u32::try_from(ifindex).map_err(|_| ENODEV)?))
    }

    /// Adopts the connection.
    ///
    /// # Errors
    ///
    /// `EBUSY`: already adopted. `ENOMEM`.
    pub(crate) fn adopt(&self, device: &DeviceRef, events: Arc<dyn CmEvents>) -> Result<OwnedCmId> {
        if self.adopted.get() || !self.is_at(device) {
            return Err(EBUSY);
        }
        // SAFETY: By the invariants this is the callback of the request, which owns the id until it
        // is adopted.
        let id = unsafe { OwnedCmId::adopt(self.id, device, events) }?;
        // INVARIANT: Now the `OwnedCmId` owns it.
        self.adopted.set(true);
        Ok(id)
    }

    /// Reverses the adoption: the callback's decision counts again.
    ///
    /// # Errors
    ///
    /// Returns the id if it is not that of [`Incoming::adopt`], or if a REP was sent.
    pub(crate) fn give_back(&self, id: OwnedCmId) -> Result<(), OwnedCmId> {
        if !self.adopted.get() || !id.is(self.id) {
            return Err(id);
        }
        // SAFETY: `Incoming` exists only within the callback, so this is the same one.
        unsafe { id.give_back() }?;
        // INVARIANT: The id is the callback's again.
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
    // INVARIANT: By the calling convention of `ib_cm`.
    let incoming = Incoming {
        id,
        event,
        adopted: Cell::new(false),
    };
    let answer = L::request(&incoming);
    if incoming.adopted.get() {
        return 0;
    }
    match answer {
        Answer::Reject(why) => {
            if why != reason::CONSUMER {
                let none = core::ptr::null_mut();
                // SAFETY: The id is alive and not adopted. A failure is ignored: then `ib_cm`
                // rejects with the consumer's reason, by the next line.
                let _ = unsafe { c::ib_send_cm_rej(id.as_ptr(), why, none, 0, none, 0) };
            }
            // Destroys the id, after a reject with the consumer's reason if there was no reply yet.
            EACCES.to_errno()
        }
        // This result makes `ib_cm` drop the request without a reply.
        Answer::Silence => ENOMEM.to_errno(),
    }
}

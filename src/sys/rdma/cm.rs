// SPDX-License-Identifier: GPL-2.0-only

//! Connections of the connection managers of InfiniBand and RoCE (`ib_cm`) and of iWARP (`iw_cm`).
//!
//! An [`OwnedCmId`] is one end of a connection from its REQ to the end of time-wait. A [`CmId`] is
//! a reference to a connection's id in a callback.

use super::super::bindings as c;
use super::cm_id::{on_event, on_iw_event, RawId, RNR_RETRY};
pub(crate) use super::cm_id::{
    reason, CmEvent, CmEvents, CmId, OwnParameters, REPLY_DATA, REQUEST_DATA, SERVICE_ID,
};
use super::device::DeviceRef;
use super::iw_cm;
use super::route::Route;
use core::ptr::{self, NonNull};
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::atomic::{AtomicFlag, Relaxed};
use kernel::sync::Arc;

/// Code of the timeout of a REQ, REP or DREQ: 4.096 us times 2 to this power. A REQ over RoCE is
/// repeated every 1.5 s.
const RESPONSE_TIMEOUT: u8 = 18;

/// Parameters of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Config {
    /// Number of posted receive buffers.
    pub(crate) receive_slots: u16,
    /// Maximum size of a message that is copied into the work request (inline), in bytes.
    pub(crate) inline: u16,
    /// Retries of a message that the peer does not acknowledge, up to 7; rxe treats 7 as unlimited.
    pub(crate) retry_count: u8,
    /// Retries of a REQ, REP or DREQ, up to 15.
    pub(crate) cm_retries: u8,
    /// Number of times that a request's path MTU is halved from the route's.
    pub(crate) mtu_steps: u8,
}

/// Contents of a REQ besides the route and [`OwnParameters`].
pub(crate) struct RequestParameters<'a> {
    /// Service ID to connect to.
    pub(crate) service: u64,
    /// Private data for the peer's consumer.
    pub(crate) data: &'a [u8; REQUEST_DATA],
    pub(crate) config: &'a Config,
    /// `SO_PRIORITY`, if the service level is taken from `SO_PRIORITY` instead of the path record.
    pub(crate) priority: Option<i32>,
    /// TCP port of the request, on iWARP.
    pub(crate) tcp_port: u16,
}

/// Owner of a connection. Dropping the id ends the connection at once and waits for running
/// callbacks, so an id must not be dropped in one of its callbacks.
///
/// # Invariants
///
/// Unless `given_back`, the id is alive until [`Drop`] destroys it. The id's context is in
/// `_events`, which does not change.
pub(crate) struct OwnedCmId {
    connection: CmId,
    /// Set once a REP may have been sent.
    replied: AtomicFlag,
    /// Request by iWARP, for [`OwnedCmId::connect`].
    hello: Option<(c::iw_cm_conn_param, [u8; REQUEST_DATA])>,
    /// Set if the callback that passed the id on owns the id again.
    given_back: bool,
    _events: KBox<Arc<dyn CmEvents>>,
    _device: DeviceRef,
}

// SAFETY: An `ib_cm_id` may be used by any thread.
unsafe impl Send for OwnedCmId {}
// SAFETY: An `ib_cm_id` has its own lock, and methods that do not take this lock take `&mut self`.
unsafe impl Sync for OwnedCmId {}

impl core::ops::Deref for OwnedCmId {
    type Target = CmId;

    fn deref(&self) -> &CmId {
        &self.connection
    }
}

impl OwnedCmId {
    /// Makes a new connection, for [`OwnedCmId::request`].
    pub(crate) fn new(device: &DeviceRef, events: Arc<dyn CmEvents>) -> Result<Self> {
        let events = KBox::new(events, GFP_KERNEL)?;
        let context = ptr::from_ref(&*events).cast_mut().cast();
        let id = if device.is_iwarp() {
            RawId::Iw(iw_cm::create(device, on_iw_event, context)?)
        } else {
            // SAFETY: The device is in use; the context lives as long as the id.
            let id = unsafe { c::ib_create_cm_id(device.raw(), Some(on_event), context) };
            RawId::Ib(NonNull::new(kernel::error::from_err_ptr(id)?).ok_or(ENOMEM)?)
        };
        // SAFETY: The id was made above, and the drop of the result destroys the id.
        // INVARIANT: As before.
        Ok(Self::with(unsafe { CmId::new(id) }, events, device))
    }

    fn with(connection: CmId, events: KBox<Arc<dyn CmEvents>>, device: &DeviceRef) -> Self {
        OwnedCmId {
            connection,
            replied: AtomicFlag::new(false),
            hello: None,
            given_back: false,
            _events: events,
            _device: device.clone(),
        }
    }

    /// Takes over the id of a received REQ.
    ///
    /// # Safety
    ///
    /// The caller is the callback of that REQ and owns the id of `device`. On success the caller
    /// passes the id on.
    pub(super) unsafe fn adopt(
        id: &CmId,
        device: &DeviceRef,
        events: Arc<dyn CmEvents>,
    ) -> Result<Self> {
        let events = KBox::new(events, GFP_KERNEL)?;
        // SAFETY: The id is alive, and its manager reads the context and the handler only for
        // callbacks, which do not run during this call.
        unsafe { id.set_context(ptr::from_ref(&*events).cast_mut().cast()) };
        // SAFETY: The caller has passed the id on: it lives until the drop of the result.
        // INVARIANT: The context was set above.
        Ok(Self::with(unsafe { CmId::new(id.raw()) }, events, device))
    }

    /// Sends REP.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the REQ needs no reply. Other errors: those of sending.
    pub(crate) fn reply(&self, p: &OwnParameters, data: &[u8; REPLY_DATA]) -> Result {
        // readers of the flag have `&mut self`, which orders this store
        self.replied.store(true, Relaxed);
        let id = match self.connection.raw() {
            RawId::Ib(id) => id.as_ptr(),
            RawId::Iw(id) => {
                let mut param = iw_cm::parameters(p.qp, p.reads_in, p.reads_out, data);
                // SAFETY: By the invariants the id is alive; the driver copies the private data.
                return to_result(unsafe { c::iw_cm_accept(id.as_ptr(), &mut param) });
            }
        };
        let mut param = c::ib_cm_rep_param {
            qp_num: p.qp,
            starting_psn: p.psn,
            private_data: data.as_ptr().cast(),
            private_data_len: REPLY_DATA as u8,
            responder_resources: p.reads_in,
            initiator_depth: p.reads_out,
            rnr_retry_count: RNR_RETRY,
            ..Default::default()
        };
        // SAFETY: By the invariants the id is alive; the private data has the given length, and is
        // copied by the call.
        let sent = to_result(unsafe { c::ib_send_cm_rep(id, &mut param) });
        // without a REP no event about the REP follows: the request can be dropped
        self.replied.store(sent.is_ok(), Relaxed);
        sent
    }

    /// Reverses [`OwnedCmId::adopt`]: the id belongs to the caller again, without a handler.
    ///
    /// # Safety
    ///
    /// Called from the callback that has called [`OwnedCmId::adopt`].
    ///
    /// # Errors
    ///
    /// Must not follow [`OwnedCmId::reply`]: the event of an unanswered REP may arrive at any time.
    pub(super) unsafe fn give_back(mut self) -> Result<(), Self> {
        if self.replied.load(Relaxed) {
            return Err(self);
        }
        // SAFETY: As in `adopt`, no callback runs during this call. When the callback returns an
        // error, the connection manager destroys the id, and no further callback runs.
        unsafe { self.connection.set_context(ptr::null_mut()) };
        // INVARIANT: Dropping `self` at the end of this call leaves the id to the callback.
        self.given_back = true;
        Ok(())
    }

    /// Sends an MPA request, prepared by [`OwnedCmId::request`]. Context: process; waits for the
    /// TCP handshake with the peer.
    pub(crate) fn connect(&mut self) -> Result {
        let (RawId::Iw(id), Some((param, hello))) = (self.connection.raw(), &mut self.hello) else {
            return Err(EINVAL);
        };
        param.private_data = hello.as_ptr().cast();
        // SAFETY: By the invariants the id is alive; `request` has set its addresses. The driver
        // copies the private data.
        to_result(unsafe { c::iw_cm_connect(id.as_ptr(), param) })
    }

    /// Sends REQ. Returns true if [`OwnedCmId::connect`] has to follow.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a request was sent before. Other errors: those of sending.
    pub(crate) fn request(
        &mut self,
        route: &Route,
        own: &OwnParameters,
        p: &RequestParameters<'_>,
    ) -> Result<bool> {
        let id = match self.connection.raw() {
            RawId::Ib(id) => id.as_ptr(),
            RawId::Iw(id) => {
                let (local, mut remote) = route.addresses()?;
                remote.port = p.tcp_port;
                // SAFETY: By the invariants the id is alive; `&mut self` keeps it from being used.
                unsafe { iw_cm::set_addresses(id, &local, &remote) };
                let param = iw_cm::parameters(own.qp, own.reads_in, own.reads_out, p.data);
                self.hello = Some((param, *p.data));
                return Ok(true);
            }
        };
        let path = route.path()?;
        // SAFETY: The path record is complete plain data, which the route keeps.
        let mut primary = unsafe { ptr::read(path.path_rec) };
        // 1 is the code of 256 bytes, the minimum.
        primary.mtu = primary.mtu.saturating_sub(p.config.mtu_steps).max(1);
        if let Some(priority) = p.priority {
            primary.sl = route.service_level(priority)?;
        }
        let mut param = c::ib_cm_req_param {
            primary_path: &mut primary,
            primary_path_inbound: path.path_rec_inbound,
            primary_path_outbound: path.path_rec_outbound,
            ppath_sgid_attr: path.addr.dev_addr.sgid_attr,
            service_id: p.service.to_be(),
            qp_num: own.qp,
            qp_type: c::ib_qp_type_IB_QPT_RC,
            starting_psn: own.psn,
            private_data: p.data.as_ptr().cast(),
            private_data_len: REQUEST_DATA as u8,
            responder_resources: own.reads_in,
            initiator_depth: own.reads_out,
            remote_cm_response_timeout: RESPONSE_TIMEOUT,
            local_cm_response_timeout: RESPONSE_TIMEOUT,
            retry_count: p.config.retry_count.min(7),
            rnr_retry_count: RNR_RETRY,
            max_cm_retries: p.config.cm_retries.min(15),
            ..Default::default()
        };
        // SAFETY: By the invariants the id is alive, and `&mut self` excludes a second request at
        // the same time. The route keeps path records and GID while it is borrowed. The call copies
        // the path records and the private data, and takes a reference to the GID.
        to_result(unsafe { c::ib_send_cm_req(id, &mut param) })?;
        Ok(false)
    }
}

impl Drop for OwnedCmId {
    fn drop(&mut self) {
        if !self.given_back {
            // SAFETY: By the invariants the id is alive and owned. `destroy` waits for callbacks.
            unsafe { self.connection.destroy() };
        }
        // The context is a field, so the compiler drops it after this function.
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Connections of the InfiniBand connection manager (`ib_cm`).
//!
//! An [`OwnedCmId`] is one end of a connection from its REQ to the end of time-wait. A [`CmId`] is
//! a reference to it in a callback.

use super::super::bindings as c;
use super::context::Context;
use super::device::DeviceRef;
use super::route::Route;
use core::ptr::NonNull;
use kernel::error::to_result;
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::sync::atomic::{AtomicFlag, Relaxed};
use kernel::sync::Arc;

/// Size of the private data of a REQ.
pub(crate) const REQUEST_DATA: usize = c::ib_cm_data_size_IB_CM_REQ_PRIVATE_DATA_SIZE as usize;
/// Size of the private data of a REP.
pub(crate) const REPLY_DATA: usize = c::ib_cm_data_size_IB_CM_REP_PRIVATE_DATA_SIZE as usize;

/// Reject reasons with a meaning for SDP.
pub(crate) mod reason {
    use super::c;

    /// No listener at the service ID.
    pub(crate) const NO_SERVICE: u32 = c::ib_cm_rej_reason_IB_CM_REJ_INVALID_SERVICE_ID;
    /// The peer's connection manager timed out.
    pub(crate) const TIMEOUT: u32 = c::ib_cm_rej_reason_IB_CM_REJ_TIMEOUT;
    /// The consumer rejects the connection.
    pub(crate) const CONSUMER: u32 = c::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED;
    /// The peer has an older connection with the queue pair of that number, which it now drops.
    pub(crate) const STALE: u32 = c::ib_cm_rej_reason_IB_CM_REJ_STALE_CONN;
    /// The path MTU is larger than that of the peer's port.
    pub(crate) const PATH_MTU: u32 = c::ib_cm_rej_reason_IB_CM_REJ_INVALID_MTU;
    /// The peer lacks resources.
    pub(crate) const NO_RESOURCES: u32 = c::ib_cm_rej_reason_IB_CM_REJ_NO_RESOURCES;
}

/// Events of a connection.
pub(crate) enum CmEvent<'a> {
    /// REP: the peer accepts.
    Reply {
        data: &'a [u8; REPLY_DATA],
        /// Maximum number of RDMA READs that this end may have in flight.
        reads_out: u8,
        /// Maximum number of RDMA READs that the peer requests to have in flight.
        reads_in: u8,
    },
    /// RTU, or a message that replaces it.
    Ready,
    /// REJ.
    Rejected(u32),
    /// No reply to the REQ of this end.
    RequestUnanswered,
    /// No reply to the REP of this end.
    ReplyUnanswered,
    /// DREQ: the peer disconnects.
    DisconnectRequest,
    /// DREP to the DREQ of this end.
    DisconnectReply,
    /// No reply to the DREQ of this end.
    DisconnectUnanswered,
    /// End of time-wait.
    TimeWaitOver,
}

/// Receiver of the events.
pub(crate) trait CmEvents: Send + Sync + 'static {
    /// Handles an event. Context: process, one event at a time, may sleep; all connection setup of
    /// the host waits meanwhile. Must not drop the [`OwnedCmId`].
    fn event(self: Arc<Self>, connection: &CmId, event: CmEvent<'_>);
}

/// Reference to a connection that has another owner.
///
/// # Invariants
///
/// `raw` is a live `ib_cm_id`.
#[repr(transparent)]
pub(crate) struct CmId {
    raw: NonNull<c::ib_cm_id>,
}

/// Contents of a REQ besides the route.
pub(crate) struct RequestParameters<'a> {
    /// Service ID to connect to.
    pub(crate) service: u64,
    /// Own QP.
    pub(crate) qp: u32,
    /// PSN of the first message sent.
    pub(crate) psn: u32,
    /// Private data for the peer's consumer.
    pub(crate) data: &'a [u8; REQUEST_DATA],
    /// Maximum number of the peer's RDMA READs in flight.
    pub(crate) reads_in: u8,
    /// Maximum number of RDMA READs that this end may have in flight.
    pub(crate) reads_out: u8,
    /// Retries of either side without an acknowledgement.
    pub(crate) retry_count: u8,
    /// Retries of the peer when no receive buffer is posted here.
    pub(crate) rnr_retry: u8,
    /// Code of the timeout of a reply, on either side.
    pub(crate) response_timeout: u8,
    /// Retries of connection-manager messages.
    pub(crate) cm_retries: u8,
    /// Number of steps by which the path MTU is below the route's.
    pub(crate) mtu_steps: u8,
    /// `SO_PRIORITY`, if it selects the service level instead of the path record.
    pub(crate) priority: Option<i32>,
}

/// Contents of a REP.
pub(crate) struct ReplyParameters<'a> {
    /// Own QP.
    pub(crate) qp: u32,
    /// PSN of the first message sent.
    pub(crate) psn: u32,
    /// Private data for the peer's consumer.
    pub(crate) data: &'a [u8; REPLY_DATA],
    /// Maximum number of the peer's RDMA READs in flight.
    pub(crate) reads_in: u8,
    /// Maximum number of RDMA READs that this end may have in flight.
    pub(crate) reads_out: u8,
    /// Retries of the peer when no receive buffer is posted here.
    pub(crate) rnr_retry: u8,
}

/// Returns a random first PSN, so that packets of the peer are hard to forge.
pub(crate) fn random_psn() -> u32 {
    // SAFETY: No requirements.
    unsafe { c::get_random_u32() & 0xff_ffff }
}

impl CmId {
    fn raw(&self) -> *mut c::ib_cm_id {
        self.raw.as_ptr()
    }

    /// Returns the connection manager's attributes for the QP in the given state, and their mask.
    pub(super) fn qp_attributes(&self, state: c::ib_qp_state) -> Result<(c::ib_qp_attr, i32)> {
        let mut attr = c::ib_qp_attr {
            qp_state: state,
            ..Default::default()
        };
        let mut mask = 0;
        // SAFETY: By the invariants the id is alive; both results are writable.
        to_result(unsafe { c::ib_cm_init_qp_attr(self.raw(), &mut attr, &mut mask) })?;
        Ok((attr, mask))
    }

    fn reply(&self, p: &ReplyParameters<'_>) -> Result {
        let mut param = c::ib_cm_rep_param {
            qp_num: p.qp,
            starting_psn: p.psn,
            private_data: p.data.as_ptr().cast(),
            private_data_len: REPLY_DATA as u8,
            responder_resources: p.reads_in,
            initiator_depth: p.reads_out,
            rnr_retry_count: p.rnr_retry,
            ..Default::default()
        };
        // SAFETY: By the invariants the id is alive; the private data has the given length, and is
        // copied by the call.
        to_result(unsafe { c::ib_send_cm_rep(self.raw(), &mut param) })
    }

    /// Sends RTU.
    pub(crate) fn ready(&self) -> Result {
        // SAFETY: By the invariants the id is alive; there is no private data.
        to_result(unsafe { c::ib_send_cm_rtu(self.raw(), core::ptr::null(), 0) })
    }

    /// Sends REJ.
    pub(crate) fn reject(&self, reason: u32) -> Result {
        let none = core::ptr::null_mut();
        // SAFETY: By the invariants the id is alive; there is no additional information.
        to_result(unsafe { c::ib_send_cm_rej(self.raw(), reason, none, 0, none, 0) })
    }

    /// Sends DREQ, repeatedly until a reply arrives.
    pub(crate) fn disconnect(&self) -> Result {
        // SAFETY: By the invariants the id is alive; there is no private data.
        to_result(unsafe { c::ib_send_cm_dreq(self.raw(), core::ptr::null(), 0) })
    }

    /// Sends DREP.
    pub(crate) fn disconnect_reply(&self) -> Result {
        // SAFETY: By the invariants the id is alive; there is no private data.
        to_result(unsafe { c::ib_send_cm_drep(self.raw(), core::ptr::null(), 0) })
    }

    /// Notifies the connection manager of a received message, which replaces an RTU.
    pub(crate) fn message_came(&self) -> Result {
        let event = c::ib_event_type_IB_EVENT_COMM_EST;
        // SAFETY: By the invariants the id is alive.
        to_result(unsafe { c::ib_cm_notify(self.raw(), event) })
    }
}

/// Owner of a connection. Its drop ends the connection at once and waits for running callbacks, so
/// it must not be dropped in one of them.
///
/// # Invariants
///
/// The id is alive until [`Drop`] destroys it, and its context is `events`.
pub(crate) struct OwnedCmId {
    connection: CmId,
    /// Set once sending REP was tried.
    replied: AtomicFlag,
    events: Context<Arc<dyn CmEvents>>,
    _device: DeviceRef,
}

// SAFETY: An `ib_cm_id` may be used by any thread.
unsafe impl Send for OwnedCmId {}
// SAFETY: An `ib_cm_id` has its own lock, and methods without it take `&mut self`.
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
        let events = Context::new(events)?;
        // SAFETY: The device is in use; the context lives as long as the id.
        let id = unsafe { c::ib_create_cm_id(device.raw(), Some(on_event), events.as_ptr()) };
        let raw = NonNull::new(kernel::error::from_err_ptr(id)?).ok_or(ENOMEM)?;
        // INVARIANT: Made above.
        Ok(OwnedCmId {
            connection: CmId { raw },
            replied: AtomicFlag::new(false),
            events,
            _device: device.clone(),
        })
    }

    /// Takes over the id of a received REQ.
    ///
    /// # Safety
    ///
    /// The caller is the callback of that REQ, owns the id `raw` of `device`, and passes it on, on
    /// success only.
    pub(super) unsafe fn adopt(
        raw: NonNull<c::ib_cm_id>,
        device: &DeviceRef,
        events: Arc<dyn CmEvents>,
    ) -> Result<Self> {
        let events = Context::new(events)?;
        // SAFETY: The id is alive, and `ib_cm` reads these two fields only for callbacks, which do
        // not run during this one.
        unsafe {
            (*raw.as_ptr()).context = events.as_ptr();
            (*raw.as_ptr()).cm_handler = Some(on_event);
        }
        // INVARIANT: The context was set above; the caller has passed the id on.
        Ok(OwnedCmId {
            connection: CmId { raw },
            replied: AtomicFlag::new(false),
            events,
            _device: device.clone(),
        })
    }

    /// Sends REP.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the REQ needs no reply. Others: errors of sending.
    pub(crate) fn reply(&self, p: &ReplyParameters<'_>) -> Result {
        // a reader has `self` exclusively, which orders this
        self.replied.store(true, Relaxed);
        self.connection.reply(p)
    }

    /// Reverses [`OwnedCmId::adopt`]: the id belongs to the caller again, without a handler.
    ///
    /// # Safety
    ///
    /// Called from the same callback.
    ///
    /// # Errors
    ///
    /// Not after [`OwnedCmId::reply`]: the event of an unanswered REP may arrive at any time.
    pub(super) unsafe fn give_back(self) -> Result<NonNull<c::ib_cm_id>, Self> {
        if self.replied.load(Relaxed) {
            return Err(self);
        }
        let this = core::mem::ManuallyDrop::new(self);
        let raw = this.connection.raw;
        // SAFETY: As in `adopt`: no callback runs meanwhile. The id is destroyed when the callback
        // returns an error, and no further callback runs.
        unsafe { (*raw.as_ptr()).context = core::ptr::null_mut() };
        // SAFETY: The fields are moved out of a value that is neither used nor dropped again. The
        // id has no context any more.
        drop(unsafe {
            (
                core::ptr::read(&this.events),
                core::ptr::read(&this._device),
            )
        });
        Ok(raw)
    }

    /// Returns true if `raw`, which is only compared, is this connection's id.
    pub(super) fn is(&self, raw: NonNull<c::ib_cm_id>) -> bool {
        self.connection.raw == raw
    }

    /// Sends REQ.
    ///
    /// # Errors
    ///
    /// `EINVAL`: already requested. Others: errors of sending.
    pub(crate) fn request(&mut self, route: &Route, p: &RequestParameters<'_>) -> Result {
        let (path, gid) = route.path()?;
        // SAFETY: A complete path record, which the route keeps; it is plain data.
        let mut primary = unsafe { core::ptr::read(path.primary) };
        // 1 is the code of 256 bytes, the minimum.
        primary.mtu = primary.mtu.saturating_sub(p.mtu_steps).max(1);
        if let Some(priority) = p.priority {
            primary.sl = route.service_level(priority)?;
        }
        let mut param = c::ib_cm_req_param {
            primary_path: &mut primary,
            primary_path_inbound: path.inbound,
            primary_path_outbound: path.outbound,
            ppath_sgid_attr: gid,
            service_id: p.service.to_be(),
            qp_num: p.qp,
            qp_type: c::ib_qp_type_IB_QPT_RC,
            starting_psn: p.psn,
            private_data: p.data.as_ptr().cast(),
            private_data_len: REQUEST_DATA as u8,
            responder_resources: p.reads_in,
            initiator_depth: p.reads_out,
            remote_cm_response_timeout: p.response_timeout,
            local_cm_response_timeout: p.response_timeout,
            retry_count: p.retry_count.min(7),
            rnr_retry_count: p.rnr_retry.min(7),
            max_cm_retries: p.cm_retries.min(15),
            ..Default::default()
        };
        // SAFETY: By the invariants the id is alive, and `&mut self` keeps a second request from
        // racing with this one. The route keeps path records and GID while it is borrowed; the call
        // copies the former, takes a reference to the latter, and copies the private data.
        to_result(unsafe { c::ib_send_cm_req(self.raw(), &mut param) })
    }
}

impl Drop for OwnedCmId {
    fn drop(&mut self) {
        // SAFETY: By the invariants the id is alive and owned. The call waits for callbacks.
        unsafe { c::ib_destroy_cm_id(self.connection.raw()) };
        // The context, which is a field, is dropped after this.
    }
}

extern "C" fn on_event(id: *mut c::ib_cm_id, event: *const c::ib_cm_event) -> c_int {
    let Some(raw) = NonNull::new(id) else {
        return 0;
    };
    // SAFETY: `ib_cm` passes a live id, whose context it does not change.
    let context: *mut c_void = unsafe { (*id).context };
    if context.is_null() {
        return 0;
    }
    // SAFETY: The context belongs to an `OwnedCmId`, which is freed only after the id is destroyed;
    // that waits for this call.
    let events = unsafe { &*context.cast::<Arc<dyn CmEvents>>() };
    // SAFETY: `ib_cm` passes an event that is valid during the call.
    let event = unsafe { &*event };
    let what = match event.event {
        c::ib_cm_event_type_IB_CM_REP_RECEIVED => {
            // SAFETY: The kind of event shows that this field is in use.
            let p = unsafe { &event.param.rep_rcvd };
            // SAFETY: The private data of a REP always has this length, whatever the peer has sent.
            let data = unsafe { &*event.private_data.cast::<[u8; REPLY_DATA]>() };
            CmEvent::Reply {
                data,
                reads_out: p.initiator_depth,
                reads_in: p.responder_resources,
            }
        }
        c::ib_cm_event_type_IB_CM_RTU_RECEIVED | c::ib_cm_event_type_IB_CM_USER_ESTABLISHED => {
            CmEvent::Ready
        }
        c::ib_cm_event_type_IB_CM_REJ_RECEIVED => {
            // SAFETY: The kind of event shows that this field is in use.
            CmEvent::Rejected(unsafe { event.param.rej_rcvd.reason })
        }
        c::ib_cm_event_type_IB_CM_REQ_ERROR => CmEvent::RequestUnanswered,
        c::ib_cm_event_type_IB_CM_REP_ERROR => CmEvent::ReplyUnanswered,
        c::ib_cm_event_type_IB_CM_DREQ_RECEIVED => CmEvent::DisconnectRequest,
        c::ib_cm_event_type_IB_CM_DREP_RECEIVED => CmEvent::DisconnectReply,
        c::ib_cm_event_type_IB_CM_DREQ_ERROR => CmEvent::DisconnectUnanswered,
        c::ib_cm_event_type_IB_CM_TIMEWAIT_EXIT => CmEvent::TimeWaitOver,
        // MRA: the peer needs more time; `ib_cm` handles it. LAP, APR: no alternate paths.
        _ => return 0,
    };
    // INVARIANT: The id is alive during the callback.
    events.clone().event(&CmId { raw }, what);
    // 0: `ib_cm` must not destroy the id; the `OwnedCmId` does.
    0
}

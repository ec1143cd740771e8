// SPDX-License-Identifier: GPL-2.0-only

//! Ids and events of the connection managers of InfiniBand, RoCE (`ib_cm`) and iWARP (`iw_cm`).
//!
//! On iWARP, a REQ is an MPA request, a REP is an MPA reply, a DREQ is a CLOSE of `iw_cm` (a FIN).

use super::super::bindings as c;
use super::super::errno::ECONNRESET;
use super::iw_cm;
use core::ptr::NonNull;
use kernel::error::to_result;
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::sync::Arc;

pub(crate) const REQUEST_DATA: usize = c::ib_cm_data_size_IB_CM_REQ_PRIVATE_DATA_SIZE as usize;
pub(crate) const REPLY_DATA: usize = c::ib_cm_data_size_IB_CM_REP_PRIVATE_DATA_SIZE as usize;

/// First of SDP's service IDs. The service ID of a port is this value plus the port (IBA Annex A4).
pub(crate) const SERVICE_ID: u64 = 0x1_0000;

/// Number of retries of a message for which no receive buffer is posted: unlimited.
pub(super) const RNR_RETRY: u8 = 7;

/// Reject reasons with a meaning for SDP.
pub(crate) mod reason {
    use super::c;

    /// No consumer listens at the service ID.
    pub(crate) const NO_SERVICE: u32 = c::ib_cm_rej_reason_IB_CM_REJ_INVALID_SERVICE_ID;
    /// The peer's connection manager timed out.
    pub(crate) const TIMEOUT: u32 = c::ib_cm_rej_reason_IB_CM_REJ_TIMEOUT;
    /// The consumer rejects the connection.
    pub(crate) const CONSUMER: u32 = c::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED;
    /// The peer had an older connection with the same QP number, and has dropped that connection.
    pub(crate) const STALE: u32 = c::ib_cm_rej_reason_IB_CM_REJ_STALE_CONN;
    /// The path MTU is larger than that of the peer's port.
    pub(crate) const PATH_MTU: u32 = c::ib_cm_rej_reason_IB_CM_REJ_INVALID_MTU;
    /// The acceptor lacks resources.
    pub(crate) const NO_RESOURCES: u32 = c::ib_cm_rej_reason_IB_CM_REJ_NO_RESOURCES;
    /// On iWARP: the backlog is full, and the request should be retried.
    pub(crate) const BUSY: u32 = super::iw_cm::BUSY;
    /// On iWARP: the connection ended without a reply. siw loses a reject that arrives with FIN.
    pub(crate) const NO_REPLY: u32 = BUSY + 1;
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
    Rejected(u32),
    /// The peer has not replied to the REQ or REP of this end.
    Unanswered,
    /// DREQ: the peer disconnects.
    DisconnectRequest,
    /// The peer replied to the DREQ of this end or did not reply in time, or time-wait ended.
    Disconnected,
}

/// Receiver of a connection's events.
pub(crate) trait CmEvents: Send + Sync + 'static {
    /// Handles an event. Context: process, one event at a time, may sleep; all connection setup of
    /// the host waits for the call. Must not drop the `OwnedCmId`.
    fn event(self: Arc<Self>, connection: &CmId, event: CmEvent<'_>);
}

/// An id of one of the connection managers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RawId {
    Ib(NonNull<c::ib_cm_id>),
    Iw(iw_cm::Id),
}

/// A live id of either connection manager. A `&CmId` does not own the id's connection.
///
/// # Invariants
///
/// The id is alive.
#[derive(PartialEq, Eq)]
pub(crate) struct CmId(RawId);

/// This end of a connection, in a REQ or REP.
pub(crate) struct OwnParameters {
    pub(crate) qp: u32,
    /// PSN of the first message sent.
    pub(crate) psn: u32,
    /// Maximum number of the peer's RDMA READs in flight.
    pub(crate) reads_in: u8,
    /// Maximum number of RDMA READs that this end may have in flight.
    pub(crate) reads_out: u8,
}

impl CmId {
    /// # Safety
    ///
    /// The id is alive while the result exists, or until [`CmId::destroy`].
    pub(super) unsafe fn new(raw: RawId) -> Self {
        // INVARIANT: The caller guarantees that the id is alive.
        CmId(raw)
    }

    /// Returns the C object.
    pub(super) fn raw(&self) -> RawId {
        self.0
    }

    /// Sets the context and the handler; null: events are dropped.
    ///
    /// # Safety
    ///
    /// The id's manager does not call back during this call.
    pub(super) unsafe fn set_context(&self, context: *mut c_void) {
        match self.0 {
            // SAFETY: By the invariants the id is alive. The caller ensures that no callback runs.
            RawId::Ib(mut id) => unsafe {
                id.as_mut().context = context;
                id.as_mut().cm_handler = Some(on_event);
            },
            // SAFETY: By the invariants the id is alive. The caller ensures that no callback runs.
            RawId::Iw(mut id) => unsafe {
                id.as_mut().context = context;
                id.as_mut().cm_handler = Some(on_iw_event);
            },
        }
    }

    /// Destroys an id, and waits for its callbacks.
    ///
    /// # Safety
    ///
    /// The id is the caller's, and is not used again. Not called in a callback of the id.
    pub(super) unsafe fn destroy(&self) {
        match self.0 {
            // SAFETY: The caller guarantees that the id is alive.
            RawId::Ib(id) => unsafe { c::ib_destroy_cm_id(id.as_ptr()) },
            // SAFETY: The caller guarantees that the id is alive.
            RawId::Iw(id) => unsafe { c::iw_destroy_cm_id(id.as_ptr()) },
        }
    }

    /// Returns the id of `ib_cm`. `None` on iWARP, where TCP manages the connection.
    fn ib(&self) -> Option<*mut c::ib_cm_id> {
        match self.0 {
            RawId::Ib(id) => Some(id.as_ptr()),
            RawId::Iw(_) => None,
        }
    }

    /// Returns the connection manager's attributes for the QP in the given state, and their mask.
    pub(super) fn qp_attributes(&self, state: c::ib_qp_state) -> Result<(c::ib_qp_attr, i32)> {
        let mut attr = c::ib_qp_attr {
            qp_state: state,
            ..Default::default()
        };
        let mut mask = 0;
        let id = self.ib().ok_or(EINVAL)?;
        // SAFETY: By the invariants the id is alive; both results are writable.
        to_result(unsafe { c::ib_cm_init_qp_attr(id, &mut attr, &mut mask) })?;
        Ok((attr, mask))
    }

    /// Sends RTU.
    pub(crate) fn ready(&self) -> Result {
        self.ib().map_or(Ok(()), |id| {
            // SAFETY: By the invariants the id is alive; there is no private data.
            to_result(unsafe { c::ib_send_cm_rtu(id, core::ptr::null(), 0) })
        })
    }

    /// Sends REJ. On iWARP dropping the id resets the connection instead: a reject after a reply of
    /// either end corrupts siw.
    pub(crate) fn reject(&self, reason: u32) -> Result {
        let none = core::ptr::null_mut();
        self.ib().map_or(Ok(()), |id| {
            // SAFETY: By the invariants the id is alive; there is no additional information.
            to_result(unsafe { c::ib_send_cm_rej(id, reason, none, 0, none, 0) })
        })
    }

    /// Sends DREQ, repeatedly until a reply arrives. Requires an established connection.
    pub(crate) fn disconnect(&self) -> Result {
        match self.0 {
            RawId::Ib(id) => {
                // SAFETY: By the invariants the id is alive; there is no private data.
                to_result(unsafe { c::ib_send_cm_dreq(id.as_ptr(), core::ptr::null(), 0) })
            }
            // Sends TCP's FIN after all messages; waits for an `iw_cm_connect` in progress.
            // SAFETY: By the invariants the id is alive.
            RawId::Iw(id) => to_result(unsafe { c::iw_cm_disconnect(id.as_ptr(), 0) }),
        }
    }

    /// Sends DREP.
    pub(crate) fn disconnect_reply(&self) -> Result {
        self.ib().map_or(Ok(()), |id| {
            // SAFETY: By the invariants the id is alive; there is no private data.
            to_result(unsafe { c::ib_send_cm_drep(id, core::ptr::null(), 0) })
        })
    }

    /// Notifies the connection manager of a received message, which replaces an RTU.
    pub(crate) fn message_came(&self) -> Result {
        let event = c::ib_event_type_IB_EVENT_COMM_EST;
        self.ib().map_or(Ok(()), |id| {
            // SAFETY: By the invariants the id is alive.
            to_result(unsafe { c::ib_cm_notify(id, event) })
        })
    }
}

/// Passes an event to the context of an id, if it has one.
///
/// # Safety
///
/// The id's handler passes its context and the id, which lives until the handler returns.
unsafe fn pass_on(id: RawId, context: *mut c_void, event: CmEvent<'_>) -> c_int {
    if !context.is_null() {
        // SAFETY: The context belongs to an `OwnedCmId`, which is freed only after the id is
        // destroyed. Destroying the id waits for this call.
        let events = unsafe { &*context.cast::<Arc<dyn CmEvents>>() };
        // SAFETY: The caller guarantees that the id is alive.
        events.clone().event(&unsafe { CmId::new(id) }, event);
    }
    // 0: the manager must not destroy the id; the `OwnedCmId` destroys it.
    0
}

pub(super) extern "C" fn on_event(id: *mut c::ib_cm_id, event: *const c::ib_cm_event) -> c_int {
    let Some(raw) = NonNull::new(id) else {
        return 0;
    };
    // SAFETY: `ib_cm` passes an event that is valid during the call.
    let event = unsafe { &*event };
    let what = match event.event {
        c::ib_cm_event_type_IB_CM_REP_RECEIVED => {
            // SAFETY: The kind of event shows that this field is in use.
            let p = unsafe { &event.param.rep_rcvd };
            // SAFETY: A REP always has `REPLY_DATA` bytes of private data, whatever the peer sends.
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
        c::ib_cm_event_type_IB_CM_REQ_ERROR | c::ib_cm_event_type_IB_CM_REP_ERROR => {
            CmEvent::Unanswered
        }
        c::ib_cm_event_type_IB_CM_DREQ_RECEIVED => CmEvent::DisconnectRequest,
        c::ib_cm_event_type_IB_CM_DREP_RECEIVED
        | c::ib_cm_event_type_IB_CM_DREQ_ERROR
        | c::ib_cm_event_type_IB_CM_TIMEWAIT_EXIT => CmEvent::Disconnected,
        // MRA: the peer needs more time; `ib_cm` handles it. LAP, APR: no alternate paths.
        _ => return 0,
    };
    // SAFETY: `ib_cm` passes an id that lives during the callback, and does not change its context.
    unsafe { pass_on(RawId::Ib(raw), (*id).context, what) }
}

pub(super) extern "C" fn on_iw_event(id: *mut c::iw_cm_id, event: *mut c::iw_cm_event) -> c_int {
    let Some(raw) = NonNull::new(id) else {
        return 0;
    };
    // SAFETY: `iw_cm` passes an event that is valid during the call.
    let event = unsafe { &*event };
    let data: [u8; REPLY_DATA];
    let what = match (event.event, event.status) {
        (c::iw_cm_event_type_IW_CM_EVENT_CONNECT_REPLY, 0) => {
            data = iw_cm::data(event);
            // drivers report the peer's value or that of this end: the smaller one fits both
            let reads = event.ird.min(event.ord);
            CmEvent::Reply {
                data: &data,
                reads_out: reads,
                reads_in: reads,
            }
        }
        (c::iw_cm_event_type_IW_CM_EVENT_CONNECT_REPLY, status) => match iw_cm::data(event) {
            _ if status == ETIMEDOUT.to_errno() => CmEvent::Unanswered,
            [0, 0, 0, 0] if status.wrapping_neg() == ECONNRESET.0 => {
                CmEvent::Rejected(reason::NO_REPLY)
            }
            // without private data: a TCP listener, or another consumer
            [0, 0, 0, 0] => CmEvent::Rejected(reason::NO_SERVICE),
            why => CmEvent::Rejected(u32::from_be_bytes(why)),
        },
        (c::iw_cm_event_type_IW_CM_EVENT_ESTABLISHED, 0) => CmEvent::Ready,
        (c::iw_cm_event_type_IW_CM_EVENT_ESTABLISHED, _) => CmEvent::Rejected(reason::CONSUMER),
        (c::iw_cm_event_type_IW_CM_EVENT_CLOSE, _) => CmEvent::DisconnectRequest,
        _ => return 0,
    };
    // SAFETY: `iw_cm` passes an id that lives during the callback, and does not change its context.
    unsafe { pass_on(RawId::Iw(raw), (*id).context, what) }
}

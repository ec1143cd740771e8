// SPDX-License-Identifier: GPL-2.0-only

//! States of a QP.
//!
//! A [`QueuePair`] is a handle of an endpoint's QP for its state changes. Only the
//! [`super::endpoint::Endpoint`] posts to the QP and, through an [`OwnedQp`], destroys it.

use super::super::bindings as c;
use super::cm::CmId;
use super::device::DeviceRef;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use kernel::error::to_result;
use kernel::ffi::c_ulong;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, AtomicFlag, Full, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex, UniqueArc};
use kernel::time::{delay::fsleep, Delta};

/// Pause between attempts to destroy a QP if the destruction cannot be retried later.
const PAUSE: Delta = Delta::from_millis(100);
/// Code of the delay after which the peer repeats a message that found no receive buffer (IBA table
/// 45): 0.64 ms.
const MIN_RNR_TIMER: u8 = 12;

/// Handle of a QP that may have been destroyed.
///
/// # Invariants
///
/// While `alive` is `true`, `raw` is a QP of `device`. Only the [`OwnedQp`] destroys the QP and
/// changes `alive`.
#[pin_data]
pub(crate) struct QueuePair {
    raw: NonNull<c::ib_qp>,
    number: u32,
    device: DeviceRef,
    /// Maximum number of RDMA READs in flight.
    reads: Atomic<u32>,
    /// Set when posted requests have no owner any more because the QP is about to be destroyed.
    given_up: AtomicFlag,
    #[pin]
    alive: Mutex<bool>,
}

// SAFETY: A QP may be used by any thread.
unsafe impl Send for QueuePair {}
// SAFETY: Any number of threads may use a QP at once; `alive` orders its destruction.
unsafe impl Sync for QueuePair {}

/// Owner of a QP. The drop destroys the QP, however long it takes. Context of the drop: process.
///
/// # Invariants
///
/// If `exists`, the QP of `qp` exists and only this object destroys it. `grace` is the RCU grace
/// period after the QP's change to RESET.
pub(super) struct OwnedQp {
    qp: Arc<QueuePair>,
    exists: bool,
    grace: Option<c_ulong>,
}

impl OwnedQp {
    /// Takes over a QP.
    ///
    /// # Safety
    ///
    /// `raw` is a QP of `device` that the caller passes on.
    pub(super) unsafe fn new(
        place: UniqueArc<MaybeUninit<QueuePair>>,
        raw: NonNull<c::ib_qp>,
        device: &DeviceRef,
    ) -> Self {
        // SAFETY: The QP is alive; its number never changes.
        let number = unsafe { (*raw.as_ptr()).qp_num };
        // INVARIANT: The caller passes a QP of `device`.
        let Ok(qp) = place.pin_init_with(pin_init!(QueuePair {
            raw,
            number,
            device: device.clone(),
            reads: Atomic::new(0),
            given_up: AtomicFlag::new(false),
            alive <- new_mutex!(true, "ib_sdp_qp"),
        }));
        // INVARIANT: The caller passes an existing QP that nobody else destroys.
        OwnedQp {
            qp: qp.into(),
            exists: true,
            grace: None,
        }
    }

    pub(super) fn qp(&self) -> &Arc<QueuePair> {
        &self.qp
    }

    /// Makes a software device drop all further packets. If the result is true,
    /// [`OwnedQp::destroy`] waits for an RCU grace period, unless a grace period has passed.
    /// Context: process.
    pub(super) fn close(&mut self) -> bool {
        let qp = &self.qp;
        let software = qp.device.is_virtual() || qp.device.is_rxe();
        if !self.exists || !software || self.grace.is_some() {
            return false;
        }
        // INVARIANT: From now on no other task uses the QP without the lock.
        *qp.alive.lock() = false;
        self.reset();
        // INVARIANT: The grace period begins now. SAFETY: No requirements.
        self.grace = Some(unsafe { c::start_poll_synchronize_rcu() });
        true
    }

    /// Moves an existing QP to RESET: a software device then drops the packets queued for it.
    /// Context: process.
    fn reset(&self) {
        let mut attr = c::ib_qp_attr {
            qp_state: c::ib_qp_state_IB_QPS_RESET,
            ..Default::default()
        };
        let mask = c::ib_qp_attr_mask_IB_QP_STATE as i32;
        let _one = self.qp.device.lock_resets();
        // SAFETY: By the requirements the QP exists. `attr` is initialised and may be written to.
        unsafe { c::ib_modify_qp(self.qp.raw(), &mut attr, mask) };
    }

    /// Destroys the QP. Posted requests are not used after this call. Context: process.
    ///
    /// # Errors
    ///
    /// Returns errors of the driver. On error the device may still use posted requests.
    pub(super) fn destroy(&mut self) -> Result {
        if !self.exists {
            return Ok(());
        }
        // rxe may free the QP while a packet that has just arrived uses it (docs/kernel-notes.md).
        // So rxe must drop further packets, and an RCU grace period must pass: packets arrive
        // within an RCU read-side section.
        self.close();
        if let Some(grace) = self.grace {
            // SAFETY: By the requirements the context is process context.
            unsafe { c::cond_synchronize_rcu_expedited(grace) };
            // rxe schedules no task while it resets a QP: a packet that arrived then stays queued
            // and holds the QP
            self.reset();
        }
        let qp = &self.qp;
        // INVARIANT: From now on no other task uses the QP without the lock.
        *qp.alive.lock() = false;
        // SAFETY: By the invariants the QP exists, and only this object destroys it.
        let ret = unsafe { c::ib_destroy_qp_user(qp.raw(), ptr::null_mut()) };
        // INVARIANT: The QP exists if the driver has refused to destroy it.
        self.exists = ret != 0;
        *qp.alive.lock() = self.exists;
        to_result(ret)
    }
}

impl Drop for OwnedQp {
    fn drop(&mut self) {
        while self.destroy().is_err() {
            fsleep(PAUSE);
        }
    }
}

impl QueuePair {
    /// Returns the C object; valid until the QP is destroyed.
    pub(super) fn raw(&self) -> *mut c::ib_qp {
        self.raw.as_ptr()
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Logs that the driver refuses to destroy the QP.
    pub(crate) fn warn_of_refusal(&self) {
        // SAFETY: By the invariants of `DeviceRef` the device is registered.
        unsafe { c::sdp_h_ib_warn_qp(self.device.raw(), self.number) }
    }

    /// Returns the maximum number of this end's RDMA READs; 0 until they may be posted.
    pub(crate) fn reads(&self) -> u8 {
        self.reads.load(Relaxed) as u8
    }

    /// Disowns posted requests: the QP is about to be destroyed.
    pub(crate) fn give_up(&self) {
        self.given_up.xchg(true, Full);
    }

    /// Calls [`QueuePair::to_error`], unless posted requests are disowned.
    pub(crate) fn flush(&self) {
        if !self.given_up.load(Relaxed) {
            self.to_error();
        }
    }

    fn modify(&self, attr: &mut c::ib_qp_attr, mask: i32) -> Result {
        let alive = self.alive.lock();
        if !*alive {
            return Err(ENODEV);
        }
        // SAFETY: By the invariants the QP exists, and is not destroyed while `alive` is locked.
        // `attr` is initialised and may be written to.
        to_result(unsafe { c::ib_modify_qp(self.raw(), attr, mask) })
    }

    /// Moves the QP from RESET to INIT, where receives can be posted.
    pub(crate) fn to_init(&self, port: u32, pkey_index: u16) -> Result {
        let mut attr = c::ib_qp_attr {
            qp_state: c::ib_qp_state_IB_QPS_INIT,
            port_num: port,
            pkey_index,
            qp_access_flags: (c::ib_access_flags_IB_ACCESS_LOCAL_WRITE
                | c::ib_access_flags_IB_ACCESS_REMOTE_WRITE
                | c::ib_access_flags_IB_ACCESS_REMOTE_READ) as i32,
            ..Default::default()
        };
        let mut mask = c::ib_qp_attr_mask_IB_QP_STATE | c::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS;
        if !self.device.is_iwarp() {
            mask |= c::ib_qp_attr_mask_IB_QP_PKEY_INDEX | c::ib_qp_attr_mask_IB_QP_PORT;
        }
        self.modify(&mut attr, mask as i32)
    }

    /// Returns true if the connector must send the first message: by MPA (RFC 5044, section 7.1.2).
    pub(crate) fn connector_sends_first(&self) -> bool {
        self.device.is_iwarp()
    }

    /// Returns true if a completed SEND has arrived. On iWARP it is only the local TCP's.
    pub(crate) fn completes_on_arrival(&self) -> bool {
        !self.device.is_iwarp()
    }

    /// Moves the QP from RESET to INIT, with the port and partition of a received request.
    pub(crate) fn to_init_for(&self, connection: &CmId) -> Result {
        if self.device.is_iwarp() {
            return self.to_init(1, 0);
        }
        let (attr, _) = connection.qp_attributes(c::ib_qp_state_IB_QPS_INIT)?;
        self.to_init(attr.port_num, attr.pkey_index)
    }

    /// Moves the QP from INIT through RTR to RTS, where it receives and sends. `reads_in` and
    /// `reads_out` are the maximum numbers of the peer's and this end's RDMA READs in flight;
    /// `receive_psn` is the first PSN of the peer, if the connection manager does not have it yet.
    pub(crate) fn to_ready(
        &self,
        connection: &CmId,
        reads_in: u8,
        reads_out: u8,
        receive_psn: Option<u32>,
    ) -> Result {
        // on iWARP the driver changes the state to RTS with the connection
        if !self.device.is_iwarp() {
            let (mut attr, mask) = connection.qp_attributes(c::ib_qp_state_IB_QPS_RTR)?;
            if let Some(psn) = receive_psn {
                attr.rq_psn = psn;
            }
            attr.min_rnr_timer = MIN_RNR_TIMER;
            attr.max_dest_rd_atomic = reads_in;
            self.modify(&mut attr, mask)?;

            let (mut attr, mask) = connection.qp_attributes(c::ib_qp_state_IB_QPS_RTS)?;
            attr.max_rd_atomic = reads_out;
            // the peer chose the retry count; rxe treats 7 as unlimited, so `ack_time` limits
            // retries
            attr.retry_cnt = match self.device.is_rxe() {
                true => 7,
                false => attr.retry_cnt.min(6),
            };
            self.modify(&mut attr, mask)?;
        }
        self.reads.store(reads_out.into(), Relaxed);
        Ok(())
    }

    /// Moves the QP to ERR, which flushes all posted requests. Context: process.
    pub(crate) fn to_error(&self) {
        let mut attr = c::ib_qp_attr {
            qp_state: c::ib_qp_state_IB_QPS_ERR,
            ..Default::default()
        };
        // fails if the QP is destroyed: then no request can be flushed
        let _ = self.modify(&mut attr, c::ib_qp_attr_mask_IB_QP_STATE as i32);
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Completion queues.
//!
//! A [`Cq`] is a completion queue, polled by [`Cq::take`] and armed by [`Cq::arm`]. Only this type
//! tracks whether the queue is armed. If completions exist at arming, drivers differ: some arm and
//! report the completions, some report them without arming, and some arm and call back at once. All
//! drivers call back for the next completion after an arming call that reports no completions. The
//! queue counts as armed only if arming reports no completions; otherwise it is polled and rearmed.
//!
//! A queue serves one endpoint after another. Completions from [`Cq::end`] to [`Cq::begin`] are not
//! notified.

use super::super::bindings as c;
use super::super::vec::filled;
use super::destroy::wait_destroyed;
use super::device::DeviceRef;
use super::use_count::UseCount;
use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use kernel::ffi::c_void;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, AtomicFlag, Full, Relaxed};
use kernel::sync::Arc;
use kernel::time::{delay::fsleep, Delta};

/// Number of completions polled at a time.
const BATCH: usize = 8;

/// Flags to notify the next completion, and to report completions that exist already.
const NEXT: u32 =
    c::ib_cq_notify_flags_IB_CQ_NEXT_COMP | c::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS;

/// Receiver of an endpoint's events. Context: any, usually with interrupts disabled and driver
/// locks held.
pub(crate) trait EndpointEvents: Send + Sync + 'static {
    /// Notifies the endpoint of completions of sends (`sent`) or receives, which may have been
    /// polled already. The function must not poll.
    fn ready(&self, sent: bool);

    /// A message has arrived before the connection manager has received the RTU.
    fn message_arrived(&self);

    /// The QP has changed to ERR after a failure.
    fn failed(&self);
}

/// Result of arming a queue.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arming {
    /// The next completion will be notified.
    Armed,
    /// Completions may exist without a notification: the caller must poll, then arm again.
    Pending,
}

/// Context of the driver's callback.
///
/// # Invariants
///
/// `ready` is set while `uses` is not zero, and changes only while it is zero.
struct State {
    /// Set for the CQ of sends.
    sent: bool,
    /// Set if a callback was requested and has not run since. The callback clears `armed` before it
    /// notifies, so that the notified task finds `armed` cleared.
    armed: Atomic<i32>,
    /// The device has reported a fatal error of the CQ.
    failed: AtomicFlag,
    /// Users of `ready`: the owner, and each callback in progress.
    uses: UseCount,
    ready: UnsafeCell<Option<Arc<dyn EndpointEvents>>>,
}

impl State {
    fn notify(&self) {
        if self.uses.any_more() {
            // SAFETY: By the invariants `ready` does not change while a use exists.
            if let Some(ready) = unsafe { &*self.ready.get() } {
                ready.ready(self.sent);
            }
            self.uses.end();
        }
    }
}

/// A CQ.
///
/// # Invariants
///
/// `raw` is a CQ of `device`, destroyed by [`Drop`] only, after the QP. The context of `raw` is
/// `context`, which is dropped after `raw`, and before that is only used by shared references.
pub(super) struct Cq {
    raw: NonNull<c::ib_cq>,
    context: ManuallyDrop<KBox<State>>,
    /// Completions polled and not yet returned, from `next` to `end`.
    wcs: KVec<c::ib_wc>,
    next: usize,
    end: usize,
    /// Set if the last attempt to arm the queue failed.
    pending: bool,
    _device: DeviceRef,
}

extern "C" fn completed(_: *mut c::ib_cq, context: *mut c_void) {
    // SAFETY: `Cq::new` made the context. The context is freed after the CQ is destroyed, when
    // every call of this function has ended.
    let context = unsafe { &*context.cast::<State>() };
    // clears the flag before the notification
    context.armed.xchg(0, Full);
    context.notify();
}

extern "C" fn cq_event(event: *mut c::ib_event, context: *mut c_void) {
    // SAFETY: The context is freed after the CQ is destroyed, when its events have ended, too.
    let context = unsafe { &*context.cast::<State>() };
    // SAFETY: The driver passes a valid event.
    if unsafe { (*event).event } == c::ib_event_type_IB_EVENT_CQ_ERR {
        context.failed.xchg(true, Full);
        context.notify();
    }
}

impl Cq {
    /// Makes a CQ without a receiver of its notifications.
    pub(super) fn new(device: &DeviceRef, entries: u32, vector: u32, sent: bool) -> Result<Self> {
        let wcs = filled(BATCH, GFP_KERNEL, c::ib_wc::default)?;
        // INVARIANT: Neither `ready` nor `uses` is set.
        let state = State {
            sent,
            armed: Atomic::new(0),
            failed: AtomicFlag::new(false),
            uses: UseCount::none(),
            ready: UnsafeCell::new(None),
        };
        let context = KBox::new(state, GFP_KERNEL)?;
        let attr = c::ib_cq_init_attr {
            cqe: entries,
            comp_vector: vector,
            ..Default::default()
        };
        // SAFETY: The device is in use; the handler gets a context that lives as long as the CQ.
        let cq = unsafe {
            c::__ib_create_cq(
                device.raw(),
                Some(completed),
                Some(cq_event),
                ptr::from_ref(&*context).cast_mut().cast(),
                &attr,
                super::name(),
            )
        };
        Ok(Cq {
            raw: NonNull::new(kernel::error::from_err_ptr(cq)?).ok_or(ENOMEM)?,
            context: ManuallyDrop::new(context),
            wcs,
            next: 0,
            end: 0,
            pending: false,
            _device: device.clone(),
        })
    }

    pub(super) fn raw(&self) -> *mut c::ib_cq {
        self.raw.as_ptr()
    }

    /// Starts notifying `ready`.
    pub(super) fn begin(&mut self, ready: Arc<dyn EndpointEvents>) {
        self.end();
        // SAFETY: `uses` is zero, and only `&mut self` allows to begin a use.
        unsafe { *self.context.ready.get() = Some(ready) };
        // INVARIANT: `ready` was set above.
        self.context.uses.begin();
    }

    /// Stops notifying, and waits for notifications in progress. Context: process.
    fn end(&mut self) {
        let context = &self.context;
        if context.uses.is_over() {
            return;
        }
        context.uses.end();
        while !context.uses.is_over() {
            fsleep(Delta::from_micros(10));
        }
        // SAFETY: `uses` is zero, and only `&mut self` allows to begin a use.
        let ready = unsafe { (*context.ready.get()).take() };
        drop(ready);
    }

    /// Resets the CQ after its QP was destroyed. Returns true if the CQ can serve another QP: the
    /// CQ works, and is empty. Context: process.
    pub(super) fn retire(&mut self) -> bool {
        self.end();
        // SAFETY: By the invariants the CQ exists.
        let entries = unsafe { (*self.raw.as_ptr()).cqe };
        for _ in 0..=(usize::try_from(entries).unwrap_or(0) / BATCH).saturating_add(1) {
            self.next = self.end;
            if !self.has_completion() {
                return !self.has_failed();
            }
        }
        false
    }

    /// Returns true if the queue is broken, for example by an overrun: requests may never complete.
    pub(super) fn has_failed(&self) -> bool {
        self.context.failed.load(Acquire)
    }

    /// Returns true if the device has reported completions and none was polled since.
    pub(super) fn is_pending(&self) -> bool {
        self.pending
    }

    pub(super) fn has_completion(&mut self) -> bool {
        if self.next == self.end {
            let n = i32::try_from(self.wcs.len()).unwrap_or(i32::MAX);
            // SAFETY: By the invariants the CQ exists, and there is space for `n` completions.
            let got = unsafe { c::ib_poll_cq(self.raw.as_ptr(), n, self.wcs.as_mut_ptr()) };
            self.next = 0;
            self.end = usize::try_from(got).unwrap_or(0).min(self.wcs.len());
            self.pending = false;
        }
        self.next != self.end
    }

    pub(super) fn take(&mut self) -> Option<c::ib_wc> {
        if !self.has_completion() {
            return None;
        }
        let wc = self.wcs.get(self.next).copied();
        self.next = self.next.saturating_add(1);
        wc
    }

    /// Requests a call of [`EndpointEvents::ready`] at the next completion.
    pub(super) fn arm(&mut self) -> Arming {
        if self.next != self.end {
            return Arming::Pending;
        }
        if self.context.armed.load(Relaxed) != 0 {
            return Arming::Armed;
        }
        // set before the driver is called, since the callback may run at once
        self.context.armed.store(1, Relaxed);
        // SAFETY: By the invariants the CQ exists.
        self.pending = unsafe { c::ib_req_notify_cq(self.raw.as_ptr(), NEXT) } > 0;
        if self.pending {
            self.context.armed.store(0, Relaxed);
            return Arming::Pending;
        }
        Arming::Armed
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        let gone = wait_destroyed("a CQ", || {
            // SAFETY: By the invariants the CQ exists until this call succeeds; no QP uses it.
            unsafe { c::ib_destroy_cq_user(self.raw.as_ptr(), ptr::null_mut()) }
        });
        // otherwise a callback may still run, so the context of the CQ is leaked
        if gone {
            // SAFETY: No CQ refers to the context, and the context is not used again.
            unsafe { ManuallyDrop::drop(&mut self.context) };
        }
    }
}

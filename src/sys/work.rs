// SPDX-License-Identifier: GPL-2.0-only

//! Deferred work in process context.
//!
//! A [`Worker`] is the module's workqueue for RDMA objects, from start to stop. [`defer`] takes
//! objects that cannot be destroyed where their last user drops them (under a spinlock, or in the
//! very callback that the destruction would wait for).

use super::bindings as c;
use super::time::milliseconds;
use core::ptr::NonNull;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full};
use kernel::workqueue::{Queue, RawDelayedWorkItem, RawWorkItem};

/// The address of the workqueue, 0 when there is none.
static WORKER: Atomic<usize> = Atomic::new(0);

/// The workqueue. Dropping the worker runs all queued work.
///
/// # Invariants
///
/// `raw` is a workqueue that only [`Drop`] destroys. At most one `Worker` exists, and `WORKER`
/// holds its address.
pub(crate) struct Worker {
    raw: NonNull<c::workqueue_struct>,
}

// SAFETY: A workqueue is not tied to a thread.
unsafe impl Send for Worker {}
// SAFETY: The type has no methods.
unsafe impl Sync for Worker {}

impl Worker {
    /// Makes the workqueue.
    ///
    /// # Errors
    ///
    /// `EBUSY`: another worker exists. `ENOMEM`.
    pub(crate) fn start() -> Result<Self> {
        // SAFETY: Called in process context; no other requirement.
        let raw = NonNull::new(unsafe { c::sdp_h_rdma_workqueue() }).ok_or(ENOMEM)?;
        if WORKER.cmpxchg(0, raw.as_ptr() as usize, Full).is_err() {
            // SAFETY: The workqueue was made above, and nobody else has seen it.
            unsafe { c::destroy_workqueue(raw.as_ptr()) };
            return Err(EBUSY);
        }
        Ok(Worker { raw })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: By the invariants the workqueue exists. Work queued by running work runs, too.
        unsafe { c::drain_workqueue(self.raw.as_ptr()) };
        WORKER.xchg(0, Full);
        // SAFETY: By the invariants the workqueue exists. Unloading waits for its users'
        // references.
        unsafe { c::destroy_workqueue(self.raw.as_ptr()) };
    }
}

/// Queues the work. Context: any.
///
/// The caller or the work has to hold a [`super::rdma::device::DeviceRef`] or a [`ModuleRef`], so
/// that the module does not stop its [`Worker`]. Otherwise the work may never run and is leaked.
pub(crate) fn defer<W, const ID: u64>(work: W)
where
    W: RawWorkItem<ID> + Send + 'static,
{
    with_queue(work, |queue, work| {
        // Fails only if the work is queued already.
        let _ = queue.enqueue::<W, ID>(work);
    });
}

/// Queues the work after a delay (ms). The work holds a [`ModuleRef`].
pub(crate) fn defer_by<W, const ID: u64>(work: W, ms: u32)
where
    W: RawDelayedWorkItem<ID> + Send + 'static,
{
    with_queue(work, |queue, work| {
        let _ = queue.enqueue_delayed::<W, ID>(work, milliseconds(ms));
    });
}

fn with_queue<W>(work: W, f: impl FnOnce(&Queue, W)) {
    let raw = WORKER.load(Acquire) as *const kernel::bindings::workqueue_struct;
    if raw.is_null() {
        // Impossible as long as callers keep to the rule; leak rather than free too early.
        pr_err!("work for a workqueue that is gone\n");
        core::mem::forget(work);
    } else {
        // SAFETY: The workqueue was there when the address was read. The caller or the work holds a
        // reference without which no code of the module may run; the drop of the `Worker` comes
        // after the last one. The borrow ends with this call.
        f(unsafe { Queue::from_raw(raw) }, work);
    }
}

/// Reference to the module, which keeps it loaded.
pub(crate) struct ModuleRef(());

impl ModuleRef {
    /// Takes a reference. The caller's context keeps the module loaded meanwhile.
    pub(crate) fn new() -> Self {
        // SAFETY: Code of the module is running, so the module is loaded.
        unsafe { c::sdp_h_module_get() };
        ModuleRef(())
    }
}

impl Drop for ModuleRef {
    fn drop(&mut self) {
        // SAFETY: Gives back the reference of `new`. The module's workqueue runs this code (or the
        // code holds another reference). Unloading waits for the workqueue.
        unsafe { c::sdp_h_module_put() }
    }
}

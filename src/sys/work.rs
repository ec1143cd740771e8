// SPDX-License-Identifier: GPL-2.0-only

//! The module's workqueues, shrinker and references, and deferred work in process context.
//!
//! [`defer`] accepts objects that cannot be destroyed where their last user drops them: under a
//! spinlock, or in a callback that the destruction waits for.

use super::bindings as c;
use super::sync::Exclusive;
use super::time::milliseconds;
use core::mem::{offset_of, size_of};
use core::ptr::{self, NonNull};
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::atomic::AtomicFlag;
use kernel::workqueue::{Queue, RawDelayedWorkItem, RawWorkItem};

static STARTED: AtomicFlag = AtomicFlag::new(false);

/// All workqueues, and the shrinker of idle memory and of memory kept by connections. Made before
/// all other objects of the module, and dropped after all of them. The drop runs all queued work.
pub(crate) struct Workqueues {
    _single: Exclusive,
}

impl Workqueues {
    /// Makes them. `count` returns the number of objects, other than idle memory, that `free`
    /// frees. A worker calls `free`, because reclaim may hold any lock. Context: process.
    ///
    /// # Errors
    ///
    /// `EBUSY`: they exist. `EINVAL`: the compilers of C and of the bindings disagree. `ENOMEM`.
    pub(crate) fn start(count: extern "C" fn() -> usize, free: extern "C" fn()) -> Result<Self> {
        let single = Exclusive::take(&STARTED)?;
        let layouts = [
            size_of::<c::sock>(),
            offset_of!(c::sock, sk_data_ready),
            size_of::<c::inet_sock>(),
            size_of::<c::socket>(),
            size_of::<c::proto>(),
            size_of::<c::proto_ops>(),
            size_of::<c::msghdr>(),
            size_of::<c::ib_device>(),
            size_of::<c::ib_qp_attr>(),
            size_of::<c::ib_qp_init_attr>(),
            size_of::<c::ib_send_wr>(),
            size_of::<c::ib_wc>(),
            size_of::<c::ib_cm_event>(),
            size_of::<c::ib_cm_req_param>(),
            size_of::<c::rdma_cm_id>(),
            size_of::<c::ib_client>(),
            size_of::<c::sdp_h_protect>(),
        ];
        let layout = |sum: usize, next: &usize| sum.wrapping_mul(31).wrapping_add(*next);
        let layout = layouts.iter().rev().fold(0, layout);
        let me = Workqueues { _single: single };
        // SAFETY: Process context. `me` is the only instance, and its drop stops what was started.
        to_result(unsafe { c::sdp_h_start(layout, Some(count), Some(free)) })?;
        Ok(me)
    }
}

impl Drop for Workqueues {
    fn drop(&mut self) {
        // SAFETY: Follows `sdp_h_start`. Unloading waits for references of the users.
        unsafe { c::sdp_h_stop() }
    }
}

/// Runs all queued work of [`defer`]. Context: process.
pub(crate) fn drain() {
    if let Some(queue) = NonNull::new(queue()) {
        // SAFETY: The workqueue exists. Work queued by running work also runs.
        unsafe { kernel::bindings::drain_workqueue(queue.as_ptr()) }
    }
}

/// Returns the workqueue of [`defer`], null before and after [`Workqueues`].
fn queue() -> *mut c::workqueue_struct {
    // SAFETY: The pointer is set before all use and cleared after all use.
    unsafe { ptr::read_volatile(&raw const c::sdp_h_rdma_wq) }
}

/// Queues the work. Context: any.
///
/// The caller or the work has to hold a [`super::rdma::device::DeviceRef`] or a [`ModuleRef`], so
/// that the module does not stop the workqueue. Without such a reference, the work may never run
/// and is leaked.
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
    let raw = queue();
    if raw.is_null() {
        // Impossible while callers follow the rule; a leak is better than an early free.
        pr_err!("work queued after the end of the workqueues\n");
        core::mem::forget(work);
    } else {
        // SAFETY: The workqueue existed when the address was read. The caller or the work holds a
        // reference without which no code of the module may run; the drop of `Workqueues` comes
        // after the last reference. The borrow ends with this call.
        f(unsafe { Queue::from_raw(raw) }, work);
    }
}

/// Reference to the module, which keeps it loaded.
pub(crate) struct ModuleRef(());

impl ModuleRef {
    /// Takes a reference. The context of the caller keeps the module loaded during the call.
    pub(crate) fn new() -> Self {
        // SAFETY: Code of the module is running, so the module is loaded.
        unsafe { kernel::bindings::__module_get(&raw mut c::__this_module) };
        ModuleRef(())
    }
}

impl Drop for ModuleRef {
    fn drop(&mut self) {
        // SAFETY: Gives back the reference of `new`. The module's workqueue runs this code (or the
        // code holds another reference). Unloading waits for the workqueue.
        unsafe { kernel::bindings::module_put(&raw mut c::__this_module) }
    }
}

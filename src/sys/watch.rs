// SPDX-License-Identifier: GPL-2.0-only

//! Watches of process memory.
//!
//! A [`Watched`] is a range of a process's address space, with a resource that is only useful while
//! the same pages are mapped there. An idle resource ([`Watched::park`]) is dropped when the
//! mapping changes (munmap, mremap, COW, truncation, exit) or when memory is short.

use super::bindings as c;
use super::deferred::{Destroy, DropInWorker};
use super::protect::current_mm;
use super::work::ModuleRef;
use core::cell::UnsafeCell;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::types::Opaque;

/// # Invariants
///
/// If `started`, `raw` was started by `sdp_h_watch_start`, and the object stays in its box. `idle`
/// is accessed under the lock of the C side while `raw` is in the C side's list, otherwise by the
/// handle alone.
struct Inner<T> {
    raw: Opaque<c::sdp_h_watch>,
    started: bool,
    /// Address of the `mm_struct`, which the C part keeps allocated, and the range.
    memory: (usize, usize, usize),
    idle: UnsafeCell<Option<T>>,
    _module: ModuleRef,
}

// SAFETY: The C part has its own lock; the other fields are `Send`.
unsafe impl<T: Send> Send for Inner<T> {}
// SAFETY: The C part has its own lock; a `&Inner` gives no access to `idle`.
unsafe impl<T: Send> Sync for Inner<T> {}

impl<T> Drop for Inner<T> {
    fn drop(&mut self) {
        if self.started {
            // SAFETY: By the invariants. The call waits for callbacks of the watch.
            unsafe { c::sdp_h_watch_stop(self.raw.get()) };
        }
    }
}

impl<T: Send + 'static> Destroy for KBox<Inner<T>> {}

extern "C" fn give_up<T>(raw: *mut c::sdp_h_watch) {
    // SAFETY: `raw` is the field of an `Inner<T>` that exists until the watch is stopped; the stop
    // waits for this call. The caller has removed the watch from the list and holds the lock.
    let idle = unsafe {
        let inner = raw.byte_sub(core::mem::offset_of!(Inner<T>, raw));
        (*(*inner.cast::<Inner<T>>()).idle.get()).take()
    };
    drop(idle);
}

/// A watched range of a process's address space. May be dropped in any context.
pub(crate) struct Watched<T: Send + 'static>(DropInWorker<KBox<Inner<T>>>);

impl<T: Send + 'static> Watched<T> {
    /// Starts watching memory of the calling process. Context: process, sleeps.
    pub(crate) fn new(address: usize, len: usize) -> Result<Self> {
        let end = address.checked_add(len).ok_or(EINVAL)?;
        let start = address & !(super::pin::PAGE - 1);
        let end = end.checked_next_multiple_of(super::pin::PAGE);
        let size = end.ok_or(EINVAL)?.saturating_sub(start);
        let inner = Inner {
            raw: Opaque::zeroed(),
            started: false,
            memory: (current_mm(), address, len),
            idle: UnsafeCell::new(None),
            _module: ModuleRef::new(),
        };
        let mut inner = DropInWorker::new(|| Ok(KBox::new(inner, GFP_KERNEL)?))?;
        // SAFETY: `raw` stays in its box. After a failure nothing refers to `raw`; otherwise the
        // watch is stopped later.
        to_result(unsafe {
            c::sdp_h_watch_start(inner.raw.get(), start, size, Some(give_up::<T>))
        })?;
        // INVARIANT: `raw` was started, and never moves.
        inner.started = true;
        Ok(Watched(inner))
    }

    /// Returns true if the watch covers exactly `len` bytes at `address` of the calling process.
    pub(crate) fn is(&self, address: usize, len: usize) -> bool {
        self.0.memory == (current_mm(), address, len)
    }

    /// Keeps a resource of `pages` pages until the mapping changes. A watch may be dropped with
    /// locks held, in any context but interrupts.
    ///
    /// # Errors
    ///
    /// Returns the resource if the mapping has changed since [`Watched::new`].
    pub(crate) fn park(&mut self, t: T, pages: usize) -> Result<(), T> {
        drop(self.take());
        let idle = self.0.idle.get();
        // SAFETY: The watch is not in the list, so nobody else accesses `idle`.
        unsafe { *idle = Some(t) };
        // SAFETY: By the invariants `raw` is started; it is not in the list.
        match unsafe { c::sdp_h_watch_idle(self.0.raw.get(), pages) } {
            true => Ok(()),
            // SAFETY: The watch was not added to the list.
            false => unsafe { (*idle).take() }.map_or(Ok(()), Err),
        }
    }

    /// Takes the resource back, unless it was freed.
    pub(crate) fn take(&mut self) -> Option<T> {
        // SAFETY: By the invariants. After the call the watch is not in the list.
        unsafe {
            c::sdp_h_watch_busy(self.0.raw.get());
            (*self.0.idle.get()).take()
        }
    }

    /// Returns true if the resource is idle and was not freed.
    pub(crate) fn is_parked(&self) -> bool {
        // SAFETY: By the invariants.
        unsafe { c::sdp_h_watch_is_idle(self.0.raw.get()) }
    }
}

/// Drops the resources that have been idle longest, up to a total of `pages`. Takes spinlocks.
pub(crate) fn shrink(pages: usize) {
    // SAFETY: No requirements.
    unsafe { c::sdp_h_watch_shrink(pages) };
}

// SPDX-License-Identifier: GPL-2.0-only

//! Watches of process memory.
//!
//! A [`Watched`] is a range of a process's address space and a resource that is of use only while
//! the same pages are there. An idle resource ([`Watched::park`]) is dropped when the mapping
//! changes (munmap, mremap, COW, truncation, the end of the process), or when memory is short.

use super::bindings as c;
use super::single::Exclusive;
use super::work::{self, ModuleRef};
use core::mem::ManuallyDrop;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::atomic::AtomicFlag;
use kernel::sync::{new_spinlock, Arc, SetOnce, SpinLock};
use kernel::types::Opaque;
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};

/// Part that outlives the handle until no callback can run.
///
/// # Invariants
///
/// `raw` was started by `sdp_h_watch_start`; the work `end` stops it, before this is freed.
#[pin_data]
struct Inner<T: Send + Unpin + 'static> {
    // First, so that a pointer to it is a pointer to the whole.
    #[pin]
    raw: Opaque<c::sdp_h_watch>,
    address: usize,
    len: usize,
    /// Inner to the locks of the C side.
    #[pin]
    idle: SpinLock<Option<T>>,
    #[pin]
    end: Work<Inner<T>>,
    _module: ModuleRef,
}

// SAFETY: The C part has locks of its own; the rest is `Send`.
unsafe impl<T: Send + Unpin + 'static> Send for Inner<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Unpin + 'static> Sync for Inner<T> {}

impl_has_work! {
    impl{T: Send + Unpin + 'static} HasWork<Inner<T>> for Inner<T> { self.end }
}

impl<T: Send + Unpin + 'static> Inner<T> {
    const RAW_OFFSET: usize = core::mem::offset_of!(Self, raw);
}

impl<T: Send + Unpin + 'static> WorkItem for Inner<T> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // SAFETY: Started by `new`, and this is run once: by the drop of the one handle.
        unsafe { c::sdp_h_watch_stop(this.raw.get()) };
        let last = this.idle.lock().take();
        drop(last);
    }
}

extern "C" fn give_up<T: Send + Unpin + 'static>(raw: *mut c::sdp_h_watch) {
    // SAFETY: It is the field of an `Inner<T>` that is not freed before the watch is stopped, which
    // waits for this.
    let inner = unsafe { &*raw.byte_sub(Inner::<T>::RAW_OFFSET).cast::<Inner<T>>() };
    let idle = inner.idle.lock().take();
    drop(idle);
}

/// A watched range of a process's address space. May be dropped in any context.
///
/// # Invariants
///
/// The reference is there until [`Drop`] gives it away, so that the last one goes by the workqueue.
pub(crate) struct Watched<T: Send + Unpin + 'static>(ManuallyDrop<Arc<Inner<T>>>);

impl<T: Send + Unpin + 'static> Watched<T> {
    /// Starts watching memory of the calling process. Context: process, sleeps.
    pub(crate) fn new(address: usize, len: usize) -> Result<Self> {
        let end = address.checked_add(len).ok_or(EINVAL)?;
        let start = address & !(super::pin::PAGE - 1);
        let end = end.checked_next_multiple_of(super::pin::PAGE);
        let size = end.ok_or(EINVAL)?.saturating_sub(start);
        let inner = Arc::pin_init(
            pin_init!(Inner {
                raw: Opaque::zeroed(),
                address,
                len,
                idle <- new_spinlock!(None, "ib_sdp_idle"),
                end <- new_work!("ib_sdp_watch"),
                _module: ModuleRef::new(),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: `raw` stays where it is; if this fails, nothing refers to it. Else the handle's
        // drop sees to it that it is stopped.
        to_result(unsafe {
            c::sdp_h_watch_start(inner.raw.get(), start, size, Some(give_up::<T>))
        })?;
        // INVARIANT: Started.
        Ok(Watched(ManuallyDrop::new(inner)))
    }

    /// Returns true if the mapping has not changed since [`Watched::new`].
    pub(crate) fn is_valid(&self) -> bool {
        // SAFETY: By the invariants.
        unsafe { c::sdp_h_watch_valid(self.0.raw.get()) }
    }

    /// Returns true if it is exactly this memory, of the calling process.
    pub(crate) fn is(&self, address: usize, len: usize) -> bool {
        // SAFETY: By the invariants; called by a process.
        let mine = unsafe { c::sdp_h_watch_is_mine(self.0.raw.get()) };
        mine && (self.0.address, self.0.len) == (address, len)
    }

    /// Keeps a resource of this many pages while the mapping does not change. It may be dropped
    /// with locks held, in any context but interrupts.
    ///
    /// # Errors
    ///
    /// The resource, if the mapping has changed.
    pub(crate) fn park(&self, t: T, pages: usize) -> Result<(), T> {
        let mut idle = self.0.idle.lock();
        // A change that comes later finds it, because it takes the lock after it was noted.
        if !self.is_valid() {
            return Err(t);
        }
        *idle = Some(t);
        drop(idle);
        // SAFETY: By the invariants.
        unsafe { c::sdp_h_watch_idle(self.0.raw.get(), pages) };
        Ok(())
    }

    /// Takes the resource back, if it is still there.
    pub(crate) fn take(&self) -> Option<T> {
        // SAFETY: By the invariants.
        unsafe { c::sdp_h_watch_busy(self.0.raw.get()) };
        self.0.idle.lock().take()
    }

    /// Returns true if the resource is idle and still there.
    pub(crate) fn is_parked(&self) -> bool {
        self.0.idle.lock().is_some()
    }
}

impl<T: Send + Unpin + 'static> Drop for Watched<T> {
    fn drop(&mut self) {
        // SAFETY: By the invariants it is there, and it is not used any more.
        let inner = unsafe { ManuallyDrop::take(&mut self.0) };
        work::defer::<Arc<Inner<T>>, 0>(inner);
    }
}

/// Drops the resources idle longest, up to this number of pages. Context: any that may take
/// spinlocks.
pub(crate) fn shrink(pages: usize) {
    // SAFETY: No requirements.
    unsafe { c::sdp_h_watch_shrink(pages) };
}

/// Shrinker of idle memory and of memory kept by connections.
pub(crate) struct Shrinker {
    _single: Exclusive,
}

static SHRINKER: AtomicFlag = AtomicFlag::new(false);
type Kept = (fn() -> usize, fn());
static KEPT: SetOnce<Kept> = SetOnce::new();

extern "C" fn kept() -> kernel::ffi::c_ulong {
    KEPT.as_ref().map_or(0, |(count, _)| count())
}

extern "C" fn shed() {
    if let Some((_, shed)) = KEPT.as_ref() {
        shed();
    }
}

impl Shrinker {
    /// Registers the shrinker. `count` returns the number of other objects that `shed` frees. A
    /// worker calls `shed`, since reclaim may hold any lock. Context: process.
    ///
    /// # Errors
    ///
    /// `EBUSY`: there is one. `ENOMEM`.
    pub(crate) fn start(count: fn() -> usize, free: fn()) -> Result<Self> {
        let single = Exclusive::take(&SHRINKER)?;
        KEPT.populate((count, free));
        // SAFETY: Process context, and there is no other one.
        to_result(unsafe { c::sdp_h_watch_shrinker_start(Some(kept), Some(shed)) })?;
        Ok(Shrinker { _single: single })
    }
}

impl Drop for Shrinker {
    fn drop(&mut self) {
        // SAFETY: Started by `start`.
        unsafe { c::sdp_h_watch_shrinker_stop() }
    }
}

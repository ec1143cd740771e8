// SPDX-License-Identifier: GPL-2.0-only

//! Objects that may be dropped in any context although their destruction sleeps.

use super::work;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use kernel::prelude::*;
use kernel::workqueue::{impl_has_delayed_work, new_delayed_work, DelayedWork, WorkItem};

/// Destruction of a value by the workqueue.
pub(crate) trait Destroy: Send + Sized + 'static {
    /// Destroys the value. Context: process, sleeps.
    ///
    /// # Errors
    ///
    /// Returns the part that could not be destroyed yet, and the pause (ms) before the next call.
    fn destroy(self) -> Result<(), (Self, u32)> {
        Ok(())
    }
}

#[pin_data]
struct Inner<T: Destroy> {
    #[pin]
    work: DelayedWork<Inner<T>>,
    value: ManuallyDrop<T>,
}

impl_has_delayed_work! {
    impl{T: Destroy} HasDelayedWork<Inner<T>> for Inner<T> { self.work }
}

impl<T: Destroy> WorkItem for Inner<T> {
    type Pointer = Pin<KBox<Self>>;

    fn run(mut this: Self::Pointer) {
        // SAFETY: By the invariants of `DropInWorker`, whose drop has queued this work, the value
        // exists. The value is not used again before the following assignment.
        let value = unsafe { ManuallyDrop::take(this.as_mut().project().value) };
        if let Err((left, pause)) = value.destroy() {
            *this.as_mut().project().value = ManuallyDrop::new(left);
            work::defer_by(this, pause);
        }
    }
}

/// A value that is always destroyed by the module's workqueue in process context, even if its owner
/// drops it in another context. Satisfies the requirements of [`work::defer_by`].
///
/// # Invariants
///
/// The box and its value exist until [`Drop`] or [`DropInWorker::drop_now`] takes them.
pub(crate) struct DropInWorker<T: Destroy>(ManuallyDrop<Pin<KBox<Inner<T>>>>);

impl<T: Destroy> DropInWorker<T> {
    /// Makes the value after all allocations, so an error destroys no value. Sleeps.
    pub(crate) fn new(make: impl FnOnce() -> Result<T>) -> Result<Self> {
        let inner = KBox::pin_init(
            try_pin_init!(Inner {
                work <- new_delayed_work!("ib_sdp_deferred"),
                value: ManuallyDrop::new(make()?),
            }),
            GFP_KERNEL,
        )?;
        // INVARIANT: The value exists.
        Ok(DropInWorker(ManuallyDrop::new(inner)))
    }

    /// Drops the value at once. Context: process.
    pub(crate) fn drop_now(self) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: By the invariants box and value exist. `this` is not used again and its `drop`
        // does not run, so box and value are taken once.
        unsafe {
            let mut inner = ManuallyDrop::take(&mut this.0);
            ManuallyDrop::drop(inner.as_mut().project().value);
        }
    }
}

impl<T: Destroy> Deref for DropInWorker<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: Destroy> DerefMut for DropInWorker<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().project().value
    }
}

impl<T: Destroy> Drop for DropInWorker<T> {
    fn drop(&mut self) {
        // SAFETY: By the invariants the value exists, and it is not used afterwards.
        work::defer_by(unsafe { ManuallyDrop::take(&mut self.0) }, 0);
    }
}

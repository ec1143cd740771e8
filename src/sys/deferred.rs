// SPDX-License-Identifier: GPL-2.0-only

//! Objects that may be dropped in any context although their destruction sleeps.

use super::work;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use kernel::prelude::*;
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};

#[pin_data]
struct Inner<T: Send + 'static> {
    value: T,
    #[pin]
    work: Work<Inner<T>>,
}

impl_has_work! {
    impl{T: Send + 'static} HasWork<Inner<T>> for Inner<T> { self.work }
}

impl<T: Send + 'static> WorkItem for Inner<T> {
    type Pointer = Pin<KBox<Self>>;

    fn run(this: Self::Pointer) {
        drop(this);
    }
}

/// A value that the module's workqueue drops in process context, wherever its owner drops it.
/// Satisfies the requirements of [`work::defer`].
///
/// # Invariants
///
/// The box exists until [`Drop`] or [`DropInWorker::destroy`] takes it.
pub(crate) struct DropInWorker<T: Send + 'static>(ManuallyDrop<Pin<KBox<Inner<T>>>>);

impl<T: Send + 'static> DropInWorker<T> {
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: the value is dropped.
    pub(crate) fn new(value: T) -> Result<Self> {
        let inner = KBox::pin_init(
            pin_init!(Inner {
                value,
                work <- new_work!("ib_sdp_deferred"),
            }),
            GFP_KERNEL,
        )?;
        // INVARIANT: The value exists.
        Ok(DropInWorker(ManuallyDrop::new(inner)))
    }

    /// Drops the value at once. Context: process.
    pub(crate) fn destroy(self) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: By the invariants the value exists. `this` is not used again and its `drop` not
        // run, so the value is taken once.
        drop(unsafe { ManuallyDrop::take(&mut this.0) });
    }
}

impl<T: Send + 'static> Deref for DropInWorker<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: Send + 'static> DerefMut for DropInWorker<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().project().value
    }
}

impl<T: Send + 'static> Drop for DropInWorker<T> {
    fn drop(&mut self) {
        // SAFETY: By the invariants the value exists, and it is not used afterwards.
        work::defer(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}

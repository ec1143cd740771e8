// SPDX-License-Identifier: GPL-2.0-only

//! Write protection of a process's memory.
//!
//! A [`Protector`] is a userfaultfd in write-protect mode for one address space, owned by the
//! module. [`Protector::set`] protects memory of the calling process. A worker handles write faults
//! and moved memory, and removes the protection ([`Handler::run`]). The program gets an additional
//! page, from which userfaultfd reads its ioctl arguments. A program that changes its arguments
//! page can only delay the unprotection of its own memory.

use super::bindings as c;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::types::Opaque;

/// Reasons why memory is not protected, in the order of the statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Shared memory.
    Shared,
    /// Memory of a file or a device.
    File,
    /// Huge pages of hugetlbfs.
    Huge,
    /// A stack, which grows.
    Stack,
    /// Registered with a userfaultfd of the program.
    Userfaultfd,
    /// The memory is not mapped, or its mapping is changing.
    Changing,
    /// Another user has pinned the memory and may write to it.
    Pinned,
    /// Too many blocks are in flight, or some of the pages are being unpinned or unprotected.
    Busy,
    /// No userfaultfd.
    Unsupported,
    /// The program has written to the page of ioctl arguments, so the [`Protector`] must be closed.
    Misused,
}

impl Refusal {
    /// Number of reasons in the statistics.
    pub(crate) const COUNT: usize = 9;
    pub(crate) const NAMES: &'static str =
        "shared file hugetlb stack userfaultfd changing pinned busy unsupported";

    /// Returns true if the next block is likely to be refused, too.
    pub(crate) fn lasts(self) -> bool {
        !matches!(self, Refusal::Busy | Refusal::Changing)
    }

    pub(crate) fn index(self) -> usize {
        (self as usize).min(Self::COUNT - 1)
    }
}

/// An event: `len` bytes were moved (mremap(2)), or, unless `moved` is set, a thread has a write
/// fault at page `from`.
pub(crate) type UffdEvent = c::sdp_h_protect_event;

/// Callbacks of a [`Protector`]'s worker. Context: process, without locks.
pub(crate) trait Handler: Send + Sync + Sized + 'static {
    /// Handles pending events, or a [poke](Protector::poke), while the process's memory and the
    /// userfaultfd exist. Never runs concurrently for one address space.
    fn run(this: &Protector<Self>, worker: &mut Worker<'_>);

    /// Handles the end of the delay of [`Protector::rest`]. Returns true to close the userfaultfd.
    fn rest(this: &Protector<Self>) -> bool;
}

/// Write protection of one address space.
///
/// # Invariants
///
/// `raw` was initialised by `sdp_h_protect_init`. The C side holds a reference until the close.
#[pin_data]
#[repr(C)]
pub(crate) struct Protector<H: Handler> {
    // The first field, so that its address is that of the whole object.
    #[pin]
    raw: Opaque<c::sdp_h_protect>,
    #[pin]
    pub(crate) handler: H,
}

// SAFETY: The C part has its own locks; the handler is `Send`.
unsafe impl<H: Handler> Send for Protector<H> {}
// SAFETY: The C part has its own locks; the handler is `Sync`.
unsafe impl<H: Handler> Sync for Protector<H> {}

extern "C" fn run<H: Handler>(raw: *mut c::sdp_h_protect) {
    // SAFETY: `raw` is the first field of a `Protector<H>`, which is freed only after the close.
    // The close waits for this callback.
    let this = unsafe { &*raw.cast::<Protector<H>>() };
    H::run(this, &mut Worker(raw, core::marker::PhantomData));
}

extern "C" fn rest<H: Handler>(raw: *mut c::sdp_h_protect) {
    let this = raw.cast::<Protector<H>>().cast_const();
    // SAFETY: `raw` is the first field of a `Protector<H>`, which exists until the close.
    if H::rest(unsafe { &*this }) {
        // SAFETY: The protector is open: the close disables this work item. Gives back the
        // reference that `open` took.
        unsafe {
            c::sdp_h_protect_close(raw);
            drop(Arc::from_raw(this));
        }
    }
}

/// Returns the address of the `mm_struct` of the calling process, 0 without one.
pub(super) fn current_mm() -> usize {
    kernel::current!().mm().map_or(0, |mm| mm.as_raw().addr())
}

impl<H: Handler> Protector<H> {
    /// Makes a protector for the calling process, open until [`Handler::rest`] returns true. Call
    /// [`Protector::wait`] before using it. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the caller is not a process. `ENOMEM`.
    pub(crate) fn open(handler: impl PinInit<H>) -> Result<Arc<Self>> {
        let this = Arc::pin_init(
            try_pin_init!(Protector {
                raw: Opaque::zeroed(),
                handler <- handler,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: `raw` does not move; after a failure nothing refers to it.
        to_result(unsafe {
            c::sdp_h_protect_init(this.raw.get(), Some(run::<H>), Some(rest::<H>))
        })?;
        // INVARIANT: `raw` was initialised, and this reference is for the C side.
        let _ = Arc::into_raw(this.clone());
        this.poke();
        Ok(this)
    }

    /// Waits until the userfaultfd is ready, or for a fatal signal. Context: process.
    ///
    /// # Errors
    ///
    /// `EINTR`, and the errors of userfaultfd(2).
    pub(crate) fn wait(&self) -> Result {
        // SAFETY: By the invariants `raw` is initialised.
        to_result(unsafe { c::sdp_h_protect_wait(self.raw.get()) })
    }

    /// Returns true if the protector belongs to the calling process.
    pub(crate) fn is_mine(&self) -> bool {
        // SAFETY: By the invariants. `sdp_h_protect_init` has set the address, which is not reused
        // while the protector is open.
        unsafe { (*self.raw.get()).mm }.addr() == current_mm()
    }

    /// Queues [`Handler::run`]. Context: any. The call has no effect once the protector is closed.
    pub(crate) fn poke(&self) {
        // SAFETY: By the invariants `raw` is initialised; disabled work is not queued.
        unsafe { c::sdp_h_protect_kick(self.raw.get()) };
    }

    /// Queues [`Handler::rest`] after a delay (ms), replacing an earlier delay. Context: any.
    pub(crate) fn rest(&self, ms: u32) {
        // SAFETY: By the invariants `raw` is initialised; disabled work is not queued.
        unsafe { c::sdp_h_protect_rest(self.raw.get(), ms) };
    }

    /// Protects memory of the calling process. Context: process, may sleep and fault.
    ///
    /// # Errors
    ///
    /// Returns the reason on failure; [`Refusal::Changing`] if the protector
    /// [belongs](Protector::is_mine) to another process. After a failure, memory may be partly
    /// protected.
    pub(crate) fn set(&self, start: usize, end: usize) -> Result<(), Refusal> {
        // SAFETY: By the invariants `raw` is initialised; the C part's lock keeps the file.
        match unsafe { c::sdp_h_protect_set(self.raw.get(), start, end) } as u32 {
            0 => Ok(()),
            c::sdp_h_protectable_SDP_H_PROTECT_SHARED => Err(Refusal::Shared),
            c::sdp_h_protectable_SDP_H_PROTECT_FILE => Err(Refusal::File),
            c::sdp_h_protectable_SDP_H_PROTECT_HUGE => Err(Refusal::Huge),
            c::sdp_h_protectable_SDP_H_PROTECT_STACK => Err(Refusal::Stack),
            c::sdp_h_protectable_SDP_H_PROTECT_OTHER => Err(Refusal::Userfaultfd),
            c::sdp_h_protectable_SDP_H_PROTECT_MISUSED => Err(Refusal::Misused),
            _ => Err(Refusal::Changing),
        }
    }
}

/// Access of the worker to the memory of the process.
pub(crate) struct Worker<'a>(*mut c::sdp_h_protect, core::marker::PhantomData<&'a mut ()>);

impl Worker<'_> {
    /// Reads the next event.
    pub(crate) fn read_event(&mut self) -> Option<UffdEvent> {
        let mut event = UffdEvent::default();
        // SAFETY: The worker has the userfaultfd and the memory.
        unsafe { c::sdp_h_protect_read(self.0, &mut event) }.then_some(event)
    }

    /// Removes write protection from the part of the range that is still mapped, and wakes
    /// faulting threads.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: a mapping change is in progress, so read the events first. `EFAULT`: the program
    /// has made the page of ioctl arguments unreadable.
    pub(crate) fn clear(&mut self, start: usize, end: usize) -> Result {
        // SAFETY: The worker has the userfaultfd and the memory.
        to_result(unsafe { c::sdp_h_protect_clear(self.0, start, end) })
    }
}

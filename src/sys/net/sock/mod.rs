// SPDX-License-Identifier: GPL-2.0-only

//! Sockets of the network core.
//!
//! A [`Sock`] is a `struct sock` with the state `T` of the socket layer and a reference to the data
//! of its network namespace, in one object of the protocol's slab. A sock lives until its last
//! reference ([`ARef`]) is dropped, possibly long after close(2).
//! [`SockCore`] contains everything independent of `T`, for code below the socket layer.

pub(crate) use name::Ends;
pub(crate) use state::State;
pub(super) use wait::slept;
pub(crate) use wait::{cpu_contended, interrupted, signal_pending, FOREVER};

use super::netns::InNet;
use crate::sys::bindings as c;
use core::cell::UnsafeCell;
use core::mem::{offset_of, ManuallyDrop};
use core::ops::Deref;
use core::ptr::{self, NonNull};
use kernel::sync::aref::{ARef, AlwaysRefCounted};
use kernel::sync::atomic::{Atomic, Full};
use kernel::sync::Arc;
use kernel::types::{NotThreadSafe, Opaque};

/// `RCV_SHUTDOWN`: the socket receives no more bytes.
pub(crate) const RCV_SHUTDOWN: u8 = 1;
/// `SEND_SHUTDOWN`: the socket sends no more bytes.
pub(crate) const SEND_SHUTDOWN: u8 = 2;
pub(crate) const SHUTDOWN_MASK: u8 = 3;

/// Flags of `enum sock_flags` that the socket layer uses.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Flag {
    KeepOpen = c::sock_flags_SOCK_KEEPOPEN,
    Linger = c::sock_flags_SOCK_LINGER,
    /// `SO_OOBINLINE`.
    UrgInline = c::sock_flags_SOCK_URGINLINE,
    ZeroCopy = c::sock_flags_SOCK_ZEROCOPY,
}

/// Reads a field of `struct sock` that other tasks may change concurrently (`READ_ONCE`).
macro_rules! read_once {
    ($self:ident . $($field:tt)+) => {
        // SAFETY: By the invariants of `SockCore` the field is initialised and lives as long as
        // `self`; a volatile read of a naturally aligned integer does not tear.
        unsafe { core::ptr::read_volatile(&raw const (*$self.raw()).$($field)+) }
    };
}

/// Writes a field that `read_once` reads (`WRITE_ONCE`).
macro_rules! write_once {
    ($self:ident . $field:ident = $v:expr) => {
        // SAFETY: By the invariants the field lives as long as `self`; readers tolerate changes.
        unsafe { core::ptr::write_volatile(&raw mut (*$self.raw()).$field, $v) }
    };
}

mod fields;
mod name;
mod seq;
mod state;
mod wait;

/// A `struct sock` of the family without the socket layer's part.
///
/// # Invariants
///
/// `c` is an initialised `struct sdp_h_sock` whose reference count is not zero while the object can
/// be reached. The object is the beginning of a [`Sock`].
#[repr(transparent)]
pub(crate) struct SockCore {
    c: Opaque<c::sdp_h_sock>,
}

// SAFETY: A `struct sock` may be used from any thread; the methods use only what the network core
// allows without further locks or under the lock guard.
unsafe impl Send for SockCore {}
// SAFETY: As above.
unsafe impl Sync for SockCore {}

impl SockCore {
    pub(in crate::sys) fn raw(&self) -> *mut c::sock {
        self.c.get().cast()
    }

    fn raw_helper(&self) -> *mut c::sdp_h_sock {
        self.c.get()
    }

    /// Returns a number that is unique among existing sockets.
    pub(crate) fn id(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Takes the socket lock (`lock_sock`), which serialises the socket calls. May sleep.
    pub(crate) fn lock(&self) -> Locked<'_> {
        // SAFETY: By the invariants the sock is alive; socket calls may sleep.
        unsafe { c::lock_sock_nested(self.raw(), 0) };
        Locked {
            sk: self,
            _not_send: NotThreadSafe,
        }
    }
}

// SAFETY: `sk_refcnt` counts the references, as for `Sock`, which begins with this object;
// `sk_free()` uses the right size.
unsafe impl AlwaysRefCounted for SockCore {
    fn inc_ref(&self) {
        // SAFETY: By the invariants the sock is alive, so its count is not zero.
        unsafe { c::sock_hold(self.raw()) }
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller passes one reference, so the sock is alive until this call.
        unsafe { c::sock_put(obj.cast().as_ptr()) }
    }
}

/// A `struct sock` of the family, with the socket layer's part `T`.
///
/// # Invariants
///
/// The object was allocated with the size of `Self`, and `netns` and `data` are initialised.
#[repr(C)]
pub(crate) struct Sock<T: InNet> {
    core: SockCore,
    netns: Arc<T::Net>,
    data: T,
}

impl<T: InNet> Deref for Sock<T> {
    type Target = SockCore;

    fn deref(&self) -> &SockCore {
        &self.core
    }
}

// SAFETY: A `struct sock` may be used from any thread. The methods of `Sock` use only what the
// network core allows without further locks or under the lock guard. A `Sock` is only made for a
// `T` that is a `Family`, and `Family` and the namespace data are `Send` and `Sync`. (A bound on
// `T` here would be circular if `T` contains references to other socks.)
unsafe impl<T: InNet> Send for Sock<T> {}
// SAFETY: As above.
unsafe impl<T: InNet> Sync for Sock<T> {}

// SAFETY: `sk_refcnt` counts the references; `sk_free()` frees the `Sock` when the count is zero.
unsafe impl<T: InNet> AlwaysRefCounted for Sock<T> {
    fn inc_ref(&self) {
        // SAFETY: By the invariants the sock is alive, so its count is not zero.
        unsafe { c::sock_hold(self.raw()) }
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller passes one reference, so the sock is alive until this call.
        unsafe { c::sock_put(obj.cast().as_ptr()) }
    }
}

impl<T: InNet> Sock<T> {
    pub(crate) fn data(&self) -> &T {
        &self.data
    }

    /// Returns the family's state of the socket's namespace.
    pub(crate) fn netns(&self) -> &T::Net {
        &self.netns
    }

    /// Converts a C pointer to a `Sock`.
    ///
    /// # Safety
    ///
    /// `sk` must point to a sock of this family, made by `Family`'s create or clone code with the
    /// same `T`, with `netns` and `data` initialised, and must stay referenced for `'a`.
    pub(in crate::sys) unsafe fn from_raw<'a>(sk: *mut c::sock) -> &'a Self {
        // SAFETY: By the requirements of this function `sk` is the start of a `Sock<T>`.
        unsafe { &*sk.cast::<Self>() }
    }

    /// Offsets in the object of the namespace's state and of the socket layer's part.
    pub(in crate::sys) const NETNS_OFFSET: usize = offset_of!(Self, netns);
    pub(in crate::sys) const DATA_OFFSET: usize = offset_of!(Self, data);
}

/// The held socket lock.
///
/// # Invariants
///
/// This thread has called `lock_sock()` for `sk`, and not yet `release_sock()`.
pub(crate) struct Locked<'a> {
    sk: &'a SockCore,
    _not_send: NotThreadSafe,
}

impl<'a> Locked<'a> {
    /// Returns the lock that an outer caller holds and later releases.
    ///
    /// # Safety
    ///
    /// This task holds the lock, and uses no other `Locked` of this sock meanwhile.
    pub(in crate::sys) unsafe fn held(sk: &'a SockCore) -> ManuallyDrop<Self> {
        // INVARIANT: The caller holds the lock; the destructor does not run.
        ManuallyDrop::new(Locked {
            sk,
            _not_send: NotThreadSafe,
        })
    }

    /// Allows other sockets of the same user to bind the same port (`SO_REUSEPORT`).
    pub(crate) fn set_reuse_port(&self, on: bool) {
        // SAFETY: By the invariants the sock is alive and locked, as the bit field requires.
        unsafe { (*self.sk.raw()).__sk_common.set_skc_reuseport(on.into()) }
    }

    /// Runs `f` without the lock.
    pub(crate) fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        // SAFETY: By the invariants the lock is held.
        unsafe { c::release_sock(self.sk.raw()) };
        let r = f();
        // SAFETY: The sock is alive. INVARIANT: this task holds the lock again.
        unsafe { c::lock_sock_nested(self.sk.raw(), 0) };
        r
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: By the invariants the lock is held.
        unsafe { c::release_sock(self.sk.raw()) }
    }
}

/// A value in the socket layer's part of a socket, accessed only by the holder of the socket lock.
pub(crate) struct UnderLock<T>(UnsafeCell<T>);

// SAFETY: One task at a time accesses the value: the holder of a lock.
unsafe impl<T: Send> Sync for UnderLock<T> {}

impl<T> UnderLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        UnderLock(UnsafeCell::new(value))
    }
}

impl<S: InNet> Sock<S> {
    /// Returns a value that the lock of this socket protects.
    ///
    /// Panics if the value or the lock is another socket's.
    #[inline]
    pub(crate) fn under_lock<'a, T>(
        &'a self,
        lock: &'a mut Locked<'_>,
        value: &'a UnderLock<T>,
    ) -> &'a mut T {
        let start = ptr::from_ref(self).addr();
        let offset = ptr::from_ref(value).addr().wrapping_sub(start);
        assert!(offset < size_of::<Self>() && ptr::from_ref(lock.sk).addr() == start);
        // SAFETY: The value is a part of this socket, and `lock` is this socket's. Another
        // reference to the value would have borrowed the same lock, which is borrowed for `'a`.
        unsafe { &mut *value.0.get() }
    }
}

/// A new socket that may get a descriptor.
///
/// # Invariants
///
/// The sock has no descriptor, and at most one `Unaccepted` of that sock ever exists.
pub(crate) struct Unaccepted<T: InNet>(ARef<Sock<T>>);

impl<T: InNet> Unaccepted<T> {
    /// Wraps a socket of [`Sock::child`], once.
    pub(crate) fn new(sk: &Sock<T>) -> Option<Self> {
        // SAFETY: `unaccepted` is an initialised atomic_t, which has the layout of an `Atomic`.
        let first: &Atomic<i32> =
            unsafe { Atomic::from_ptr(&raw mut (*sk.raw_helper()).unaccepted.counter) };
        // INVARIANT: The sock was created without a descriptor, and `unaccepted` is 1 only once.
        (first.xchg(0, Full) != 0).then(|| Unaccepted(sk.into()))
    }

    /// Returns the socket. From now on only the caller can give the sock a descriptor.
    pub(crate) fn into_sock(self) -> ARef<Sock<T>> {
        self.0
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Data that each network namespace holds for the module.

use super::super::bindings as c;
use super::super::rdma::Net;
use core::any::TypeId;
use core::marker::PhantomData;
use core::ptr;
use kernel::prelude::*;
use kernel::sync::atomic::{AtomicFlag, Full, Release};
use kernel::sync::Arc;

/// What a namespace holds: made when the namespace is made (or the module loaded), given up when it
/// ends (or the module is unloaded). Sockets of kernel users do not keep their namespace, so each
/// socket holds this by itself.
pub(crate) trait PerNet: Sized + Send + Sync + 'static {
    /// A fresh value.
    fn init() -> impl PinInit<Self, Error>;
    /// The namespace is there: make its `/proc` files.
    fn start(this: &Arc<Self>, net: &Net) -> Result;
    /// The namespace ends: programs have no sockets in it any more, kernel users may have.
    fn stop(this: &Arc<Self>, net: &Net);
}

/// A kind of sockets. Each of them holds what its namespace does.
pub(crate) trait InNet {
    /// What that is.
    type Net: PerNet;
}

/// What lies in the area of a namespace.
#[repr(C)]
struct Held<P> {
    /// Whose data it is. First, so that it is found there whatever type is asked for.
    of: TypeId,
    data: Arc<P>,
}

/// There is a registration.
static REGISTERED: AtomicFlag = AtomicFlag::new(false);

/// The registration; while it lives, [`of`] works for every namespace.
pub(crate) struct Registration<P: PerNet>(PhantomData<P>);

impl<P: PerNet> Registration<P> {
    /// Makes the data of all namespaces.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is a registration, or what the kernel says.
    pub(crate) fn new() -> Result<Self> {
        if REGISTERED.xchg(true, Full) {
            return Err(EBUSY);
        }
        // SAFETY: The functions have the required signatures, live as long as the module, and
        // unregistering in `drop` ends their use. The area has that size; the kernel aligns it as
        // kmalloc does.
        let e =
            unsafe { c::sdp_h_netns_start(size_of::<Held<P>>(), Some(init::<P>), Some(exit::<P>)) };
        if e < 0 {
            REGISTERED.store(false, Release);
            Err(Error::from_errno(e))
        } else {
            Ok(Registration(PhantomData))
        }
    }
}

impl<P: PerNet> Drop for Registration<P> {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`.
        unsafe { c::sdp_h_netns_stop() };
        REGISTERED.store(false, Release);
    }
}

/// The data that `net` holds.
///
/// # Panics
///
/// If that is of another type: there is one registration, of one type.
pub(in crate::sys) fn of<P: PerNet>(net: &Net) -> &Arc<P> {
    let held = area::<P>(ptr::from_ref(net).cast());
    // SAFETY: The area was initialised by `init` before anybody could see the namespace, and is dropped
    // by `exit` only when nobody has a reference to the namespace, which who asks here has. Whatever
    // `P` it is for, this comes first in it.
    let of = unsafe { (&raw const (*held).of).read() };
    assert!(of == TypeId::of::<P>(), "data of another type");
    // SAFETY: As above, and it is for this `P`.
    unsafe { &(*held).data }
}

/// Where the data of a namespace lies.
fn area<P>(net: *const c::net) -> *mut Held<P> {
    // SAFETY: `net` is a namespace that is alive, and the id is registered.
    unsafe { c::sdp_h_pernet(net, c::sdp_h_netns_id).cast() }
}

/// # Safety
///
/// Called by the C side, once for each namespace, before anything else that has to do with it.
unsafe extern "C" fn init<P: PerNet>(net: *mut c::net) -> i32 {
    let made = match Arc::pin_init(P::init(), GFP_KERNEL) {
        Ok(p) => p,
        Err(e) => return e.to_errno(),
    };
    let slot = area::<P>(net);
    let held = Held {
        of: TypeId::of::<P>(),
        data: made,
    };
    // SAFETY: `slot` is zeroed memory of that size, which stays where it is until `exit`.
    unsafe { slot.write(held) };
    // SAFETY: Initialised above, and dropped at the earliest below. The C side passes a namespace that is alive.
    if let Err(e) = unsafe { P::start(&(*slot).data, Net::from_raw(net)) } {
        // SAFETY: Initialised above, and nobody has seen it.
        unsafe { ptr::drop_in_place(slot) };
        return e.to_errno();
    }
    0
}

/// # Safety
///
/// Called by the C side, once for each namespace that `init` has prepared, as the last thing.
unsafe extern "C" fn exit<P: PerNet>(net: *mut c::net) {
    // SAFETY: Initialised by `init`, and nobody looks there any more: that takes a reference to the
    // namespace, and there is none.
    let last = unsafe { area::<P>(net).read() };
    // SAFETY: The C side passes a namespace that is not yet freed.
    P::stop(&last.data, unsafe { Net::from_raw(net) });
}

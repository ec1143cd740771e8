// SPDX-License-Identifier: GPL-2.0-only

//! The lock around what the module as a whole knows of RDMA.
//!
//! A static lock of the kernel has to be initialised at run time, which takes `unsafe`; so the
//! lock is here, and the [`Registry`] that it guards is the transport's.

use crate::transport::rdma::device::Registry;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full, Release};
use kernel::sync::GlobalGuard;
use lock::REGISTRY;

/// The lock, out of everybody's reach but [`start`] and [`lock()`].
mod lock {
    use super::*;

    kernel::sync::global_lock! {
        // SAFETY: `lock` gives access only after `start` has initialised it.
        pub(crate) unsafe(uninit) static REGISTRY: Mutex<Registry> = Registry::new();
    }
}

/// 0: not initialised, 1: being initialised, 2: initialised.
static STATE: Atomic<u32> = Atomic::new(0);

/// Makes the lock usable. Called once when the module is loaded; more calls do nothing.
pub(crate) fn start() {
    if STATE.cmpxchg(0, 1, Full).is_ok() {
        // SAFETY: Only one thread ever changes the state from 0 to 1.
        unsafe { REGISTRY.init() };
        STATE.store(2, Release);
    }
}

/// Takes the lock. May sleep.
///
/// # Errors
///
/// `ENODEV` before [`start`].
pub(crate) fn lock() -> Result<GlobalGuard<REGISTRY>> {
    if STATE.load(Acquire) != 2 {
        return Err(ENODEV);
    }
    Ok(REGISTRY.lock())
}

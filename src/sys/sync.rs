// SPDX-License-Identifier: GPL-2.0-only

//! A static mutex, and exclusive claims.

use kernel::prelude::*;
use kernel::sync::atomic::{AtomicFlag, Full};

/// Exclusive claim, held until its drop.
pub(super) struct Exclusive(&'static AtomicFlag);

impl Exclusive {
    /// Claims it. `taken`: flag of the claim.
    ///
    /// # Errors
    ///
    /// `EBUSY`: the flag is claimed already.
    pub(super) fn take(taken: &'static AtomicFlag) -> Result<Self> {
        match taken.xchg(true, Full) {
            true => Err(EBUSY),
            false => Ok(Exclusive(taken)),
        }
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        self.0.xchg(false, Full);
    }
}

/// Defines a module with a static mutex, which the kernel can only initialise at run time: `lock()`
/// takes the mutex, and fails before `start()`. The content of the mutex is never dropped.
///
/// The kernel crate has no type for a static mutex, because the in-place initialisation of locks
/// differs between kernel series.
macro_rules! late_mutex {
    ($(#[$doc:meta])* mod $name:ident, $lock:ident: $guarded:ty = $value:expr) => {
        $(#[$doc])*
        mod $name {
            use super::*;
            use kernel::sync::atomic::{Acquire, Atomic, Full, Release};
            use kernel::sync::GlobalGuard;

            mod inner {
                use super::*;

                kernel::sync::global_lock! {
                    // SAFETY: Only `lock` uses the mutex, once `start` has initialised it.
                    pub(crate) unsafe(uninit) static $lock: Mutex<$guarded> = $value;
                }
            }

            /// 0: not initialised, 1: being initialised, 2: initialised.
            static STATE: Atomic<u32> = Atomic::new(0);

            /// Initialises the mutex when the module is loaded; further calls have no effect.
            pub(in super::super) fn start() {
                if STATE.cmpxchg(0, 1, Full).is_ok() {
                    // SAFETY: Only one thread ever changes the state from 0 to 1.
                    unsafe { inner::$lock.init() };
                    STATE.store(2, Release);
                }
            }

            /// Takes the lock. Sleeps.
            ///
            /// # Errors
            ///
            /// `ENODEV` before [`start`].
            pub(in super::super) fn lock() -> Result<GlobalGuard<inner::$lock>> {
                if STATE.load(Acquire) != 2 {
                    return Err(kernel::error::code::ENODEV);
                }
                Ok(inner::$lock.lock())
            }
        }
    };
}
pub(crate) use late_mutex;

// SPDX-License-Identifier: GPL-2.0-only

//! Compiles the module's lock-free files unchanged with the atomics of [loom], which runs a test in
//! every order of its threads' steps, with every value that a load may return.
//!
//! [loom]: https://docs.rs/loom

#![cfg(test)]

// The files under test import the kernel's atomics by this name.
extern crate self as kernel;

#[path = "../../../../src/sys/byte_queue.rs"]
#[allow(dead_code, reason = "of the module's")]
mod byte_queue;
#[path = "../../../../src/conn/events.rs"]
mod events;
#[path = "../../../../src/sys/flow.rs"]
#[allow(dead_code, reason = "of the module's")]
mod flow;
mod full;
mod going;
#[allow(dead_code, reason = "of the module's")]
mod queue_stubs;
mod retold;
#[path = "../../../../src/sys/net/sock/seq.rs"]
mod seq;
mod sleeping;
mod socket;
mod streaming;
#[path = "../../../../src/sys/rdma/use_count.rs"]
mod use_count;
mod waiting;

use queue_stubs::{pages, vec};

mod alloc {
    pub(crate) use crate::queue_stubs::Flags;
}

mod prelude {
    pub(crate) use crate::queue_stubs::{
        InPlaceInit, KBox, KVec, Result, ENOSPC, GFP_KERNEL, GFP_NOWAIT,
    };
}

/// `kernel::sync`, as far as the files use it.
mod sync {
    pub(crate) use crate::queue_stubs::{new_spinlock, Arc, SpinLock};

    pub(crate) mod atomic {
        use loom::sync::atomic::{fence, AtomicI64, Ordering};
        use std::fmt::Debug;
        use std::marker::PhantomData;

        /// A memory order of the kernel.
        pub trait Order {
            /// Fences before and after the access.
            fn fence();
        }

        /// The access is not ordered with other accesses.
        pub struct Relaxed;
        /// Orders all earlier accesses before this one, and this one before all later accesses.
        pub struct Full;

        impl Order for Relaxed {
            fn fence() {}
        }

        impl Order for Full {
            fn fence() {
                fence(Ordering::SeqCst)
            }
        }

        /// Orders this access before later loads.
        pub struct Acquire;

        /// Memory order of a load.
        pub trait LoadOrder {
            const ORDER: Ordering;
        }

        impl LoadOrder for Relaxed {
            const ORDER: Ordering = Ordering::Relaxed;
        }

        impl LoadOrder for Acquire {
            const ORDER: Ordering = Ordering::Acquire;
        }

        /// `Atomic<i32>` and `Atomic<i64>`.
        pub struct Atomic<T>(AtomicI64, PhantomData<T>);

        impl<T: Into<i64> + TryFrom<i64, Error: Debug>> Atomic<T> {
            pub fn new(n: T) -> Self {
                Atomic(AtomicI64::new(n.into()), PhantomData)
            }

            fn ordered<O: Order, R>(&self, _: O, access: impl FnOnce(&AtomicI64) -> R) -> R {
                O::fence();
                let r = access(&self.0);
                O::fence();
                r
            }

            fn value(n: i64) -> T {
                n.try_into().unwrap()
            }

            pub fn load<O: LoadOrder>(&self, _: O) -> T {
                Self::value(self.0.load(O::ORDER))
            }

            /// Implemented as an exchange: loom treats a plain store and an exchange that has not
            /// seen it as unordered, so later loads could return the older of the two values.
            pub fn store(&self, n: T, _: Relaxed) {
                self.0.swap(n.into(), Ordering::Relaxed);
            }

            pub fn xchg<O: Order>(&self, n: T, o: O) -> T {
                Self::value(self.ordered(o, |a| a.swap(n.into(), Ordering::Relaxed)))
            }

            pub fn cmpxchg<O: Order>(&self, old: T, new: T, o: O) -> Result<T, T> {
                self.ordered(o, |a| {
                    a.compare_exchange(old.into(), new.into(), Ordering::Relaxed, Ordering::Relaxed)
                })
                .map(Self::value)
                .map_err(Self::value)
            }

            pub fn fetch_add<O: Order>(&self, n: T, o: O) -> T {
                Self::value(self.ordered(o, |a| a.fetch_add(n.into(), Ordering::Relaxed)))
            }

            pub fn fetch_sub<O: Order>(&self, n: T, o: O) -> T {
                Self::value(self.ordered(o, |a| a.fetch_sub(n.into(), Ordering::Relaxed)))
            }
        }
    }
}

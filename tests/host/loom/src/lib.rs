// SPDX-License-Identifier: GPL-2.0-only

//! The module's files that do without locks, as they are, on atomics that [loom] watches: it runs
//! a test in every order in which its threads can take their steps, with every value that a load
//! may give.
//!
//! [loom]: https://docs.rs/loom

#![cfg(test)]

// The files ask for the kernel's atomics by this name.
extern crate self as kernel;

#[path = "../../../../src/conn/events.rs"]
mod events;
mod going;
mod room;
#[path = "../../../../src/sys/rdma/use_count.rs"]
mod use_count;
mod waiting;

/// `kernel::sync::atomic`, as far as the files use it.
mod sync {
    pub(crate) mod atomic {
        use loom::sync::atomic::{fence, AtomicI32, Ordering};

        /// An order of the kernel's.
        pub trait Order {
            /// Before and after the access.
            fn fence();
        }

        /// No order.
        pub struct Relaxed;
        /// Everything before it, then the access, then everything after it.
        pub struct Full;

        impl Order for Relaxed {
            fn fence() {}
        }

        impl Order for Full {
            fn fence() {
                fence(Ordering::SeqCst)
            }
        }

        /// `Atomic<i32>`.
        pub struct Atomic<T>(AtomicI32, std::marker::PhantomData<T>);

        impl Atomic<i32> {
            pub fn new(n: i32) -> Self {
                Atomic(AtomicI32::new(n), std::marker::PhantomData)
            }

            fn ordered<O: Order, R>(&self, _: O, access: impl FnOnce(&AtomicI32) -> R) -> R {
                O::fence();
                let r = access(&self.0);
                O::fence();
                r
            }

            pub fn load(&self, _: Relaxed) -> i32 {
                self.0.load(Ordering::Relaxed)
            }

            /// An exchange, since loom takes a plain store and an exchange that has not seen it to
            /// be without order: later loads could then see the older one of the two.
            pub fn store(&self, n: i32, _: Relaxed) {
                self.0.swap(n, Ordering::Relaxed);
            }

            pub fn xchg<O: Order>(&self, n: i32, o: O) -> i32 {
                self.ordered(o, |a| a.swap(n, Ordering::Relaxed))
            }

            pub fn cmpxchg<O: Order>(&self, old: i32, new: i32, o: O) -> Result<i32, i32> {
                self.ordered(o, |a| {
                    a.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
                })
            }

            pub fn fetch_add<O: Order>(&self, n: i32, o: O) -> i32 {
                self.ordered(o, |a| a.fetch_add(n, Ordering::Relaxed))
            }

            pub fn fetch_sub<O: Order>(&self, n: i32, o: O) -> i32 {
                self.ordered(o, |a| a.fetch_sub(n, Ordering::Relaxed))
            }
        }
    }
}

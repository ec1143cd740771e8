// SPDX-License-Identifier: GPL-2.0-only

//! Stubs for `sys/byte_queue.rs`, and its memory: each byte of a segment has a cell of loom. Loom
//! reports accesses of two tasks to a cell that nothing orders.

use std::ops::{Deref, DerefMut};
use std::pin::Pin;

#[derive(Clone, Copy)]
pub(crate) struct Flags;

pub(crate) const GFP_KERNEL: Flags = Flags;
pub(crate) const GFP_NOWAIT: Flags = Flags;

#[derive(Debug, PartialEq)]
pub(crate) enum Error {
    Memory,
    Space,
}

pub(crate) const ENOMEM: Error = Error::Memory;
pub(crate) const ENOSPC: Error = Error::Space;
pub(crate) type Result<T = (), E = Error> = core::result::Result<T, E>;

/// `kernel::sync::Arc`.
pub(crate) struct Arc<T>(loom::sync::Arc<T>);

impl<T> Arc<T> {
    pub(crate) fn new(value: T, _: Flags) -> Result<Self> {
        Ok(Arc(loom::sync::Arc::new(value)))
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        Arc(self.0.clone())
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// `kernel::sync::SpinLock`.
pub(crate) struct SpinLock<T>(loom::sync::Mutex<T>);

impl<T> SpinLock<T> {
    pub(crate) fn of(value: T) -> Self {
        SpinLock(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

macro_rules! new_spinlock {
    ($value:expr, $name:literal) => {
        crate::queue_stubs::SpinLock::of($value)
    };
}
pub(crate) use new_spinlock;

pub(crate) type KBox<T> = Box<T>;

pub(crate) trait InPlaceInit<T> {
    fn pin_init(value: T, _: Flags) -> Result<Pin<Box<T>>>;
}

impl<T> InPlaceInit<T> for Box<T> {
    fn pin_init(value: T, _: Flags) -> Result<Pin<Box<T>>> {
        Ok(Box::pin(value))
    }
}

/// Elements, and the number of elements that there is space for.
pub(crate) struct KVec<T>(Vec<T>, usize);

impl<T> KVec<T> {
    pub(crate) fn new() -> Self {
        KVec(Vec::new(), 0)
    }

    pub(crate) fn push_within_capacity(&mut self, item: T) -> Result<(), T> {
        match self.0.len() < self.1 {
            true => self.0.push(item),
            false => return Err(item),
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, at: usize) -> Result<T, ()> {
        match at < self.0.len() {
            true => Ok(self.0.remove(at)),
            false => Err(()),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    pub(crate) fn drain_all(&mut self) -> std::vec::Drain<'_, T> {
        self.0.drain(..)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.1
    }
}

impl<T> Deref for KVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for KVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

/// `src/sys/vec.rs`.
pub(crate) mod vec {
    use super::{Flags, KVec, Result};

    pub(crate) fn with_capacity<T>(most: usize, _: Flags) -> Result<KVec<T>> {
        Ok(KVec(Vec::new(), most))
    }

    pub(crate) fn push<T>(v: &mut KVec<T>, most: usize, item: T, _: Flags) -> Result<(), T> {
        v.1 = v.0.len() + 1;
        match v.0.len() < most {
            true => v.push_within_capacity(item),
            false => Err(item),
        }
    }
}

/// `src/sys/pages.rs`.
pub(crate) mod pages {
    use super::{Arc, Flags, Result};
    use std::cell::UnsafeCell;

    pub(crate) struct Block {
        bytes: UnsafeCell<Vec<u8>>,
        accesses: Vec<loom::cell::UnsafeCell<()>>,
    }

    // SAFETY: Loom checks the accesses to the bytes.
    unsafe impl Sync for Block {}

    impl Block {
        pub(crate) fn size(&self) -> usize {
            self.accesses.len()
        }

        /// # Safety
        ///
        /// Same contract as in the module.
        pub(crate) unsafe fn part(&self, offset: usize, n: usize) -> &[u8] {
            self.accesses[offset..offset + n]
                .iter()
                .for_each(|a| a.with(|_| ()));
            // SAFETY: The caller guarantees the range. The vector itself never changes.
            unsafe { std::slice::from_raw_parts((*self.bytes.get()).as_ptr().add(offset), n) }
        }

        /// # Safety
        ///
        /// Same contract as in the module.
        #[allow(clippy::mut_from_ref)]
        pub(crate) unsafe fn part_mut(&self, offset: usize) -> &mut [u8] {
            self.accesses[offset..]
                .iter()
                .for_each(|a| a.with_mut(|_| ()));
            let n = self.size() - offset;
            // SAFETY: The caller guarantees the range. The vector itself never changes.
            unsafe {
                std::slice::from_raw_parts_mut((*self.bytes.get()).as_mut_ptr().add(offset), n)
            }
        }
    }

    pub(crate) struct Memory(Block);

    impl Memory {
        pub(crate) fn new(size: usize, _: Flags) -> Result<Self> {
            Ok(Memory(Block {
                bytes: UnsafeCell::new(vec![0; size]),
                accesses: (0..size).map(|_| loom::cell::UnsafeCell::new(())).collect(),
            }))
        }

        pub(crate) fn into_block(self) -> Arc<Block> {
            Arc::new(self.0, super::GFP_KERNEL).unwrap_or_else(|_| unreachable!())
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Stubs of the kernel: allocations that can fail, buffers that no device accesses.

use std::cell::Cell;

thread_local! {
    /// Set to let allocations fail.
    static OUT_OF_MEMORY: Cell<bool> = const { Cell::new(false) };
}

/// True if all socket buffers together have reached their limit.
pub(crate) mod pressure {
    use std::cell::Cell;

    thread_local! {
        pub(crate) static EXHAUSTED: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn is_exhausted() -> bool {
        EXHAUSTED.get()
    }
}

/// Calls `f` while allocations fail.
pub(crate) fn without_memory<R>(f: impl FnOnce() -> R) -> R {
    OUT_OF_MEMORY.set(true);
    let r = f();
    OUT_OF_MEMORY.set(false);
    r
}

#[derive(Debug, PartialEq)]
pub(crate) enum Error {
    Protocol,
    NoMemory,
}

/// An errno.
pub(crate) struct Errno;

pub(crate) const EPROTO: Errno = Errno;

impl From<Errno> for Error {
    fn from(_: Errno) -> Self {
        Error::Protocol
    }
}

pub(crate) mod alloc {
    #[derive(Clone, Copy)]
    pub(crate) struct Flags;

    pub(crate) mod flags {
        use super::Flags;
        pub(crate) const GFP_KERNEL: Flags = Flags;
        pub(crate) const GFP_NOWAIT: Flags = Flags;
    }
}

pub(crate) mod prelude {
    pub(crate) use super::KVec;
    pub(crate) type Result<T = (), E = super::Error> = core::result::Result<T, E>;
}

/// The kernel's vector, as far as it is used by these files: it grows only on request.
pub(crate) struct KVec<T> {
    items: Vec<T>,
    room: usize,
}

impl<T> KVec<T> {
    pub(crate) const fn new() -> Self {
        KVec {
            items: Vec::new(),
            room: 0,
        }
    }

    pub(crate) fn with_capacity(n: usize, flags: alloc::Flags) -> Result<Self, Error> {
        let mut v = Self::new();
        v.reserve(n, flags)?;
        Ok(v)
    }

    pub(crate) fn reserve(&mut self, more: usize, _: alloc::Flags) -> Result<(), Error> {
        let wanted = self.items.len() + more;
        if wanted > self.room {
            if OUT_OF_MEMORY.get() {
                return Err(Error::NoMemory);
            }
            self.room = wanted;
        }
        Ok(())
    }

    pub(crate) fn push_within_capacity(&mut self, item: T) -> Result<(), T> {
        if self.items.len() == self.room {
            return Err(item);
        }
        self.items.push(item);
        Ok(())
    }

    pub(crate) fn remove(&mut self, at: usize) -> Result<T, ()> {
        match at < self.items.len() {
            true => Ok(self.items.remove(at)),
            false => Err(()),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.items.clear();
    }
}

impl<T> core::ops::Deref for KVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> core::ops::DerefMut for KVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

/// `src/sys/vec.rs`.
pub(crate) mod vec {
    use super::{alloc::Flags, Error, KVec};

    pub(crate) fn with_capacity<T>(most: usize, flags: Flags) -> Result<KVec<T>, Error> {
        KVec::with_capacity(most, flags)
    }

    pub(crate) fn push<T>(v: &mut KVec<T>, most: usize, item: T, flags: Flags) -> Result<(), T> {
        if v.len() >= most || v.reserve(1, flags).is_err() {
            return Err(item);
        }
        v.push_within_capacity(item)
    }
}

/// The bytes of a buffer.
pub(crate) struct Memory(Vec<u8>);

impl Memory {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Memory for one message, or for a part of one.
pub(crate) struct Buffer {
    pub(crate) offset: u32,
    pub(crate) len: u32,
    capacity: usize,
    memory: Option<Memory>,
}

impl Buffer {
    pub(crate) fn new(capacity: usize) -> Self {
        Buffer {
            offset: 0,
            len: 0,
            capacity,
            memory: Some(Memory(vec![0; capacity])),
        }
    }

    pub(crate) fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    pub(crate) fn take_memory(&mut self) -> Option<Memory> {
        self.memory.take()
    }

    pub(crate) fn put_memory(&mut self, memory: Memory) {
        self.memory = Some(memory);
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], Memory::bytes)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], Memory::bytes_mut)
    }
}

/// Part of a buffer.
pub(crate) struct Sge<'a> {
    pub(crate) buffer: &'a Buffer,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

/// Pseudo-random numbers, the same in each run.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Chance(seed)
    }

    /// Returns a number from 0 to `below - 1`.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

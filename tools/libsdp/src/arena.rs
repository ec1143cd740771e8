// SPDX-License-Identifier: GPL-2.0-only

//! Memory for what is read once: the rules. It never comes back, and malloc has no part in it.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// Bytes that are asked of the kernel at a time.
const CHUNK: usize = 256 * 1024;

/// Gives memory out of mappings of its own.
pub struct Arena {
    /// The next free byte of the current mapping.
    next: AtomicPtr<u8>,
    /// The address of that mapping's end.
    end: AtomicUsize,
}

impl Arena {
    pub const fn new() -> Self {
        Arena {
            next: AtomicPtr::new(ptr::null_mut()),
            end: AtomicUsize::new(0),
        }
    }
}

/// Zeroed memory of its own, or null.
pub fn map(length: usize) -> *mut u8 {
    // SAFETY: a new mapping touches nothing that exists.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        ptr::null_mut()
    } else {
        at.cast()
    }
}

// SAFETY: each byte of a mapping is given out once: `next` only moves by a compare-and-exchange
// from the value that the caller's bytes begin at, and a new mapping is installed the same way.
// A stale `end` is only ever that of a mapping at another address; the check against it and the
// exchange of `next` are made for the same `next`, and `end` is stored before `next` moves there.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() + layout.align() > CHUNK / 4 {
            // Mappings begin at pages; nothing here wants more than that.
            return if layout.align() <= 4096 {
                map(layout.size())
            } else {
                ptr::null_mut()
            };
        }
        loop {
            let next = self.next.load(Relaxed);
            let start = (next as usize).next_multiple_of(layout.align());
            let stop = start + layout.size();
            // A mapping is CHUNK aligned in length only, so both its ends are compared.
            let end = self.end.load(Relaxed);
            if !next.is_null() && stop <= end && end - start <= CHUNK {
                let after = next.wrapping_add(stop - next as usize);
                if self
                    .next
                    .compare_exchange(next, after, Relaxed, Relaxed)
                    .is_ok()
                {
                    return next.wrapping_add(start - next as usize);
                }
                continue;
            }
            let chunk = map(CHUNK);
            if chunk.is_null() {
                return chunk;
            }
            // The first bytes of the new mapping are this caller's, so nobody needs `next` to be
            // both new and unused.
            self.end.store(chunk as usize + CHUNK, Relaxed);
            self.next.store(chunk.wrapping_add(layout.size()), Relaxed);
            return chunk;
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

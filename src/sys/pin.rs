// SPDX-License-Identifier: GPL-2.0-only

//! Pinned pages of programs.
//!
//! [`Pages`] are the pages of one segment of program memory, or of several that fit one memory
//! region. Pages are pinned for a device to read or write, from the iterator of a send or receive
//! call ([`super::net::message::SendMsg::pin`], [`super::net::message::RecvMsg::pin`]). This file
//! does not access the contents of pages. [`Locked`] charges the pages to the user's
//! `RLIMIT_MEMLOCK`.

use super::bindings as c;
use super::errno::EOPNOTSUPP;
use super::vec;
use core::ptr::null_mut;
use kernel::alloc;
use kernel::prelude::*;
use kernel::sync::atomic::{AtomicFlag, Relaxed};

/// Set once a program uses write protection.
static COUNTED: AtomicFlag = AtomicFlag::new(false);

pub(crate) const PAGE: usize = kernel::page::PAGE_SIZE;

/// Duration of pinning.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PinTerm {
    /// Pin for the READs of one receive call, which waits for their end.
    Short,
    /// Pin for a time that depends on the peer. Refuses memory whose pages the kernel must be able
    /// to take back, or whose writes it must track.
    Long,
}

/// List of the pages of one block of memory.
///
/// # Invariants
///
/// Each of `pages` is pinned once by `sdp_h_pin`, or referenced instead if `by_page` is set. Only
/// [`Pages::unpin`] undoes the pins. The pages contain `offset + len` bytes. `sent` lists exactly
/// the pages of `pages`, or no pages.
pub(crate) struct Pages {
    pages: KVec<*mut c::page>,
    /// Maximum number of pages that [`Pages::reserve`] allocates space for.
    most: usize,
    offset: u32,
    len: u32,
    written: bool,
    /// Set if the caller passes memory as pages, or for kernel pages, which are only referenced.
    by_page: bool,
    /// Entry in the list of pages pinned for sending.
    sent: Option<KBox<c::sdp_h_sent>>,
}

// SAFETY: Pinned pages may be unpinned by any thread.
unsafe impl Send for Pages {}
// SAFETY: Shared references give access to numbers only, and to page pointers for `crate::sys`.
unsafe impl Sync for Pages {}

impl Pages {
    /// Makes an empty list for at most `most` pages.
    pub(crate) fn new(most: usize) -> Self {
        Pages {
            pages: KVec::new(),
            most,
            offset: 0,
            len: 0,
            written: false,
            by_page: false,
            sent: None,
        }
    }

    /// Unpins the pages and makes space for `count` new pages, up to the maximum. May sleep.
    pub(crate) fn reserve(&mut self, count: usize) -> Result {
        self.unpin();
        if self.pages.capacity() < count.min(self.most) {
            self.pages = list_for(count, self.most)?;
        }
        Ok(())
    }

    /// Unpins the pages, and allocates kernel pages with the bytes of `other`. Sleeps.
    pub(crate) fn copy_from(&mut self, other: &Pages) -> Result {
        let n = other.count();
        if n > self.most {
            return Err(EINVAL);
        }
        self.reserve(n)?;
        // SAFETY: There is space for `n` pages, and `n` pages of `other` stay pinned.
        let ret = unsafe {
            c::sdp_h_make_pages(
                self.pages.as_mut_ptr(),
                other.pages.as_ptr().cast_mut(),
                n as u32,
            )
        };
        kernel::error::to_result(ret)?;
        // INVARIANT: The pages were just made, with the number and contents of those of `other`.
        // SAFETY: The function has written as many elements, for which there is space.
        unsafe { self.pages.inc_len(n) };
        (self.offset, self.len) = (other.offset, other.len);
        (self.written, self.by_page) = (false, true);
        Ok(())
    }

    /// Copies bytes from `offset` on to fill `to`. The program may write to the pages meanwhile:
    /// the copy then has some old and some new bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the range exceeds the pages.
    pub(crate) fn copy_out(&self, offset: usize, to: &mut [u8]) -> Result {
        let end = offset.checked_add(to.len()).ok_or(EINVAL)?;
        if end > self.len() {
            return Err(EINVAL);
        }
        // SAFETY: By the invariants the pages are pinned and hold as many bytes from the offset.
        unsafe {
            c::sdp_h_copy_from_pages(
                to.as_mut_ptr().cast(),
                self.pages.as_ptr().cast_mut(),
                (self.offset as usize).saturating_add(offset),
                to.len(),
            )
        };
        Ok(())
    }

    /// Copies `len` bytes from `offset` on to a receive call, and advances the call. Does not wait
    /// for the call's memory. Returns the number of bytes, fewer if a page is absent.
    ///
    /// # Safety
    ///
    /// `to` is a valid destination that nobody else uses.
    pub(in crate::sys) unsafe fn give(
        &self,
        to: *mut c::iov_iter,
        offset: usize,
        len: usize,
    ) -> usize {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len());
        if !fits || len == 0 {
            return 0;
        }
        let from = self.pages.as_ptr().cast_mut();
        // SAFETY: The iterator is valid, by the caller. By the invariants the pages hold as many
        // bytes from the offset on.
        unsafe { c::sdp_h_give_pages(to, from, (self.offset as usize).saturating_add(offset), len) }
    }

    pub(crate) fn count(&self) -> usize {
        self.pages.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Checks, after protection, that the process still has the same pages mapped and that only
    /// this module has pinned them, for sending. May sleep.
    ///
    /// # Errors
    ///
    /// `ESTALE`: remapped. `EBUSY`: another user, which may write to the pages, has pinned them.
    /// `EAGAIN`: unknown, because memory of the process is being pinned or unpinned.
    pub(crate) fn are_ours(&self) -> Result {
        let sent = self.sent.as_ref().ok_or(EBUSY)?;
        // SAFETY: By the invariants `sent` lists the pages of `self`, or no pages.
        kernel::error::to_result(unsafe { c::sdp_h_sent_pins(&**sent) })
    }

    /// Returns the address ranges of the pages if they are listed as pinned for sending, else none.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (usize, usize)> + Clone + '_ {
        let sent = self.sent.iter();
        let ranges = sent.flat_map(|s| s.range.iter().take(s.ranges as usize));
        ranges.map(|r| {
            let len = r.pages.saturating_mul(PAGE);
            (r.start, r.start.saturating_add(len))
        })
    }

    /// Starts listing pages pinned for sending: [`Pages::are_ours`] counts only listed pins.
    pub(crate) fn count_pins() {
        COUNTED.store(true, Relaxed);
    }

    pub(crate) fn writable(&self) -> bool {
        self.written
    }

    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    /// Returns the array of pages.
    pub(in crate::sys) fn raw(&self) -> *mut *mut c::page {
        self.pages.as_ptr().cast_mut()
    }

    /// Unpins the pages, and pins those of the next bytes, up to `most`. Sleeps and may fault.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the bytes are not program memory (as for splice(2)), or no bytes are left.
    /// `EFAULT`: pages cannot be pinned or accessed; a copy may still succeed. `ENOMEM`.
    ///
    /// # Safety
    ///
    /// `iter` is valid and does not change during the call; `written` is true for a destination.
    pub(in crate::sys) unsafe fn pin(
        &mut self,
        iter: *const c::iov_iter,
        most: usize,
        hold: PinTerm,
        written: bool,
    ) -> Result<usize> {
        // the first and the last page may be used in part
        let pages = (most / PAGE).saturating_add(2);
        self.reserve(pages)?;
        if !written && self.sent.is_none() && COUNTED.load(Relaxed) {
            self.sent = KBox::new(c::sdp_h_sent::default(), GFP_KERNEL).ok();
        }
        // SAFETY: By the caller. No page is pinned.
        let (offset, got) = unsafe { self.take(iter, most, hold == PinTerm::Long, !written) };
        let Ok(len) = u32::try_from(got) else {
            let not_user = got.wrapping_neg() == EOPNOTSUPP.0 as isize;
            return Err(if not_user { EOPNOTSUPP.into() } else { EFAULT });
        };
        (self.offset, self.len, self.written) = (offset, len, written);
        // SAFETY: By the caller. If the iterator consists of pages, the pages are referenced
        // instead of pinned.
        self.by_page = unsafe { c::iov_iter_is_bvec(iter) };
        Ok(len as usize)
    }

    /// Adds the pages of the next bytes, up to `most`, to the current ones. Returns the offset in
    /// the first page, and the number of bytes or an error of `sdp_h_pin`.
    ///
    /// # Safety
    ///
    /// `iter` is valid and does not change. If `listed`, the list has no pages yet. The caller sets
    /// the other fields by the invariants.
    unsafe fn take(
        &mut self,
        iter: *const c::iov_iter,
        most: usize,
        longterm: bool,
        listed: bool,
    ) -> (u32, isize) {
        let before = self.pages.len();
        let space = self.pages.capacity().min(self.most).saturating_sub(before);
        let space = u32::try_from(space).unwrap_or(u32::MAX);
        let (mut offset, mut taken) = (0, 0);
        let sent = self.sent.as_deref_mut().filter(|_| listed);
        // SAFETY: The iterator is valid, and `pages` has space for `space` more pages. `sent` does
        // not move, and lists no pages.
        let got = unsafe {
            let pages = self.pages.as_mut_ptr().add(before);
            let sent = sent.map_or(null_mut(), |s| s);
            c::sdp_h_pin(
                iter,
                most,
                longterm,
                pages,
                space,
                &mut offset,
                &mut taken,
                sent,
            )
        };
        // SAFETY: The function has written as many elements, for which there is space.
        unsafe { self.pages.inc_len(taken as usize) };
        (offset, got)
    }

    /// Adds the pages of the next bytes, up to `most`, if the caller passes pages and these
    /// continue the current pages. Does not sleep. Returns the number of bytes added.
    ///
    /// # Safety
    ///
    /// `iter` is a valid source that does not change meanwhile.
    pub(in crate::sys) unsafe fn add(&mut self, iter: *const c::iov_iter, most: usize) -> usize {
        let before = self.pages.len();
        let goes_on = self.by_page && (self.offset as usize).saturating_add(self.len()) % PAGE == 0;
        let mut len = 0;
        // SAFETY: The iterator is valid, by the caller.
        let (at, named) = unsafe {
            let at = c::sdp_h_pin_run(iter, most, &mut len);
            (at, c::iov_iter_is_bvec(iter))
        };
        if !named || len == 0 || (before != 0 && (!goes_on || at != 0)) {
            return 0;
        }
        // SAFETY: By the caller. INVARIANT: The first page begins where the last one ends, or is
        // the first of all.
        let (offset, got) = unsafe { self.take(iter, len, true, false) };
        let got = u32::try_from(got).unwrap_or(0);
        if before == 0 {
            self.offset = offset;
        }
        self.len = self.len.saturating_add(got);
        (self.written, self.by_page) = (false, true);
        got as usize
    }

    /// Unpins the pages, and marks them dirty if they were written to. Context: process, sleeps.
    ///
    /// No device accesses the pages: the owner of a DMA list owns `self` as well.
    pub(crate) fn unpin(&mut self) {
        let n = self.pages.len() as u32;
        if n != 0 {
            // SAFETY: By the invariants each page was allocated, referenced or pinned once.
            unsafe {
                let pages = self.pages.as_mut_ptr();
                let sent = self.sent.as_deref_mut().filter(|s| s.ranges != 0);
                match self.by_page {
                    true => c::release_pages(c::release_pages_arg { pages }, n as i32),
                    false => c::sdp_h_unpin(pages, n, self.written, sent.map_or(null_mut(), |s| s)),
                }
            };
            self.pages.clear();
        }
        (self.offset, self.len, self.by_page) = (0, 0, false);
    }
}

/// Allocates a list for `count` entries, at most `most`. Sizes are powers of two, so that blocks of
/// similar size reuse the list. The list is charged to the socket's memory cgroup.
pub(super) fn list_for<T>(count: usize, most: usize) -> Result<KVec<T>> {
    let count = count.checked_next_power_of_two().unwrap_or(most).min(most);
    vec::with_capacity(count, alloc::flags::GFP_KERNEL_ACCOUNT)
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.unpin();
    }
}

/// Charge of pinned memory to its user's `RLIMIT_MEMLOCK`; `None` for users without a limit. The
/// drop uncharges the memory, in any context.
pub(crate) struct Locked(c::ubuf_info_msgzc_mmpin);

// SAFETY: The user is held, and counted atomically.
unsafe impl Send for Locked {}
// SAFETY: A `&Locked` has no operations.
unsafe impl Sync for Locked {}

impl Locked {
    /// Charges `pages` to the calling user. `None`: the memory exceeds the limit.
    pub(crate) fn new(pages: usize) -> Option<Self> {
        let bytes = pages.checked_mul(PAGE)?;
        let mut locked = c::ubuf_info_msgzc_mmpin::default();
        // SAFETY: `locked` may be written to. Called by a socket call, so a user exists.
        let ret = unsafe { c::mm_account_pinned_pages(&mut locked, bytes) };
        (ret == 0).then_some(Locked(locked))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: `new` has charged the pages, if any, and only the drop uncharges them.
        unsafe { c::mm_unaccount_pinned_pages(&mut self.0) }
    }
}

/// Returns the number of pages of this machine's memory.
pub(crate) fn ram_pages() -> usize {
    // SAFETY: Reads a counter.
    unsafe { c::totalram_pages() as usize }
}

// SPDX-License-Identifier: GPL-2.0-only

//! The `struct msghdr` of one sendmsg(2) or recvmsg(2) call.

use super::super::bindings as c;
use super::super::pages::Block;
use super::super::pin::{Pages, PinTerm};
use core::marker::PhantomData;
use kernel::iov::{IovIterDest, IovIterSource};
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

/// Bytes and flags of one send call.
///
/// # Invariants
///
/// `msg` points to the `msghdr` of a sendmsg call in progress, whose iterator is a source.
pub(crate) struct SendMsg<'a> {
    msg: *mut c::msghdr,
    taken: usize,
    _call: PhantomData<&'a mut c::msghdr>,
}

impl<'a> SendMsg<'a> {
    /// # Safety
    ///
    /// `msg` must be the message of a sendmsg call that lasts for `'a`, without other users.
    pub(super) unsafe fn from_raw(msg: *mut c::msghdr) -> Self {
        SendMsg {
            msg,
            taken: 0,
            _call: PhantomData,
        }
    }

    pub(super) fn raw(&mut self) -> *mut c::msghdr {
        self.msg
    }

    pub(crate) fn flags(&self) -> u32 {
        // SAFETY: By the invariants `msg` is valid.
        unsafe { (*self.msg).msg_flags }
    }

    fn iter(&mut self) -> &mut IovIterSource<'a> {
        // SAFETY: By the invariants the iterator is valid, a source, and exclusive to the call.
        unsafe { IovIterSource::from_raw(&raw mut (*self.msg).msg_iter) }
    }

    /// Returns the number of bytes not consumed yet.
    pub(crate) fn remaining(&mut self) -> usize {
        self.iter().len()
    }

    /// Returns the number of bytes consumed.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Rewinds the iterator by `n` bytes that [`SendMsg::take`] consumed.
    pub(crate) fn give_back(&mut self, n: usize) {
        let n = n.min(self.taken);
        // SAFETY: At least `n` bytes were consumed, so the iterator stays within the message.
        unsafe { self.iter().revert(n) };
        self.taken = self.taken.saturating_sub(n);
    }

    /// Returns address and length of the next bytes, up to `most` and the end of their segment;
    /// `None` if they are not program memory.
    pub(crate) fn piece(&self, most: usize) -> Option<(usize, usize)> {
        self.ranges(most).next()
    }

    /// Returns how many of the next bytes, up to `most`, fit one memory region: one segment, or
    /// several if only the first begins and only the last ends within a page. Includes memory that
    /// the caller passes as pages. The address is an offset in the first page, unless the bytes are
    /// one segment of program memory.
    pub(crate) fn run(&self, most: usize) -> Option<(usize, usize)> {
        let mut len = 0;
        // SAFETY: By the invariants the iterator is valid and used by this call only.
        let at = unsafe { c::sdp_h_pin_run(&raw const (*self.msg).msg_iter, most, &mut len) };
        (len != 0).then_some((at as usize, len))
    }

    /// Returns the number of bytes before the next [run](SendMsg::run) of at least `least` bytes;
    /// stops after the run that reaches `most`.
    pub(crate) fn short(&self, most: usize, least: usize) -> usize {
        // SAFETY: By the invariants the iterator is valid and exclusive to the call.
        unsafe { c::sdp_h_pin_short(&raw const (*self.msg).msg_iter, most, least) }
    }

    /// Returns the segments of the next bytes, up to `most`; none if they are not program memory.
    pub(crate) fn ranges(&self, most: usize) -> Ranges<'_> {
        // SAFETY: By the invariants the iterator is valid and owned; only `&mut self` changes it.
        unsafe { Ranges::new(&raw const (*self.msg).msg_iter, most) }
    }

    /// Pins the pages of the next `most` bytes without consuming the bytes. Pins only the bytes of
    /// the first [run](SendMsg::run). May sleep in a page fault.
    pub(crate) fn pin(&mut self, pages: &mut Pages, most: usize, hold: PinTerm) -> Result<usize> {
        // SAFETY: By the invariants the iterator is valid, a source, and exclusive to the call.
        unsafe { pages.pin(&raw const (*self.msg).msg_iter, most, hold, false) }
    }

    /// Returns true if the caller passes pages (splice(2), sendfile(2), kernel users).
    pub(crate) fn is_spliced(&self) -> bool {
        self.flags() & c::MSG_SPLICE_PAGES != 0
    }

    /// Adds the pages of the next bytes to `pages` while the bytes continue those in `pages`.
    /// Consumes no bytes. Does not sleep. Returns the number of bytes.
    pub(crate) fn add_pages(&self, pages: &mut Pages, most: usize) -> usize {
        // SAFETY: By the invariants the iterator is valid, a source, and exclusive to the call.
        unsafe { pages.add(&raw const (*self.msg).msg_iter, most) }
    }

    /// Consumes `n` bytes without a copy.
    pub(crate) fn advance(&mut self, n: usize) {
        let n = n.min(self.remaining());
        self.iter().advance(n);
        self.taken = self.taken.saturating_add(n);
    }

    /// Copies bytes until `to` is full or the call has no more bytes. May sleep in a page fault.
    /// Returns fewer bytes if the caller's memory cannot be read.
    #[inline(always)] // in a small send
    pub(crate) fn take(&mut self, to: &mut [u8]) -> usize {
        let n = self.iter().copy_from_iter(to);
        self.taken = self.taken.saturating_add(n);
        n
    }
}

/// Iterator over segments of program memory that yields the address and length of each.
///
/// # Invariants
///
/// `iter` is the iterator of a call in progress, and does not change during `'a`.
#[derive(Clone)]
pub(crate) struct Ranges<'a> {
    iter: *const c::iov_iter,
    done: usize,
    left: usize,
    _call: PhantomData<&'a c::iov_iter>,
}

impl Ranges<'_> {
    /// # Safety
    ///
    /// `iter` must be the iterator of a call, and must not change while the result exists.
    unsafe fn new(iter: *const c::iov_iter, most: usize) -> Self {
        // INVARIANT: By the caller.
        Ranges {
            iter,
            done: 0,
            left: most,
            _call: PhantomData,
        }
    }
}

impl Iterator for Ranges<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let mut len = 0;
        // SAFETY: By the invariants the iterator is valid.
        let at = unsafe { c::sdp_h_pin_piece(self.iter, self.done, self.left, &mut len) };
        self.done = self.done.saturating_add(len);
        self.left = self.left.saturating_sub(len);
        (len != 0).then_some((at as usize, len))
    }
}

/// Destination of one receive call.
///
/// # Invariants
///
/// `msg` points to the `msghdr` of a recvmsg call in progress, whose iterator is a destination.
pub(crate) struct RecvMsg<'a> {
    msg: *mut c::msghdr,
    flags: u32,
    _call: PhantomData<&'a mut c::msghdr>,
}

impl<'a> RecvMsg<'a> {
    /// # Safety
    ///
    /// `msg` must be the message of a recvmsg call that lasts for `'a`, without other users.
    pub(super) unsafe fn from_raw(msg: *mut c::msghdr, flags: u32) -> Self {
        RecvMsg {
            msg,
            flags,
            _call: PhantomData,
        }
    }

    pub(crate) fn flags(&self) -> u32 {
        self.flags
    }

    /// Sets a flag in the result (`MSG_OOB`, `MSG_TRUNC`).
    pub(crate) fn set_result_flag(&mut self, flag: u32) {
        // SAFETY: By the invariants `msg` is valid.
        unsafe { (*self.msg).msg_flags |= flag }
    }

    /// Returns true if a kernel caller requests the number of unread bytes.
    pub(crate) fn wants_rest(&self) -> bool {
        // SAFETY: By the invariants `msg` is valid.
        unsafe { (*self.msg).msg_get_inq() }
    }

    /// Reports the number of unread bytes to kernel users, and to programs with `TCP_INQ`.
    pub(crate) fn set_rest(&mut self, rest: i32, program: bool) {
        // SAFETY: By the invariants `msg` is valid, and its control memory is the caller's.
        unsafe { c::sdp_h_give_inq(self.msg, rest, program) }
    }

    fn iter(&mut self) -> &mut IovIterDest<'a> {
        // SAFETY: By the invariants the iterator is a valid destination, exclusive to the call.
        unsafe { IovIterDest::from_raw(&raw mut (*self.msg).msg_iter) }
    }

    pub(crate) fn space(&mut self) -> usize {
        self.iter().len()
    }

    /// Returns address and length of the next bytes, up to `most` and the end of their segment;
    /// `None` if they are not program memory.
    pub(crate) fn piece(&self, most: usize) -> Option<(usize, usize)> {
        // SAFETY: By the invariants the iterator is valid, and exclusive to the call.
        unsafe { Ranges::new(&raw const (*self.msg).msg_iter, most) }.next()
    }

    /// Pins the pages for the next bytes without filling them: for `most` bytes, or fewer if the
    /// space is in several segments. May sleep in a page fault. [`RecvMsg::skip`] counts the bytes
    /// received into pinned pages.
    pub(crate) fn pin(&mut self, pages: &mut Pages, most: usize, hold: PinTerm) -> Result<usize> {
        // SAFETY: By the invariants the iterator is a valid destination, exclusive to the call.
        unsafe { pages.pin(&raw const (*self.msg).msg_iter, most, hold, true) }
    }

    /// Copies bytes to the caller, fewer at a bad address. May sleep in a page fault.
    pub(crate) fn give(&mut self, from: &[u8]) -> usize {
        self.iter().copy_to_iter(from)
    }

    /// Copies `len` bytes of pages from `offset` on to the caller, without a page fault. Returns
    /// fewer bytes if the caller's memory is not present.
    pub(crate) fn give_pages(&mut self, from: &Pages, offset: usize, len: usize) -> usize {
        // SAFETY: By the invariants the iterator is a valid destination, exclusive to the call.
        unsafe { from.give(&raw mut (*self.msg).msg_iter, offset, len) }
    }

    /// Counts bytes as received that this iterator has not copied (`MSG_TRUNC` of tcp(7), or RDMA).
    pub(crate) fn skip(&mut self, n: usize) {
        let n = n.min(self.space());
        self.iter().advance(n)
    }
}

/// Destination of one splice call. Users of the pipe only read the block's pages; the pipe's
/// references keep the pages after rmmod.
///
/// # Invariants
///
/// `pipe` is the pipe of a splice_read call in progress, and no other task changes the pipe.
pub(crate) struct PipeSink {
    pub(super) pipe: *mut c::pipe_inode_info,
    /// Number of bytes that the call still wants.
    pub(crate) left: usize,
}

impl PipeSink {
    /// Adds pages of the block, whose bytes must not change while [`Block::is_shared`]. Returns 0
    /// if the pipe is full, or the block is smaller than a page. Does not sleep.
    pub(crate) fn give(&mut self, block: &Block, offset: usize, len: usize) -> usize {
        if block.size() < PAGE_SIZE || offset.saturating_add(len) > block.size() {
            return 0;
        }
        // SAFETY: By the invariants the pipe is valid; the block has whole pages and the bytes.
        let n = unsafe { c::sdp_h_pipe_give(self.pipe, block.start().cast(), offset, len) };
        self.left = self.left.saturating_sub(n);
        n
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! The `struct msghdr` of one sendmsg(2) or recvmsg(2) call.

use super::super::bindings as c;
use super::super::pin::{Pages, PinTerm, Unpinnable};
use core::marker::PhantomData;
use kernel::iov::{IovIterDest, IovIterSource};
use kernel::prelude::*;

/// What one send call brings: bytes of the caller, and flags.
///
/// # Invariants
///
/// `msg` points to the `msghdr` of a sendmsg call that is under way, whose iterator is a source.
pub(crate) struct SendMsg<'a> {
    msg: *mut c::msghdr,
    taken: usize,
    _call: PhantomData<&'a mut c::msghdr>,
}

impl<'a> SendMsg<'a> {
    /// # Safety
    ///
    /// `msg` must be the message of a sendmsg call that lasts for `'a`, used by nobody else.
    pub(super) unsafe fn from_raw(msg: *mut c::msghdr) -> Self {
        SendMsg {
            msg,
            taken: 0,
            _call: PhantomData,
        }
    }

    /// The message.
    pub(super) fn raw(&mut self) -> *mut c::msghdr {
        self.msg
    }

    /// The `MSG_*` flags.
    pub(crate) fn flags(&self) -> u32 {
        // SAFETY: By the invariants `msg` is valid.
        unsafe { (*self.msg).msg_flags }
    }

    fn iter(&mut self) -> &mut IovIterSource<'a> {
        // SAFETY: By the invariants the iterator is valid, a source, and ours for the call.
        unsafe { IovIterSource::from_raw(&raw mut (*self.msg).msg_iter) }
    }

    /// Bytes that have not been taken yet.
    pub(crate) fn remaining(&mut self) -> usize {
        self.iter().len()
    }

    /// Bytes that have been taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Undoes the last `n` bytes of [`SendMsg::take`].
    pub(crate) fn give_back(&mut self, n: usize) {
        let n = n.min(self.taken);
        // SAFETY: At least `n` bytes were taken before, so this does not go before the beginning.
        unsafe { self.iter().revert(n) };
        self.taken -= n;
    }

    /// Where the next bytes are, `most` or as many as are in one piece; `None` if it is not memory of
    /// a program.
    pub(crate) fn piece(&self, most: usize) -> Option<(usize, usize)> {
        self.ranges(most).next()
    }

    /// How many of the next bytes, `most` at most, can be one memory region: those in one piece, and in pieces of which only the
    /// first begins within a page and only the last ends there; also of memory that the caller names by pages. The address is
    /// the offset in the first page, unless it is one piece of a program's.
    pub(crate) fn run(&self, most: usize) -> Option<(usize, usize)> {
        let mut len = 0;
        // SAFETY: By the invariants the iterator is valid and ours for the call.
        let at = unsafe { c::sdp_h_pin_run(&raw const (*self.msg).msg_iter, most, &mut len) };
        (len != 0).then_some((at as usize, len))
    }

    /// How many of the next bytes lie in [runs](SendMsg::run) shorter than `least`, before one that is not; no more than
    /// `most` and a run.
    pub(crate) fn short(&self, most: usize, least: usize) -> usize {
        // SAFETY: By the invariants the iterator is valid and ours for the call.
        unsafe { c::sdp_h_pin_short(&raw const (*self.msg).msg_iter, most, least) }
    }

    /// The pieces that the next bytes are in, `most` at most; none if it is not memory of a program.
    pub(crate) fn ranges(&self, most: usize) -> Ranges<'_> {
        // SAFETY: By the invariants the iterator is valid, and ours; it is changed by `&mut self` only.
        unsafe { Ranges::new(&raw const (*self.msg).msg_iter, most) }
    }

    /// Pins the pages of the next bytes, without taking them: `most`, or less if they are in
    /// several [runs](SendMsg::run). May sleep in a page fault.
    pub(crate) fn pin(
        &mut self,
        pages: &mut Pages,
        most: usize,
        hold: PinTerm,
    ) -> Result<usize, Unpinnable> {
        // SAFETY: By the invariants the iterator is valid, a source, and ours for the call.
        unsafe { pages.pin(&raw const (*self.msg).msg_iter, most, hold, false) }
    }

    /// Whether whoever calls gives the pages away that it names (splice(2), sendfile(2), senders in the kernel).
    pub(crate) fn is_spliced(&self) -> bool {
        self.flags() & c::MSG_SPLICE_PAGES != 0
    }

    /// Adds the pages of the next bytes to others, without taking them, as far as they go on there. Does not sleep.
    /// Returns how many bytes that are.
    pub(crate) fn add_pages(&self, pages: &mut Pages, most: usize) -> usize {
        // SAFETY: By the invariants the iterator is valid, a source, and ours for the call.
        unsafe { pages.add(&raw const (*self.msg).msg_iter, most) }
    }

    /// Counts `n` bytes as taken that went another way.
    pub(crate) fn advance(&mut self, n: usize) {
        let n = n.min(self.remaining());
        self.iter().advance(n);
        self.taken += n;
    }

    /// Takes bytes until `to` is full or nothing is left. May sleep in a page fault. Fewer bytes
    /// than both allow mean that the caller's memory could not be read.
    pub(crate) fn take(&mut self, to: &mut [u8]) -> usize {
        let n = self.iter().copy_from_iter(to);
        self.taken += n;
        n
    }
}

/// Pieces of a program's memory: where each is, and its length.
///
/// # Invariants
///
/// `iter` is the iterator of a call that is under way, and stays as it is for `'a`.
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
    /// `iter` must be the iterator of a call that is under way, and stay as it is as long as there is this.
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
        self.done += len;
        self.left -= len;
        (len != 0).then_some((at as usize, len))
    }
}

/// Where one receive call wants its bytes.
///
/// # Invariants
///
/// `msg` points to the `msghdr` of a recvmsg call that is under way, whose iterator is a
/// destination.
pub(crate) struct RecvMsg<'a> {
    msg: *mut c::msghdr,
    flags: u32,
    _call: PhantomData<&'a mut c::msghdr>,
}

impl<'a> RecvMsg<'a> {
    /// # Safety
    ///
    /// `msg` must be the message of a recvmsg call that lasts for `'a`, used by nobody else.
    pub(super) unsafe fn from_raw(msg: *mut c::msghdr, flags: u32) -> Self {
        RecvMsg {
            msg,
            flags,
            _call: PhantomData,
        }
    }

    /// The `MSG_*` flags of the call.
    pub(crate) fn flags(&self) -> u32 {
        self.flags
    }

    /// Sets a flag in the result (`MSG_OOB`, `MSG_TRUNC`).
    pub(crate) fn set_result_flag(&mut self, flag: u32) {
        // SAFETY: By the invariants `msg` is valid.
        unsafe { (*self.msg).msg_flags |= flag }
    }

    /// Whether the caller, who is in the kernel, asks how much there is left to be read.
    pub(crate) fn asks_for_rest(&self) -> bool {
        // SAFETY: By the invariants `msg` is valid.
        unsafe { c::sdp_h_wants_inq(self.msg) }
    }

    /// Tells how much there is left, and the program too if it wants to know (`TCP_INQ`).
    pub(crate) fn tell_rest(&mut self, rest: i32, program: bool) {
        // SAFETY: By the invariants `msg` is valid, and its control memory is the caller's.
        unsafe { c::sdp_h_give_inq(self.msg, rest, program) }
    }

    fn iter(&mut self) -> &mut IovIterDest<'a> {
        // SAFETY: By the invariants the iterator is valid, a destination, and ours for the call.
        unsafe { IovIterDest::from_raw(&raw mut (*self.msg).msg_iter) }
    }

    /// Room that is left.
    pub(crate) fn room(&mut self) -> usize {
        self.iter().len()
    }

    /// Where the next bytes are, `most` or as many as are in one piece; `None` if it is not memory of
    /// a program.
    pub(crate) fn piece(&self, most: usize) -> Option<(usize, usize)> {
        // SAFETY: By the invariants the iterator is valid, and ours for the call.
        unsafe { Ranges::new(&raw const (*self.msg).msg_iter, most) }.next()
    }

    /// Pins the pages that the next bytes are to go to, without giving any: for `most` bytes, or
    /// less if the room is in several pieces. May sleep in a page fault. What has arrived there is
    /// counted by [`RecvMsg::skip`].
    pub(crate) fn pin(
        &mut self,
        pages: &mut Pages,
        most: usize,
        hold: PinTerm,
    ) -> Result<usize, Unpinnable> {
        // SAFETY: By the invariants the iterator is valid, a destination, and ours for the call.
        unsafe { pages.pin(&raw const (*self.msg).msg_iter, most, hold, true) }
    }

    /// Gives bytes to the caller. May sleep in a page fault. Fewer bytes than given mean that the
    /// caller's memory could not be written.
    pub(crate) fn give(&mut self, from: &[u8]) -> usize {
        self.iter().copy_to_iter(from)
    }

    /// Counts bytes as received without giving them (`MSG_TRUNC` of tcp(7), or they went another
    /// way).
    pub(crate) fn skip(&mut self, n: usize) {
        let n = n.min(self.room());
        self.iter().advance(n)
    }
}

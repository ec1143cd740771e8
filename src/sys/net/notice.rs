// SPDX-License-Identifier: GPL-2.0-only

//! Telling whoever sends with `MSG_ZEROCOPY` that its memory is free again: a `struct ubuf_info` of the
//! kernel's, which a program has from the socket's error queue, or which io_uring gives with its request.

use super::super::bindings as c;
use super::message::SendMsg;
use super::sock::SockCore;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use kernel::error::to_result;
use kernel::prelude::*;

/// What is told of one send call. If nothing was sent by it, it is dropped, and nothing is told.
///
/// # Invariants
///
/// From `sdp_h_notice_begin()`, whose reference it has.
pub(crate) struct Notice {
    ubuf: NonNull<c::ubuf_info>,
    given: bool,
}

impl Notice {
    /// What is to be told of a call, if anything. The socket lock is held.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if as much as may be is under way, or untold, or locked in memory.
    pub(crate) fn begin(message: &mut SendMsg<'_>, sk: &SockCore) -> Result<Option<Self>> {
        if message.flags() & c::MSG_ZEROCOPY == 0 {
            return Ok(None);
        }
        let (mut ubuf, mut given) = (ptr::null_mut(), false);
        // SAFETY: The message is valid and its call's; the sock is alive.
        to_result(unsafe {
            c::sdp_h_notice_begin(sk.raw(), message.raw(), &mut ubuf, &mut given)
        })?;
        // INVARIANT: Just begun.
        Ok(NonNull::new(ubuf).map(|ubuf| Notice { ubuf, given }))
    }

    /// What waits for one piece of the call's memory.
    pub(crate) fn piece(&self) -> PieceNotice {
        // SAFETY: By the invariants there is a reference.
        unsafe { c::sdp_h_notice_get(self.ubuf.as_ptr()) };
        // INVARIANT: The reference is the piece's.
        PieceNotice {
            ubuf: self.ubuf,
            copied: false,
        }
    }

    /// The call has sent something, and has made a copy of some of that if `copied`. It is told when all
    /// pieces are free.
    pub(crate) fn sent(self, copied: bool) {
        let me = ManuallyDrop::new(self);
        // SAFETY: By the invariants there is a reference, which is given back once: it is not dropped.
        unsafe {
            match copied {
                true => c::sdp_h_notice_end(me.ubuf.as_ptr(), false),
                false => c::sdp_h_notice_put(me.ubuf.as_ptr()),
            }
        }
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        // SAFETY: By the invariants there is a reference, which is given back once. The socket lock is held,
        // and of a call that has sent nothing there is no piece.
        unsafe {
            match self.given {
                true => c::sdp_h_notice_put(self.ubuf.as_ptr()),
                false => c::sdp_h_notice_abort(self.ubuf.as_ptr()),
            }
        }
    }
}

/// Waits for one piece of a call's memory: dropped, in any context, it tells that the piece is free.
///
/// # Invariants
///
/// It has a reference.
pub(crate) struct PieceNotice {
    ubuf: NonNull<c::ubuf_info>,
    copied: bool,
}

// SAFETY: References are counted atomically, and may be given back anywhere.
unsafe impl Send for PieceNotice {}
// SAFETY: There is nothing to do with a shared one.
unsafe impl Sync for PieceNotice {}

impl PieceNotice {
    /// The kernel has made a copy of some of it.
    pub(crate) fn was_copied(&mut self) {
        self.copied = true;
    }
}

impl Drop for PieceNotice {
    fn drop(&mut self) {
        // SAFETY: By the invariants, and it is given back once.
        unsafe { c::sdp_h_notice_end(self.ubuf.as_ptr(), !self.copied) }
    }
}

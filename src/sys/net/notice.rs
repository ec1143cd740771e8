// SPDX-License-Identifier: GPL-2.0-only

//! Completions of `MSG_ZEROCOPY` sends: a kernel `struct ubuf_info`, reported in the socket's error
//! queue or passed by io_uring with its request.

use super::super::bindings as c;
use super::message::SendMsg;
use super::sock::SockCore;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use kernel::error::to_result;
use kernel::prelude::*;

/// Completion of one send call. Dropped without a notification if the call sent nothing.
///
/// # Invariants
///
/// `ubuf` was returned by `sdp_h_notice_begin()`, and this object holds its reference.
pub(crate) struct ZerocopyCompletion {
    ubuf: NonNull<c::ubuf_info>,
    given: bool,
}

impl ZerocopyCompletion {
    /// Makes the completion of a call, if the call requests one. Context: socket lock held.
    ///
    /// `ENOBUFS`: too many completions are in flight or unread, or too much memory is locked.
    pub(crate) fn begin(message: &mut SendMsg<'_>, sk: &SockCore) -> Result<Option<Self>> {
        if message.flags() & c::MSG_ZEROCOPY == 0 {
            return Ok(None);
        }
        let (mut ubuf, mut given) = (ptr::null_mut(), false);
        // SAFETY: The message is valid and belongs to the call; the sock is alive.
        to_result(unsafe {
            c::sdp_h_notice_begin(sk.raw(), message.raw(), &mut ubuf, &mut given)
        })?;
        // INVARIANT: `sdp_h_notice_begin()` has returned `ubuf`.
        Ok(NonNull::new(ubuf).map(|ubuf| ZerocopyCompletion { ubuf, given }))
    }

    /// Makes the part for one block of the call's memory.
    pub(crate) fn piece(&self) -> ZerocopyPiece {
        // SAFETY: By the invariants the reference exists.
        unsafe { c::net_zcopy_get(self.ubuf.as_ptr()) };
        // INVARIANT: The piece owns the new reference.
        ZerocopyPiece { ubuf: self.ubuf }
    }

    /// Records that the call has sent bytes, and copied some if `copied`. The notification follows
    /// when all blocks are free.
    pub(crate) fn sent(self, copied: bool) {
        let me = ManuallyDrop::new(self);
        // SAFETY: By the invariants the reference exists; the destructor does not run.
        unsafe {
            match copied {
                true => c::sdp_h_notice_end(me.ubuf.as_ptr(), false),
                false => c::net_zcopy_put(me.ubuf.as_ptr()),
            }
        }
    }
}

impl Drop for ZerocopyCompletion {
    fn drop(&mut self) {
        // SAFETY: By the invariants the reference exists, and it is dropped once. The socket lock
        // is held, and a call that has sent no bytes has no blocks.
        unsafe {
            match self.given {
                true => c::net_zcopy_put(self.ubuf.as_ptr()),
                false => c::net_zcopy_put_abort(self.ubuf.as_ptr(), true),
            }
        }
    }
}

/// Part of a completion for one block. Dropping a piece, in any context, reports the block as free.
///
/// # Invariants
///
/// Holds a reference.
pub(crate) struct ZerocopyPiece {
    ubuf: NonNull<c::ubuf_info>,
}

// SAFETY: References are counted atomically, and may be dropped anywhere.
unsafe impl Send for ZerocopyPiece {}
// SAFETY: A shared `ZerocopyPiece` has no operations.
unsafe impl Sync for ZerocopyPiece {}

impl Drop for ZerocopyPiece {
    fn drop(&mut self) {
        // SAFETY: By the invariants the reference exists, and is dropped once.
        unsafe { c::sdp_h_notice_end(self.ubuf.as_ptr(), true) }
    }
}

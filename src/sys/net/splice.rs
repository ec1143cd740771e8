// SPDX-License-Identifier: GPL-2.0-only

//! Implements `splice_read` of `struct proto_ops`.

use super::super::bindings as c;
use super::calls::{call, count};
use super::family::{FallbackState, Family};
use super::message::PipeSink;
use kernel::fs::file::flags::O_NONBLOCK;

/// # Safety
///
/// Only the network core calls this function, like the callbacks of `calls.rs`.
pub(super) unsafe extern "C" fn splice_read<T: Family>(
    socket: *mut c::socket,
    position: *mut i64,
    pipe: *mut c::pipe_inode_info,
    len: usize,
    flags: u32,
) -> isize {
    // SAFETY: The core passes a descriptor of the family, by its open file.
    let (call, file) = unsafe { (call::<T>(socket), (*socket).file) };
    let sk = call.sk;
    // INVARIANT: The caller holds the pipe's lock, or has made the pipe for this call.
    let mut to = PipeSink { pipe, left: len };
    if call.tcp().is_none() || (T::OPS.dual.chosen)(sk) == FallbackState::Sdp {
        // SAFETY: The core passes an open file.
        let nowait = unsafe { (*file).f_flags } & O_NONBLOCK != 0;
        let given = sk.charged(|| (T::OPS.splice)(sk, &mut to, nowait));
        if let Some(result) = given.transpose() {
            return count(result) as isize;
        }
    }
    // calls recvmsg of the family, or TCP's recvmsg once TCP has the open file.
    // SAFETY: The core passes an open file.
    unsafe { c::copy_splice_read(file, position, pipe, to.left, flags) }
}

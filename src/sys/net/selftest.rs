// SPDX-License-Identifier: GPL-2.0-only

//! Kernel interfaces of the self-test, compiled only into its builds.

use super::super::bindings as c;
use super::super::errno::{EAFNOSUPPORT, ENOTCONN};
use super::family::Family;
use super::message::{RecvMsg, SendMsg};
use super::sock::Sock;
use core::ptr::NonNull;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::aref::ARef;

/// Returns the socket of a descriptor of the calling process.
///
/// Errors: `EBADF`, `ENOTSOCK`. `EAFNOSUPPORT`: the socket is of another family.
pub(crate) fn socket_of<T: Family>(fd: i32) -> Result<ARef<Sock<T>>> {
    let mut error = 0;
    // SAFETY: Called by a process; `error` is writable.
    let socket = unsafe { c::sockfd_lookup(fd, &mut error) };
    let Some(socket) = NonNull::new(socket) else {
        return Err(Error::from_errno(error));
    };
    let socket = socket.as_ptr();
    // SAFETY: The lookup holds the socket, whose fields do not change.
    let (its_ops, sk, file) = unsafe { ((*socket).ops, (*socket).sk, (*socket).file) };
    let ours = (0..2).any(|i| core::ptr::eq(its_ops, ops(i)));
    let sock = match NonNull::new(sk) {
        None => Err(ENOTCONN.into()),
        Some(_) if !ours => Err(EAFNOSUPPORT.into()),
        // SAFETY: A socket with the module's operations holds a sock of the module's family.
        Some(_) => Ok(ARef::from(unsafe { Sock::<T>::from_raw(sk) })),
    };
    // SAFETY: The lookup holds the file.
    unsafe { kernel::bindings::fput(file.cast()) };
    sock
}

fn ops(i: usize) -> *const c::proto_ops {
    // SAFETY: The index is 0 or 1, and only the address is taken.
    unsafe { (&raw const c::sdp_h_ops).cast::<c::proto_ops>().add(i) }
}

fn message(address: usize, len: usize, dest: bool) -> Result<c::msghdr> {
    let mut msg = c::msghdr::default();
    // SAFETY: `msg_iter` is writable; the function checks the range.
    to_result(unsafe {
        kernel::bindings::import_ubuf(
            i32::from(!dest),
            address as *mut kernel::ffi::c_void,
            len,
            &raw mut msg.msg_iter,
        )
    })?;
    Ok(msg)
}

/// Calls `f` like a send call of the process with `len` bytes from `address`.
///
/// Errors: `EFAULT`: the range exceeds any process's address space.
pub(crate) fn source<R>(
    address: usize,
    len: usize,
    f: impl FnOnce(&mut SendMsg<'_>) -> R,
) -> Result<R> {
    let mut msg = message(address, len, false)?;
    // SAFETY: The message lasts for the call and has no other users.
    Ok(f(&mut unsafe { SendMsg::from_raw(&raw mut msg) }))
}

/// Calls `f` with a receive buffer of the process: `len` bytes at `address`.
///
/// Errors: `EFAULT`: the range exceeds any process's address space.
pub(crate) fn destination<R>(
    address: usize,
    len: usize,
    f: impl FnOnce(&mut RecvMsg<'_>) -> R,
) -> Result<R> {
    let mut msg = message(address, len, true)?;
    // SAFETY: The message lasts for the call, and has no other users.
    Ok(f(&mut unsafe { RecvMsg::from_raw(&raw mut msg, 0) }))
}

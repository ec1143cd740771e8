// SPDX-License-Identifier: GPL-2.0-only

//! Files under `/proc/net`, one of each per network namespace.

use super::super::bindings as c;
use super::super::rdma::Net;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::str::CStr;

/// A file whose text is made anew at each reading.
pub(crate) trait ProcFile: 'static {
    /// Its name under `/proc/net`.
    const NAME: &'static CStr;
    /// Whether it can be written.
    const WRITABLE: bool = false;
    /// Writes the text for a namespace.
    fn show(net: &Net, to: &SeqFile);
    /// Somebody has written to the file.
    fn written(_net: &Net) {}
}

/// Makes the file in a namespace.
///
/// # Errors
///
/// `ENOMEM`, or because the name is taken.
pub(crate) fn create<F: ProcFile>(net: &Net) -> Result {
    let write = F::WRITABLE.then_some(write::<F> as unsafe extern "C" fn(_, _, _) -> _);
    // SAFETY: The namespace is alive, the name is a C string, and the functions live as long as the
    // module, which removes the file before it goes.
    let p = unsafe {
        c::sdp_h_proc_single(net.as_raw(), F::NAME.as_char_ptr(), Some(show::<F>), write)
    };
    if p.is_null() {
        Err(ENOMEM)
    } else {
        Ok(())
    }
}

/// Removes the file from a namespace; waits for readers.
pub(crate) fn remove<F: ProcFile>(net: &Net) {
    // SAFETY: The namespace is alive and the name is a C string.
    unsafe { c::sdp_h_proc_remove(net.as_raw(), F::NAME.as_char_ptr()) }
}

/// # Safety
///
/// Called by the C side with a seq_file of a file that `create` has made.
unsafe extern "C" fn show<F: ProcFile>(seq: *mut c::seq_file, _: *mut kernel::ffi::c_void) -> i32 {
    // SAFETY: The C side passes a seq_file of a file made by `create`, open for this call, whose
    // namespace is held by the open file.
    unsafe { F::show(Net::from_raw(c::sdp_h_seq_net(seq)), SeqFile::from_raw(seq)) };
    0
}

/// # Safety
///
/// As for `show`.
unsafe extern "C" fn write<F: ProcFile>(file: *mut c::file, _: *mut u8, len: usize) -> i32 {
    // SAFETY: As for `show`; the file is open.
    F::written(unsafe { Net::from_raw(c::sdp_h_file_net(file)) });
    i32::try_from(len).unwrap_or(i32::MAX)
}

// SPDX-License-Identifier: GPL-2.0-only

//! Checks that Rust and C agree about memory layouts.

use super::bindings as c;
use kernel::prelude::*;

/// Compares the layouts that bindgen (clang) computed with those of the compiler that built the
/// kernel (gcc). Both layouts agree unless the build is broken, in which case no code can be
/// trusted.
pub(crate) fn check_layout() -> Result {
    use core::mem::{offset_of, size_of};

    let ours = [
        size_of::<c::sock>(),
        offset_of!(c::sock, sk_data_ready),
        size_of::<c::inet_sock>(),
        size_of::<c::socket>(),
        size_of::<c::proto>(),
        size_of::<c::proto_ops>(),
        size_of::<c::msghdr>(),
        size_of::<c::ib_device>(),
        size_of::<c::ib_qp_attr>(),
        size_of::<c::ib_qp_init_attr>(),
        size_of::<c::ib_send_wr>(),
        size_of::<c::ib_wc>(),
        size_of::<c::ib_cm_event>(),
        size_of::<c::ib_cm_req_param>(),
        size_of::<c::rdma_cm_id>(),
        size_of::<c::ib_client>(),
        size_of::<c::sdp_h_protect>(),
    ];
    // SAFETY: A constant of the module.
    let theirs = unsafe { c::sdp_h_layouts };
    if ours != theirs {
        pr_err!("layouts {ours:?} here, {theirs:?} in the kernel\n");
        return Err(EINVAL);
    }
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0-only

//! Safe types for RDMA: verbs (`ib_core`) and connection management (`ib_cm`, `rdma_cm`).
//!
//! Each kind of C object has one file. Each object holds references to the objects that it uses,
//! and is destroyed before them. Objects whose drop may not sleep are destroyed by the workqueue of
//! [`work`](super::work).

pub(crate) mod block;
pub(crate) mod buffer;
pub(crate) mod cm;
mod cm_id;
pub(crate) mod cq;
mod destroy;
pub(crate) mod device;
pub(crate) mod endpoint;
mod iw_cm;
pub(crate) mod listen;
pub(crate) mod mapper;
pub(crate) mod mr;
mod netns;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod queues;
pub(crate) mod receive;
pub(crate) mod route;
pub(crate) mod send;
mod use_count;

/// Returns the owner name of the module's objects, for the RDMA core.
pub(super) fn name() -> *const kernel::ffi::c_char {
    use kernel::str::CStrExt as _;
    c"ib_sdp".as_char_ptr()
}

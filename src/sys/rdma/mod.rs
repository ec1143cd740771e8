// SPDX-License-Identifier: GPL-2.0-only

//! Safe types for RDMA: verbs (`ib_core`) and connection management (`ib_cm`, `rdma_cm`).
//!
//! One file for each kind of C object. Each object holds references to the objects that it uses,
//! and is destroyed before them:
//!
//! * [`device::DeviceRef`]: an RDMA device, which is not taken away while one of these exists;
//! * [`mapper::MapperOwner`]: all memory that the device may access for one endpoint. The handles
//!   are [`mapper::Mapping`] for a block of messages ([`buffer::Buffer`]) and
//!   [`block::Block`] for program memory, which the peer may access by a region
//!   ([`mr`]);
//! * [`pd::Pd`]: the domain of a QP and the regions for its peer;
//! * [`context::Context`]: argument of C callbacks;
//! * [`cq`]: a CQ, and whether it is armed;
//! * [`endpoint::Endpoint`]: a QP with its PD, its two CQs and all memory that is posted to it, in
//!   [`receive`] and [`send`];
//! * [`qp::QueuePair`]: the QP, for users that change its state but do not keep it alive;
//! * [`cm::OwnedCmId`]: one end of a connection at the connection manager;
//! * [`listen::ListenId`]: a service ID that the connection manager lets connections come in for;
//! * [`route::RouteId`]: how to get to an IP address;
//! * [`work`](super::work): the workqueue that destroys objects whose drop may not sleep, as for
//!   [`deferred`](super::deferred).

pub(crate) mod block;
pub(crate) mod buffer;
pub(crate) mod cm;
mod cm_id;
mod context;
pub(crate) mod cq;
mod destroy;
pub(crate) mod device;
pub(crate) mod dma;
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

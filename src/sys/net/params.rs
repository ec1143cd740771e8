// SPDX-License-Identifier: GPL-2.0-only

//! The module's parameters, which root may change at any time under
//! `/sys/module/ib_sdp/parameters`, within the bounds of `params.def`.

use super::super::bindings as c;
use core::ptr;

macro_rules! params {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $(
            $(#[$doc])*
            pub(crate) fn $name() -> i32 {
                // SAFETY: The struct lives as long as the module; its fields are aligned integers
                // that may change at any time, hence the volatile read.
                unsafe { ptr::read_volatile(&raw const c::sdp_h_params.$name) }
            }
        )*
    };
}

params! {
    /// Microseconds that a waiting receiver polls before it sleeps, 0 for not at all.
    recv_poll
    /// Bytes from which sends are zero copy, 0 for never, negative where it is found to pay.
    sdp_zcopy_thresh
    /// Not 0: blocking sends of large blocks return at once, their pages write-protected.
    async_send
    /// What zero copy may use: 1 for RDMA READ, 2 for RDMA WRITE, or both.
    zcopy_ways
    /// Bytes of the receive buffers that a connection starts with, BSDH included.
    rcvbuf_initial_size
    /// Seconds of idleness before the first keepalive probe.
    sdp_keepalive_time
    /// Most receive buffers that a connection posts.
    sdp_rx_size
    /// Queue sets that each device keeps for new connections.
    spare_queues
    /// Transport retries of a queue pair.
    sdp_retry_count
    /// Not 0: Ethernet (RoCE) ports are refused.
    sdp_link_layer_ib_only
    /// Most connections that may have large receive buffers.
    max_large_sockets
    /// Most bytes that a SEND carries inline.
    sdp_inline_thresh
    /// Most sockets of one user in a network namespace, negative for a default.
    max_sockets_per_user
    /// Most sockets of one network namespace, negative for a default.
    max_sockets_per_net
    /// Most MiB of all sockets' buffers, negative for a default.
    max_buffer_memory
    /// Most MiB pinned for sending, negative for a default.
    max_pinned_send
    /// Most MiB pinned for receiving, negative for a default.
    max_pinned_receive
    /// Most MiB that one user has pinned for sending, negative for a default.
    max_pinned_send_user
    /// Most MiB that one user has pinned for receiving, negative for a default.
    max_pinned_receive_user
    /// 1: memory stays pinned between transfers, 0: it does not, -1: only where no device takes part.
    pin_cache
    /// Not 0: connections within a network namespace use no RDMA device.
    local_transport
    /// Number of `IPPROTO_SDP`, 0 for none.
    ipproto
    /// Milliseconds that a peer has to answer an `IPPROTO_SDP` socket by SDP.
    ipproto_wait
    /// Seconds for which it is remembered that a peer has no SDP.
    ipproto_memory
}

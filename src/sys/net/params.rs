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

/// Returns how often 0 was written to `ipproto_memory`.
pub(crate) fn forgotten() -> u32 {
    // SAFETY: As above.
    unsafe { ptr::read_volatile(&raw const c::sdp_h_forgotten) }
}

params! {
    /// Time that a waiting receiver polls before it sleeps (us), 0: none.
    recv_poll
    /// Least number of bytes of a zero-copy send, 0: never, negative: by measurement.
    sdp_zcopy_thresh
    /// Not 0: blocking sends of large blocks return at once, their pages write-protected.
    async_send
    /// Ways of zero copy: 1 for RDMA READ, 2 for RDMA WRITE, or both.
    zcopy_ways
    /// Initial size of a connection's receive buffers in bytes, BSDH included.
    rcvbuf_initial_size
    /// Idle time before the first keepalive probe (s).
    sdp_keepalive_time
    /// Maximum number of receive buffers that a connection posts.
    sdp_rx_size
    /// Queue sets that each device keeps for new connections.
    spare_queues
    /// Transport retries of a queue pair.
    sdp_retry_count
    /// Seconds for which rxe repeats what is not acknowledged.
    ack_time
    /// Not 0: Ethernet (RoCE) ports are refused.
    sdp_link_layer_ib_only
    /// Maximum number of connections with large receive buffers.
    max_large_sockets
    /// Maximum number of bytes that a SEND carries inline.
    sdp_inline_thresh
    /// Maximum number of sockets of one user in a network namespace, negative for a default.
    max_sockets_per_user
    /// Maximum number of sockets of one network namespace, negative for a default.
    max_sockets_per_net
    /// Maximum size of all sockets' buffers (MiB), negative for a default.
    max_buffer_memory
    /// Maximum of memory pinned for sending (MiB), negative for a default.
    max_pinned_send
    /// Maximum of memory pinned for receiving (MiB), negative for a default.
    max_pinned_receive
    /// Maximum of memory of one user pinned for sending (MiB), negative for a default.
    max_pinned_send_user
    /// Maximum of memory of one user pinned for receiving (MiB), negative for a default.
    max_pinned_receive_user
    /// 1: memory stays pinned between transfers; 0: it does not; -1: only on local connections.
    pin_cache
    /// Not 0: connections within a network namespace use no RDMA device.
    local_transport
    /// Number of `IPPROTO_SDP`, 0 for none.
    ipproto
    /// Time to wait for an SDP reply to an `IPPROTO_SDP` socket before falling back to TCP (ms).
    ipproto_wait
    /// Time for which the lack of SDP at a peer is remembered (s).
    ipproto_memory
}

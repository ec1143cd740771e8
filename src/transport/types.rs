// SPDX-License-Identifier: GPL-2.0-only

//! Parameters of a connection.

/// Parameters of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Config {
    /// Number of messages in flight.
    pub(crate) send_slots: u16,
    /// Number of posted receive buffers.
    pub(crate) receive_slots: u16,
    /// Payload segments per message.
    pub(crate) max_sge: u8,
    /// Maximum size of a message that is copied into the work request (inline), in bytes.
    pub(crate) inline: u16,
    /// Retries of a message that the peer does not acknowledge, up to 7; rxe treats 7 as unlimited.
    pub(crate) retry_count: u8,
    /// Retries by the peer of a message for which no receive buffer is posted; 7 is unlimited.
    pub(crate) rnr_retry: u8,
    /// Code of the delay before such a retry (IBA table 45; 12 is 0.64 ms).
    pub(crate) min_rnr_timer: u8,
    /// RDMA READs in flight in either direction.
    pub(crate) reads: u8,
    /// Memory segments in one RDMA READ or WRITE.
    pub(crate) gather: u8,
    /// Code of the timeout of a REQ, REP or DREQ: 4.096 us times 2 to this power. With 18, a REQ
    /// over RoCE is repeated every 1.5 s.
    pub(crate) response_timeout: u8,
    /// Retries of a REQ, REP or DREQ, up to 15.
    pub(crate) cm_retries: u8,
    /// Number of steps by which a request's path MTU is below the route's; each halves it.
    pub(crate) mtu_steps: u8,
}

impl Default for Config {
    /// Sizes without loss in rxe, which rounds up to powers of two.
    fn default() -> Self {
        Config {
            send_slots: 31,
            receive_slots: 31,
            max_sge: 2,
            inline: 48,
            retry_count: 6,
            rnr_retry: 7,
            min_rnr_timer: 12,
            reads: 4,
            // the maximum that fits rxe's 512 bytes for a work request
            gather: 19,
            response_timeout: 18,
            cm_retries: 15,
            mtu_steps: 0,
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Resources of a new connection, for connect(2) and for a listener.

use super::receive_queue::ReceiveQueue;
use super::rx_buffers;
use super::send_queue::{SendQueue, LARGE_CHUNK};
use super::{Connection, SdpSock, FIRST_WINDOW};
use crate::protocol::{self, Hello, Parameters, MAX_MESSAGE};
use crate::sys::net::params::{self, Params};
use crate::sys::rdma::buffer::Buffer;
use crate::sys::time::{jiffies, milliseconds, Jiffies};
use crate::sys::vec;
use crate::transport::{Config, Endpoint};
use core::net::IpAddr;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;

/// MaxAdverts that this module announces. A peer with MaxAdverts above 1 runs this module.
pub(crate) const MAX_ADVERTS: u8 = 16;
/// Send buffer of a connection whose program has not set `SO_SNDBUF`.
pub(crate) const SEND_BUFFER: usize = 1024 * 1024;
/// Smallest MaxMessage, whatever `SO_RCVBUF` is.
const LEAST_MESSAGE: usize = 256 * 1024;
/// Time between two requests of the CM, of which it sends 16 at most.
const TIME_PER_TRY: Jiffies = milliseconds(1500);

/// Returns the parameters of the queue pairs.
pub(crate) fn config(own: &Params) -> Config {
    Config {
        retry_count: params::sdp_retry_count().clamp(0, 6) as u8,
        receive_slots: own.sdp_rx_size().min(params::sdp_rx_size()) as u16,
        inline: u16::try_from(params::sdp_inline_thresh()).unwrap_or(0),
        cm_retries: 15,
        mtu_steps: 0,
    }
}

/// Returns the configuration of an endpoint that connects.
pub(crate) fn connect_config(sk: &SdpSock) -> Config {
    let mut config = config(sk.params());
    let c = sk.connection();
    config.mtu_steps = c.cm.mtu_steps;
    let left = c.cm.time_left(c.options.connect_time(sk));
    let tries = left.checked_div(TIME_PER_TRY).unwrap_or(0).clamp(1, 16);
    config.cm_retries = tries.saturating_sub(1) as u8;
    config
}

/// Creates the protocol state of a new connection with receive buffers of `size` bytes. `peer`
/// contains the peer's receive size, MaxAdverts and credits.
pub(crate) fn protocol(
    endpoint: &Endpoint,
    size: u32,
    peer: (u32, u16, u16),
) -> protocol::Connection {
    let (remote_receive_size, remote_max_adverts, credits) = peer;
    protocol::Connection::new(&Parameters {
        local_receive_size: size,
        remote_receive_size,
        local_max_adverts: MAX_ADVERTS.into(),
        remote_max_adverts,
        posted: endpoint.posted_receives(),
        credits,
        desired_remote_size: LARGE_CHUNK as u32,
        zero_copy: endpoint.mapper().most_pages() > 0,
    })
}

/// Returns the MaxMessage of a new connection: `SO_RCVBUF` within bounds, or 0 for a stream.
pub(crate) fn max_message(sk: &SdpSock) -> u32 {
    match sk.is_seqpacket() {
        true => sk.rcvbuf().clamp(LEAST_MESSAGE, MAX_MESSAGE as usize) as u32,
        false => 0,
    }
}

/// Encodes an address for Hello. An IPv4 address is in the last four bytes, after zeros.
pub(crate) fn hello_address(ip: &IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(a) => Hello::ipv4(a.octets()),
        IpAddr::V6(a) => a.octets(),
    }
}

/// All memory of a new connection, allocated in a context that may sleep.
pub(crate) struct Prepared {
    pub(crate) endpoint: Endpoint,
    tx: SendQueue,
    rx: ReceiveQueue,
    spare: KVec<Buffer>,
    /// Number of posted receive buffers.
    pub(crate) posted: u16,
    /// Size of each receive buffer in bytes.
    pub(crate) size: u32,
}

impl Prepared {
    /// Posts the first receive buffers of `size` bytes on a new endpoint.
    pub(crate) fn new(mut endpoint: Endpoint, size: usize) -> Result<Self> {
        let (mut tx, mut rx) = (SendQueue::new(), ReceiveQueue::new());
        tx.prepare(endpoint.max_sge())?;
        rx.prepare()?;
        let spare = vec::with_capacity(FIRST_WINDOW.into(), GFP_KERNEL)?;
        let window = FIRST_WINDOW.min(endpoint.receive_slots());
        rx_buffers::post_first(&mut endpoint, size, window)?;
        let posted = endpoint.posted_receives();
        Ok(Prepared {
            endpoint,
            tx,
            rx,
            spare,
            posted,
            size: size as u32,
        })
    }

    /// Moves all memory to the connection.
    pub(crate) fn install(self, c: &mut Connection) {
        c.tx = self.tx;
        c.rx = self.rx;
        c.rx_buffers.begin(self.spare, self.size);
        c.endpoint = Some(self.endpoint);
        c.alive.begin(jiffies());
    }
}

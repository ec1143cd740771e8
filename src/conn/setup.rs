// SPDX-License-Identifier: GPL-2.0-only

//! What a new connection is made of, on both sides.

use super::receive_queue::ReceiveQueue;
use super::rx_buffers;
use super::send_queue::SendQueue;
use super::{Connection, SdpSock, FIRST_WINDOW};
use crate::protocol::{Hello, ZeroCopy};
use crate::sys::net::params;
use crate::sys::rdma::buffer::Buffer;
use crate::transport::{Config, Endpoint, Transport};
use core::net::IpAddr;
use kernel::alloc::flags::GFP_KERNEL;
use kernel::prelude::*;

/// Zero-copy adverts that we let a peer have outstanding. Above 1, which tells peers of our kind
/// from the OFED line.
pub(crate) const MAX_ADVERTS: u8 = 16;
/// Send buffer of a connection whose program has not set `SO_SNDBUF`.
const SEND_BUFFER: usize = 1024 * 1024;

/// What the queue pairs are like.
pub(crate) fn config() -> Config {
    Config {
        retry_count: params::sdp_retry_count().clamp(0, 6) as u8,
        receive_slots: params::sdp_rx_size().clamp(8, 63) as u16,
        inline: u16::try_from(params::sdp_inline_thresh()).unwrap_or(0),
        ..Config::default()
    }
}

/// What the new connection can do with adverts.
pub(crate) fn zero_copy(endpoint: &Endpoint) -> ZeroCopy {
    match endpoint.limits().pinned_pages {
        0 => ZeroCopy::Off,
        _ => ZeroCopy::On,
    }
}

/// An address as Hello carries it: IPv4 in the last four of 16 bytes, the others zero.
pub(crate) fn hello_address(ip: &IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(a) => Hello::ipv4(a.octets()),
        IpAddr::V6(a) => a.octets(),
    }
}

/// All memory of a new connection, made where one may sleep.
pub(crate) struct Prepared {
    pub(crate) endpoint: Endpoint,
    tx: SendQueue,
    rx: ReceiveQueue,
    spare: KVec<Buffer>,
    /// Receive buffers that are posted.
    pub(crate) posted: u16,
    /// Their size in bytes.
    size: u32,
    /// The longest message that fits.
    pub(crate) announced: u32,
}

impl Prepared {
    /// Posts the first receive buffers of `size` bytes on a new endpoint.
    pub(crate) fn new(mut endpoint: Endpoint, size: usize) -> Result<Self> {
        let (mut tx, mut rx) = (SendQueue::new(), ReceiveQueue::new());
        let limits = endpoint.limits();
        tx.prepare(limits.max_sge)?;
        rx.prepare()?;
        let (slots, header_aside) = (limits.receive_slots, limits.header_aside);
        let spare = KVec::with_capacity(FIRST_WINDOW.into(), GFP_KERNEL)?;
        rx_buffers::post_first(&mut endpoint, size, FIRST_WINDOW.min(slots))?;
        let posted = endpoint.posted_receives();
        Ok(Prepared {
            endpoint,
            tx,
            rx,
            spare,
            posted,
            size: size as u32,
            announced: size as u32 + header_aside,
        })
    }

    /// Gives everything to the connection.
    pub(crate) fn install(self, c: &mut Connection) {
        c.tx = self.tx;
        c.rx = self.rx;
        c.rx_buffers.begin(self.spare, self.size);
        c.attach(self.endpoint);
    }
}

/// The connection is there: it may use more memory now.
pub(crate) fn grow(sk: &SdpSock) {
    sk.grow_sndbuf(SEND_BUFFER);
}

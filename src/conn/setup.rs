// SPDX-License-Identifier: GPL-2.0-only

//! What a new connection is made of, on both sides.

use super::receive_queue::ReceiveQueue;
use super::send_queue::SendQueue;
use super::{Connection, SdpSock, FIRST_WINDOW};
use crate::protocol::{Hello, ZeroCopy, MAX_HEADER};
use crate::sys::errno::ENOMEM;
use crate::sys::net::params;
use crate::sys::rdma::buffer::Buffer;
use crate::transport::{Channel, Config, Transport};
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
        inline: params::sdp_inline_thresh().clamp(0, MAX_HEADER as i32) as u16,
        ..Config::default()
    }
}

/// What the new connection can do with adverts.
pub(crate) fn zero_copy(channel: &Channel) -> ZeroCopy {
    match channel.limits().pinned_pages {
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
pub(crate) struct Parts {
    pub(crate) channel: Channel,
    tx: SendQueue,
    rx: ReceiveQueue,
    spare: KVec<KBox<Buffer>>,
    /// Receive buffers that are posted.
    pub(crate) posted: u16,
    /// Their size in bytes.
    size: u32,
    /// The longest message that fits.
    pub(crate) announced: u32,
}

impl Parts {
    /// Posts the first receive buffers of `size` bytes on a new channel.
    pub(crate) fn new(mut channel: Channel, size: usize) -> Result<Self> {
        let (mut tx, mut rx) = (SendQueue::new(), ReceiveQueue::new());
        let limits = channel.limits();
        tx.prepare(limits.spans)?;
        rx.prepare()?;
        let (slots, beside) = (limits.receive_slots, limits.beside);
        let spare = KVec::with_capacity(slots.into(), GFP_KERNEL)?;
        for _ in 0..FIRST_WINDOW.min(slots) {
            let mut b = Buffer::new(size, GFP_KERNEL)?;
            b.map_receive(channel.mapper(), GFP_KERNEL)?;
            channel.post_receive(b).map_err(|_| ENOMEM)?;
        }
        channel.flush()?;
        let posted = channel.posted_receives();
        Ok(Parts {
            channel,
            tx,
            rx,
            spare,
            posted,
            size: size as u32,
            announced: size as u32 + beside,
        })
    }

    /// Gives everything to the connection.
    pub(crate) fn install(self, c: &mut Connection) {
        c.tx = self.tx;
        c.rx = self.rx;
        c.rx_buffers.begin(self.spare, self.size);
        c.attach(self.channel);
    }
}

/// The connection is there: it may use more memory now.
pub(crate) fn grow(sk: &SdpSock) {
    sk.grow_sndbuf(SEND_BUFFER);
}

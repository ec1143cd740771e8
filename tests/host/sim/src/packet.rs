// SPDX-License-Identifier: GPL-2.0-only

//! Messages as bytes, and the contents of the streams.

use sdp_protocol::message::{Body, Flags, Message};
use sdp_protocol::Block;

/// A message in flight, or the bytes of an RDMA WRITE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// All bytes of the message.
    pub bytes: Vec<u8>,
    /// Target of a WRITE.
    pub write: Option<Block>,
}

impl Packet {
    /// Makes a message with these headers, whose payload is the stream of `side` from `position`
    /// on.
    pub fn new(header: &[u8], side: usize, position: u64, payload: u32) -> Self {
        let positions = position..position + u64::from(payload);
        let payload: Vec<u8> = positions.map(|at| stream_byte(side, at)).collect();
        Packet::with(header, &payload)
    }

    /// Makes a message with these headers and this payload.
    pub fn with(header: &[u8], payload: &[u8]) -> Self {
        let bytes = [header, payload].concat();
        Packet { bytes, write: None }
    }

    /// Makes a WRITE of the stream of `side` from `position` on.
    pub fn write(to: Block, side: usize, position: u64) -> Self {
        let write = Some(to);
        Packet {
            write,
            ..Packet::new(&[], side, position, to.size)
        }
    }

    /// Returns the length that the transport reports.
    pub fn length(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// Returns the message's headers, if they can be parsed.
    pub fn message(&self) -> Option<Message> {
        if self.write.is_some() {
            return None;
        }
        Message::parse(&self.bytes, self.length()).ok()
    }

    /// Returns a one-line description, for traces.
    pub fn describe(&self) -> String {
        if let Some(to) = self.write {
            return format!("WRITE to {to:?}");
        }
        let Some(m) = self.message() else {
            return format!("malformed {:02x?}", &self.bytes[..self.bytes.len().min(20)]);
        };
        let mut text = format!(
            "{} mseq {} ack {} bufs {} payload {}",
            m.body.mid().name(),
            m.mseq,
            m.mseq_ack,
            m.bufs,
            m.payload
        );
        match m.body {
            Body::SrcAvail(advert) => text += &format!(" size {}", advert.size),
            Body::SinkAvail(advert) => {
                text += &format!(
                    " size {} counted {}",
                    advert.block.size, advert.non_discards
                );
            }
            Body::RdmaRdCompl { size } | Body::RdmaWrCompl { size } => {
                text += &format!(" size {size}");
            }
            Body::ChRcvBuf { size } | Body::ChRcvBufAck { size } => {
                text += &format!(" size {size}");
            }
            Body::ModeChange {
                receiver_sends,
                mode,
            } => text += &format!(" {mode:?} receiver_sends {receiver_sends}"),
            _ => {}
        }
        for (flag, name) in [(Flags::OOB_PEND, " PEND"), (Flags::OOB_PRES, " PRES")] {
            if m.flags.contains(flag) {
                text += name;
            }
        }
        text
    }
}

/// Returns the byte at a position of the stream that `side` sends. Different positions, even
/// distant ones, and different sides have different bytes if possible.
pub fn stream_byte(side: usize, position: u64) -> u8 {
    let mixed = (position ^ ((side as u64) << 62)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

// SPDX-License-Identifier: GPL-2.0-only

//! Base header (BSDH) and extended headers of the sixteen messages on the queue pair.

use super::super::violation::Malformed;
use super::{Mid, BSDH_LEN, MAX_HEADER, U16, U32, U64, U8};

/// Offsets of the fields from the start of the message.
mod field {
    use super::{U16, U32, U64, U8};

    // BSDH.
    pub(super) const MID: U8<0> = U8;
    pub(super) const FLAGS: U8<1> = U8;
    pub(super) const BUFS: U16<2> = U16;
    pub(super) const LEN: U32<4> = U32;
    pub(super) const MSEQ: U32<8> = U32;
    pub(super) const MSEQ_ACK: U32<12> = U32;

    // Extended headers.
    pub(super) const MODE: U8<16> = U8; // ModeChange
    pub(super) const SIZE: U32<16> = U32; // RdmaWrCompl, RdmaRdCompl, ChRcvBuf(Ack), adverts
    pub(super) const SERVICE_ID: U64<16> = U64; // SuspComm
    pub(super) const R_KEY: U32<20> = U32; // adverts
    pub(super) const ADDRESS: U64<24> = U64; // adverts
    pub(super) const NON_DISCARDS: U32<32> = U32; // SinkAvail
}

/// Flags in the BSDH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// Marks the last payload byte as urgent, only in Data (CA4-7).
    pub const OOB_PRES: Flags = Flags(1);
    /// Announces an urgent byte in this message or a later one. Any message may have it (CA4-7).
    pub const OOB_PEND: Flags = Flags(2);
    /// Set by a data sink to request Pipelined mode of the source. The flag is only a hint (CA4-8).
    pub const REQ_PIPE: Flags = Flags(4);

    /// Parses the flags, without the reserved bits.
    pub const fn from_bits(bits: u8) -> Flags {
        Flags(bits & 7)
    }

    /// Returns the byte for the wire.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the union of both sets of flags.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Returns true if all flags of `other` are set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Flow-control mode of one half of a connection (IBA Annex A4, flow-control modes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Only Data may be sent.
    Buffered = 0,
    /// Data and one source advert at a time may be sent. Initial mode of both halves.
    Combined = 1,
    /// Data and adverts from both sides, up to MaxAdverts, may be sent.
    Pipelined = 2,
}

/// An advertised block of memory. The memory is pinned, and registered with a key of its own that
/// allows only the advertised access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Size of the block in bytes, including the bytes in the payload of its SrcAvail.
    pub size: u32,
    /// Remote key of the block.
    pub r_key: u32,
    /// Address of the block's first byte under the remote key. The SrcAvail's payload begins with
    /// the same byte.
    pub address: u64,
}

/// Extended header of SinkAvail: a buffer that the peer may fill by RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkAvail {
    /// Buffer that the peer may fill.
    pub block: Block,
    /// Number of messages with payload that the sink has received and that voided no sink advert.
    pub non_discards: u32,
}

/// Message type and extended header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// End of the sender's stream.
    DisConn,
    /// Abort of the connection.
    AbortConn,
    /// Request of the sink for the unread rest of the adverts as Data.
    SendSm,
    /// Report of the source that it has written to the oldest sink advert.
    RdmaWrCompl {
        /// Number of bytes written.
        size: u32,
    },
    /// Report of the sink that it has read from the oldest source advert.
    RdmaRdCompl {
        /// Number of bytes read since the last report, without the bytes inside the SrcAvail.
        size: u32,
    },
    /// Change of the mode of one half.
    ModeChange {
        /// True (S = 1) for the half on which the receiver of the message sends.
        receiver_sends: bool,
        /// New mode.
        mode: Mode,
    },
    /// Cancel of all source adverts.
    SrcAvailCancel,
    /// Cancel of all sink adverts.
    SinkAvailCancel,
    /// Confirmation that the cancelled sink adverts are void.
    SinkCancelAck,
    /// Request for larger receive buffers.
    ChRcvBuf {
        /// Requested size in bytes.
        size: u32,
    },
    /// Reply to ChRcvBuf.
    ChRcvBufAck {
        /// Size in bytes in effect; OFED counts only the payload.
        size: u32,
    },
    /// Suspension of the connection, in order to rebuild it at another service ID.
    SuspComm {
        /// Service ID for the new connection.
        service_id: u64,
    },
    /// Confirmation of the suspension.
    SuspCommAck,
    /// Advert of a buffer for RDMA WRITE.
    SinkAvail(SinkAvail),
    /// Advert of a buffer for RDMA READ.
    SrcAvail(Block),
    /// Stream bytes, or a credit update without payload.
    Data,
}

impl Body {
    /// Returns the type of the message.
    pub const fn mid(&self) -> Mid {
        match self {
            Body::DisConn => Mid::DisConn,
            Body::AbortConn => Mid::AbortConn,
            Body::SendSm => Mid::SendSm,
            Body::RdmaWrCompl { .. } => Mid::RdmaWrCompl,
            Body::RdmaRdCompl { .. } => Mid::RdmaRdCompl,
            Body::ModeChange { .. } => Mid::ModeChange,
            Body::SrcAvailCancel => Mid::SrcAvailCancel,
            Body::SinkAvailCancel => Mid::SinkAvailCancel,
            Body::SinkCancelAck => Mid::SinkCancelAck,
            Body::ChRcvBuf { .. } => Mid::ChRcvBuf,
            Body::ChRcvBufAck { .. } => Mid::ChRcvBufAck,
            Body::SuspComm { .. } => Mid::SuspComm,
            Body::SuspCommAck => Mid::SuspCommAck,
            Body::SinkAvail(_) => Mid::SinkAvail,
            Body::SrcAvail(_) => Mid::SrcAvail,
            Body::Data => Mid::Data,
        }
    }
}

/// A message on the queue pair, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Flags for urgent data and for the mode.
    pub flags: Flags,
    /// Number of receive buffers that the sender has posted.
    pub bufs: u16,
    /// Sequence number of this message.
    pub mseq: u32,
    /// Sequence number of the last message that the sender has received.
    pub mseq_ack: u32,
    /// Message type and extended header.
    pub body: Body,
    /// Number of payload bytes after the headers.
    pub payload: u32,
}

impl Message {
    /// Returns the number of bytes before the payload.
    pub const fn header_len(&self) -> usize {
        self.body.mid().header_len()
    }

    /// Returns the size of the whole message in bytes, as in the BSDH's Len.
    pub fn length(&self) -> u32 {
        (self.header_len() as u32).saturating_add(self.payload)
    }

    /// Encodes the headers. The first [`Message::header_len`] bytes are valid, the others are zero.
    pub fn encode(&self) -> [u8; MAX_HEADER] {
        let mut h = [0; MAX_HEADER];
        field::MID.put(&mut h, self.body.mid().code());
        field::FLAGS.put(&mut h, self.flags.bits());
        field::BUFS.put(&mut h, self.bufs);
        field::LEN.put(&mut h, self.length());
        field::MSEQ.put(&mut h, self.mseq);
        field::MSEQ_ACK.put(&mut h, self.mseq_ack);
        match self.body {
            Body::RdmaWrCompl { size }
            | Body::RdmaRdCompl { size }
            | Body::ChRcvBuf { size }
            | Body::ChRcvBufAck { size } => field::SIZE.put(&mut h, size),
            Body::ModeChange {
                receiver_sends,
                mode,
            } => field::MODE.put(
                &mut h,
                (u8::from(receiver_sends) << 7) | ((mode as u8) << 4),
            ),
            Body::SuspComm { service_id } => field::SERVICE_ID.put(&mut h, service_id),
            Body::SinkAvail(advert) => {
                put_block(&mut h, &advert.block);
                field::NON_DISCARDS.put(&mut h, advert.non_discards);
            }
            Body::SrcAvail(block) => put_block(&mut h, &block),
            _ => {}
        }
        h
    }

    /// Parses the headers of a message. Fails if the message is invalid in any state of a
    /// connection.
    ///
    /// `bytes` contains the first `min(length, MAX_HEADER)` bytes of the message, or more. `length`
    /// is the length of the message as the completion reports it.
    pub fn parse(bytes: &[u8], length: u32) -> Result<Message, Malformed> {
        if bytes.len() < BSDH_LEN || length < BSDH_LEN as u32 {
            return Err(Malformed::Short);
        }
        let mut h = [0; MAX_HEADER];
        if let Some(start) = bytes.first_chunk() {
            h = *start;
        } else {
            for (to, from) in h.iter_mut().zip(bytes) {
                *to = *from;
            }
        }
        if field::LEN.get(&h) != length {
            return Err(Malformed::Length);
        }
        let mid = Mid::from_code(field::MID.get(&h)).ok_or(Malformed::UnknownMid)?;
        let body = body(mid, &h)?;
        let header_len = mid.header_len();
        if bytes.len() < header_len {
            return Err(Malformed::Short);
        }
        let payload = length
            .checked_sub(header_len as u32)
            .ok_or(Malformed::Short)?;
        if payload > 0 && !mid.carries_payload() {
            return Err(Malformed::UnexpectedPayload);
        }
        let flags = Flags::from_bits(field::FLAGS.get(&h));
        if flags.contains(Flags::OOB_PRES) && (mid != Mid::Data || payload == 0) {
            return Err(Malformed::OutOfBand);
        }
        Ok(Message {
            flags,
            bufs: field::BUFS.get(&h),
            mseq: field::MSEQ.get(&h),
            mseq_ack: field::MSEQ_ACK.get(&h),
            body,
            payload,
        })
    }
}

fn put_block(h: &mut [u8; MAX_HEADER], block: &Block) {
    field::SIZE.put(h, block.size);
    field::R_KEY.put(h, block.r_key);
    field::ADDRESS.put(h, block.address);
}

/// Parses the extended header.
fn body(mid: Mid, h: &[u8; MAX_HEADER]) -> Result<Body, Malformed> {
    let size = field::SIZE.get(h);
    let block = Block {
        size,
        r_key: field::R_KEY.get(h),
        address: field::ADDRESS.get(h),
    };
    Ok(match mid {
        Mid::Hello | Mid::HelloAck => return Err(Malformed::HelloInStream),
        Mid::DisConn => Body::DisConn,
        Mid::AbortConn => Body::AbortConn,
        Mid::SendSm => Body::SendSm,
        Mid::RdmaWrCompl => Body::RdmaWrCompl { size },
        Mid::RdmaRdCompl => Body::RdmaRdCompl { size },
        Mid::ModeChange => mode_change(field::MODE.get(h))?,
        Mid::SrcAvailCancel => Body::SrcAvailCancel,
        Mid::SinkAvailCancel => Body::SinkAvailCancel,
        Mid::SinkCancelAck => Body::SinkCancelAck,
        Mid::ChRcvBuf => Body::ChRcvBuf { size },
        Mid::ChRcvBufAck => Body::ChRcvBufAck { size },
        Mid::SuspComm => Body::SuspComm {
            service_id: field::SERVICE_ID.get(h),
        },
        Mid::SuspCommAck => Body::SuspCommAck,
        Mid::SinkAvail => Body::SinkAvail(SinkAvail {
            block,
            non_discards: field::NON_DISCARDS.get(h),
        }),
        Mid::SrcAvail => Body::SrcAvail(block),
        Mid::Data => Body::Data,
    })
}

/// Parses the only meaningful byte of ModeChange: S in bit 7, mode in bits 6 to 4, others reserved.
fn mode_change(byte: u8) -> Result<Body, Malformed> {
    let mode = match (byte >> 4) & 7 {
        0 => Mode::Buffered,
        1 => Mode::Combined,
        2 => Mode::Pipelined,
        _ => return Err(Malformed::Mode),
    };
    Ok(Body::ModeChange {
        receiver_sends: byte & 0x80 != 0,
        mode,
    })
}

#[cfg(test)]
#[path = "base_tests.rs"]
mod tests;

// SPDX-License-Identifier: GPL-2.0-only

//! The sixteen messages on the queue pair: base header (BSDH) and extended headers.

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

/// The flags of the BSDH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// The last payload byte is urgent. Occurs only in Data (CA4-7).
    pub const OOB_PRES: Flags = Flags(1);
    /// An urgent byte follows, in this message or a later one. Occurs in any message (CA4-7).
    pub const OOB_PEND: Flags = Flags(2);
    /// Data sink: requests Pipelined mode of the source. The flag is only a hint (CA4-8).
    pub const REQ_PIPE: Flags = Flags(4);

    /// Parses the flags; drops reserved bits.
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

    /// Returns true if all of `other` is set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Flow-control mode of one half of a connection (IBA Annex A4, flow-control modes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Data only.
    Buffered = 0,
    /// Data, and one source advert at a time. Initial mode of every half of a connection.
    Combined = 1,
    /// Data, and adverts from both sides up to MaxAdverts.
    Pipelined = 2,
}

/// An advertised block of memory: pinned, and registered with a key of its own that allows the peer
/// only the access of the advert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Size of the block in bytes, including those in the payload of its SrcAvail.
    pub size: u32,
    /// Key.
    pub r_key: u32,
    /// Address of the first byte under that key, which is also the first byte of the payload.
    pub address: u64,
}

/// Extended header of SinkAvail: a buffer that the peer may fill by RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkAvail {
    /// The buffer.
    pub block: Block,
    /// Messages with payload that the sink had received and that voided no sink advert.
    pub non_discards: u32,
}

/// Message type and extended header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// End of the sender's stream.
    DisConn,
    /// Abortive end of the connection.
    AbortConn,
    /// The sink requests the unread rest of the adverts as Data.
    SendSm,
    /// The source has written to the oldest sink advert.
    RdmaWrCompl {
        /// Bytes written.
        size: u32,
    },
    /// The sink has read from the oldest source advert since the last RdmaRdCompl.
    RdmaRdCompl {
        /// Bytes read, without those inside the SrcAvail.
        size: u32,
    },
    /// Changes the mode of one half.
    ModeChange {
        /// Set (S = 1) if the half is the one that the receiver of this message sends on.
        receiver_sends: bool,
        /// New mode.
        mode: Mode,
    },
    /// Takes back all source adverts.
    SrcAvailCancel,
    /// Takes back all sink adverts.
    SinkAvailCancel,
    /// Confirms that the cancelled sink adverts are void.
    SinkCancelAck,
    /// Requests larger receive buffers.
    ChRcvBuf {
        /// Requested size in bytes.
        size: u32,
    },
    /// Replies to ChRcvBuf.
    ChRcvBufAck {
        /// Size in bytes from now on; OFED counts the payload only.
        size: u32,
    },
    /// Suspends the connection, which is to be rebuilt at another service ID.
    SuspComm {
        /// Service ID to reconnect to.
        service_id: u64,
    },
    /// Confirms the suspension.
    SuspCommAck,
    /// Advertises a buffer for RDMA WRITE.
    SinkAvail(SinkAvail),
    /// Advertises a buffer for RDMA READ.
    SrcAvail(Block),
    /// Stream bytes or a credit update.
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
    /// Urgent data and mode hints.
    pub flags: Flags,
    /// Receive buffers that the sender has posted.
    pub bufs: u16,
    /// Sequence number of this message.
    pub mseq: u32,
    /// Sequence number of the last message that the sender had received.
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

    /// Encodes the headers; the first [`Message::header_len`] bytes count, the others are zero.
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

    /// Reads the headers of a message.
    ///
    /// `bytes` contains the first `min(length, MAX_HEADER)` bytes of the message, or more. `length`
    /// is the length of the message as the completion reports it.
    ///
    /// # Errors
    ///
    /// [`Malformed`]: the message is invalid in every state of a connection.
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

/// Parses ModeChange's one meaningful byte: S in bit 7, mode in bits 6 to 4, others reserved.
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

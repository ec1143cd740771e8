// SPDX-License-Identifier: GPL-2.0-only

//! Hello and HelloAck, which are private data of the CM's REQ and REP.

use super::super::violation::Malformed;
use super::{
    Bytes, Mid, HELLO_ACK_LEN, HELLO_LEN, MAX_RECEIVE_SIZE, MIN_RECEIVE_SIZE, U16, U32, U8,
};

/// Offsets of the fields from the start of the message.
mod field {
    use super::{Bytes, U16, U32, U8};

    // BSDH, in which Flags, MSeq and MSeqAck are zero.
    pub(super) const MID: U8<0> = U8;
    pub(super) const BUFS: U16<2> = U16;
    pub(super) const LEN: U32<4> = U32;

    // Fields of Hello and HelloAck.
    pub(super) const VERSION: U8<16> = U8;

    // Hello.
    pub(super) const IPV_CAP: U8<17> = U8;
    pub(super) const MAX_ADVERTS: U8<19> = U8;
    pub(super) const DES_REM_RCV_SZ: U32<20> = U32;
    pub(super) const LOCAL_RCV_SZ: U32<24> = U32;
    pub(super) const LOCAL_PORT: U16<28> = U16;
    pub(super) const SRC_IP: Bytes<32, 16> = Bytes;
    pub(super) const DST_IP: Bytes<48, 16> = Bytes;
    pub(super) const EXT_MAX_ADVERTS: U16<66> = U16;
    pub(super) const MAX_MESSAGE: U32<68> = U32;

    // HelloAck. Byte 18 is reserved, or the high byte of MaxAdverts; every known sender writes 0.
    pub(super) const ACK_MAX_ADVERTS: U16<18> = U16;
    pub(super) const ACT_RCV_SZ: U32<20> = U32;
    pub(super) const ACK_MAX_MESSAGE: U32<24> = U32;
}

/// Version in Hello and HelloAck: 2.2, as in every OFED version.
pub const VERSION: u8 = 0x22;

/// Capability bit of Hello: the 16-bit ExtMaxAdverts overrides MaxAdverts (deduced from its name).
pub const CAP_EXTENDED_MAX_ADVERTS: u8 = 2;

/// Capability bit of Hello, an extension of this module: the connection is for messages
/// (`SOCK_SEQPACKET`), and MaxMessage is valid.
pub const CAP_MESSAGES: u8 = 4;

/// Address family of a Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum IpVersion {
    /// IPv4: twelve zero bytes (not `::ffff:`), then the four bytes of the address.
    V4 = 4,
    /// IPv6: the sixteen bytes of the address.
    V6 = 6,
}

/// First message of the connector (MID 0x00): the private data of the CM REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Number of receive buffers that the connector has posted. Zero is legal (RHEL 5): then the
    /// connector's first message contains the number.
    pub bufs: u16,
    /// Major version in the high nibble, minor in the low one.
    pub version: u8,
    /// Address family of `src` and `dst`.
    pub ip_version: IpVersion,
    /// The four capability bits.
    pub cap: u8,
    /// Maximum number of adverts that the connector holds at a time.
    pub max_adverts: u8,
    /// Size in bytes with BSDH that the connector requests for the acceptor's buffers.
    pub desired_remote_receive_size: u32,
    /// Size in bytes with BSDH of each of the connector's receive buffers.
    pub local_receive_size: u32,
    /// Port of the connector. (Only the service ID contains the acceptor's port.)
    pub local_port: u16,
    /// Address of the connector.
    pub src: [u8; 16],
    /// Address of the acceptor.
    pub dst: [u8; 16],
    /// Maximum number of adverts that the connector holds, valid with [`CAP_EXTENDED_MAX_ADVERTS`].
    pub ext_max_adverts: u16,
    /// Length in bytes of the longest message that the connector receives, with [`CAP_MESSAGES`].
    pub max_message: u32,
}

/// First message of the acceptor (MID 0x01): the private data of the CM REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloAck {
    /// Number of receive buffers that the acceptor has posted.
    pub bufs: u16,
    /// Major version in the high nibble, minor in the low one.
    pub version: u8,
    /// Maximum number of adverts that the acceptor holds at a time.
    pub max_adverts: u16,
    /// Size in bytes with BSDH of each of the acceptor's receive buffers.
    pub actual_receive_size: u32,
    /// Length in bytes of the longest message that the acceptor can receive, or 0 for a stream.
    pub max_message: u32,
}

impl Hello {
    /// Encodes an IPv4 address for Hello: twelve zero bytes, then the address.
    pub const fn ipv4(address: [u8; 4]) -> [u8; 16] {
        let [a, b, c, d] = address;
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
    }

    /// Returns the IPv4 address in an address field of a Hello of [`IpVersion::V4`].
    pub const fn as_ipv4(address: [u8; 16]) -> [u8; 4] {
        let [.., a, b, c, d] = address;
        [a, b, c, d]
    }

    /// Returns the maximum number of adverts that the connector holds, from the valid field.
    pub const fn adverts(&self) -> u16 {
        if self.cap & CAP_EXTENDED_MAX_ADVERTS != 0 && self.ext_max_adverts != 0 {
            self.ext_max_adverts
        } else {
            self.max_adverts as u16
        }
    }

    /// Returns the length of the longest message that the connector receives, 0 for a stream, or
    /// `None` if the field is invalid.
    pub const fn messages(&self) -> Option<u32> {
        match (self.cap & CAP_MESSAGES, self.max_message) {
            (0, _) => Some(0),
            (_, 0) => None,
            (_, most) => Some(most),
        }
    }

    /// Writes the message.
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let mut h = [0; HELLO_LEN];
        field::MID.put(&mut h, Mid::Hello.code());
        field::BUFS.put(&mut h, self.bufs);
        field::LEN.put(&mut h, HELLO_LEN as u32);
        field::VERSION.put(&mut h, self.version);
        field::IPV_CAP.put(&mut h, ((self.ip_version as u8) << 4) | (self.cap & 0xf));
        field::MAX_ADVERTS.put(&mut h, self.max_adverts);
        field::DES_REM_RCV_SZ.put(&mut h, self.desired_remote_receive_size);
        field::LOCAL_RCV_SZ.put(&mut h, self.local_receive_size);
        field::LOCAL_PORT.put(&mut h, self.local_port);
        field::SRC_IP.put(&mut h, self.src);
        field::DST_IP.put(&mut h, self.dst);
        field::EXT_MAX_ADVERTS.put(&mut h, self.ext_max_adverts);
        field::MAX_MESSAGE.put(&mut h, self.max_message);
        h
    }

    /// Parses the private data of a REQ, which the CM may pad. Fails without a Hello that a
    /// HelloAck can accept.
    pub fn parse(private_data: &[u8]) -> Result<Hello, Malformed> {
        let h: &[u8; HELLO_LEN] = private_data.first_chunk().ok_or(Malformed::Short)?;
        check_start(Mid::Hello, h)?;
        let ipv_cap = field::IPV_CAP.get(h);
        let hello = Hello {
            bufs: field::BUFS.get(h),
            version: field::VERSION.get(h),
            ip_version: match ipv_cap >> 4 {
                4 => IpVersion::V4,
                6 => IpVersion::V6,
                _ => return Err(Malformed::IpVersion),
            },
            cap: ipv_cap & 0xf,
            max_adverts: field::MAX_ADVERTS.get(h),
            desired_remote_receive_size: field::DES_REM_RCV_SZ.get(h),
            local_receive_size: check_receive_size(field::LOCAL_RCV_SZ.get(h))?,
            local_port: field::LOCAL_PORT.get(h),
            src: field::SRC_IP.get(h),
            dst: field::DST_IP.get(h),
            ext_max_adverts: field::EXT_MAX_ADVERTS.get(h),
            max_message: field::MAX_MESSAGE.get(h),
        };
        if hello.adverts() == 0 {
            return Err(Malformed::MaxAdverts);
        }
        Ok(hello)
    }
}

impl HelloAck {
    /// Writes the message.
    pub fn encode(&self) -> [u8; HELLO_ACK_LEN] {
        let mut h = [0; HELLO_ACK_LEN];
        field::MID.put(&mut h, Mid::HelloAck.code());
        field::BUFS.put(&mut h, self.bufs);
        field::LEN.put(&mut h, HELLO_ACK_LEN as u32);
        field::VERSION.put(&mut h, self.version);
        field::ACK_MAX_ADVERTS.put(&mut h, self.max_adverts);
        field::ACT_RCV_SZ.put(&mut h, self.actual_receive_size);
        field::ACK_MAX_MESSAGE.put(&mut h, self.max_message);
        h
    }

    /// Parses the private data of a REP, which may be longer than a HelloAck but not shorter. Fails
    /// without a HelloAck of this major version.
    pub fn parse(private_data: &[u8]) -> Result<HelloAck, Malformed> {
        let h: &[u8; HELLO_ACK_LEN] = private_data.first_chunk().ok_or(Malformed::Short)?;
        check_start(Mid::HelloAck, h)?;
        let max_adverts = field::ACK_MAX_ADVERTS.get(h);
        if max_adverts == 0 {
            return Err(Malformed::MaxAdverts);
        }
        Ok(HelloAck {
            bufs: field::BUFS.get(h),
            version: field::VERSION.get(h),
            max_adverts,
            actual_receive_size: check_receive_size(field::ACT_RCV_SZ.get(h))?,
            max_message: field::ACK_MAX_MESSAGE.get(h),
        })
    }
}

/// Checks the fields common to Hello and HelloAck: MID, Len, and a major version of 2.
fn check_start<const N: usize>(mid: Mid, h: &[u8; N]) -> Result<(), Malformed> {
    if field::MID.get(h) != mid.code() {
        return Err(Malformed::UnknownMid);
    }
    if field::LEN.get(h) != N as u32 {
        return Err(Malformed::Length);
    }
    if field::VERSION.get(h) >> 4 != VERSION >> 4 {
        return Err(Malformed::Version);
    }
    Ok(())
}

fn check_receive_size(size: u32) -> Result<u32, Malformed> {
    if (MIN_RECEIVE_SIZE..=MAX_RECEIVE_SIZE).contains(&size) {
        Ok(size)
    } else {
        Err(Malformed::ReceiveSize)
    }
}

#[cfg(test)]
#[path = "hello_tests.rs"]
mod tests;

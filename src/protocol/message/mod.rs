// SPDX-License-Identifier: GPL-2.0-only

//! Encoding of the eighteen SDP messages (IBA Annex A4).
//!
//! [`Hello`] and [`HelloAck`] are sent as private data of the connection manager's REQ and REP, and
//! have their own types. The other sixteen MIDs are SENDs on the queue pair: a [`Message`] is one
//! such message without the payload. `parse` takes any bytes and never panics. `encode` reproduces
//! the bytes that `parse` has accepted, except for reserved bits.
//!
//! The offset of a big-endian field is a type parameter, and a header is an array. The compiler
//! checks that each field lies inside the header, so no accessor can panic, and a wrong offset does
//! not build.

mod base;
mod hello;
mod mid;

pub use self::base::{Block, Body, Flags, Message, Mode, SinkAvail};
pub use self::hello::{
    Hello, HelloAck, IpVersion, CAP_EXTENDED_MAX_ADVERTS, CAP_MESSAGES, VERSION,
};
pub use self::mid::Mid;

/// Size in bytes of the base header (BSDH) at the start of every message.
pub const BSDH_LEN: usize = 16;

/// Size in bytes of the longest header (BSDH and extended header), that of SinkAvail.
pub const MAX_HEADER: usize = 36;

/// Size in bytes of a Hello, which fills the private data of a CM REQ.
pub const HELLO_LEN: usize = 92;

/// Size in bytes of a HelloAck, which fills the private data of a CM REP.
pub const HELLO_ACK_LEN: usize = 196;

/// Smallest receive buffer, in bytes with BSDH, that Hello and HelloAck may announce. A buffer of
/// this size holds every header and some payload. (The smallest known buffer has 2064 bytes.)
pub const MIN_RECEIVE_SIZE: u32 = 64;

/// Largest receive buffer in Hello and HelloAck, in bytes with BSDH: the longest RC message.
pub const MAX_RECEIVE_SIZE: u32 = 1 << 31;

/// Field of one byte at offset `AT`.
pub(super) struct U8<const AT: usize>;

/// Field of two bytes, big-endian, at offset `AT`.
pub(super) struct U16<const AT: usize>;

/// Field of four bytes, big-endian, at offset `AT`.
pub(super) struct U32<const AT: usize>;

/// Field of eight bytes, big-endian, at offset `AT`.
pub(super) struct U64<const AT: usize>;

/// Field of `LEN` bytes without conversion, at offset `AT`.
pub(super) struct Bytes<const AT: usize, const LEN: usize>;

impl<const AT: usize, const LEN: usize> Bytes<AT, LEN> {
    pub(super) fn get<const N: usize>(&self, header: &[u8; N]) -> [u8; LEN] {
        const { assert!(AT + LEN <= N) }
        let mut value = [0; LEN];
        for (to, from) in value.iter_mut().zip(header.iter().skip(AT)) {
            *to = *from;
        }
        value
    }

    pub(super) fn put<const N: usize>(&self, header: &mut [u8; N], value: [u8; LEN]) {
        const { assert!(AT + LEN <= N) }
        for (to, from) in header.iter_mut().skip(AT).zip(value) {
            *to = from;
        }
    }
}

macro_rules! integer_field {
    ($field:ident, $int:ty, $size:literal) => {
        impl<const AT: usize> $field<AT> {
            pub(super) fn get<const N: usize>(&self, header: &[u8; N]) -> $int {
                <$int>::from_be_bytes(Bytes::<AT, $size>.get(header))
            }

            pub(super) fn put<const N: usize>(&self, header: &mut [u8; N], value: $int) {
                Bytes::<AT, $size>.put(header, value.to_be_bytes());
            }
        }
    };
}

integer_field!(U8, u8, 1);
integer_field!(U16, u16, 2);
integer_field!(U32, u32, 4);
integer_field!(U64, u64, 8);

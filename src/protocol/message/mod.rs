// SPDX-License-Identifier: GPL-2.0-only

//! The eighteen SDP messages, byte by byte (IBA Annex A4).
//!
//! [`Hello`] and [`HelloAck`] are sent as private data of the connection manager's REQ and REP, and
//! have their own types. The other sixteen MIDs are SENDs on the queue pair: a [`Message`] is one
//! of these without its payload. `parse` accepts any bytes and never panics. `encode` reproduces
//! the bytes that `parse` has accepted, except for reserved bits.

mod base;
mod field;
mod hello;
mod malformed;
mod mid;

pub use self::base::{Block, Body, Flags, Message, Mode, SinkAvail};
pub use self::hello::{
    Hello, HelloAck, IpVersion, CAP_EXTENDED_MAX_ADVERTS, CAP_MESSAGES, VERSION,
};
pub use self::malformed::Malformed;
pub use self::mid::Mid;

/// Size in bytes of the base header (BSDH) at the start of every message.
pub const BSDH_LEN: usize = 16;

/// Size in bytes of the longest header (BSDH and extended header), SinkAvail's.
pub const MAX_HEADER: usize = 36;

/// Size in bytes of a Hello: all private data of a CM REQ.
pub const HELLO_LEN: usize = 92;

/// Size in bytes of a HelloAck: all private data of a CM REP.
pub const HELLO_ACK_LEN: usize = 196;

/// Smallest receive buffer, in bytes with BSDH, that Hello and HelloAck may announce. A buffer of
/// this size holds every header and some payload. (The smallest one known in use is 2064.)
pub const MIN_RECEIVE_SIZE: u32 = 64;

/// Largest receive buffer in Hello and HelloAck, in bytes with BSDH: the longest RC message.
pub const MAX_RECEIVE_SIZE: u32 = 1 << 31;

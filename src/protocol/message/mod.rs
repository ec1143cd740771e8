// SPDX-License-Identifier: GPL-2.0-only

//! The eighteen SDP messages, byte by byte (IBA Annex A4).
//!
//! [`Hello`] and [`HelloAck`] travel as private data of the connection manager's REQ and REP and
//! are types of their own. The other sixteen are SENDs on the queue pair: [`Message`] is one of
//! them without its payload. For each, `parse` and `encode` stand side by side; `parse` accepts
//! any bytes and never panics, and what it accepts `encode` writes back, reserved bits aside.

mod base;
mod field;
mod hello;
mod malformed;
mod mid;

pub use self::base::{Body, Flags, Message, Mode, SinkAvail, SrcAvail};
pub use self::hello::{
    port_of_service_id, service_id, Hello, HelloAck, IpVersion, CAP_EXTENDED_MAX_ADVERTS,
    CAP_INVALIDATE, VERSION,
};
pub use self::malformed::Malformed;
pub use self::mid::Mid;

/// Bytes of the base header (BSDH) in front of every message.
pub const BSDH_LEN: usize = 16;

/// Bytes of the longest header (BSDH and extended header) of a message on the queue pair:
/// SinkAvail's.
pub const MAX_HEADER: usize = 36;

/// Bytes of a Hello, which is all private data that a CM REQ has room for.
pub const HELLO_LEN: usize = 92;

/// Bytes of a HelloAck, which is all private data that a CM REP has room for.
pub const HELLO_ACK_LEN: usize = 196;

/// The smallest receive buffer, in bytes with BSDH, that Hello and HelloAck may announce: it
/// holds every header with some payload. (The smallest known to be used is 2064.)
pub const MIN_RECEIVE_SIZE: u32 = 64;

/// The largest receive buffer, in bytes with BSDH, that Hello and HelloAck may announce: no RC
/// message is longer.
pub const MAX_RECEIVE_SIZE: u32 = 1 << 31;

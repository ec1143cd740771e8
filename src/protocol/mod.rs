// SPDX-License-Identifier: GPL-2.0-only

//! State machine of the Sockets Direct Protocol (IBA Annex A4), without clock, I/O or locks.
//!
//! [`message`] parses and encodes the eighteen messages. A [`Connection`] is the state of one end
//! of a connection: its inputs are messages and offers, its outputs are messages and events.
//!
//! ```text
//! Hello::parse(private_data)  -> Result<Hello, Malformed>       Hello::encode    -> [u8; 92]
//! HelloAck::parse(...)        -> Result<HelloAck, Malformed>    HelloAck::encode -> [u8; 196]
//!
//! Connection::new(&Parameters) from Hello and HelloAck .receive(bytes, length) -> Result<Received,
//!   Violation> a message that has arrived .transmit(&Offer) -> Transmit the next message to post
//!   .shutdown_send() DisConn behind the queue .resize_receive(new_size, old_posted) answer to
//!   ReceiveSizeRequested zero copy: the order of calls is at the top of connection/mod.rs
//! ```
//!
//! The code uses only `core`, and `super::` paths, because the sources are built twice. The kernel
//! crate has them as `pub mod protocol;`, and the host crate `sdp-protocol` has the tests. No input
//! from the wire can cause a panic. Headers are read from fixed-size arrays at offsets that the
//! compiler checks. Sequence numbers and sizes are added only by wrapping, saturating or checked
//! arithmetic.

#![cfg_attr(
    not(test),
    deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)
)]

pub mod message;

mod adverts;
mod connection;
mod credits;
pub(crate) mod named;
mod records;
mod resize;
mod violation;

pub use self::adverts::MAX_ADVERTS;
pub use self::connection::{
    Connection, Event, Offer, Outgoing, Parameters, Received, Stall, Transmit, MAX_BLOCK,
};
pub use self::credits::{CONTROL_CREDITS, PAYLOAD_CREDITS, UPDATE_CREDITS};
pub use self::message::{
    Block, Hello, HelloAck, IpVersion, Mid, Mode, BSDH_LEN, CAP_MESSAGES, HELLO_ACK_LEN, HELLO_LEN,
    MAX_HEADER, MAX_RECEIVE_SIZE, MIN_RECEIVE_SIZE, VERSION,
};
pub use self::records::{RecordHeader, Records, MAX_MESSAGE, RECORD_HEADER};
pub use self::violation::{Malformed, Violation};

// SPDX-License-Identifier: GPL-2.0-only

//! The Sockets Direct Protocol itself (IBA Annex A4): no clock, no I/O, no locks.
//!
//! [`message`] parses and encodes the eighteen messages. [`Connection`] is the state of one end of
//! a connection: messages and offers in, messages and events out.
//!
//! ```text
//! Hello::parse(private_data)  -> Result<Hello, Malformed>       Hello::encode    -> [u8; 92]
//! HelloAck::parse(...)        -> Result<HelloAck, Malformed>    HelloAck::encode -> [u8; 196]
//!
//! Connection::new(&Parameters)              what Hello and HelloAck said
//!   .receive(bytes, length)  -> Result<Received, Violation>     one message that came
//!   .transmit(&Offer)        -> Transmit                        the next message to post
//!   .shutdown_send()                                            DisConn behind the queue
//!   .resize_receive(new_size, old_posted)                       answer to ReceiveSizeRequested
//!   zero copy: the order of calls is at the top of connection/mod.rs
//! ```
//!
//! Everything here uses `core` only and `super::` paths, because the sources are built twice: as a
//! module of the kernel crate (`pub mod protocol;`) and as the host crate `sdp-protocol`, which
//! has the tests. Nothing from the wire can cause a panic: headers are read from fixed-size arrays
//! at offsets that the compiler checks, and sequence numbers and sizes are added only by wrapping,
//! saturating or checked arithmetic.

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
    Connection, Event, Offer, Outgoing, Parameters, Received, Stall, Transmit,
};
pub use self::credits::{CONTROL_CREDITS, PAYLOAD_CREDITS, UPDATE_CREDITS};
pub use self::message::{
    Block, Hello, HelloAck, IpVersion, Mid, Mode, BSDH_LEN, CAP_MESSAGES, HELLO_ACK_LEN, HELLO_LEN,
    MAX_HEADER, MAX_RECEIVE_SIZE, MIN_RECEIVE_SIZE, VERSION,
};
pub use self::records::{RecordHeader, Records, MAX_MESSAGE, RECORD_HEADER};
pub use self::violation::{Malformed, Violation};

// SPDX-License-Identifier: GPL-2.0-only

//! Bodies of the fuzz targets (tests/host/fuzz), as functions, so that a plain test can run them
//! with the corpus.

pub mod connection;

use sdp_protocol::message::Message;
use sdp_protocol::{Hello, HelloAck, MAX_HEADER};

/// Private data of a REQ or REP: parses it, and compares the result after writing it again.
pub fn hello(data: &[u8]) {
    if let Ok(hello) = Hello::parse(data) {
        assert_eq!(Hello::parse(&hello.encode()), Ok(hello));
        assert!(hello.adverts() > 0);
    }
    if let Ok(ack) = HelloAck::parse(data) {
        assert_eq!(HelloAck::parse(&ack.encode()), Ok(ack));
    }
}

/// A message of the queue pair: parses it, and compares the result after writing it again.
pub fn message(data: &[u8]) {
    let length = data.len() as u32;
    let start = &data[..data.len().min(MAX_HEADER)];
    let message = Message::parse(start, length);
    assert_eq!(message, Message::parse(data, length));
    if let Ok(message) = message {
        assert_eq!(message.length(), length);
        assert!(message.header_len() <= data.len());
        let header = message.encode();
        assert_eq!(Message::parse(&header, length), Ok(message));
    }
}

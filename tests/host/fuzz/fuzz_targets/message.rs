// SPDX-License-Identifier: GPL-2.0-only

//! A message of the queue pair: read without panic, and what was read is written back.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sdp_protocol::message::Message;
use sdp_protocol::MAX_HEADER;

fuzz_target!(|data: &[u8]| {
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
});

// SPDX-License-Identifier: GPL-2.0-only

//! Private data of a REQ or REP: read without panic, and what was read is written back.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sdp_protocol::{Hello, HelloAck};

fuzz_target!(|data: &[u8]| {
    if let Ok(hello) = Hello::parse(data) {
        assert_eq!(Hello::parse(&hello.encode()), Ok(hello));
        assert!(hello.adverts() > 0);
    }
    if let Ok(ack) = HelloAck::parse(data) {
        assert_eq!(HelloAck::parse(&ack.encode()), Ok(ack));
    }
});

// SPDX-License-Identifier: GPL-2.0-only

//! Messages: an encoded message can be parsed, the parsed message equals its source, and no input
//! panics.

use proptest::prelude::*;
use sdp_props::{hello, hello_ack, message};
use sdp_protocol::message::{Message, Mode};
use sdp_protocol::{Hello, HelloAck, Malformed, Mid, MAX_HEADER};

/// Bytes that could be a message: mostly with a known MID and the correct Len.
fn almost_a_message() -> impl Strategy<Value = (Vec<u8>, u32)> {
    let mid = prop_oneof![9 => (0..18usize).prop_map(|n| Mid::ALL[n].code()), 1 => any::<u8>()];
    let bytes = proptest::collection::vec(any::<u8>(), 0..64);
    (mid, bytes, 0..4u32).prop_map(|(mid, mut bytes, how)| {
        let length = bytes.len() as u32;
        if bytes.len() >= 16 {
            bytes[0] = mid;
            if how > 0 {
                bytes[4..8].copy_from_slice(&length.to_be_bytes());
            }
            if how > 1 {
                bytes[1] &= 2;
            }
        }
        (bytes, length)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn hello_comes_back(hello in hello(), tail in proptest::collection::vec(any::<u8>(), 0..100)) {
        let mut bytes = hello.encode().to_vec();
        let parsed = Hello::parse(&bytes);
        if hello.adverts() == 0 {
            prop_assert_eq!(parsed, Err(Malformed::MaxAdverts));
        } else {
            prop_assert_eq!(parsed, Ok(hello));
        }
        bytes.extend(tail);
        prop_assert_eq!(Hello::parse(&bytes), parsed);
    }

    #[test]
    fn hello_ack_comes_back(ack in hello_ack()) {
        prop_assert_eq!(HelloAck::parse(&ack.encode()), Ok(ack));
    }

    #[test]
    fn message_comes_back(message in message()) {
        let header = message.encode();
        prop_assert_eq!(Message::parse(&header, message.length()), Ok(message));
        let exact = &header[..message.header_len()];
        prop_assert_eq!(Message::parse(exact, message.length()), Ok(message));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), length in any::<u32>()) {
        let _ = Hello::parse(&bytes);
        let _ = HelloAck::parse(&bytes);
        let _ = Message::parse(&bytes, length);
        let _ = Message::parse(&bytes, bytes.len() as u32);
    }

    #[test]
    fn what_is_read_is_what_is_there((bytes, length) in almost_a_message()) {
        if let Ok(message) = Message::parse(&bytes, length) {
            prop_assert_eq!(message.length(), length);
            let mut meant = [0; MAX_HEADER];
            let header_len = message.header_len();
            meant[..header_len].copy_from_slice(&bytes[..header_len]);
            // Bits without a meaning are dropped.
            meant[1] &= 7;
            if message.body.mid() == Mid::ModeChange {
                meant[16] &= 0xf0;
                meant[17..20].fill(0);
            }
            prop_assert_eq!(message.encode(), meant);
        }
    }

    #[test]
    fn a_changed_byte_of_hello_is_seen_or_means_nothing(hello in hello(), at in 0..92usize, bit in 0..8u32) {
        let bytes = hello.encode();
        let mut changed = bytes;
        changed[at] ^= 1 << bit;
        if let (Ok(before), Ok(after)) = (Hello::parse(&bytes), Hello::parse(&changed)) {
            let reserved = matches!(at, 1 | 8..=15 | 18 | 30..=31 | 64..=65 | 72..=91);
            prop_assert_eq!(before == after, reserved, "byte {}", at);
        }
    }
}

#[test]
fn modes_have_the_codes_of_the_wire() {
    assert_eq!(
        [Mode::Buffered, Mode::Combined, Mode::Pipelined].map(|mode| mode as u8),
        [0, 1, 2]
    );
}

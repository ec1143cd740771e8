// SPDX-License-Identifier: GPL-2.0-only

//! Bodies of the fuzz targets (tests/host/fuzz), as functions, so that a plain test can run them
//! with the corpus.

pub mod connection;

use sdp_protocol::message::Message;
use sdp_protocol::{Hello, HelloAck, RecordHeader, Records, Violation, MAX_HEADER, RECORD_HEADER};

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

/// The stream of a connection of messages, behind one byte for MaxMessage and one for the size of
/// the parts in which it arrives: counts the same messages by another way.
pub fn records(data: &[u8]) {
    let [most, size, stream @ ..] = data else {
        return;
    };
    let most = 1 + 16 * u32::from(*most);
    let mut records = Records::new(most, 0).expect("messages");
    let (mut whole, mut result) = (0, Ok(()));
    for part in stream.chunks(1 + usize::from(*size)) {
        result = records.arrived(part);
        while records.has_whole() {
            records.taken();
            whole += 1;
        }
        if result.is_err() {
            break;
        }
    }
    let (mut rest, mut count) = (stream, 0);
    let mut expected = Ok(());
    while let Some((header, behind)) = rest.split_first_chunk::<RECORD_HEADER>() {
        let len = RecordHeader::parse(*header).len;
        if len == 0 || len > most {
            expected = Err(Violation::Record);
            break;
        }
        let Some((_, next)) = behind.split_at_checked(len as usize) else {
            break;
        };
        (rest, count) = (next, count + 1);
    }
    assert_eq!(result, expected);
    match result {
        Ok(()) => assert_eq!((whole, records.is_within()), (count, !rest.is_empty())),
        // whole messages in the part of a violation do not count
        Err(_) => assert!(whole <= count),
    }
}

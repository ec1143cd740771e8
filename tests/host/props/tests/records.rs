// SPDX-License-Identifier: GPL-2.0-only

use sdp_protocol::message::CAP_MESSAGES;
use sdp_protocol::{Hello, HelloAck, IpVersion, RecordHeader, Records, Violation, VERSION};

fn message(len: usize, ends_record: bool) -> Vec<u8> {
    let header = RecordHeader {
        len: len as u32,
        ends_record,
    };
    [&header.encode()[..], &vec![7; len]].concat()
}

#[test]
fn headers() {
    for (len, ends_record, bytes) in [
        (1, false, [0, 0, 0, 1]),
        (0x0102_0304, true, [0x81, 2, 3, 4]),
        (0x7fff_ffff, true, [0xff; 4]),
    ] {
        let header = RecordHeader { len, ends_record };
        assert_eq!(header.encode(), bytes);
        assert_eq!(RecordHeader::parse(bytes), header);
    }
}

/// A message of the program is complete with its last byte, however SDP messages divide the stream.
#[test]
fn whole_with_the_last_byte() {
    let stream = [message(1, false), message(300, true), message(7, false)].concat();
    let ends = [5, 309, 320];
    for size in 1..=stream.len() {
        let mut records = Records::new(300, 0).unwrap();
        let mut at = 0;
        for part in stream.chunks(size) {
            records.arrived(part).unwrap();
            at += part.len();
            let whole = ends.iter().filter(|end| **end <= at).count();
            assert_eq!(records.has_whole(), whole > 0);
            assert_eq!(records.is_within(), !ends.contains(&at));
        }
        for _ in 0..3 {
            assert!(records.has_whole());
            records.taken();
        }
        assert!(!records.has_whole() && !records.is_within());
    }
}

/// No other call gets bytes of a message that a call reads from an advert, even if a part arrives
/// as Data.
#[test]
fn read_from_an_advert() {
    for in_advert in [0, 40, 100] {
        let mut records = Records::new(100, 0).unwrap();
        assert!(!records.awaits(100));
        let bytes = message(100, false);
        let (header, body) = bytes.split_at(4);
        records.arrived(header).unwrap();
        assert!(records.awaits(100) && !records.awaits(99));
        records.begin_read();
        assert!(records.awaits_end());
        if in_advert > 0 {
            records.passed(in_advert);
        }
        records.arrived(&body[in_advert as usize..]).unwrap();
        assert!(records.has_arrived() && !records.awaits_end());
        records.arrived(&message(5, false)).unwrap();
        assert!(!records.has_whole(), "not before the end of the call");
        records.taken();
        assert!(records.has_whole());
        records.taken();
        assert!(!records.has_whole());
    }
}

#[test]
fn lengths_that_no_message_has() {
    for len in [0, 101, 0x7fff_ffff] {
        let mut records = Records::new(100, 0).unwrap();
        records.arrived(&message(100, true)).unwrap();
        let header = RecordHeader {
            len,
            ends_record: false,
        };
        let two = [message(5, false), header.encode().to_vec()].concat();
        assert_eq!(records.arrived(&two), Err(Violation::Record));
        records.taken();
        assert!(
            !records.has_whole(),
            "bytes that are not queued do not count"
        );
    }
}

#[test]
fn hellos_for_messages() {
    let mut hello = Hello {
        cap: CAP_MESSAGES,
        max_message: 0x0004_0000,
        bufs: 64,
        version: VERSION,
        ip_version: IpVersion::V4,
        max_adverts: 16,
        desired_remote_receive_size: 4096,
        local_receive_size: 4096,
        local_port: 40000,
        src: Hello::ipv4([192, 0, 2, 1]),
        dst: Hello::ipv4([192, 0, 2, 2]),
        ext_max_adverts: 0,
    };
    let bytes = hello.encode();
    assert_eq!(bytes[17], 0x44);
    assert_eq!(bytes[68..72], [0, 4, 0, 0]);
    assert_eq!(Hello::parse(&bytes), Ok(hello));
    assert_eq!(hello.messages(), Some(0x0004_0000));
    hello.cap = 0;
    assert_eq!(
        hello.messages(),
        Some(0),
        "without the bit the field is not valid"
    );
    (hello.cap, hello.max_message) = (CAP_MESSAGES, 0);
    assert_eq!(hello.messages(), None);
    let ack = HelloAck {
        max_message: 0x0102_0304,
        bufs: 64,
        version: VERSION,
        max_adverts: 16,
        actual_receive_size: 4096,
    };
    assert_eq!(ack.encode()[24..28], [1, 2, 3, 4]);
    assert_eq!(HelloAck::parse(&ack.encode()), Ok(ack));
}

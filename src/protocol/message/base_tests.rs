// SPDX-License-Identifier: GPL-2.0-only

use super::super::MAX_HEADER;
use super::*;

/// Returns a message with 64 posted buffers, and the bytes of the hexadecimal `header`.
fn example(
    numbers: (u32, u32),
    (body, payload): (Body, u32),
    header: &str,
) -> (Message, std::vec::Vec<u8>) {
    let digits = header.as_bytes().iter().filter(|c| **c != b' ');
    let digits: std::string::String = digits.map(|c| char::from(*c)).collect();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    let message = Message {
        flags: Flags::NONE,
        bufs: 64,
        mseq: numbers.0,
        mseq_ack: numbers.1,
        body,
        payload,
    };
    (message, (0..digits.len()).step_by(2).map(byte).collect())
}

/// Returns the worked examples of `docs/protocol.md`, each with its encoded message. MSeq is
/// 0x01020304 and MSeqAck 0x05060708 unless the example gives other values.
#[rustfmt::skip]
fn examples() -> std::vec::Vec<(Message, std::vec::Vec<u8>)> {
    const ANY: (u32, u32) = (0x0102_0304, 0x0506_0708);
    let source = |address| Body::SrcAvail(Block { size: 1 << 20, r_key: 0x1234_5678, address });
    let sink = Body::SinkAvail(SinkAvail { block: Block { size: 1 << 20, r_key: 0x9abc_def0, address: 0x7f10_0000_0000 }, non_discards: 2 });
    let mode = |receiver_sends, mode| Body::ModeChange { receiver_sends, mode };
    let service_id = 0x1_1389; // of port 5001
    let mut all = std::vec![
        example((1, 0), (Body::Data, 5), "ff000040 00000015 00000001 00000000"),
        example((2, 0), (source(0x7f00_0000_1000), 1), "fe000040 00000021 00000002 00000000 00100000 12345678 00007f00 00001000"),
        example((2, 0), (source(0), 4096), "fe000040 00001020 00000002 00000000 00100000 12345678 00000000 00000000"),
        example((1, 2), (Body::RdmaRdCompl { size: 1_048_575 }, 0), "06000040 00000014 00000001 00000002 000fffff"),
        example((3, 1), (Body::DisConn, 0), "02000040 00000010 00000003 00000001"),
        example((2, 3), (Body::DisConn, 0), "02000040 00000010 00000002 00000003"),
        example(ANY, (Body::Data, 0), "ff000040 00000010 01020304 05060708"),
        example(ANY, (Body::Data, 1), "ff030040 00000011 01020304 05060708"),
        example(ANY, (Body::SendSm, 0), "04000040 00000010 01020304 05060708"),
        example(ANY, (Body::SrcAvailCancel, 0), "08000040 00000010 01020304 05060708"),
        example(ANY, (Body::ChRcvBuf { size: 32768 }, 0), "0b000040 00000014 01020304 05060708 00008000"),
        example(ANY, (Body::ChRcvBufAck { size: 32768 }, 0), "0c000040 00000014 01020304 05060708 00008000"),
        example(ANY, (mode(false, Mode::Pipelined), 0), "07000040 00000014 01020304 05060708 20000000"),
        example(ANY, (mode(true, Mode::Combined), 0), "07000040 00000014 01020304 05060708 90000000"),
        example(ANY, (sink, 0), "fd000040 00000024 01020304 05060708 00100000 9abcdef0 00007f10 00000000 00000002"),
        example(ANY, (Body::RdmaWrCompl { size: 99 }, 0), "05000040 00000014 01020304 05060708 00000063"),
        example(ANY, (Body::SuspComm { service_id }, 0), "0d000040 00000018 01020304 05060708 00000000 00011389"),
        example(ANY, (Body::AbortConn, 0), "03000040 00000010 01020304 05060708"),
        example(ANY, (Body::SinkAvailCancel, 0), "09000040 00000010 01020304 05060708"),
        example(ANY, (Body::SinkCancelAck, 0), "0a000040 00000010 01020304 05060708"),
        example(ANY, (Body::SuspCommAck, 0), "0e000040 00000010 01020304 05060708"),
    ];
    all[7].0.flags = Flags::OOB_PRES.with(Flags::OOB_PEND);
    all
}

#[test]
fn examples_are_written_and_read_byte_for_byte() {
    for (message, bytes) in examples() {
        let header = message.encode();
        assert_eq!(header[..message.header_len()], bytes, "{message:?}");
        assert!(header[message.header_len()..].iter().all(|b| *b == 0));
        assert_eq!(
            Message::parse(&header, message.length()),
            Ok(message),
            "{message:?}"
        );
        assert_eq!(Message::parse(&bytes, message.length()), Ok(message));
    }
}

#[test]
fn examples_have_every_message_of_the_queue_pair() {
    for mid in Mid::ALL.into_iter().skip(2) {
        assert!(examples().iter().any(|(m, _)| m.body.mid() == mid));
    }
}

#[test]
fn a_message_cut_short_is_refused_at_every_length() {
    for (message, bytes) in examples() {
        for cut in 0..bytes.len() {
            // the message is truncated
            let result = Message::parse(&bytes[..cut], message.length());
            assert_eq!(result, Err(Malformed::Short), "{message:?} {cut}");
            // the message and its length field are both shorter
            let mut short = bytes.clone();
            short[7] = cut as u8;
            short[6] = 0;
            let result = Message::parse(&short[..cut], cut as u32);
            assert_eq!(result, Err(Malformed::Short), "{message:?} {cut}");
        }
    }
}

#[test]
fn only_messages_with_payload_may_have_some() {
    for (message, mut bytes) in examples() {
        let length = message.header_len() as u32 + 1;
        bytes[4..8].copy_from_slice(&length.to_be_bytes());
        bytes.resize(MAX_HEADER + 1, 0);
        let result = Message::parse(&bytes, length);
        match message.body.mid() {
            Mid::Data | Mid::SrcAvail | Mid::SinkAvail => assert_eq!(result.unwrap().payload, 1),
            _ => assert_eq!(result, Err(Malformed::UnexpectedPayload), "{message:?}"),
        }
    }
}

#[test]
fn unknown_messages_and_modes_are_refused() {
    let mut bytes = [0u8; 36];
    bytes[7] = 36;
    for code in 0..=u8::MAX {
        bytes[0] = code;
        let known = Mid::from_code(code).is_some();
        let result = Message::parse(&bytes, 36);
        assert_eq!(result == Err(Malformed::UnknownMid), !known, "{code:#x}");
    }
    bytes[0] = Mid::ModeChange.code();
    bytes[7] = 20;
    bytes[17..20].fill(0xff);
    for byte in 0..=u8::MAX {
        bytes[16] = byte;
        let result = Message::parse(&bytes, 20);
        if (byte >> 4) & 7 > 2 {
            assert_eq!(result, Err(Malformed::Mode));
        } else {
            assert_eq!(
                result.unwrap().encode()[16],
                byte & 0xf0,
                "reserved bits go"
            );
        }
    }
}

#[test]
fn an_urgent_byte_needs_data_with_payload() {
    for (message, _) in examples() {
        let mut bytes = message.encode();
        bytes[1] = Flags::OOB_PRES.bits();
        let result = Message::parse(&bytes, message.length());
        if message.body == Body::Data && message.payload > 0 {
            assert!(result.unwrap().flags.contains(Flags::OOB_PRES));
        } else {
            assert_eq!(result, Err(Malformed::OutOfBand));
        }
        // OOB_PEND is valid in any message, and reserved bits are ignored.
        bytes[1] = Flags::OOB_PEND.bits() | 0xf8;
        let parsed = Message::parse(&bytes, message.length()).unwrap();
        assert_eq!(parsed.flags, Flags::OOB_PEND);
    }
}

// SPDX-License-Identifier: GPL-2.0-only

use super::super::MAX_HEADER;
use super::*;

/// Messages as bytes, with 64 posted buffers each: the worked examples of the protocol's
/// description, MSeq 0x01020304 and MSeqAck 0x05060708 where those leave it open.
fn examples() -> std::vec::Vec<(Message, std::vec::Vec<u8>)> {
    let message = |body, payload| Message {
        flags: Flags::NONE,
        bufs: 64,
        mseq: 0x0102_0304,
        mseq_ack: 0x0506_0708,
        body,
        payload,
    };
    let bytes = |start: &[u8], extended: &[u8]| {
        let mut all = start.to_vec();
        all.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        all.extend(extended);
        all
    };
    std::vec![
        (
            Message {
                mseq: 1,
                mseq_ack: 0,
                ..message(Body::Data, 5)
            },
            std::vec![0xff, 0, 0, 0x40, 0, 0, 0, 0x15, 0, 0, 0, 1, 0, 0, 0, 0],
        ),
        (
            Message {
                mseq: 2,
                mseq_ack: 0,
                ..message(
                    Body::SrcAvail(SrcAvail {
                        size: 1 << 20,
                        r_key: 0x1234_5678,
                        address: 0x7f00_0000_1000,
                    }),
                    1,
                )
            },
            std::vec![
                0xfe, 0, 0, 0x40, 0, 0, 0, 0x21, 0, 0, 0, 2, 0, 0, 0, 0, //
                0, 0x10, 0, 0, 0x12, 0x34, 0x56, 0x78, 0, 0, 0x7f, 0, 0, 0, 0x10, 0,
            ],
        ),
        (
            Message {
                mseq: 2,
                mseq_ack: 0,
                ..message(
                    Body::SrcAvail(SrcAvail {
                        size: 1 << 20,
                        r_key: 0x1234_5678,
                        address: 0,
                    }),
                    4096,
                )
            },
            std::vec![
                0xfe, 0, 0, 0x40, 0, 0, 0x10, 0x20, 0, 0, 0, 2, 0, 0, 0, 0, //
                0, 0x10, 0, 0, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
        ),
        (
            Message {
                mseq: 1,
                mseq_ack: 2,
                ..message(Body::RdmaRdCompl { size: 1_048_575 }, 0)
            },
            std::vec![6, 0, 0, 0x40, 0, 0, 0, 0x14, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0x0f, 0xff, 0xff,],
        ),
        (
            Message {
                mseq: 3,
                mseq_ack: 1,
                ..message(Body::DisConn, 0)
            },
            std::vec![2, 0, 0, 0x40, 0, 0, 0, 0x10, 0, 0, 0, 3, 0, 0, 0, 1],
        ),
        (
            Message {
                mseq: 2,
                mseq_ack: 3,
                ..message(Body::DisConn, 0)
            },
            std::vec![2, 0, 0, 0x40, 0, 0, 0, 0x10, 0, 0, 0, 2, 0, 0, 0, 3],
        ),
        (
            message(Body::Data, 0),
            bytes(&[0xff, 0, 0, 0x40, 0, 0, 0, 0x10], &[]),
        ),
        (
            Message {
                flags: Flags::OOB_PRES.with(Flags::OOB_PEND),
                ..message(Body::Data, 1)
            },
            bytes(&[0xff, 3, 0, 0x40, 0, 0, 0, 0x11], &[]),
        ),
        (
            message(Body::SendSm, 0),
            bytes(&[4, 0, 0, 0x40, 0, 0, 0, 0x10], &[]),
        ),
        (
            message(Body::SrcAvailCancel, 0),
            bytes(&[8, 0, 0, 0x40, 0, 0, 0, 0x10], &[]),
        ),
        (
            message(Body::ChRcvBuf { size: 32768 }, 0),
            bytes(&[0x0b, 0, 0, 0x40, 0, 0, 0, 0x14], &[0, 0, 0x80, 0]),
        ),
        (
            message(Body::ChRcvBufAck { size: 32768 }, 0),
            bytes(&[0x0c, 0, 0, 0x40, 0, 0, 0, 0x14], &[0, 0, 0x80, 0]),
        ),
        (
            message(
                Body::ModeChange {
                    receiver_sends: false,
                    mode: Mode::Pipelined,
                },
                0,
            ),
            bytes(&[7, 0, 0, 0x40, 0, 0, 0, 0x14], &[0x20, 0, 0, 0]),
        ),
        (
            message(
                Body::SinkAvail(SinkAvail {
                    size: 1 << 20,
                    r_key: 0x9abc_def0,
                    address: 0x7f10_0000_0000,
                    non_discards: 2,
                }),
                0,
            ),
            bytes(
                &[0xfd, 0, 0, 0x40, 0, 0, 0, 0x24],
                &[
                    0, 0x10, 0, 0, 0x9a, 0xbc, 0xde, 0xf0, 0, 0, 0x7f, 0x10, 0, 0, 0, 0, 0, 0, 0,
                    2,
                ],
            ),
        ),
        (
            message(Body::RdmaWrCompl { size: 99 }, 0),
            bytes(&[5, 0, 0, 0x40, 0, 0, 0, 0x14], &[0, 0, 0, 0x63]),
        ),
        (
            message(
                Body::SuspComm {
                    service_id: super::super::service_id(5001),
                },
                0,
            ),
            bytes(
                &[0x0d, 0, 0, 0x40, 0, 0, 0, 0x18],
                &[0, 0, 0, 0, 0, 1, 0x13, 0x89],
            ),
        ),
        (
            message(Body::AbortConn, 0),
            bytes(&[3, 0, 0, 0x40, 0, 0, 0, 0x10], &[]),
        ),
        (
            message(Body::SinkAvailCancel, 0),
            bytes(&[9, 0, 0, 0x40, 0, 0, 0, 0x10], &[]),
        ),
        (
            message(Body::SinkCancelAck, 0),
            bytes(&[0x0a, 0, 0, 0x40, 0, 0, 0, 0x10], &[]),
        ),
        (
            message(Body::SuspCommAck, 0),
            bytes(&[0x0e, 0, 0, 0x40, 0, 0, 0, 0x10], &[]),
        ),
        (
            message(
                Body::ModeChange {
                    receiver_sends: true,
                    mode: Mode::Combined,
                },
                0,
            ),
            bytes(&[7, 0, 0, 0x40, 0, 0, 0, 0x14], &[0x90, 0, 0, 0]),
        ),
    ]
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
            // The bytes end early.
            let result = Message::parse(&bytes[..cut], message.length());
            assert_eq!(result, Err(Malformed::Short), "{message:?} {cut}");
            // The message itself is shorter, and says so.
            let mut short = bytes.clone();
            short[7] = cut as u8;
            short[6] = 0;
            let result = Message::parse(&short[..cut], cut as u32);
            assert_eq!(result, Err(Malformed::Short), "{message:?} {cut}");
        }
    }
}

#[test]
fn len_must_be_what_came() {
    for (message, bytes) in examples() {
        for length in [message.length() - 1, message.length() + 1, u32::MAX] {
            let result = Message::parse(&bytes, length);
            let wrong = if length < 16 {
                Malformed::Short
            } else {
                Malformed::Length
            };
            assert_eq!(result, Err(wrong));
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
fn hello_is_no_message_of_the_queue_pair() {
    for (code, len) in [(0u8, 92u32), (1, 196), (0, 16), (1, 16)] {
        let mut bytes = [0u8; 196];
        bytes[0] = code;
        bytes[4..8].copy_from_slice(&len.to_be_bytes());
        let result = Message::parse(&bytes[..len as usize], len);
        assert_eq!(result, Err(Malformed::HelloInStream));
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
        // Its announcement may be anywhere, and reserved bits mean nothing.
        bytes[1] = Flags::OOB_PEND.bits() | 0xf8;
        let parsed = Message::parse(&bytes, message.length()).unwrap();
        assert_eq!(parsed.flags, Flags::OOB_PEND);
    }
}

#[test]
fn reserved_bytes_of_mode_change_are_ignored() {
    let mut bytes = [0u8; 20];
    bytes[0] = 7;
    bytes[7] = 20;
    bytes[16..20].copy_from_slice(&[0x2f, 0xff, 0xee, 0xdd]);
    assert_eq!(
        Message::parse(&bytes, 20).unwrap().body,
        Body::ModeChange {
            receiver_sends: false,
            mode: Mode::Pipelined
        }
    );
}

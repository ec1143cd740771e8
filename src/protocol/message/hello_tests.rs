// SPDX-License-Identifier: GPL-2.0-only

use super::*;

/// Hello from 192.0.2.1 port 40000 to 192.0.2.2. Both ends post 64 buffers of 32784 bytes.
fn hello() -> Hello {
    Hello {
        bufs: 64,
        version: VERSION,
        ip_version: IpVersion::V4,
        cap: 0,
        max_adverts: 1,
        desired_remote_receive_size: 32784,
        local_receive_size: 32784,
        local_port: 40000,
        src: Hello::ipv4([192, 0, 2, 1]),
        dst: Hello::ipv4([192, 0, 2, 2]),
        ext_max_adverts: 0,
        max_message: 0,
    }
}

fn hello_ack() -> HelloAck {
    HelloAck {
        bufs: 64,
        version: VERSION,
        max_adverts: 1,
        actual_receive_size: 32784,
        max_message: 0,
    }
}

#[rustfmt::skip]
const HELLO_BYTES: [u8; 92] = [
    0x00, 0x00, 0x00, 0x40, 0x00, 0x00, 0x00, 0x5c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x22, 0x40, 0x00, 0x01, 0x00, 0x00, 0x80, 0x10, 0x00, 0x00, 0x80, 0x10, 0x9c, 0x40, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xc0, 0x00, 0x02, 0x01,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xc0, 0x00, 0x02, 0x02,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];

fn hello_ack_bytes() -> [u8; 196] {
    let mut bytes = [0; 196];
    bytes[..24].copy_from_slice(&[
        1, 0, 0, 0x40, 0, 0, 0, 0xc4, 0, 0, 0, 0, 0, 0, 0, 0, //
        0x22, 0, 0, 1, 0, 0, 0x80, 0x10,
    ]);
    bytes
}

#[test]
fn hello_byte_for_byte() {
    assert_eq!(hello().encode(), HELLO_BYTES);
    assert_eq!(Hello::parse(&HELLO_BYTES), Ok(hello()));
    assert_eq!(Hello::as_ipv4(hello().src), [192, 0, 2, 1]);
}

#[test]
fn hello_ack_byte_for_byte() {
    assert_eq!(hello_ack().encode(), hello_ack_bytes());
    assert_eq!(HelloAck::parse(&hello_ack_bytes()), Ok(hello_ack()));
}

#[test]
fn hello_of_ipv6_and_extended_adverts() {
    let mut address = [0; 16];
    for (n, byte) in (1..).zip(&mut address) {
        *byte = n;
    }
    let hello = Hello {
        ip_version: IpVersion::V6,
        cap: CAP_EXTENDED_MAX_ADVERTS | 1,
        max_adverts: 255,
        src: address,
        dst: [0xfd; 16],
        ext_max_adverts: 1000,
        ..hello()
    };
    let bytes = hello.encode();
    assert_eq!(bytes[17], 0x63);
    assert_eq!(bytes[32..48], address);
    assert_eq!(bytes[48..64], [0xfd; 16]);
    assert_eq!(bytes[66..68], [0x03, 0xe8]);
    assert_eq!(Hello::parse(&bytes), Ok(hello));
    assert_eq!(hello.adverts(), 1000);
    assert_eq!(Hello { cap: 0, ..hello }.adverts(), 255);
}

#[test]
fn hello_is_checked() {
    let with = |at: usize, value: &[u8]| {
        let mut bytes = HELLO_BYTES;
        bytes[at..at + value.len()].copy_from_slice(value);
        Hello::parse(&bytes)
    };
    assert_eq!(with(0, &[1]), Err(Malformed::UnknownMid));
    assert_eq!(with(0, &[0xff]), Err(Malformed::UnknownMid));
    let lengths = [91, 93].map(|n| with(4, &[0, 0, 0, n]));
    assert_eq!(lengths, [Err(Malformed::Length); 2]);
    assert_eq!(with(16, &[0x11]), Err(Malformed::Version));
    assert_eq!(with(16, &[0x32]), Err(Malformed::Version));
    assert!(with(16, &[0x20]).is_ok());
    assert!(with(16, &[0x2f]).is_ok());
    assert_eq!(with(17, &[0x50]), Err(Malformed::IpVersion));
    assert_eq!(with(17, &[0x04]), Err(Malformed::IpVersion));
    assert_eq!(with(19, &[0]), Err(Malformed::MaxAdverts));
    assert_eq!(with(24, &[0, 0, 0, 63]), Err(Malformed::ReceiveSize));
    assert_eq!(with(24, &[0x80, 0, 0, 1]), Err(Malformed::ReceiveSize));
    assert!(with(24, &[0x80, 0, 0, 0]).is_ok());
    // A Hello is valid without buffers or a desired size, and with reserved bytes or any address.
    assert_eq!(with(2, &[0, 0]).unwrap().bufs, 0);
    assert!(with(20, &[0; 4]).is_ok());
    assert!(with(18, &[9]).is_ok() && with(68, &[9; 24]).is_ok());
    assert!(with(32, &[9; 32]).is_ok());
}

#[test]
fn hello_ack_is_checked() {
    let with = |at: usize, value: &[u8]| {
        let mut bytes = hello_ack_bytes();
        bytes[at..at + value.len()].copy_from_slice(value);
        HelloAck::parse(&bytes)
    };
    assert_eq!(with(0, &[0]), Err(Malformed::UnknownMid));
    let lengths = [24, 197].map(|n| with(4, &[0, 0, 0, n]));
    assert_eq!(lengths, [Err(Malformed::Length); 2]);
    assert_eq!(with(16, &[0x11]), Err(Malformed::Version));
    assert_eq!(with(18, &[0, 0]), Err(Malformed::MaxAdverts));
    assert_eq!(with(18, &[1, 0]).unwrap().max_adverts, 256);
    assert_eq!(with(20, &[0, 0, 0, 16]), Err(Malformed::ReceiveSize));
    assert_eq!(with(20, &[0xff; 4]), Err(Malformed::ReceiveSize));
    assert!(with(17, &[0xff]).is_ok() && with(24, &[0xff; 172]).is_ok());
    assert_eq!(with(2, &[0, 0]).unwrap().bufs, 0);
}

// SPDX-License-Identifier: GPL-2.0-only

//! Generators of Hello, HelloAck and messages for the property tests.

use proptest::prelude::*;
use sdp_protocol::message::{Body, Flags, Message, SinkAvail};
use sdp_protocol::{Block, Hello, HelloAck, IpVersion, Mode, MAX_RECEIVE_SIZE, MIN_RECEIVE_SIZE};

/// Versions of major number 2.
fn version() -> impl Strategy<Value = u8> {
    0x20..=0x2fu8
}

fn receive_size() -> impl Strategy<Value = u32> {
    MIN_RECEIVE_SIZE..=MAX_RECEIVE_SIZE
}

prop_compose! {
    /// Generates a Hello that a listener may reply to.
    pub fn hello()(
        (bufs, version, v6, cap) in (any::<u16>(), version(), any::<bool>(), 0..16u8),
        (max_adverts, ext_max_adverts) in (1u8.., any::<u16>()),
        (desired, local, max_message) in (any::<u32>(), receive_size(), any::<u32>()),
        (local_port, src, dst) in (any::<u16>(), any::<[u8; 16]>(), any::<[u8; 16]>()),
    ) -> Hello {
        Hello {
            bufs,
            version,
            ip_version: if v6 { IpVersion::V6 } else { IpVersion::V4 },
            cap,
            max_adverts,
            desired_remote_receive_size: desired,
            local_receive_size: local,
            local_port,
            src,
            dst,
            ext_max_adverts,
            max_message,
        }
    }
}

prop_compose! {
    /// Generates a HelloAck that a connector may accept.
    pub fn hello_ack()(
        bufs in any::<u16>(),
        version in version(),
        max_adverts in 1u16..,
        actual_receive_size in receive_size(),
        max_message in any::<u32>(),
    ) -> HelloAck {
        HelloAck { bufs, version, max_adverts, actual_receive_size, max_message }
    }
}

/// Generates any of the three modes.
pub fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        Just(Mode::Buffered),
        Just(Mode::Combined),
        Just(Mode::Pipelined)
    ]
}

/// Any of the sixteen messages on the queue pair, often Data; sizes are often small.
pub fn body() -> impl Strategy<Value = Body> {
    prop_oneof![1 => not_data(), 1 => Just(Body::Data)]
}

fn size() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), 0..3000u32]
}

fn block() -> impl Strategy<Value = Block> {
    (size(), any::<u32>(), any::<u64>()).prop_map(|(size, r_key, address)| Block {
        size,
        r_key,
        address,
    })
}

fn not_data() -> impl Strategy<Value = Body> {
    prop_oneof![
        Just(Body::DisConn),
        Just(Body::AbortConn),
        Just(Body::SendSm),
        size().prop_map(|size| Body::RdmaWrCompl { size }),
        size().prop_map(|size| Body::RdmaRdCompl { size }),
        (any::<bool>(), mode()).prop_map(|(receiver_sends, mode)| Body::ModeChange {
            receiver_sends,
            mode
        }),
        Just(Body::SrcAvailCancel),
        Just(Body::SinkAvailCancel),
        Just(Body::SinkCancelAck),
        size().prop_map(|size| Body::ChRcvBuf { size }),
        size().prop_map(|size| Body::ChRcvBufAck { size }),
        any::<u64>().prop_map(|service_id| Body::SuspComm { service_id }),
        Just(Body::SuspCommAck),
        (block(), prop_oneof![0..3u32, any::<u32>()]).prop_map(|(block, non_discards)| {
            Body::SinkAvail(SinkAvail {
                block,
                non_discards,
            })
        }),
        block().prop_map(Body::SrcAvail),
    ]
}

/// Generates flags that the message may have.
pub fn flags(body: Body, payload: u32) -> impl Strategy<Value = Flags> {
    let urgent = body == Body::Data && payload > 0;
    (0..8u8).prop_map(move |bits| {
        let present = if urgent { 0 } else { Flags::OOB_PRES.bits() };
        Flags::from_bits(bits & !present)
    })
}

prop_compose! {
    /// Generates a message that a connection may accept in some state.
    pub fn message()(body in body(), length in prop_oneof![Just(0), 0..3000u32, 0..1u32 << 31])(
        body in Just(body),
        payload in Just(if body.mid().carries_payload() { length } else { 0 }),
        flags in flags(body, if body.mid().carries_payload() { length } else { 0 }),
        (bufs, mseq, mseq_ack) in any::<(u16, u32, u32)>(),
    ) -> Message {
        Message { flags, bufs, mseq, mseq_ack, body, payload }
    }
}

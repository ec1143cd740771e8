// SPDX-License-Identifier: GPL-2.0-only

//! An attacker on the wire that changes messages.

use std::collections::VecDeque;

use sdp_protocol::Mid;

use crate::packet::Packet;
use crate::rng::Rng;

/// Modifies, drops or duplicates the first message on the wire.
pub fn tamper(rng: &mut Rng, wire: &mut VecDeque<Packet>) {
    // The queue pair protects WRITEs, so the attacker does not change them.
    if wire.is_empty() || wire.iter().take(2).any(|packet| packet.write.is_some()) {
        return;
    }
    match rng.below(10) {
        0 => {
            wire.pop_front();
        }
        1 => {
            let copy = wire[0].clone();
            wire.push_front(copy);
        }
        2 if wire.len() > 1 => wire.swap(0, 1),
        3 => wire[0] = forged(rng, &wire[0]),
        4 => {
            // Makes two messages of one, both in sequence: more than the credits allow.
            let mut next = forged(rng, &wire[0]);
            add(&mut next.bytes, 8, 1);
            wire.insert(1, next);
        }
        _ => change(rng, &mut wire[0].bytes),
    }
}

/// Returns a different message with the same sequence number and the correct length.
fn forged(rng: &mut Rng, packet: &Packet) -> Packet {
    let mut bytes = packet.bytes.clone();
    let mid = rng.pick(&Mid::ALL);
    let mut length = mid.header_len();
    if mid.carries_payload() && rng.one_in(2) {
        length += rng.below(40) as usize;
    }
    bytes.truncate(length.min(16));
    while bytes.len() < length {
        let at = bytes.len();
        // Plausible sizes and modes, some of the time.
        let likely = rng.pick(&[0, 0, 0, 1, 0x10, 0x20, 0x90]);
        bytes.push(if at < 20 && rng.one_in(2) {
            likely
        } else {
            rng.draw() as u8
        });
    }
    bytes[0] = mid.code();
    bytes[1] = if rng.one_in(4) { rng.draw() as u8 } else { 0 };
    bytes[4..8].copy_from_slice(&(length as u32).to_be_bytes());
    Packet { bytes, write: None }
}

/// Changes a few bytes.
fn change(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let header = bytes.len().min(36) as u32;
    if header < 16 {
        return;
    }
    match rng.below(8) {
        0 => bytes[0] = rng.draw() as u8,
        1 => bytes[1] ^= 1 << rng.below(8),
        2 => bytes[2..4].copy_from_slice(&(rng.draw() as u16).to_be_bytes()),
        3 => {
            let by = rng.pick(&[1, u32::MAX, 16, 1 << 31]);
            add(bytes, 4, by);
        }
        4 => {
            let by = rng.pick(&[1, u32::MAX, 100, 1 << 31]);
            add(bytes, 8, by);
        }
        5 => {
            let by = rng.pick(&[1, u32::MAX, 100, 1 << 31]);
            add(bytes, 12, by);
        }
        6 => bytes.truncate(rng.below(header) as usize),
        _ => {
            let at = rng.below(header) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
    }
}

fn add(bytes: &mut [u8], at: usize, by: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        let value = field.iter().fold(0u32, |v, b| (v << 8) | u32::from(*b));
        field.copy_from_slice(&value.wrapping_add(by).to_be_bytes());
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of a call, and actions of a peer on them.

use super::super::advert::AdvertState;
use super::*;

fn advert(cookie: u64, size: u32) -> Advert<u64> {
    let segment = Block {
        size,
        r_key: cookie as u32,
        address: 0x1000,
    };
    Advert::new(cookie, segment, cookie)
}

pub(super) fn unregistered(cookie: u64) -> Advert<u64> {
    Advert::unregistered(cookie, 1000, cookie)
}

fn next_key(b: &TxBlocks<u64>) -> Option<(u32, u64)> {
    match b.next()? {
        (Next::Advert(s), at) => Some((s.r_key, at)),
        _ => None,
    }
}

/// Returns `count` blocks of 1,000 bytes, the first `posted` of them advertised.
fn blocks(count: u64, posted: u64) -> TxBlocks<u64> {
    let mut b = TxBlocks::new();
    for cookie in 0..count {
        assert!(b
            .push(
                advert(cookie, 1000),
                cookie as u8,
                cookie * 1000,
                BlockUser::Call
            )
            .is_ok());
    }
    for cookie in 0..posted {
        assert_eq!(next_key(&b), Some((cookie as u32, cookie * 1000)));
        assert_eq!(b.posted(0), Some(cookie as u8));
    }
    b
}

/// Ends the peer's access to finished blocks.
pub(super) fn invalidate(b: &mut TxBlocks<u64>) {
    let mut cookies = Vec::new();
    for a in b.adverts_mut().filter(|a| a.state == AdvertState::Done) {
        a.invalidating();
        cookies.push(a.cookie);
    }
    // completes the blocks in any order
    for cookie in cookies.into_iter().rev() {
        assert!(b.adverts_mut().any(|a| a.invalidated(cookie)));
    }
}

/// Takes out a block: its memory, its bytes sent, and true if it was refused.
pub(super) fn take(b: &mut TxBlocks<u64>) -> Option<(u64, u32, bool)> {
    b.take(true).map(|r| (r.memory, r.done, r.refused))
}

/// Takes out a block after one that was not sent completely.
pub(super) fn take_behind(b: &mut TxBlocks<u64>) -> Option<(u64, u32, bool)> {
    b.take(false).map(|r| (r.memory, r.done, r.refused))
}

#[test]
fn the_connection_is_lost() {
    let mut b = blocks(3, 3);
    b.read(1000, true);
    b.read(10, false);
    b.lost();
    assert!(!b.is_open() && b.next().is_none());
    assert_eq!(
        b.oldest(),
        Some((call::Awaits::Nothing { lost: true }, true))
    );
    assert_eq!(take(&mut b), Some((0, 1000, false)));
    assert_eq!(take(&mut b), Some((1, 10, true)));
    assert_eq!(take_behind(&mut b), Some((2, 0, false)));
    assert!(b.is_empty());
}

/// Returns detached blocks of 1,000 bytes, the first `posted` of them advertised.
fn detached(count: u64, posted: u64) -> TxBlocks<u64> {
    let mut b = TxBlocks::new();
    for cookie in 0..count {
        let pushed = b.push(advert(cookie, 1000), cookie as u8, 0, BlockUser::None);
        assert!(pushed.is_ok());
    }
    for cookie in 0..posted {
        assert_eq!(b.posted(0), Some(cookie as u8));
    }
    b
}

fn retire(b: &mut TxBlocks<u64>) -> Option<u64> {
    b.retire().map(|r| r.memory)
}

#[test]
fn death_at_every_step_of_a_detached_one() {
    for step in 0..5 {
        let mut b = detached(3, 2);
        assert!(b.push(advert(7, 1000), 7, 0, BlockUser::Call).is_ok());
        for now in 0..step {
            match now {
                0 => assert!(b.read(10, false)),
                1 => assert_eq!(b.returned(10), Some(0)),
                2 => invalidate(&mut b),
                _ => drop(b.rest_posted(990, true)),
            }
        }
        b.lost();
        // the transport owns the memory of detached blocks; the call takes out its own
        assert_eq!(retire(&mut b), None);
        assert!(!b.is_sending() && b.detached_bytes() == 0);
        assert!(matches!(take(&mut b), Some((7, 0, true))));
        assert!(b.is_empty() && b.next().is_none() && b.has_space());
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of a call, and what a peer does with them.

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

/// So many blocks of 1,000 bytes, of which the peer was told of some.
fn blocks(count: u64, posted: u64) -> TxBlocks<u64> {
    let mut b = TxBlocks::new();
    for cookie in 0..count {
        assert!(b
            .push(advert(cookie, 1000), cookie as u8, cookie * 1000)
            .is_ok());
    }
    for cookie in 0..posted {
        assert_eq!(
            b.queued().map(|(s, at)| (s.r_key, at)),
            Some((cookie as u32, cookie * 1000))
        );
        assert_eq!(b.posted(0), Some(cookie as u8));
    }
    b
}

/// Ends the peer's access to what it is done with.
fn invalidate(b: &mut TxBlocks<u64>) {
    let mut cookies = Vec::new();
    for a in b.adverts_mut().filter(|a| a.state == AdvertState::Done) {
        a.invalidating();
        cookies.push(a.cookie);
    }
    // in any order
    for cookie in cookies.into_iter().rev() {
        assert!(b.adverts_mut().any(|a| a.invalidated(cookie)));
    }
}

/// What was taken out: memory, bytes that have gone, and whether it was refused.
fn take(b: &mut TxBlocks<u64>) -> Option<(u64, u32, bool)> {
    b.take().map(|r| (r.memory, r.done, r.refused))
}

#[test]
fn they_are_read_one_after_the_other() {
    let mut b = blocks(4, 4);
    assert!(!b.is_open() && b.push(advert(9, 1), 0, 0).is_err());
    assert!(b.read(400, false) && b.read(600, true));
    assert!(b.read(1000, true));
    assert_eq!(take(&mut b), None);
    invalidate(&mut b);
    assert_eq!(take(&mut b), Some((0, 1000, false)));
    // the next one may follow while the peer reads
    assert!(b.is_open() && b.push(advert(4, 1000), 4, 4000).is_ok());
    assert_eq!(b.posted(0), Some(4));
    for cookie in 1..5 {
        b.read(1000, true);
        invalidate(&mut b);
        assert_eq!(take(&mut b), Some((cookie, 1000, false)));
    }
    assert!(b.is_empty() && b.take().is_none() && !b.read(1, false));
}

#[test]
fn what_follows_one_that_came_back_does_not_count() {
    let mut b = blocks(3, 2);
    assert!(b.read(300, false));
    assert_eq!(b.returned(500), Some(200));
    assert!(!b.is_open() && b.queued().is_none());
    invalidate(&mut b);
    assert_eq!(take(&mut b), Some((0, 500, true)));
    assert!(!b.is_open() && b.push(advert(9, 1), 0, 0).is_err());
    assert_eq!(take(&mut b), Some((1, 0, false)));
    assert_eq!(take(&mut b), Some((2, 0, false)));
    // the rest of them begins anew
    assert!(b.is_open() && b.push(advert(9, 1), 0, 500).is_ok());
}

#[test]
fn a_report_crosses_the_cancel() {
    let mut b = blocks(2, 2);
    assert!(b.read(1000, true));
    // the second one is refused, and the first one was read all the same
    assert_eq!(b.returned(0), Some(0));
    invalidate(&mut b);
    assert_eq!(take(&mut b), Some((0, 1000, false)));
    assert_eq!(take(&mut b), Some((1, 0, true)));
}

#[test]
fn the_first_byte_goes_with_the_advert() {
    let mut b = blocks(1, 0);
    assert_eq!(b.waits(), Some(1000));
    assert_eq!(b.posted(1), Some(0));
    assert_eq!((b.waits(), b.posted(1)), (None, None));
    // told twice is counted once, and more than there is not at all
    assert_eq!(b.returned(1), Some(0));
    let mut b = blocks(1, 1);
    b.read(u32::MAX, true);
    invalidate(&mut b);
    assert_eq!(take(&mut b), Some((0, 1000, false)));
}

#[test]
fn for_a_waiting_reader_nothing_is_refused() {
    let mut b = blocks(2, 1);
    assert!(b.withdraw() && !b.withdraw());
    b.void();
    assert!(b.any_posted());
    assert_eq!(b.returned(0), Some(0));
    invalidate(&mut b);
    assert_eq!(take(&mut b), Some((0, 0, false)));
    assert_eq!(take(&mut b), Some((1, 0, false)));
    // though one before was read to its end
    let mut b = blocks(2, 1);
    assert!(b.read(1000, true) && b.withdraw());
    b.void();
    invalidate(&mut b);
    assert_eq!(take(&mut b), Some((0, 1000, false)));
    assert_eq!(take(&mut b), Some((1, 0, false)));
}

#[test]
fn the_connection_is_lost() {
    let mut b = blocks(3, 3);
    b.read(1000, true);
    b.read(10, false);
    b.adverts_mut().for_each(|a| a.state = AdvertState::Lost);
    assert!(!b.is_open());
    assert_eq!(take(&mut b), Some((0, 1000, false)));
    assert_eq!(take(&mut b), Some((1, 10, true)));
    assert_eq!(take(&mut b), Some((2, 0, false)));
    assert!(b.is_empty());
}

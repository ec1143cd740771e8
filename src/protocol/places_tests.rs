// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of a call.

use super::*;

fn lent(cookie: u64, size: u32) -> Lent<u8> {
    let block = Block {
        size,
        r_key: cookie as u32,
        address: 0,
    };
    Lent::new(cookie as u8, block, cookie)
}

/// So many blocks of 1000 bytes, with cookies from 1 on, of which so many are advertised.
fn places(blocks: u64, advertised: u64) -> Places<u8> {
    let mut places = Places::new();
    for cookie in 1..=blocks {
        assert!(places.has_room());
        assert!(places.push(lent(cookie, 1000)));
    }
    for cookie in 1..=advertised {
        assert_eq!(places.offered().unwrap().r_key as u64, cookie);
        assert!(places.advertise());
    }
    places
}

/// Ends the access to all blocks that are over, as far as it is posted.
fn end(places: &mut Places<u8>) -> Vec<u64> {
    let over = places.iter_mut().filter(|b| b.stage == Stage::Over);
    over.map(|b| {
        b.ending();
        b.cookie
    })
    .collect()
}

#[test]
fn there_is_room_for_so_many() {
    let mut four = places(4, 0);
    assert!(!four.has_room());
    assert!(!four.push(lent(5, 1000)));
    assert_eq!(four.iter().count(), 4);
}

#[test]
fn they_are_filled_in_order_and_others_follow() {
    let mut p = places(3, 2);
    assert_eq!(p.advertised(), 2);
    assert_eq!(p.written(1000, 50), Some(1000));
    assert!(!p.fell_short());
    assert_eq!(p.offered().unwrap().r_key, 3);
    assert!(p.advertise());
    // access has not ended yet
    assert!(p.take().is_none());
    assert_eq!(end(&mut p), [1]);
    assert!(p.take().is_none());
    assert!(p.ended(1));
    let first = p.take().unwrap();
    assert_eq!((first.loan, first.size), (1, 1000));
    assert_eq!((first.done, first.at), (1000, 50));
    assert!(p.push(lent(4, 1000)));
    assert_eq!(p.written(1000, 1050), Some(1000));
    assert_eq!(p.written(1000, 2050), Some(1000));
    // that was all that the peer had
    assert_eq!(p.written(1, 3050), None);
    assert_eq!(p.offered().unwrap().r_key, 4);
}

#[test]
fn more_than_fits_does_not_count() {
    let mut p = places(1, 1);
    assert_eq!(p.written(1001, 0), Some(1000));
}

/// Places are used again at once. With the end of access named after them, that of the block that had
/// the place before was taken for that of the next one.
#[test]
fn each_end_is_of_the_block_that_it_is_of() {
    let mut p = places(2, 2);
    p.written(1000, 0);
    p.written(1000, 1000);
    assert_eq!(end(&mut p), [1, 2]);
    assert!(p.ended(1));
    assert_eq!(p.take().unwrap().loan, 1);
    // the second one is now where the first was, and a third where the second was
    assert!(p.push(lent(3, 1000)));
    p.advertise();
    p.written(1000, 2000);
    assert_eq!(end(&mut p), [3]);
    assert!(p.ended(2));
    assert_eq!(p.take().unwrap().loan, 2);
    assert!(p.take().is_none());
    // twice is once, and one that is gone is not there
    assert!(!p.ended(2));
    assert!(!p.ended(1));
    assert!(p.ended(3));
    assert_eq!(p.take().unwrap().loan, 3);
    assert!(p.is_empty());
}

#[test]
fn nothing_is_advertised_behind_a_hole() {
    let mut p = places(4, 2);
    p.written(999, 0);
    assert!(p.fell_short());
    assert_eq!(p.offered(), None);
    // those that the peer knows of are taken back, the others just not told of
    p.withdraw();
    assert_eq!(p.advertised(), 1);
    assert_eq!(end(&mut p), [1, 3, 4]);
    assert_eq!(p.written(10, 999), Some(10));
    assert_eq!(end(&mut p), [2]);
    for cookie in [4, 2, 1, 3] {
        assert!(p.ended(cookie));
    }
    let done: Vec<_> = core::iter::from_fn(|| p.take().map(|r| r.done)).collect();
    assert_eq!(done, [999, 10, 0, 0]);
}

#[test]
fn void_is_what_the_peer_has() {
    let mut p = places(3, 2);
    assert!(p.void());
    assert!(!p.void());
    assert!(p.fell_short());
    assert_eq!(end(&mut p), [1, 2]);
    assert_eq!(p.oldest().unwrap().stage, Stage::Ending);
    p.withdraw();
    assert_eq!(end(&mut p), [3]);
}

#[test]
fn all_are_back_when_the_connection_is_lost() {
    let mut p = places(4, 2);
    p.written(1000, 7);
    end(&mut p);
    p.lost();
    assert!(!p.ended(1));
    assert_eq!(p.take().unwrap().done, 1000);
    for _ in 0..3 {
        assert_eq!(p.take().unwrap().done, 0);
    }
    assert!(p.take().is_none() && p.is_empty());
}

// SPDX-License-Identifier: GPL-2.0-only

//! Tests of blocks of a call, and of a peer's actions on the blocks.

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

fn next_key(b: &TxBlocks<u64>) -> Option<(u32, u64)> {
    match b.next()? {
        (Next::Advert(s), at) => Some((s.r_key, at)),
        _ => None,
    }
}

/// Returns `count` blocks of 1,000 bytes each. The first `posted` blocks are advertised.
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
    // the invalidations complete in reverse order
    for cookie in cookies.into_iter().rev() {
        assert!(b.adverts_mut().any(|a| a.invalidated(cookie)));
    }
}

/// Takes out a block. Returns its memory, its number of sent bytes, and true if it was refused.
fn take(b: &mut TxBlocks<u64>) -> Option<(u64, u32, bool)> {
    b.take(true).map(|r| (r.memory, r.done, r.refused))
}

/// Takes out a block that follows a block with unsent bytes.
fn take_behind(b: &mut TxBlocks<u64>) -> Option<(u64, u32, bool)> {
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

/// Returns detached blocks of 1,000 bytes each. The first `posted` blocks are advertised.
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

fn open(blocks: &mut TxBlocks<u64>, cookie: u64, at: u64) {
    let advert = Advert::unregistered(u64::MAX, 100, cookie);
    assert!(blocks.push_open(advert, 7, at).is_ok());
}

#[test]
fn nothing_goes_behind_what_is_collected() {
    let mut b = TxBlocks::new();
    open(&mut b, 1, 10);
    assert_eq!(b.next(), Some((Next::Ending(100), 10)));
    b.grow(1, 50);
    assert_eq!(b.next(), Some((Next::Ending(150), 10)));
    assert_eq!(b.detached_bytes(), 150);
    // the second block completes before the first
    open(&mut b, 2, 10);
    assert_eq!(b.moved(2, 22, true), Ok(()));
    assert_eq!(b.next(), Some((Next::Ending(150), 10)));
    assert!(b.has_open(1) && !b.has_open(2));
    assert_eq!(b.moved(1, 11, true), Ok(()));
    let first = Next::New {
        memory: &11,
        size: 150,
    };
    assert_eq!(b.next(), Some((first, 10)));
    // a closed block does not grow
    b.grow(1, 1);
    assert_eq!(b.detached_bytes(), 250);
}

#[test]
fn what_is_hidden_is_sent_whole_when_it_is_there() {
    let mut b = TxBlocks::new();
    open(&mut b, 1, 0);
    b.hide(1);
    assert_eq!(b.next(), Some((Next::Ending(100), 0)));
    assert_eq!(b.retire(), None);
    assert_eq!(b.moved(1, 11, true), Ok(()));
    let rest = Next::Rest(Rest {
        memory: &11,
        cookie: 1,
        offset: 0,
        len: 100,
        written: false,
    });
    assert_eq!(b.next(), Some((rest, 0)));
    b.rest_posted(100, true);
    b.rest_gone(1, 100);
    assert!(b.retire().is_some() && b.is_empty());
}

#[test]
fn more_than_there_is_space_for_returns() {
    let mut b = TxBlocks::new();
    for cookie in 0..3 {
        let advert = Advert::unregistered(cookie, 1000, cookie);
        assert!(b.push(advert, 0, 0, BlockUser::Call).is_ok());
    }
    b.pass_over();
    b.rest_posted(1000, false);
    b.pass_over();
    b.rest_posted(300, false);
    assert!(b.is_sending() && b.unposted() == 1700);
    assert!(matches!(
        b.next(),
        Some((Next::Rest(Rest { written: true, .. }), 0))
    ));
    b.recall();
    // nothing is sent before the rest of the block
    assert!(b.next().is_none() && !b.is_open());
    assert_eq!(b.oldest(), Some((call::Awaits::Write, false)));
    b.rest_gone(0, 1000);
    assert_eq!((take(&mut b), take(&mut b)), (Some((0, 1000, false)), None));
    b.rest_gone(1, 300);
    assert_eq!(take(&mut b), Some((1, 300, false)));
    assert_eq!(take_behind(&mut b), Some((2, 0, false)));
    assert!(b.is_empty());
}

#[test]
fn a_writer_waits_until_the_bytes_are_elsewhere_whatever_keeps_them() {
    let mut b = TxBlocks::new();
    let first = b.push(Advert::unregistered(11, 100, 1), 0, 0, BlockUser::Writers);
    let second = b.push(Advert::unregistered(22, 100, 2), 0, 0, BlockUser::None);
    assert_eq!((first, second, b.longest_wait(7)), (Ok(()), Ok(()), None));
    // bytes of the block are posted, but the peer has no buffer for them
    b.pass_over();
    b.rest_posted(50, true);
    assert!(b.want(usize::MAX) && b.want(3));
    assert_eq!((b.longest_wait(4), b.any_to_move()), (Some(5), false));
    b.rest_gone(1, 50);
    // no memory is available for the bytes to move
    assert_eq!(b.take_to_move(), Some((1, 11)));
    assert_eq!((b.take_to_move(), b.moved(1, 33, false)), (None, Ok(())));
    assert_eq!((b.longest_wait(5), b.any_to_move()), (Some(6), false));
    b.retry();
    assert_eq!(b.take_to_move(), Some((1, 33)));
    assert_eq!(b.moved(1, 44, true), Ok(()));
    assert_eq!((b.longest_wait(6), b.want(6)), (None, false));
    assert_eq!(b.moved(1, 44, true), Err(44));
}

#[test]
fn a_moved_message_belongs_to_its_call_until_the_call_returns() {
    let mut b = TxBlocks::new();
    let pushed = b.push(Advert::unregistered(11, 100, 1), 0, 0, BlockUser::Message);
    assert_eq!((pushed, b.has_call()), (Ok(()), true));
    b.recall();
    assert!(b.want(3));
    assert_eq!(b.take_to_move(), Some((1, 11)));
    assert_eq!(b.moved(1, 22, true), Ok(()));
    // the call has not run since
    assert_eq!((b.oldest(), b.has_call()), (None, true));
    b.message_returned();
    assert!(!b.has_call());
}

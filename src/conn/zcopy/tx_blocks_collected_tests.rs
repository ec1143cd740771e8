// SPDX-License-Identifier: GPL-2.0-only

use super::super::{Next, Rest};
use super::*;

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
    // the second one completes before the first
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

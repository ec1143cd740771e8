// SPDX-License-Identifier: GPL-2.0-only

use super::super::super::advert::Advert;
use super::*;

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

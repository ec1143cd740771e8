// SPDX-License-Identifier: GPL-2.0-only

//! Pieces of a call, queued.

use super::*;

fn queue(pieces: &[u32], open: bool) -> TransferQueue<usize> {
    let mut queue = TransferQueue::new();
    for (memory, len) in pieces.iter().enumerate() {
        assert!(queue.push(memory, *len, open).is_ok());
    }
    queue
}

/// Posts up to `bytes` of what is next, and tells of which memory, from where on, and whether these
/// were the last.
fn post(queue: &mut TransferQueue<usize>, bytes: u32) -> (usize, u32, bool) {
    let next = queue.next().unwrap();
    let (memory, offset, len) = (*next.memory, next.offset, next.len);
    (memory, offset, queue.posted(bytes.min(len)))
}

#[test]
fn they_follow_one_another() {
    let mut l = queue(&[100, 50], true);
    assert!(!l.has_room());
    assert!(l.push(9, 1, false).is_err());
    assert_eq!(l.unstarted(), 150);
    assert_eq!(post(&mut l, 60), (0, 0, false));
    assert_eq!(post(&mut l, 60), (0, 60, false));
    // the second one goes before the first has arrived
    assert_eq!(post(&mut l, 60), (1, 0, false));
    assert_eq!(l.next(), None);
    assert!(!l.moved(1, 60));
    assert_eq!(l.progress(), Some(Progress::Moving));
    assert_eq!(l.take(), None);
    assert!(l.moved(1, 40));
    assert_eq!(l.take().map(|m| (m.memory, m.done)), Some((0, 100)));
    assert!(l.push(2, 10, false).is_ok());
    assert_eq!(post(&mut l, 60), (2, 0, true));
    assert!(l.moved(2, 50) && l.moved(3, 10));
    assert_eq!(l.take().map(|m| (m.memory, m.done)), Some((1, 50)));
    assert_eq!(l.take().map(|m| (m.memory, m.done)), Some((2, 10)));
    assert!(l.is_empty() && l.take().is_none() && l.progress().is_none());
}

#[test]
fn the_last_is_known_when_it_is_posted_or_at_the_end() {
    let mut l = queue(&[100], true);
    assert_eq!(post(&mut l, 100), (0, 0, false));
    // who was told that there would be more has to be told
    assert!(l.close());
    assert!(!l.close());
    let mut l = queue(&[100], true);
    post(&mut l, 99);
    assert!(!l.close());
    assert_eq!(post(&mut l, 1), (0, 99, true));
    let mut l = queue(&[100], false);
    assert_eq!(post(&mut l, 100), (0, 0, true));
    assert!(!l.close());
}

/// A call whose transfer waits for room is told when there is nothing to wait for any more. It was
/// not, where everything that had been posted was complete by then: nothing was to come that would
/// have woken it.
#[test]
fn who_waits_for_room_is_told_when_the_peer_takes_its_advert_back() {
    let mut l = queue(&[100, 50], true);
    post(&mut l, 30);
    assert!(!l.moved(1, 30));
    assert_eq!(l.progress(), Some(Progress::Moving));
    assert!(!l.has_to_tell());
    l.cut();
    assert!(l.has_to_tell());
    assert!(!l.has_to_tell());
    // and the second piece is not to go in front of the rest of the first
    assert_eq!(l.next(), None);
    assert_eq!(l.unstarted(), 0);
    assert!(l.close());
    assert_eq!(l.take().map(|m| (m.len, m.done)), Some((30, 30)));
    // nor another one, before the call has seen it
    assert!(l.push(7, 1, false).is_err());
    assert_eq!(l.take().map(|m| (m.len, m.done)), Some((0, 0)));
    assert!(l.push(7, 1, false).is_ok());
    assert_eq!(post(&mut l, 1), (7, 0, true));
}

#[test]
fn what_was_posted_before_the_cut_comes() {
    let mut l = queue(&[100, 50], false);
    post(&mut l, 100);
    post(&mut l, 20);
    l.cut();
    assert_eq!(l.progress(), Some(Progress::Moving));
    assert!(l.moved(1, 100));
    assert_eq!(l.take().map(|m| m.done), Some(100));
    assert_eq!(l.progress(), Some(Progress::Moving));
    assert!(l.moved(2, 20));
    assert_eq!(l.take().map(|m| m.done), Some(20));
}

/// The end of a transfer is of the piece that it was for, though another one be in its place.
#[test]
fn numbers_are_not_used_again() {
    let mut l = queue(&[10], false);
    post(&mut l, 10);
    assert!(l.moved(1, 10));
    l.take();
    assert!(l.push(5, 10, false).is_ok());
    assert!(!l.moved(1, 10));
    assert_eq!(l.progress(), Some(Progress::Moving));
    assert_eq!(l.next().unwrap().number, 2);
}

#[test]
fn the_connection_is_lost() {
    let mut l = queue(&[10, 10], true);
    post(&mut l, 10);
    post(&mut l, 10);
    assert!(l.moved(1, 10));
    l.lost();
    assert_eq!(l.next(), None);
    assert_eq!(l.progress(), Some(Progress::Done));
    l.take();
    assert!(!l.has_room());
    assert_eq!(l.progress(), Some(Progress::Lost));
    assert_eq!(l.take().map(|m| (m.len, m.done)), Some((10, 0)));
    assert!(l.push(1, 1, false).is_ok());
    assert_eq!(l.progress(), Some(Progress::Moving));
}

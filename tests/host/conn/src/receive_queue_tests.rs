// SPDX-License-Identifier: GPL-2.0-only

//! Compares the receive queue with a simple model.

use crate::host::{without_memory, Buffer, Chance, Error};
use crate::receive_queue::ReceiveQueue;
use crate::unread::Urgent;
use std::collections::VecDeque;

/// Returns a message of these bytes, after a header of the given size.
fn message(header: usize, bytes: &[u8], capacity: usize) -> Buffer {
    let mut b = Buffer::new(capacity);
    b.bytes_mut()[header..header + bytes.len()].copy_from_slice(bytes);
    (b.offset, b.len) = (header as u32, bytes.len() as u32);
    b
}

fn queue() -> ReceiveQueue {
    let mut queue = ReceiveQueue::new();
    queue.prepare().unwrap();
    queue
}

fn push(queue: &mut ReceiveQueue, bytes: &[u8], capacity: usize, urgent: bool) {
    assert!(queue.make_space(1));
    assert!(queue.push(message(16, bytes, capacity), urgent).is_ok());
}

/// Reads up to `n` bytes from the first buffer.
fn read(queue: &mut ReceiveQueue, n: usize) -> Vec<u8> {
    let (memory, at) = queue.take(queue.unread.position()).unwrap();
    let n = n.min(at.len());
    let bytes = memory.bytes()[at][..n].to_vec();
    queue.consumed(memory, n);
    bytes
}

#[test]
fn any_order_of_calls() {
    for seed in 0..60 {
        let mut chance = Chance::new(seed);
        let (mut queue, mut stream, mut position) = (queue(), VecDeque::new(), 0);
        let mut mark = None;
        let mut next = 0_u8;
        for _ in 0..300 {
            match chance.below(7) {
                0..=2 => {
                    let capacity = [512, 2048, 8192][chance.below(3)];
                    let most = [3, capacity - 16][chance.below(2)];
                    let n = 1 + chance.below(most);
                    let bytes: Vec<u8> = (0..n)
                        .map(|_| (next, next = next.wrapping_add(1)).0)
                        .collect();
                    let urgent = chance.below(10) == 0;
                    push(&mut queue, &bytes, capacity, urgent);
                    stream.extend(bytes);
                    if urgent {
                        mark = Some(position + stream.len() as u64 - 1);
                    }
                }
                3 | 4 if !stream.is_empty() => {
                    let bytes = read(&mut queue, 1 + chance.below(3000));
                    position += bytes.len() as u64;
                    assert_eq!(bytes, stream.drain(..bytes.len()).collect::<Vec<_>>());
                }
                5 if !stream.is_empty() => {
                    // peeks in the middle: the buffer is taken out meanwhile, and messages arrive
                    let ahead = chance.below(stream.len());
                    let (memory, bytes) = queue.take(position + ahead as u64).unwrap();
                    assert_eq!(memory.bytes()[bytes.start], stream[ahead]);
                    push(&mut queue, &[next], 512, false);
                    stream.push_back(next);
                    next = next.wrapping_add(1);
                    queue.put_back(memory);
                }
                6 => {
                    let n = chance.below(1000);
                    match queue.passed(n) {
                        Ok(()) if n > 0 => {
                            assert!(stream.is_empty());
                            position += n as u64;
                        }
                        Ok(()) => {}
                        Err(e) => assert!(e == Error::Protocol && !stream.is_empty()),
                    }
                }
                _ => {}
            }
            mark = mark.filter(|&at| at >= position);
            assert_eq!(
                (queue.unread.bytes(), queue.unread.position()),
                (stream.len(), position)
            );
            assert_eq!(queue.memory() == 0, stream.is_empty());
            assert!(queue.take(position + stream.len() as u64).is_none());
            assert_eq!(queue.unread.at_mark(), mark == Some(position));
            assert_eq!(queue.unread.readable(true), stream.len());
            let to_mark = mark.map_or(stream.len(), |at| (at - position) as usize);
            assert_eq!(queue.unread.readable(false), to_mark.min(stream.len()));
        }
    }
}

#[test]
fn a_reader_that_keeps_up_gets_each_message_where_it_came() {
    let mut queue = queue();
    for n in 0..10 {
        assert!(queue
            .push(message(16, &[n], 2048), false)
            .is_ok_and(|spare| spare.is_none()));
        assert_eq!(read(&mut queue, 1), [n]);
    }
}

#[test]
fn many_small_messages_do_not_take_a_buffer_each() {
    let mut queue = queue();
    for _ in 0..10_000 {
        push(&mut queue, b"ab", 2048, false);
    }
    assert!(
        queue.memory() <= 12 * 2048,
        "{} bytes of memory",
        queue.memory()
    );
    let mut n = 0;
    while queue.unread.bytes() > 0 {
        n += read(&mut queue, usize::MAX).len();
    }
    assert_eq!((n, queue.memory()), (20_000, 0));
}

#[test]
fn the_urgent_byte() {
    let mut queue = queue();
    queue.unread.urgent = Urgent::Pending;
    assert!(!queue.unread.at_mark());
    push(&mut queue, b"abc", 512, true);
    assert!(queue.unread.urgent == Urgent::Valid(b'c', 2));
    assert_eq!(
        (queue.unread.readable(false), queue.unread.readable(true)),
        (2, 3)
    );
    assert_eq!(read(&mut queue, 2), b"ab");
    assert!(queue.unread.at_mark());
    // the buffer is empty after the urgent byte
    assert!(queue.skip_mark().is_some());
    assert!(queue.unread.urgent == Urgent::None && (queue.unread.bytes() == 0));
    // a later urgent byte replaces an unread urgent byte
    push(&mut queue, b"x", 512, true);
    push(&mut queue, b"y", 512, true);
    assert!(queue.unread.urgent == Urgent::Valid(b'y', 4) && !queue.unread.at_mark());
    assert!(queue.skip_mark().is_none());
}

#[test]
fn a_look_survives_the_end_of_what_was_before() {
    let mut queue = queue();
    push(&mut queue, b"a", 512, true);
    push(&mut queue, b"bc", 512, false);
    let (second, _) = queue.take(1).unwrap();
    assert!(queue.skip_mark().is_some());
    queue.put_back(second);
    assert_eq!(read(&mut queue, 9), b"bc");
}

#[test]
fn room_ends_with_memory_and_with_the_limit() {
    let mut queue = queue();
    for n in 0..32_u8 {
        // each message is too large to be merged
        push(&mut queue, &[n; 400], 512, false);
    }
    assert!(!without_memory(|| queue.make_space(1)));
    assert!(queue.push(message(0, &[0; 400], 512), false).is_err());
    assert_eq!(queue.unread.bytes(), 32 * 400);
    while queue.make_space(1) {
        push(&mut queue, &[0; 400], 512, false);
    }
    assert_eq!((queue.most_more(), queue.memory()), (0, 4096 * 512));
    queue.clear();
    assert_eq!(
        (queue.unread.bytes(), queue.memory(), queue.most_more()),
        (0, 0, 4096)
    );
}

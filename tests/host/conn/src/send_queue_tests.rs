// SPDX-License-Identifier: GPL-2.0-only

//! Compares the send queue with a simple model.

use crate::host::{pressure, without_memory, Buffer, Chance};
use crate::send_queue::{SendQueue, LARGE_CHUNK, MIDDLE_CHUNK, SMALL_CHUNK};

/// The send queue, and the bytes that it should contain.
struct Both {
    queue: SendQueue,
    /// All bytes that were ever accepted.
    stream: Vec<u8>,
    sent: usize,
    done: usize,
    urgent: Option<usize>,
    sges: usize,
}

impl Both {
    fn new(sges: u8) -> Self {
        let mut queue = SendQueue::new();
        queue.prepare(sges).unwrap();
        Both {
            queue,
            stream: Vec::new(),
            sent: 0,
            done: 0,
            urgent: None,
            sges: usize::from(sges).min(2),
        }
    }

    /// Accepts up to `n` bytes into chunks of `size`; returns the number of bytes.
    fn write(&mut self, n: usize, size: usize) -> usize {
        let before = self.stream.len();
        while self.stream.len() < before + n && self.queue.has_space() {
            let chunk = self.queue.open(size);
            let mut chunk = match chunk {
                Some(chunk) => chunk,
                None => self.queue.open_new(Buffer::new(size)).unwrap(),
            };
            let left = before + n - self.stream.len();
            let room = chunk.room();
            let m = left.min(room.len());
            for byte in &mut room[..m] {
                *byte = (self.stream.len() * 7 % 251) as u8;
                self.stream.push(*byte);
            }
            self.queue.close(chunk, m);
        }
        self.look();
        self.stream.len() - before
    }

    /// Sends a message of up to `most` bytes; returns its size.
    fn send(&mut self, most: usize) -> usize {
        let n = self.queue.contiguous().min(most);
        let sges = self.queue.sges(n);
        assert!(sges.iter().flatten().count() <= self.sges);
        let mut bytes = Vec::new();
        for sge in sges.into_iter().flatten() {
            bytes.extend_from_slice(&sge.buffer.bytes()[sge.offset as usize..][..sge.len as usize]);
        }
        assert_eq!(bytes, self.stream[self.sent..self.sent + n]);
        let urgent = self.urgent.is_some_and(|at| at <= self.sent + n);
        if urgent {
            self.urgent = None;
        }
        self.queue.advance(n, urgent);
        self.sent += n;
        self.look();
        n
    }

    fn complete(&mut self, to: usize) {
        self.queue.complete(to as u64);
        self.done = self.done.max(to.min(self.sent));
        self.look();
    }

    fn look(&self) {
        let q = &self.queue;
        assert_eq!(q.end(), self.stream.len() as u64);
        assert_eq!(q.sent(), self.sent as u64);
        assert_eq!(q.queued(), self.stream.len() - self.done);
        assert_eq!(q.unsent(), self.stream.len() - self.sent);
        assert_eq!(q.contiguous() == 0, q.unsent() == 0);
        assert_eq!(q.urgent(), self.urgent.map(|at| (at - self.sent) as u32));
    }
}

#[test]
fn any_order_of_calls() {
    for seed in 0..40 {
        let mut chance = Chance::new(seed);
        let mut both = Both::new(1 + chance.below(4) as u8);
        for _ in 0..300 {
            match chance.below(5) {
                0 | 1 => {
                    let size = [SMALL_CHUNK, MIDDLE_CHUNK, LARGE_CHUNK][chance.below(3)];
                    let wrote = both.write(1 + chance.below(3 * size), size);
                    if wrote > 0 && chance.below(8) == 0 {
                        both.queue.mark_urgent();
                        both.urgent = Some(both.stream.len());
                    }
                }
                2 | 3 => drop(both.send(1 + chance.below(100_000))),
                // completes late, early, or bytes that were not sent
                _ => both.complete(chance.below(both.stream.len() + 2)),
            }
        }
        while both.send(usize::MAX) > 0 {}
        both.complete(both.sent);
        assert_eq!(both.queue.queued(), 0);
    }
}

#[test]
fn small_sends_share_a_chunk() {
    let mut both = Both::new(2);
    for _ in 0..SMALL_CHUNK / 2 {
        both.write(2, SMALL_CHUNK);
    }
    assert_eq!(both.send(usize::MAX), SMALL_CHUNK);
}

#[test]
fn a_message_has_as_many_pieces_as_the_device_can() {
    for (sges, most) in [(1, 1), (2, 2), (9, 2)] {
        let mut both = Both::new(sges);
        both.write(4 * SMALL_CHUNK, SMALL_CHUNK);
        assert_eq!(both.queue.contiguous(), most * SMALL_CHUNK);
        // messages also begin in the middle of a chunk
        both.send(100);
        assert_eq!(both.queue.contiguous(), most * SMALL_CHUNK - 100);
    }
}

#[test]
fn what_a_call_does_not_fill_is_not_sent() {
    let mut queue = SendQueue::new();
    queue.prepare(1).unwrap();
    let chunk = queue.open_new(Buffer::new(SMALL_CHUNK)).unwrap();
    queue.close(chunk, 6);
    assert_eq!((queue.unsent(), queue.end()), (6, 6));
    let mut chunk = queue.open(SMALL_CHUNK).unwrap();
    assert_eq!(chunk.room().len(), SMALL_CHUNK - 6);
    queue.close(chunk, 0);
    assert_eq!((queue.unsent(), queue.end(), queue.contiguous()), (6, 6, 6));
}

#[test]
fn an_unfilled_chunk_is_kept_for_the_next_call() {
    let mut queue = SendQueue::new();
    queue.prepare(1).unwrap();
    for _ in 0..3 {
        let chunk = queue.open(SMALL_CHUNK);
        let chunk = chunk.or_else(|| queue.open_new(Buffer::new(SMALL_CHUNK)));
        queue.close(chunk.unwrap(), 0);
        assert_eq!((queue.queued(), queue.contiguous()), (0, 0));
    }
    assert!(queue.open(SMALL_CHUNK).is_some());
}

#[test]
fn nothing_of_an_open_chunk_goes() {
    let mut both = Both::new(2);
    both.write(SMALL_CHUNK + 10, SMALL_CHUNK);
    let chunk = both.queue.open(SMALL_CHUNK).unwrap();
    assert_eq!(both.queue.contiguous(), SMALL_CHUNK);
    assert!(both.queue.sges(SMALL_CHUNK)[1].is_none());
    both.queue.advance(SMALL_CHUNK, false);
    both.queue.complete(SMALL_CHUNK as u64);
    assert_eq!((both.queue.contiguous(), both.queue.unsent()), (0, 10));
    both.queue.close(chunk, 0);
    (both.sent, both.done) = (SMALL_CHUNK, SMALL_CHUNK);
    assert_eq!(both.send(usize::MAX), 10);
    // everything in the chunk arrives
    let chunk = both.queue.open(SMALL_CHUNK).unwrap();
    both.complete(SMALL_CHUNK + 10);
    both.queue.close(chunk, 0);
    both.write(SMALL_CHUNK, SMALL_CHUNK);
    while both.send(usize::MAX) > 0 {}
}

#[test]
fn a_chunk_may_outlive_the_connection() {
    let mut both = Both::new(2);
    both.write(10, SMALL_CHUNK);
    let chunk = both.queue.open(SMALL_CHUNK).unwrap();
    both.queue.clear();
    both.queue.close(chunk, 10);
    assert_eq!((both.queue.queued(), both.queue.contiguous()), (0, 0));
}

#[test]
fn chunks_are_bounded_and_used_again() {
    let mut both = Both::new(2);
    let all = both.write(usize::MAX / 2, SMALL_CHUNK);
    assert_eq!(all, 64 * SMALL_CHUNK);
    assert!(!both.queue.has_space());
    while both.send(usize::MAX) > 0 {}
    both.complete(all);
    assert!(both.queue.has_space());
    // a kept chunk is used for sends of its size, not for larger ones
    assert!(both.queue.open(MIDDLE_CHUNK).is_none());
    let mut spare = 0;
    while let Some(chunk) = both.queue.open(SMALL_CHUNK) {
        both.queue.close(chunk, SMALL_CHUNK);
        spare += 1;
    }
    assert_eq!(spare, 16);
}

#[test]
fn small_messages_in_flight() {
    let mut both = Both::new(2);
    both.write(10, SMALL_CHUNK);
    both.send(10);
    assert!(!both.queue.small_in_flight());
    both.queue.was_small();
    assert!(both.queue.small_in_flight());
    both.complete(9);
    assert!(both.queue.small_in_flight());
    both.complete(10);
    assert!(!both.queue.small_in_flight());
}

#[test]
fn cleared_it_is_as_new() {
    let mut both = Both::new(2);
    both.write(3000, SMALL_CHUNK);
    both.send(1000);
    both.queue.mark_urgent();
    both.queue.clear();
    assert_eq!(
        (
            both.queue.end(),
            both.queue.sent(),
            both.queue.queued(),
            both.queue.urgent()
        ),
        (0, 0, 0, None)
    );
    assert!(both.queue.open(1).is_none(), "memory was kept");
}

#[test]
fn nothing_is_kept_when_all_have_what_they_may() {
    let mut both = Both::new(2);
    assert!(both.queue.needs_little());
    let n = both.write(2 * SMALL_CHUNK, SMALL_CHUNK);
    assert!(!both.queue.needs_little(), "both chunks are full");
    both.send(n);
    pressure::EXHAUSTED.set(true);
    both.complete(SMALL_CHUNK);
    assert!(both.queue.open(SMALL_CHUNK).is_none(), "a chunk was kept");
    pressure::EXHAUSTED.set(false);
    both.complete(n);
    both.write(1, SMALL_CHUNK);
    assert!(both.queue.needs_little(), "the last chunk has room");
    both.send(1);
    both.complete(n + 1);
    both.queue.shed();
    assert!(both.queue.open(1).is_none());
}

#[test]
fn without_memory_there_is_no_queue() {
    let mut queue = SendQueue::new();
    assert!(without_memory(|| queue.prepare(2)).is_err());
    assert!(!queue.has_space());
}

#[test]
fn without_memory_for_more_chunks_there_is_room_when_some_have_arrived() {
    let mut both = Both::new(1);
    without_memory(|| both.write(10 * SMALL_CHUNK, SMALL_CHUNK));
    let n = both.stream.len();
    assert!(n > 0 && !both.queue.has_space());
    let first = both.send(SMALL_CHUNK);
    both.complete(first);
    assert_eq!(both.write(10 * SMALL_CHUNK, SMALL_CHUNK), 10 * SMALL_CHUNK);
    while both.send(SMALL_CHUNK) > 0 {}
    both.complete(both.sent);
    assert_eq!(both.queue.queued(), 0);
}

/// Bytes of several chunks are sent together, or removed together.
#[test]
fn held_bytes_are_whole_or_gone() {
    for sges in 1..=2 {
        let mut both = Both::new(sges);
        both.write(100, SMALL_CHUNK);
        for (chunks, goes_on) in [(1, false), (3, false), (3, true), (5, false), (2, true)] {
            let (before, unsent) = (both.queue.end(), both.queue.unsent());
            for n in 0..chunks {
                let chunk = both.queue.open(SMALL_CHUNK);
                let mut chunk =
                    chunk.unwrap_or_else(|| both.queue.open_new(Buffer::new(SMALL_CHUNK)).unwrap());
                let room = chunk.room();
                let len = room.len();
                if goes_on {
                    for byte in room {
                        *byte = (both.stream.len() * 7 % 251) as u8;
                        both.stream.push(*byte);
                    }
                }
                if goes_on && n + 1 == chunks {
                    both.queue.close(chunk, len);
                } else {
                    both.queue.hold(chunk, len);
                    assert_eq!((both.queue.end(), both.queue.unsent()), (before, unsent));
                }
            }
            if !goes_on {
                both.queue.rewind();
            }
            assert_eq!(both.queue.end() as usize, both.stream.len());
            both.write(10, SMALL_CHUNK);
            while both.send(1500) > 0 {}
            let done = both.stream.len();
            both.complete(done);
        }
    }
}

/// Chunks of a held message may exceed the maximum. No other message begins until they are sent.
#[test]
fn held_bytes_leave_no_space_for_a_second_message() {
    let mut both = Both::new(2);
    assert_eq!(both.write(63 * SMALL_CHUNK, SMALL_CHUNK), 63 * SMALL_CHUNK);
    for _ in 0..33 {
        assert!(both.queue.open(SMALL_CHUNK).is_none());
        let chunk = both.queue.open_new(Buffer::new(SMALL_CHUNK)).unwrap();
        both.queue.hold(chunk, SMALL_CHUNK);
    }
    assert!(
        !both.queue.has_space(),
        "one more such message would not fit"
    );
    both.queue.rewind();
    assert!(both.queue.has_space());
}

// SPDX-License-Identifier: GPL-2.0-only

//! Bytes in order, with a call that is played: its memory, its blocks, and a receive queue.

use super::super::adverts::Block;
use super::super::lending::Lent;
use super::super::places::Places;
use super::super::random_tests::Random;
use super::*;
use std::collections::VecDeque;

const SIZE: usize = 40;

/// The byte at a position of the stream.
fn byte(at: u64) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

struct Call {
    memory: Vec<u8>,
    /// So many bytes of it are in order.
    filled: usize,
    /// Messages that were received, without what was read of them.
    queue: VecDeque<Vec<u8>>,
    gaps: Gaps,
    read: u64,
    end: u64,
    /// Bytes that were moved.
    moved: usize,
}

impl Call {
    fn new() -> Self {
        Call {
            memory: vec![0; SIZE * MOST_PLACES],
            filled: 0,
            queue: VecDeque::new(),
            gaps: Gaps::new(),
            read: 0,
            end: 0,
            moved: 0,
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let start = self.end;
        self.end += len as u64;
        (start..self.end).map(byte).collect()
    }

    fn message(&mut self, len: usize) {
        let bytes = self.bytes(len);
        self.queue.push_back(bytes);
    }

    /// Bytes that can be read by anybody.
    fn readable(&self) -> u64 {
        self.gaps.first().unwrap_or(self.end) - self.read
    }

    /// As [`ReceiveQueue::passed`] does it.
    fn passed(&mut self, len: u64) {
        if self.read == self.end {
            self.read += len;
        } else if len > 0 {
            assert!(self.gaps.add(Gap { at: self.end, len }));
        }
    }
}

impl Room for Call {
    type Error = &'static str;

    fn position(&mut self) -> u64 {
        self.read
    }

    fn copy(&mut self) -> Result<usize, Self::Error> {
        assert!(self.readable() > 0);
        let message = self.queue.pop_front().ok_or("nothing in the queue")?;
        let to = self.memory.get_mut(self.filled..).ok_or("no room")?;
        to.get_mut(..message.len())
            .ok_or("no room")?
            .copy_from_slice(&message);
        self.filled += message.len();
        self.read += message.len() as u64;
        Ok(message.len())
    }

    fn close_gap(&mut self) {
        self.read += self.gaps.close(self.read).unwrap_or(0);
    }

    fn follow(&mut self, hole: usize, len: usize) -> Result<(), Self::Error> {
        let from = self.filled + hole;
        self.memory.copy_within(from..from + len, self.filled);
        self.filled += len;
        self.moved += if hole > 0 { len } else { 0 };
        Ok(())
    }

    fn inconsistent() -> Self::Error {
        "inconsistent"
    }
}

/// Whatever the peer does with the blocks, and sends in between, the call has the bytes in their
/// order.
#[test]
fn whatever_the_peer_does() {
    let mut seen = [0; 3];
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let mut call = Call::new();
        let mut places = Places::new();
        let blocks = 1 + random.below(MOST_PLACES as u64);
        for cookie in 0..blocks {
            let block = Block {
                size: SIZE as u32,
                r_key: 0,
                address: 0,
            };
            assert!(places.push(Lent::new((), block, cookie)));
            assert!(places.advertise());
        }
        for number in 0..blocks as usize {
            let full = random.below(3) > 0;
            let len = if full {
                SIZE as u64
            } else {
                random.below(SIZE as u64 + 1)
            };
            if random.below(3) > 0 {
                let at = call.end;
                let bytes = call.bytes(len as usize);
                let start = number * SIZE;
                call.memory[start..start + bytes.len()].copy_from_slice(&bytes);
                // counted as the connection does it
                call.end = at;
                assert_eq!(places.written(len as u32, at), Some(len as u32));
                call.passed(len);
                call.end = at + len;
            } else if len > 0 {
                // a message voids the oldest one, and has room there
                assert_eq!(places.written(0, call.end), Some(0));
                call.message(len as usize);
                seen[0] += 1;
            } else {
                assert!(places.void());
                break;
            }
        }
        // another reader may take what can be read
        let from = call.read;
        if random.below(4) == 0 && call.gaps.first().is_some() {
            let taken = call.queue.pop_front().unwrap();
            call.read += taken.len() as u64;
            seen[1] += 1;
        }
        let taken = from..call.read;
        let mut rests = vec![];
        let mut place = 0;
        places.iter_mut().for_each(|b| b.ending());
        for cookie in 0..blocks {
            assert!(places.ended(cookie));
            let back = places.take().unwrap();
            rests.push(Rest {
                place,
                len: back.done,
                at: back.at,
            });
            place += SIZE;
        }
        settle(rests.iter().copied(), &mut call).unwrap();
        assert_eq!(call.gaps.first(), None);
        // the rest is given as ever
        while call.readable() > 0 {
            call.copy().unwrap();
        }
        assert_eq!(call.read, call.end);
        let own = (0..call.end).filter(|at| !taken.contains(at));
        let own: Vec<u8> = own.map(byte).collect();
        assert_eq!(call.memory[..call.filled], own, "seed {seed}");
        seen[2] += usize::from(call.moved > 0);
    }
    assert!(seen.iter().all(|n| *n > 100), "{seen:?}");
}

#[test]
fn what_cannot_be_is_told() {
    let rest = |place, len, at| [Rest { place, len, at }].into_iter();
    // nothing in the queue of what should come before
    let mut call = Call::new();
    call.end = 5;
    assert!(settle(rest(0, 1, 5), &mut call).is_err());
    // more in the queue than there was room for
    let mut call = Call::new();
    call.message(10);
    call.passed(1);
    assert_eq!(settle(rest(9, 1, 10), &mut call), Err("inconsistent"));
}

#[test]
fn gaps_are_closed_in_order() {
    let mut gaps = Gaps::new();
    for at in [10, 20, 30, 40] {
        assert!(gaps.add(Gap { at, len: 5 }));
    }
    assert!(!gaps.add(Gap { at: 50, len: 5 }));
    assert_eq!((gaps.first(), gaps.close(9)), (Some(10), None));
    assert_eq!((gaps.close(10), gaps.first()), (Some(5), Some(20)));
    assert!(gaps.add(Gap { at: 50, len: 6 }));
    gaps.clear();
    assert_eq!(gaps.first(), None);
}

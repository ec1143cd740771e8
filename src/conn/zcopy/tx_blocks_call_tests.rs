// SPDX-License-Identifier: GPL-2.0-only

//! Blocks of a waiting call.

use super::super::tests::{blocks, invalidate, take, take_behind, unregistered, Numbers};
use super::super::{Advert, Block, Next};
use super::*;

/// Returns cookie and offset of the next rest.
fn rest(b: &TxBlocks<u64>) -> Option<(u64, u32)> {
    match b.next()?.0 {
        Next::Rest { cookie, offset, .. } => Some((cookie, offset)),
        _ => None,
    }
}

/// Returns unregistered blocks of a call.
fn new(count: u64) -> TxBlocks<u64> {
    let mut b = TxBlocks::new();
    for cookie in 0..count {
        assert!(b.push(unregistered(cookie), 0, 0, false).is_ok());
    }
    b
}

#[test]
fn they_are_written_one_after_the_other() {
    let mut b = new(2);
    assert_eq!(b.unposted(), 2000);
    b.pass_over();
    assert_eq!((rest(&b), b.unposted()), (Some((0, 0)), 2000));
    assert!(!b.rest_posted(600, false) && b.is_sending() && b.is_open());
    assert!(b.rest_posted(400, false));
    assert_eq!(b.oldest(), Some((Awaits::Write, false)));
    // the second one is sent before the first has arrived
    b.pass_over();
    assert_eq!(rest(&b), Some((1, 0)));
    assert!(b.rest_posted(1000, false));
    assert_eq!((b.next(), b.unposted()), (None, 0));
    assert_eq!(take(&mut b), None);
    b.rest_gone(0, 1000);
    assert_eq!(take(&mut b), Some((0, 1000, false)));
    b.rest_gone(1, 1000);
    assert_eq!(b.oldest(), Some((Awaits::Nothing { lost: false }, false)));
    assert_eq!(take(&mut b), Some((1, 1000, false)));
    assert!(b.is_empty());
}

#[test]
fn a_refused_one_goes_in_messages() {
    let mut b = blocks(2, 2);
    assert_eq!(b.returned(300), Some(300));
    invalidate(&mut b);
    // another block after it would have to wait
    assert!(rest(&b) == Some((0, 300)) && !b.is_open());
    assert!(b.rest_posted(700, true));
    b.rest_gone(0, 700);
    assert_eq!(take(&mut b), Some((0, 1000, true)));
    assert_eq!(rest(&b), Some((1, 0)));
}

#[test]
fn more_than_there_is_space_for_returns() {
    let mut b = new(3);
    b.pass_over();
    b.rest_posted(1000, false);
    b.pass_over();
    b.rest_posted(300, false);
    assert!(matches!(
        b.next(),
        Some((Next::Rest { written: true, .. }, 0))
    ));
    b.recall();
    // nothing is sent before the rest
    assert!(b.next().is_none() && !b.is_open());
    assert_eq!(b.oldest(), Some((Awaits::Write, false)));
    b.rest_gone(0, 1000);
    assert_eq!((take(&mut b), take(&mut b)), (Some((0, 1000, false)), None));
    b.rest_gone(1, 300);
    assert_eq!(take(&mut b), Some((1, 300, false)));
    assert_eq!(take_behind(&mut b), Some((2, 0, false)));
    assert!(b.is_empty());
}

#[test]
fn adverts_that_meet_a_waiting_reader_are_written() {
    let mut b = blocks(3, 2);
    assert!(b.read(1000, true));
    assert_eq!(b.returned(0), Some(0));
    assert_eq!(b.next(), Some((Next::Ending(1000), 1000)));
    invalidate(&mut b);
    assert_eq!(take(&mut b), Some((0, 1000, false)));
    for cookie in 1..3 {
        // the last block is registered, and can no longer be advertised
        b.pass_over();
        invalidate(&mut b);
        assert_eq!(rest(&b), Some((cookie, 0)));
        assert!(b.rest_posted(1000, false));
        b.rest_gone(cookie, 1000);
        assert_eq!(take(&mut b), Some((cookie, 1000, false)));
    }
}

#[test]
fn a_call_that_gives_up_gets_the_rest() {
    let mut b = new(2);
    b.pass_over();
    b.rest_posted(400, false);
    b.recall();
    b.rest_gone(0, 400);
    assert_eq!(take(&mut b), Some((0, 400, false)));
    assert_eq!(take_behind(&mut b), Some((1, 0, false)));
    // all of it is posted, which counts as sent
    let mut b = new(1);
    b.pass_over();
    b.rest_posted(1000, false);
    b.recall();
    assert_eq!((take(&mut b), b.next()), (None, None));
    b.rest_gone(0, 1000);
    assert_eq!(take(&mut b), Some((0, 1000, false)));
}

#[test]
fn the_connection_is_lost_during_a_write() {
    let mut b = new(2);
    b.pass_over();
    b.rest_posted(400, false);
    b.rest_gone(0, 100);
    b.lost();
    assert_eq!(b.oldest(), Some((Awaits::Nothing { lost: true }, false)));
    assert_eq!(take(&mut b).map(|t| t.1), Some(100));
    assert_eq!(take_behind(&mut b).map(|t| t.1), Some(0));
    assert!(b.is_empty() && b.next().is_none());
}

/// Model of a call, a peer that reads, refuses and advertises memory at random, and a transport
/// with late completions.
struct Model {
    blocks: TxBlocks<u64>,
    rng: Numbers,
    /// Numbers of bytes that were added, and that have arrived.
    given: u64,
    arrived: u64,
    /// Stream position of each block.
    starts: Vec<u64>,
    /// Adverts that the peer holds: cookie, size, bytes read.
    held: Vec<(u64, u32, u32)>,
    /// Space that the peer has advertised.
    space: u32,
    /// WRITEs and messages in flight: cookie, bytes.
    under_way: Vec<(u64, u32)>,
    /// Numbers of blocks taken out, and of their unsent bytes.
    taken: u64,
    left: u64,
}

impl Model {
    fn add(&mut self) {
        let (cookie, size) = (self.starts.len() as u64, 1 + self.rng.below(5) as u32);
        let advert = Advert::unregistered(cookie, size, cookie);
        assert!(self.blocks.push(advert, 0, 0, false).is_ok());
        self.starts.push(self.given);
        self.given += u64::from(size);
    }

    fn sends(&mut self) {
        match self.blocks.next().map(|n| n.0) {
            Some(Next::New { .. } | Next::Advert(_)) if self.space > 0 => self.blocks.pass_over(),
            Some(Next::New { .. }) if self.held.is_empty() && self.rng.below(6) == 0 => {
                self.blocks.pass_over()
            }
            Some(Next::New { memory, size }) if self.held.len() < 3 => {
                let (r_key, address) = (*memory as u32, 0);
                self.blocks.registered(Block {
                    size,
                    r_key,
                    address,
                });
            }
            Some(Next::Advert(block)) if self.held.len() < 3 => {
                self.blocks.posted(0);
                self.held.push((block.r_key.into(), block.size, 0));
            }
            Some(Next::Rest { written: true, .. }) if self.space == 0 => self.blocks.recall(),
            Some(Next::Rest {
                cookie,
                offset,
                len,
                ..
            }) => {
                assert!(self.held.is_empty());
                let at = self.starts[cookie as usize] + u64::from(offset);
                assert_eq!(at, self.arrived);
                let message = self.space == 0;
                let space = if message { len } else { self.space };
                let n = len.min(space).min(1 + self.rng.below(4) as u32);
                self.blocks.rest_posted(n, message);
                self.under_way.push((cookie, n));
                self.space -= if message { 0 } else { n };
                self.arrived += u64::from(n);
            }
            _ => {}
        }
    }

    fn peer_reads(&mut self) {
        let Some((cookie, size, read)) = self.held.first_mut() else {
            return;
        };
        let n = 1 + self.rng.below(u64::from(*size - *read)) as u32;
        assert_eq!(
            self.starts[*cookie as usize] + u64::from(*read),
            self.arrived
        );
        self.arrived += u64::from(n);
        *read += n;
        let finished = read == size;
        assert!(self.blocks.read(n, finished));
        if finished {
            self.held.remove(0);
        }
    }

    /// The peer returns its adverts: by a refusal, or by a sink advert that crosses them.
    fn peer_returns(&mut self, for_space: bool) {
        let read = self.held.first().map_or(0, |h| h.2);
        if for_space && read > 0 {
            return;
        }
        if for_space {
            self.space = 1 + self.rng.below(12) as u32;
        }
        if !self.held.is_empty() || for_space {
            self.blocks.returned(read);
            self.held.clear();
        }
    }

    fn takes(&mut self) {
        while let Some(block) = self.blocks.take(self.left == 0) {
            assert_eq!(block.memory, self.taken);
            self.taken += 1;
            self.left += u64::from(block.size - block.done);
        }
        if !self.blocks.has_call() {
            // the rest is copied
            assert!(self.held.is_empty() && self.under_way.is_empty());
            assert_eq!(self.arrived + self.left, self.given);
            self.arrived += core::mem::take(&mut self.left);
        }
    }

    fn step(&mut self, adds: bool) {
        match self.rng.below(12) {
            0 | 1 if adds && self.left == 0 && self.blocks.is_open() => self.add(),
            2 => self.peer_reads(),
            3 if self.rng.below(3) == 0 => self.peer_returns(false),
            4 if self.rng.below(2) == 0 => self.peer_returns(true),
            5 if self.rng.below(3) == 0 => self.space = 0,
            6 => invalidate(&mut self.blocks),
            7 if !self.under_way.is_empty() => {
                let (cookie, n) = self.under_way.remove(0);
                self.blocks.rest_gone(cookie, n);
            }
            8 => self.takes(),
            9 if self.rng.below(6) == 0 => self.blocks.recall(),
            _ => self.sends(),
        }
    }
}

#[test]
fn a_call_is_in_order_whatever_the_peer_does() {
    for seed in 0..2000 {
        let mut model = Model {
            blocks: TxBlocks::new(),
            rng: Numbers(seed),
            given: 0,
            arrived: 0,
            starts: Vec::new(),
            held: Vec::new(),
            space: 0,
            under_way: Vec::new(),
            taken: 0,
            left: 0,
        };
        (0..300).for_each(|_| model.step(true));
        (0..1500).for_each(|_| model.step(false));
        assert_eq!(model.arrived, model.given, "seed {seed}");
        assert!(model.blocks.is_empty(), "seed {seed}");
        assert_eq!(model.taken, model.starts.len() as u64, "seed {seed}");
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Model of a call, or of detached blocks and copied bytes between them, with a peer that reads,
//! refuses and advertises memory at random, and a transport with late completions.

use super::tests::invalidate;
use super::*;

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// Maximum number of adverts that the peer of the model holds.
const MOST_ADVERTS: usize = 3;

struct Model {
    blocks: TxBlocks<u64>,
    rng: Numbers,
    /// True if no call waits for the blocks.
    detached: bool,
    /// Numbers of bytes added, copied, sent as copies, and arrived.
    given: u64,
    copied: u64,
    copied_sent: u64,
    arrived: u64,
    /// Stream positions of each block and of each copied byte.
    starts: Vec<u64>,
    /// Number of bytes of each block that were sent in messages.
    in_messages: Vec<u32>,
    copies: Vec<u64>,
    /// Cookie, size and number of read bytes of each advert that the peer holds.
    held: Vec<(u64, u32, u32)>,
    /// Number of bytes of space that the peer has advertised.
    space: u32,
    /// Cookie and number of bytes of each WRITE or message in flight.
    under_way: Vec<(u64, u32)>,
    /// Blocks whose bytes are being moved, with their memory.
    away: Vec<(u64, u64)>,
    /// Position before which a thread waits to write to blocks.
    wanted: u64,
    /// Number of blocks taken out, and number of their unsent bytes.
    taken: u64,
    left: u64,
}

impl Model {
    fn new(seed: u64, detached: bool) -> Self {
        Model {
            blocks: TxBlocks::new(),
            rng: Numbers(seed),
            detached,
            given: 0,
            copied: 0,
            copied_sent: 0,
            arrived: 0,
            starts: Vec::new(),
            in_messages: Vec::new(),
            copies: Vec::new(),
            held: Vec::new(),
            space: 0,
            under_way: Vec::new(),
            away: Vec::new(),
            wanted: 0,
            taken: 0,
            left: 0,
        }
    }

    fn give_block(&mut self) {
        let size = 1 + self.rng.below(5) as u32;
        let cookie = self.starts.len() as u64;
        let mut advert = Advert::unregistered(cookie, size, cookie);
        if self.detached && self.rng.below(5) == 0 {
            advert.finish();
        }
        let user = match self.detached {
            false => BlockUser::Call,
            true if self.rng.below(2) == 0 => BlockUser::Writers,
            true => BlockUser::None,
        };
        assert!(self.blocks.push(advert, 0, self.copied, user).is_ok());
        self.starts.push(self.given);
        self.in_messages.push(0);
        self.given += u64::from(size);
    }

    fn give_byte(&mut self) {
        self.copies.push(self.given);
        self.copied += 1;
        self.given += 1;
    }

    fn peer_reads(&mut self) {
        let Some((cookie, size, read)) = self.held.first_mut() else {
            return;
        };
        let n = 1 + self.rng.below(u64::from(*size - *read)) as u32;
        let at = self.starts[*cookie as usize] + u64::from(*read);
        assert_eq!(at, self.arrived);
        self.arrived += u64::from(n);
        *read += n;
        let finished = read == size;
        assert!(self.blocks.read(n, finished));
        if finished {
            self.held.remove(0);
        }
    }

    /// Lets the peer return its adverts, by a refusal or by a sink advert that crosses the adverts.
    fn peer_returns(&mut self, for_space: bool) {
        let read = self.held.first().map_or(0, |h| h.2);
        if for_space && read > 0 {
            return;
        }
        if for_space {
            self.space = 1 + self.rng.below(12) as u32;
        }
        let new = self.blocks.returned(read);
        assert_eq!(new, (!self.held.is_empty()).then_some(0));
        self.held.clear();
    }

    fn completes(&mut self) {
        if !self.under_way.is_empty() {
            let (cookie, n) = self.under_way.remove(0);
            self.blocks.rest_gone(cookie, n);
        }
    }

    /// Lets a thread wait to write to blocks. Unused bytes are moved, which completes later.
    fn moves(&mut self, more: bool) {
        if more && self.rng.below(2) == 0 {
            if self.rng.below(4) == 0 {
                self.blocks.want(0);
                self.wanted = self.starts.len() as u64;
            }
            if let Some((cookie, memory)) = self.blocks.take_to_move() {
                let held = self.held.iter().any(|h| h.0 == cookie);
                assert!(!held && !self.under_way.iter().any(|u| u.0 == cookie));
                assert!(cookie < self.wanted, "nobody waits for it");
                self.away.push((cookie, memory));
            }
        } else if !self.away.is_empty() {
            let (cookie, memory) = self.away.remove(0);
            assert!(self.blocks.moved(cookie, memory, true).is_ok());
        }
    }

    fn retires(&mut self) {
        while let Some(r) = self.blocks.retire() {
            assert_eq!(r.memory, self.taken);
            assert_eq!(r.in_messages, self.in_messages[self.taken as usize]);
            self.taken += 1;
        }
    }

    fn call_takes(&mut self) {
        while let Some(block) = self.blocks.take(self.left == 0) {
            assert_eq!(block.memory, self.taken);
            let in_messages = self.in_messages[self.taken as usize];
            assert_eq!(block.in_messages, in_messages);
            if self.left > 0 || block.done == block.size {
                assert_eq!(block.refused, in_messages > 0 && self.left == 0);
            }
            assert!(block.refused || in_messages == 0 || self.left > 0);
            self.taken += 1;
            self.left += u64::from(block.size - block.done);
        }
        if !self.blocks.has_call() {
            // the model copies the bytes that are left
            assert!(self.held.is_empty() && self.under_way.is_empty());
            assert_eq!(self.arrived + self.left, self.given);
            self.arrived += core::mem::take(&mut self.left);
        }
    }

    /// Sends the next bytes that may be sent, but no copied bytes while the peer may read a block.
    fn sends(&mut self) {
        let next = self.blocks.next();
        if next.as_ref().map_or(self.copied, |n| n.1) > self.copied_sent {
            if self.held.is_empty() {
                assert_eq!(self.copies[self.copied_sent as usize], self.arrived);
                self.copied_sent += 1;
                self.arrived += 1;
            }
            return;
        }
        match next.map(|n| n.0) {
            Some(Next::New { .. } | Next::Advert(_)) if self.space > 0 => self.blocks.pass_over(),
            Some(Next::New { .. }) if self.held.is_empty() && self.rng.below(6) == 0 => {
                self.blocks.pass_over()
            }
            Some(Next::New { memory, size }) if self.held.len() < MOST_ADVERTS => {
                let (r_key, address) = (*memory as u32, 0);
                self.blocks.registered(Block {
                    size,
                    r_key,
                    address,
                });
            }
            Some(Next::Advert(block)) if self.held.len() < MOST_ADVERTS => {
                self.blocks.posted(0);
                self.held.push((block.r_key.into(), block.size, 0));
            }
            Some(Next::Rest(Rest { written: true, .. })) if self.space == 0 => self.blocks.recall(),
            Some(Next::Rest(Rest {
                cookie,
                offset,
                len,
                ..
            })) if self.held.is_empty() || !self.detached => {
                assert!(self.held.is_empty());
                let at = self.starts[cookie as usize] + u64::from(offset);
                assert_eq!(at, self.arrived);
                let message = self.space == 0;
                let space = if message { len } else { self.space };
                let n = len.min(space).min(1 + self.rng.below(4) as u32);
                assert_eq!(self.blocks.rest_posted(n, message), n == len);
                if message {
                    self.in_messages[cookie as usize] += n;
                }
                self.under_way.push((cookie, n));
                self.space -= if message { 0 } else { n };
                self.arrived += u64::from(n);
            }
            _ => {}
        }
    }

    fn step(&mut self, gives: bool) {
        match self.rng.below(12) {
            0 if gives && self.detached && self.blocks.has_space() => self.give_block(),
            0 | 1 if gives && self.left == 0 && self.blocks.is_open() && !self.detached => {
                self.give_block()
            }
            1 if gives && self.detached => self.give_byte(),
            2 => self.peer_reads(),
            3 if self.rng.below(3) == 0 => self.peer_returns(false),
            4 if self.rng.below(2) == 0 => self.peer_returns(true),
            5 if self.rng.below(3) == 0 => self.space = 0,
            6 => invalidate(&mut self.blocks),
            7 => self.completes(),
            8 if self.detached => self.retires(),
            8 => self.call_takes(),
            9 if self.detached => self.moves(gives),
            9 if self.rng.below(6) == 0 => self.blocks.recall(),
            _ => self.sends(),
        }
    }
}

#[test]
fn the_stream_is_in_order_whatever_the_peer_does() {
    for (seed, detached) in (0..3000).map(|n| (n / 2, n % 2 == 0)) {
        let mut model = Model::new(seed, detached);
        (0..300).for_each(|_| model.step(true));
        // all bytes arrive in the end
        (0..1500).for_each(|_| model.step(false));
        assert_eq!(model.arrived, model.given, "{detached}, seed {seed}");
        assert!(model.blocks.is_empty(), "{detached}, seed {seed}");
        assert_eq!(model.taken, model.starts.len() as u64);
    }
}

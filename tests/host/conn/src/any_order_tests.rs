// SPDX-License-Identifier: GPL-2.0-only

//! Makes any call in any order with any argument: no caller has to keep a queue from overflowing.

use crate::alloc::flags::GFP_KERNEL;
use crate::host::{Buffer, Chance};
use crate::receive_queue::ReceiveQueue;
use crate::ring::Ring;
use crate::send_queue::SendQueue;

const ROUNDS: usize = 20_000;
const CALLS: usize = 30;
/// Edge values of arithmetic.
const EDGES: [usize; 10] = [
    0,
    1,
    2,
    2048,
    4096,
    65536,
    1 << 31,
    u32::MAX as usize,
    usize::MAX - 1,
    usize::MAX,
];

fn any(chance: &mut Chance) -> usize {
    match chance.below(3) {
        0 => EDGES[chance.below(EDGES.len())],
        1 => chance.below(70_000),
        _ => chance.below(10),
    }
}

#[test]
fn receive_queue() {
    let mut chance = Chance::new(77);
    for _ in 0..ROUNDS {
        let mut queue = ReceiveQueue::new();
        let mut out = Vec::new();
        for _ in 0..CALLS {
            match chance.below(12) {
                0 | 1 => {
                    let mut b = Buffer::new(512);
                    (b.offset, b.len) = (any(&mut chance) as u32, any(&mut chance) as u32);
                    drop(queue.push(b, chance.below(4) == 0));
                }
                2 => drop(queue.prepare()),
                3 => drop(queue.make_space(any(&mut chance))),
                4 => out.extend(queue.take(chance.below(3) as u64).map(|(memory, _)| memory)),
                5 => out.pop().into_iter().for_each(|m| queue.put_back(m)),
                6 => out
                    .pop()
                    .into_iter()
                    .for_each(|m| drop(queue.consumed(m, any(&mut chance)))),
                7 => drop(queue.skip_mark()),
                8 if chance.below(5) == 0 => queue.clear(),
                9 => out.extend(
                    queue
                        .take(any(&mut chance) as u64)
                        .map(|(memory, _)| memory),
                ),
                10 => drop(queue.passed(any(&mut chance))),
                _ => drop(queue.unread.readable(chance.below(2) == 0)),
            }
            let _ = (queue.unread.bytes(), queue.memory(), queue.most_more());
        }
    }
}

#[test]
fn send_queue() {
    let mut chance = Chance::new(78);
    for _ in 0..ROUNDS {
        let mut queue = SendQueue::new();
        let mut out = Vec::new();
        for _ in 0..CALLS {
            match chance.below(15) {
                0 => drop(queue.prepare(chance.below(4) as u8)),
                1 | 2 => out.extend(queue.open(any(&mut chance) % 9000)),
                3 => out.extend(queue.open_new(Buffer::new(1 + chance.below(3000)))),
                4 | 5 => out
                    .pop()
                    .into_iter()
                    .for_each(|c| queue.close(c, any(&mut chance))),
                6 => queue.mark_urgent(),
                7 => drop(queue.sges(any(&mut chance))),
                8 => queue.advance(any(&mut chance), chance.below(2) == 0),
                9 => queue.complete(any(&mut chance) as u64),
                10 => queue.shed(),
                12 => out
                    .pop()
                    .into_iter()
                    .for_each(|c| queue.hold(c, any(&mut chance))),
                13 => queue.rewind(),
                11 if chance.below(5) == 0 => queue.clear(),
                _ => queue.was_small(),
            }
            let _ = (queue.queued(), queue.unsent(), queue.small_in_flight());
            let _ = (queue.urgent(), queue.contiguous(), queue.needs_little());
        }
    }
}

#[test]
fn ring() {
    let mut chance = Chance::new(79);
    for _ in 0..ROUNDS {
        let mut ring = Ring::<u32>::new();
        for k in 0..60 {
            match chance.below(10) {
                0 => drop(ring.reserve(chance.below(40), GFP_KERNEL)),
                1 => drop(ring.grow(chance.below(80), GFP_KERNEL)),
                2..=4 => drop(ring.push_back(k)),
                5 => drop(ring.pop_front()),
                6 => drop(ring.pop_back()),
                7 => drop((ring.front().copied(), ring.back_mut().copied())),
                _ => drop((ring.get(any(&mut chance)), any(&mut chance))),
            }
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Compares the ring with the standard library's queue.

use crate::alloc::flags::GFP_KERNEL;
use crate::host::{without_memory, Chance};
use crate::ring::Ring;
use std::collections::VecDeque;

#[test]
fn any_order_of_calls() {
    for seed in 0..60 {
        let mut chance = Chance::new(seed);
        let (mut ring, mut queue, mut capacity) = (Ring::new(), VecDeque::new(), 0);
        for n in 0..400 {
            match chance.below(10) {
                0..=4 => {
                    let pushed = ring.push_back(n);
                    if queue.len() < capacity {
                        assert_eq!(pushed, Ok(()));
                        queue.push_back(n);
                    } else {
                        assert_eq!(pushed, Err(n));
                    }
                }
                5 | 6 => assert_eq!(ring.pop_front(), queue.pop_front()),
                7 => assert_eq!(ring.pop_back(), queue.pop_back()),
                8 => {
                    let i = chance.below(capacity + 1);
                    let item = ring.get_mut(i).map(|item| core::mem::replace(item, n));
                    assert_eq!(
                        item,
                        queue.get_mut(i).map(|item| core::mem::replace(item, n))
                    );
                }
                _ if chance.below(4) == 0 => {
                    let more = chance.below(20);
                    ring.reserve(more, GFP_KERNEL).unwrap();
                    capacity = capacity.max(more);
                }
                _ => {
                    let most = chance.below(40);
                    let grows = queue.len() == capacity && capacity < most;
                    if grows {
                        assert!(!without_memory(|| ring.grow(most, GFP_KERNEL)));
                        capacity = (2 * capacity).clamp(1, most);
                    }
                    assert_eq!(ring.grow(most, GFP_KERNEL), queue.len() < capacity);
                }
            }
            assert_eq!(ring.len(), queue.len());
            assert_eq!(ring.capacity(), capacity);
            assert_eq!(ring.is_full(), queue.len() == capacity);
            assert!((0..=capacity).all(|i| ring.get(i) == queue.get(i)));
        }
    }
}

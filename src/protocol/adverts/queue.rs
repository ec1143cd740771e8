// SPDX-License-Identifier: GPL-2.0-only

//! Queue in an array.

use core::ops::{Deref, DerefMut};

/// Up to `N` items as a slice, with the oldest first.
#[derive(Clone, Debug)]
pub(super) struct Queue<T, const N: usize> {
    items: [T; N],
    len: usize,
}

impl<T: Copy + Default, const N: usize> Queue<T, N> {
    pub(super) fn new() -> Self {
        Queue {
            items: [T::default(); N],
            len: 0,
        }
    }

    /// Adds an item. Returns false if the queue is full.
    pub(super) fn push(&mut self, item: T) -> bool {
        let Some(slot) = self.items.get_mut(self.len) else {
            return false;
        };
        *slot = item;
        self.len = self.len.saturating_add(1);
        true
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let oldest = *self.first()?;
        self.items.rotate_left(1);
        self.len = self.len.saturating_sub(1);
        Some(oldest)
    }

    /// Drops all items except the first `count`.
    pub(super) fn truncate(&mut self, count: usize) {
        self.len = self.len.min(count);
    }
}

impl<T, const N: usize> Deref for Queue<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.items.get(..self.len).unwrap_or_default()
    }
}

impl<T, const N: usize> DerefMut for Queue<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.items.get_mut(..self.len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn it_is_a_queue() {
        let mut queue = Queue::<u32, 3>::new();
        let mut model = VecDeque::new();
        for step in 0..1000u32 {
            match step.wrapping_mul(2_654_435_761) >> 29 {
                0..=3 => {
                    let room = model.len() < 3;
                    assert_eq!(queue.push(step), room);
                    if room {
                        model.push_back(step);
                    }
                }
                4 | 5 => assert_eq!(queue.pop(), model.pop_front()),
                count => {
                    queue.truncate(count as usize - 6);
                    model.truncate(count as usize - 6);
                }
            }
            assert_eq!(*queue, *model.make_contiguous());
        }
    }
}

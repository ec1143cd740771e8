// SPDX-License-Identifier: GPL-2.0-only

//! A queue in an array.

use core::fmt;

/// Up to `N` items, oldest first. `N` is at most 128.
#[derive(Clone)]
pub(super) struct Ring<T, const N: usize> {
    items: [T; N],
    first: u8,
    len: u8,
}

impl<T: Copy + Default, const N: usize> Ring<T, N> {
    pub(super) fn new() -> Self {
        const { assert!(N > 0 && N <= 128) }
        Ring {
            items: [T::default(); N],
            first: 0,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the array index of an item of the queue.
    fn at(&self, place: usize) -> Option<usize> {
        let within = place < self.len();
        let at = usize::from(self.first).wrapping_add(place);
        at.checked_rem(N).filter(|_| within)
    }

    pub(super) fn get(&self, place: usize) -> Option<&T> {
        self.items.get(self.at(place)?)
    }

    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        let at = self.at(place)?;
        self.items.get_mut(at)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> + '_ {
        (0..self.len()).filter_map(|place| self.get(place))
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.get(0)
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut T> {
        self.get_mut(0)
    }

    /// Adds an item. Returns false if the queue is full.
    pub(super) fn push(&mut self, item: T) -> bool {
        if self.len() >= N {
            return false;
        }
        let place = self.len();
        self.len = self.len.saturating_add(1);
        if let Some(slot) = self.get_mut(place) {
            *slot = item;
        }
        true
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let item = *self.front()?;
        self.first = self.at(1).unwrap_or(0) as u8;
        self.len = self.len.saturating_sub(1);
        Some(item)
    }

    pub(super) fn truncate(&mut self, count: usize) {
        self.len = self.len().min(count) as u8;
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }
}

impl<T: Copy + Default + fmt::Debug, const N: usize> fmt::Debug for Ring<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn it_is_a_queue() {
        let mut ring = Ring::<u32, 3>::new();
        let mut model = VecDeque::new();
        for step in 0..1000u32 {
            match step.wrapping_mul(2_654_435_761) >> 29 {
                0..=3 => {
                    let room = model.len() < 3;
                    assert_eq!(ring.push(step), room);
                    if room {
                        model.push_back(step);
                    }
                }
                4 | 5 => assert_eq!(ring.pop(), model.pop_front()),
                6 => {
                    ring.truncate(1);
                    model.truncate(1);
                }
                _ if step % 7 == 0 => {
                    ring.clear();
                    model.clear();
                }
                _ => {}
            }
            assert_eq!(
                (ring.len(), ring.is_empty()),
                (model.len(), model.is_empty())
            );
            for place in 0..5 {
                assert_eq!(ring.get(place), model.get(place));
            }
            assert_eq!(ring.front(), model.front());
            assert_eq!(ring.front_mut(), model.front_mut());
        }
    }
}

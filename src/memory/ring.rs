// SPDX-License-Identifier: GPL-2.0-only

//! A queue of bounded length in one allocation.

use kernel::alloc::Flags;
use kernel::prelude::*;

/// First-in first-out queue of fixed capacity: pushing never allocates.
pub(crate) struct Ring<T> {
    /// Places used at least once; later ones in the allocation are uninitialised.
    items: KVec<Option<T>>,
    capacity: usize,
    head: usize,
    len: usize,
}

impl<T> Ring<T> {
    /// Makes an empty queue without capacity.
    pub(crate) const fn new() -> Self {
        Ring {
            items: KVec::new(),
            capacity: 0,
            head: 0,
            len: 0,
        }
    }

    /// Grows the capacity to `capacity`, if it is less.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; the queue is unchanged.
    pub(crate) fn reserve(&mut self, capacity: usize, flags: Flags) -> Result {
        if capacity <= self.capacity {
            return Ok(());
        }
        let mut items = KVec::with_capacity(capacity, flags)?;
        for i in 0..self.len {
            // cannot fail: the capacity was allocated above
            let at = self.slot(i);
            let _ = items.push_within_capacity(self.items[at].take());
        }
        (self.items, self.capacity, self.head) = (items, capacity, 0);
        Ok(())
    }

    /// Reserves a place for another item, up to `most` in all. Returns true if there is one.
    pub(crate) fn grow(&mut self, most: usize, flags: Flags) -> bool {
        if self.is_full() && self.capacity < most {
            let _ = self.reserve((self.capacity * 2).clamp(1, most), flags);
        }
        !self.is_full()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Returns the index of the item `i` behind the first.
    fn slot(&self, i: usize) -> usize {
        // head < capacity and i <= capacity, so this neither overflows nor needs a division
        let at = self.head + i;
        if at >= self.capacity {
            at - self.capacity
        } else {
            at
        }
    }

    /// Adds an item at the end. Returns the item if it is full.
    pub(crate) fn push_back(&mut self, item: T) -> core::result::Result<(), T> {
        if self.is_full() {
            return Err(item);
        }
        let at = self.slot(self.len);
        match self.items.get_mut(at) {
            Some(place) => *place = Some(item),
            // the first place never used, within the capacity
            None => {
                let _ = self.items.push_within_capacity(Some(item));
            }
        }
        self.len += 1;
        Ok(())
    }

    /// Takes the first item.
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let item = self.items[self.head].take();
        self.head = self.slot(1);
        self.len -= 1;
        item
    }

    /// Takes the last item.
    pub(crate) fn pop_back(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let at = self.slot(self.len - 1);
        self.len -= 1;
        self.items[at].take()
    }

    /// Returns the first item.
    pub(crate) fn front(&self) -> Option<&T> {
        self.get(0)
    }

    /// Returns the first item.
    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        if self.len == 0 {
            return None;
        }
        self.items[self.head].as_mut()
    }

    /// Returns the last item.
    pub(crate) fn back_mut(&mut self) -> Option<&mut T> {
        if self.len == 0 {
            return None;
        }
        let at = self.slot(self.len - 1);
        self.items[at].as_mut()
    }

    /// Returns the item `i` behind the first.
    pub(crate) fn get(&self, i: usize) -> Option<&T> {
        if i >= self.len {
            return None;
        }
        self.items[self.slot(i)].as_ref()
    }

    /// Returns the item `i` behind the first.
    pub(crate) fn get_mut(&mut self, i: usize) -> Option<&mut T> {
        if i >= self.len {
            return None;
        }
        let at = self.slot(i);
        self.items[at].as_mut()
    }

    /// Returns all items, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().filter_map(Option::as_ref)
    }
}

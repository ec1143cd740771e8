// SPDX-License-Identifier: GPL-2.0-only

//! Queue of bounded length in one allocation.

use crate::sys::vec;
use kernel::alloc::Flags;
use kernel::prelude::*;

/// First-in first-out queue of fixed capacity: pushing never allocates.
pub(crate) struct Ring<T> {
    /// Slots used at least once; later slots of the allocation are uninitialised.
    items: KVec<Option<T>>,
    capacity: usize,
    head: usize,
    len: usize,
}

impl<T> Ring<T> {
    pub(crate) const fn new() -> Self {
        Ring {
            items: KVec::new(),
            capacity: 0,
            head: 0,
            len: 0,
        }
    }

    /// Increases the capacity to at least `capacity` items. Fails with `ENOMEM`, and then leaves
    /// the queue unchanged.
    pub(crate) fn reserve(&mut self, capacity: usize, flags: Flags) -> Result {
        if capacity <= self.capacity {
            return Ok(());
        }
        let mut items = vec::with_capacity(capacity, flags)?;
        for i in 0..self.len {
            // cannot fail: the capacity was allocated above
            let at = self.slot(i);
            let item = self.items.get_mut(at).and_then(Option::take);
            let _ = items.push_within_capacity(item);
        }
        (self.items, self.capacity, self.head) = (items, capacity, 0);
        Ok(())
    }

    /// Reserves a slot for another item, up to `most` slots. Returns false without a free slot.
    pub(crate) fn grow(&mut self, most: usize, flags: Flags) -> bool {
        if self.is_full() && self.capacity < most {
            let _ = self.reserve(self.capacity.saturating_mul(2).clamp(1, most), flags);
        }
        !self.is_full()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Returns the index of the item `i` positions after the first.
    fn slot(&self, i: usize) -> usize {
        // head < capacity and i <= capacity, so a subtraction replaces the division
        let at = self.head.wrapping_add(i);
        at.checked_sub(self.capacity).unwrap_or(at)
    }

    /// Adds an item at the end. Returns the item if the queue is full.
    pub(crate) fn push_back(&mut self, item: T) -> core::result::Result<(), T> {
        if self.is_full() {
            return Err(item);
        }
        let at = self.slot(self.len);
        match self.items.get_mut(at) {
            Some(place) => *place = Some(item),
            // the slot was never used, and is within the capacity
            None => {
                let _ = self.items.push_within_capacity(Some(item));
            }
        }
        self.len = self.len.saturating_add(1);
        Ok(())
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        let head = self.head;
        self.head = self.slot(1);
        self.items.get_mut(head)?.take()
    }

    pub(crate) fn pop_back(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        let at = self.slot(self.len);
        self.items.get_mut(at)?.take()
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.get(0)
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        self.get_mut(0)
    }

    pub(crate) fn back_mut(&mut self) -> Option<&mut T> {
        self.get_mut(self.len.checked_sub(1)?)
    }

    /// Returns the item `i` positions after the first.
    pub(crate) fn get(&self, i: usize) -> Option<&T> {
        if i >= self.len {
            return None;
        }
        self.items.get(self.slot(i))?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, i: usize) -> Option<&mut T> {
        if i >= self.len {
            return None;
        }
        let at = self.slot(i);
        self.items.get_mut(at)?.as_mut()
    }
}

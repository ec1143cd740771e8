// SPDX-License-Identifier: GPL-2.0-only

//! Message buffers.
//!
//! A [`Buffer`] is a block of kernel memory that messages are received into or sent from. Buffers
//! are reused: allocating and mapping a buffer costs more than most messages. A buffer is mapped by
//! one [`Mapper`], in one direction at a time. The handle of a mapping does not keep the device.

use super::super::pages::{Block, Memory};
use super::mapper::{Mapper, Mapping};
use core::num::NonZeroU32;
use kernel::alloc::Flags;
use kernel::dma::DataDirection as Direction;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Memory for one message, or for a part of a message.
pub(crate) struct Buffer {
    /// Start of the contents; used by the owner.
    pub(crate) offset: u32,
    /// Length of the contents; used by the owner.
    pub(crate) len: u32,
    /// Set if a pipe got pages of the buffer. The buffer must not be posted while pages are shared.
    pub(crate) given: bool,
    // The mapping holds the memory block: whatever the field order, the mapping is undone before
    // the memory is freed.
    mapping: Option<Arc<Mapping>>,
    memory: Option<Memory>,
    // The capacity is never 0: so an `Option` of a buffer takes no more space than a buffer
    capacity: NonZeroU32,
}

impl Buffer {
    /// Makes a zeroed buffer of `capacity` bytes, a power of two from 512 to 1 MiB.
    ///
    /// Does not sleep if `gfp` is `GFP_ATOMIC`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the capacity is not supported. `ENOMEM`.
    pub(crate) fn new(capacity: usize, gfp: Flags) -> Result<Self> {
        Ok(Buffer {
            offset: 0,
            len: 0,
            given: false,
            mapping: None,
            memory: Some(Memory::new(capacity, gfp)?),
            capacity: NonZeroU32::new(capacity as u32).ok_or(EINVAL)?,
        })
    }

    pub(crate) fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Takes the memory out of the buffer, for a call that accesses it without the buffer's lock.
    pub(crate) fn take_memory(&mut self) -> Option<Memory> {
        self.memory.take()
    }

    /// Puts the memory back into the buffer.
    pub(crate) fn put_memory(&mut self, memory: Memory) {
        self.memory = Some(memory);
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity.get() as usize
    }

    /// Returns all bytes of the memory; the slice is empty if the memory was taken out.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], Memory::bytes)
    }

    /// Returns all bytes of the memory for writing. Writing changes a message that is still being
    /// sent from the buffer.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], Memory::bytes_mut)
    }

    /// Returns the mapping for the device of `by`, if the buffer is mapped in this direction.
    pub(super) fn mapping(&self, by: &Arc<Mapper>, direction: Direction) -> Option<&Arc<Mapping>> {
        let memory = self.memory.as_ref()?;
        self.mapping
            .as_ref()
            .filter(|m| m.fits(by, memory, direction))
    }

    /// Maps the buffer for a device in one direction, replacing its earlier mapping. Context:
    /// process, without locks.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the endpoint is destroyed. `ENOMEM`. `EINVAL`: the buffer has no memory.
    pub(crate) fn map(&mut self, by: &Arc<Mapper>, direction: Direction, gfp: Flags) -> Result {
        if self.mapping(by, direction).is_none() {
            self.mapping = None;
            let memory = self.memory.as_ref().ok_or(EINVAL)?;
            self.mapping = Some(by.map(memory, direction, gfp)?);
        }
        Ok(())
    }

    /// Returns a reference to the memory, which keeps it allocated.
    pub(crate) fn block(&self) -> Option<&Arc<Block>> {
        Some(self.memory.as_ref()?.block())
    }
}

/// Segment of a buffer to be sent.
#[derive(Clone, Copy)]
pub(crate) struct Sge<'a> {
    pub(crate) buffer: &'a Buffer,
    /// Offset of the segment.
    pub(crate) offset: u32,
    /// Length of the segment.
    pub(crate) len: u32,
}

impl<'a> Sge<'a> {
    /// # Errors
    ///
    /// `EINVAL`: the segment reaches beyond the buffer.
    pub(crate) fn bytes(&self) -> Result<&'a [u8]> {
        let end = self.offset.checked_add(self.len).ok_or(EINVAL)?;
        self.buffer
            .bytes()
            .get(self.offset as usize..end as usize)
            .ok_or(EINVAL)
    }
}

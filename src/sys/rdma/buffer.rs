// SPDX-License-Identifier: GPL-2.0-only

//! Buffers for messages.
//!
//! A [`Buffer`] is a block of kernel memory that messages are received into or sent from. It is
//! used again and again: allocating and mapping it costs more than most messages. A buffer is mapped
//! by one [`Mapper`] and in one direction at a time; what it has of that is a handle, which does not
//! keep the device. One that no device uses may be without memory until something is put there.

use super::super::pages::{Block, Memory};
use super::dma::Direction;
use super::mapper::{Mapper, Mapping};
use core::num::NonZeroU32;
use kernel::alloc::Flags;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Memory for one message, or for a part of one.
pub(crate) struct Buffer {
    /// Where its contents begin; for the owner's use.
    pub(crate) offset: u32,
    /// How long its contents are; for the owner's use.
    pub(crate) len: u32,
    // The mapping is undone before the memory is freed, whatever the order here: it keeps the block.
    mapping: Option<Arc<Mapping>>,
    memory: Option<Memory>,
    // never 0: an `Option` of a buffer takes no more room than a buffer
    capacity: NonZeroU32,
}

impl Buffer {
    /// A buffer of `capacity` bytes, all zero; a power of two from 512 to 1 MiB.
    ///
    /// Does not sleep if `gfp` is `GFP_ATOMIC`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another capacity, `ENOMEM`.
    pub(crate) fn new(capacity: usize, gfp: Flags) -> Result<Self> {
        let mut buffer = Buffer::without_memory(capacity);
        buffer.have_memory(gfp)?;
        Ok(buffer)
    }

    /// One that has no memory yet.
    pub(crate) fn without_memory(capacity: usize) -> Self {
        Buffer {
            offset: 0,
            len: 0,
            mapping: None,
            memory: None,
            capacity: NonZeroU32::new(capacity as u32).unwrap_or(NonZeroU32::MIN),
        }
    }

    /// Gives it the memory that it may not have; see [`Buffer::new`].
    pub(crate) fn have_memory(&mut self, gfp: Flags) -> Result {
        if self.memory.is_none() {
            self.memory = Some(Memory::new(self.capacity(), gfp)?);
        }
        Ok(())
    }

    /// Whether it has memory.
    pub(crate) fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Takes its memory out, for a call that reads or writes there without the lock that this buffer is under.
    pub(crate) fn take_memory(&mut self) -> Option<Memory> {
        self.memory.take()
    }

    /// Puts its memory back.
    pub(crate) fn put_memory(&mut self, memory: Memory) {
        self.memory = Some(memory);
    }

    /// Its size in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity.get() as usize
    }

    /// All of its bytes, none without memory.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], Memory::bytes)
    }

    /// All of its bytes, to be written. A message that is still on its way from here would change.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], Memory::bytes_mut)
    }

    /// How the device of `by` reaches it for transfers in one direction, if it is mapped so.
    pub(super) fn mapping(&self, by: &Arc<Mapper>, direction: Direction) -> Option<&Arc<Mapping>> {
        let memory = self.memory.as_ref()?;
        self.mapping
            .as_ref()
            .filter(|m| m.fits(by, memory, direction))
    }

    /// Has messages sent from it; see [`Buffer::map`].
    pub(crate) fn map_send(&mut self, by: Option<&Arc<Mapper>>) -> Result {
        by.map_or(Ok(()), |by| self.map(by, Direction::ToDevice, GFP_KERNEL))
    }

    /// Has messages received into it; see [`Buffer::map`].
    pub(crate) fn map_receive(&mut self, by: Option<&Arc<Mapper>>, gfp: Flags) -> Result {
        by.map_or(Ok(()), |by| self.map(by, Direction::FromDevice, gfp))
    }

    /// Lets a device reach it for transfers in one direction, instead of what it was mapped for.
    /// Process context, without locks.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the endpoint is gone, `ENOMEM`, `EINVAL` without memory.
    fn map(&mut self, by: &Arc<Mapper>, direction: Direction, gfp: Flags) -> Result {
        if self.mapping(by, direction).is_none() {
            self.mapping = None;
            let memory = self.memory.as_ref().ok_or(EINVAL)?;
            self.mapping = Some(by.map(memory, direction, gfp)?);
        }
        Ok(())
    }

    /// Its memory, to be kept by something that needs it to stay.
    pub(crate) fn block(&self) -> Option<&Arc<Block>> {
        Some(self.memory.as_ref()?.block())
    }
}

/// A piece of a buffer that is to be sent.
#[derive(Clone, Copy)]
pub(crate) struct Sge<'a> {
    /// The buffer.
    pub(crate) buffer: &'a Buffer,
    /// Where the piece begins.
    pub(crate) offset: u32,
    /// How long it is.
    pub(crate) len: u32,
}

impl<'a> Sge<'a> {
    /// The bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the piece reaches beyond the buffer.
    pub(crate) fn bytes(&self) -> Result<&'a [u8]> {
        let end = self.offset.checked_add(self.len).ok_or(EINVAL)?;
        self.buffer
            .bytes()
            .get(self.offset as usize..end as usize)
            .ok_or(EINVAL)
    }
}

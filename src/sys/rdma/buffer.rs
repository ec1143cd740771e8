// SPDX-License-Identifier: GPL-2.0-only

//! Buffers for messages.
//!
//! A [`Buffer`] is a block of kernel memory that messages are received into or sent from. It is
//! used again and again: allocating and mapping it costs more than most messages. A buffer is mapped
//! by one [`Mapper`] and in one direction at a time; what it has of that is a handle, which does not
//! keep the device.

use super::super::pages::Memory;
use super::dma::Direction;
use super::mapper::{Mapper, Mapping};
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
    memory: Memory,
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
        Ok(Buffer {
            offset: 0,
            len: 0,
            mapping: None,
            memory: Memory::new(capacity, gfp)?,
        })
    }

    /// Its size in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.block().size()
    }

    /// All of its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// All of its bytes, to be written. A message that is still on its way from here would change.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }

    /// Whether it is mapped so.
    fn is_mapped(&self, by: &Arc<Mapper>, direction: Direction) -> bool {
        self.mapping
            .as_ref()
            .is_some_and(|m| m.fits(by, &self.memory, direction))
    }

    /// Whether messages can be sent from it.
    pub(crate) fn can_send(&self, by: Option<&Arc<Mapper>>) -> bool {
        by.is_none_or(|by| self.is_mapped(by, Direction::ToDevice))
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
    /// `ENODEV` when the endpoint is gone, `ENOMEM`.
    fn map(&mut self, by: &Arc<Mapper>, direction: Direction, gfp: Flags) -> Result {
        if !self.is_mapped(by, direction) {
            self.mapping = None;
            self.mapping = Some(by.map(&self.memory, direction, gfp)?);
        }
        Ok(())
    }

    /// How a device reaches it.
    pub(crate) fn mapping(&self) -> Option<&Arc<Mapping>> {
        self.mapping.as_ref()
    }

    /// Its memory.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
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

// SPDX-License-Identifier: GPL-2.0-only

//! Buffers for messages.
//!
//! A [`Buffer`] is a block of kernel memory that messages are received into or sent from. It is
//! handled as `KBox<Buffer>` and used again and again: allocating and mapping it costs more than
//! most messages. A buffer is mapped for one device and one direction at a time.

use super::super::pages::Memory;
use super::device::DeviceRef;
use super::dma::{Direction, Mapping};
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
    pub(crate) fn new(capacity: usize, gfp: Flags) -> Result<KBox<Self>> {
        let memory = Memory::new(capacity, gfp)?;
        Ok(KBox::new(
            Buffer {
                offset: 0,
                len: 0,
                mapping: None,
                memory,
            },
            gfp,
        )?)
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

    /// Lets a device reach it for transfers in one direction, instead of what it was mapped for.
    ///
    /// Does not sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn map(&mut self, device: &DeviceRef, direction: Direction) -> Result {
        match &self.mapping {
            Some(m) if m.fits(device, &self.memory, direction) => Ok(()),
            _ => {
                self.mapping = None;
                self.mapping = Some(Mapping::new(device, &self.memory, direction, GFP_ATOMIC)?);
                Ok(())
            }
        }
    }

    /// No device reaches it any more, once messages that are on their way from here have arrived.
    ///
    /// Owners do this to buffers that they keep beyond a connection, for a mapped buffer keeps the
    /// device from being removed.
    pub(crate) fn unmap(&mut self) {
        self.mapping = None;
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
pub(crate) struct Span<'a> {
    /// The buffer.
    pub(crate) buffer: &'a Buffer,
    /// Where the piece begins.
    pub(crate) offset: u32,
    /// How long it is.
    pub(crate) len: u32,
}

impl<'a> Span<'a> {
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

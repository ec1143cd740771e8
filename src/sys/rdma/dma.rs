// SPDX-License-Identifier: GPL-2.0-only

//! Memory as a device sees it.
//!
//! A [`Mapping`] is one block of memory that one device may reach. It keeps the block as well as
//! the device; the work requests that use it keep it in turn.

use super::super::bindings as c;
use super::super::pages::{Block, Memory};
use super::device::DeviceRef;
use kernel::alloc::Flags;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Who writes and who reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The device reads: memory to send from.
    ToDevice,
    /// The device writes: memory to receive into.
    FromDevice,
}

impl Direction {
    pub(super) fn raw(self) -> c::dma_data_direction {
        match self {
            Direction::ToDevice => c::dma_data_direction_DMA_TO_DEVICE,
            Direction::FromDevice => c::dma_data_direction_DMA_FROM_DEVICE,
        }
    }
}

/// A block that a device may reach.
///
/// # Invariants
///
/// `address` is what `ib_dma_map_single` returned for all of `block`, and only [`Drop`] undoes it.
pub(crate) struct Mapping {
    device: DeviceRef,
    block: Arc<Block>,
    address: u64,
    direction: Direction,
}

impl Mapping {
    /// Maps all of a block.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        device: &DeviceRef,
        memory: &Memory,
        direction: Direction,
        gfp: Flags,
    ) -> Result<Arc<Self>> {
        let block = memory.block().clone();
        // SAFETY: The device is in use and the block is that long, contiguous and not on a stack.
        let address = unsafe {
            c::sdp_h_ib_map(
                device.raw(),
                block.start().cast(),
                block.size(),
                direction.raw(),
            )
        };
        // SAFETY: The device is in use and the address is what it just gave.
        if unsafe { c::sdp_h_ib_map_error(device.raw(), address) } != 0 {
            return Err(ENOMEM);
        }
        // INVARIANT: Mapped above. If there is no memory for the `Arc`, dropping undoes it.
        Ok(Arc::new(
            Mapping {
                device: device.clone(),
                block,
                address,
                direction,
            },
            gfp,
        )?)
    }

    /// Where the device finds byte `offset` of the block.
    pub(super) fn address(&self, offset: u32) -> u64 {
        self.address.wrapping_add(u64::from(offset))
    }

    /// Whether this is how `device` reaches `memory` for transfers of that direction.
    pub(crate) fn fits(&self, device: &DeviceRef, memory: &Memory, direction: Direction) -> bool {
        self.device == *device
            && Arc::ptr_eq(&self.block, memory.block())
            && self.direction == direction
    }

    /// Lets the CPU see what the device has written to the first `len` bytes.
    pub(super) fn sync_for_cpu(&self, len: usize) {
        if !self.device.is_virtual() {
            // SAFETY: By the invariants this is mapped, and the length is bounded by that.
            unsafe {
                c::sdp_h_ib_sync_cpu(
                    self.device.raw(),
                    self.address,
                    len.min(self.block.size()),
                    self.direction.raw(),
                )
            }
        }
    }

    /// Lets the device see what the CPU has written at `offset`, or write there itself.
    pub(super) fn sync_for_device(&self, offset: u32, len: usize) {
        let offset = (offset as usize).min(self.block.size());
        if !self.device.is_virtual() {
            // SAFETY: By the invariants this is mapped; offset and length are bounded by that.
            unsafe {
                c::sdp_h_ib_sync_device(
                    self.device.raw(),
                    self.address.wrapping_add(offset as u64),
                    len.min(self.block.size() - offset),
                    self.direction.raw(),
                )
            }
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the invariants this is mapped, once; whoever posted it has dropped it, so the
        // device does not use it any more.
        unsafe {
            c::sdp_h_ib_unmap(
                self.device.raw(),
                self.address,
                self.block.size(),
                self.direction.raw(),
            )
        }
    }
}

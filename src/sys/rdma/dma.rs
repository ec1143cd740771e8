// SPDX-License-Identifier: GPL-2.0-only

//! DMA directions.

use super::super::bindings as c;

/// Direction of a DMA mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Direction {
    /// The device reads: memory to send from.
    ToDevice = c::dma_data_direction_DMA_TO_DEVICE,
    /// The device writes: memory to receive into.
    FromDevice = c::dma_data_direction_DMA_FROM_DEVICE,
}

impl Direction {
    /// Returns the direction of memory that the device `writes`, or reads.
    pub(super) fn of(writes: bool) -> Self {
        match writes {
            true => Direction::FromDevice,
            false => Direction::ToDevice,
        }
    }

    pub(super) fn raw(self) -> c::dma_data_direction {
        self as c::dma_data_direction
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! DMA mappings for the device of one QP.
//!
//! A [`Mapper`] maps buffers for the device of an endpoint, and keeps the SG lists for mapping
//! program memory ([`SgMapping`]). All mappings belong to the endpoint: the drop of its
//! [`MapperOwner`], after the QP was destroyed, unmaps everything and releases the device. Buffers
//! and pinned memory only have handles of mappings. So a call that sleeps, in a page fault for
//! example, does not prevent the removal of a device.
//!
//! Mapping may take long: neither the mapper nor its callers hold a lock meanwhile.

use super::super::bindings as c;
use super::super::pages::{Block, Memory};
use super::super::vec;
use super::device::DeviceRef;
use super::mr::{Region, SgMapping};
use super::pd::Pd;
use core::mem::take;
use kernel::alloc::Flags;
use kernel::dma::DataDirection as Direction;
use kernel::prelude::*;
use kernel::sync::{new_spinlock, Arc, SpinLock};

/// Maximum number of idle SG lists: as many as a connection usually has in flight.
const SPARE: usize = 8;
/// Slots for the first blocks of a connection: its receive buffers and headers.
const FIRST_AREAS: usize = 16;
/// Maximum number of slots: twice the number of messages in a receive queue.
const MOST_AREAS: usize = 2 * 4096;

/// A block mapped for a device.
///
/// # Invariants
///
/// `address` is the result of `ib_dma_map_single` for all of `block` in `direction`. An area
/// removed from its [`MapperState`] is unmapped by [`Area::unmap`].
#[derive(Clone)]
struct Area {
    block: Arc<Block>,
    address: u64,
    direction: Direction,
}

impl Area {
    fn new(device: &DeviceRef, block: &Arc<Block>, direction: Direction) -> Result<Self> {
        // SAFETY: The device is in use and the block is that long, contiguous and not on a stack.
        let address = unsafe {
            c::ib_dma_map_single(
                device.raw(),
                block.start().cast(),
                block.size(),
                direction as u32,
            )
        };
        // SAFETY: The device is in use and has just returned the address.
        if unsafe { c::sdp_h_ib_map_error(device.raw(), address) } != 0 {
            return Err(ENOMEM);
        }
        // INVARIANT: The area was mapped above.
        Ok(Area {
            block: block.clone(),
            address,
            direction,
        })
    }

    /// Unmaps it. `device` is the one passed to [`Area::new`].
    fn unmap(self, device: &DeviceRef) {
        // SAFETY: By the invariants the area is mapped, and this call unmaps it once: `self` is
        // consumed. A posted request would hold the `Mapping`, unless the QP is destroyed.
        unsafe {
            c::sdp_h_ib_unmap(
                device.raw(),
                self.address,
                self.block.size(),
                self.direction as u32,
            )
        }
    }
}

struct MapperState {
    /// PD of the endpoint; `None` after the endpoint's destruction, when all fields stay empty.
    pd: Option<Arc<Pd>>,
    areas: KVec<Option<Area>>,
    /// Idle SG lists. The vector's capacity is [`SPARE`].
    spare: KVec<KBox<SgMapping>>,
}

impl MapperState {
    fn device(&self) -> Option<DeviceRef> {
        self.pd.as_ref().map(|pd| pd.device().clone())
    }

    /// Stores an area and returns its slot.
    fn keep(&mut self, area: Area) -> Result<usize, Area> {
        if self.pd.is_none() {
            return Err(area);
        }
        if let Some(at) = self.areas.iter().position(Option::is_none) {
            if let Some(place) = self.areas.get_mut(at) {
                *place = Some(area);
            }
            return Ok(at);
        }
        let at = self.areas.len();
        match vec::push(&mut self.areas, MOST_AREAS, Some(area), GFP_ATOMIC) {
            Err(Some(area)) => Err(area),
            _ => Ok(at),
        }
    }
}

/// Maps memory for the device of an endpoint, while the endpoint exists.
#[pin_data]
pub(crate) struct Mapper {
    most_pages: u32,
    software: bool,
    #[pin]
    state: SpinLock<MapperState>,
}

impl Mapper {
    /// Maps all of a block for the device. Context: process, without locks.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the endpoint is destroyed. `ENOMEM`.
    pub(crate) fn map(
        self: &Arc<Self>,
        memory: &Memory,
        direction: Direction,
        gfp: Flags,
    ) -> Result<Arc<Mapping>> {
        let device = self.state.lock().device().ok_or(ENODEV)?;
        let area = Area::new(&device, memory.block(), direction)?;
        let kept = self.state.lock().keep(area.clone());
        let place = kept.map_err(|area| {
            area.unmap(&device);
            ENOMEM
        })?;
        // INVARIANT: The slot `place` stores the area. If `Arc::new` fails, the area is dropped.
        let mapping = Mapping {
            mapper: self.clone(),
            place,
            area,
        };
        Ok(Arc::new(mapping, gfp)?)
    }

    /// Returns the maximum number of program pages in one mapping, or 0 if no page can be mapped.
    pub(crate) fn most_pages(&self) -> usize {
        self.most_pages as usize
    }

    /// Returns true for a software device, where the processor copies all payload.
    pub(crate) fn is_software(&self) -> bool {
        self.software
    }

    /// Returns an SG list for program memory. The holder prevents the removal of the device, so it
    /// must not access program memory. Context: process.
    pub(super) fn sg_mapping(&self) -> Result<KBox<SgMapping>> {
        let pd = {
            let mut state = self.state.lock();
            // takes the oldest list, so that a memory region is not reused at once
            if let Ok(spare) = state.spare.remove(0) {
                return Ok(spare);
            }
            state.pd.clone().ok_or(ENODEV)?
        };
        Ok(KBox::new(SgMapping::new(&pd), GFP_KERNEL)?)
    }

    /// Frees idle lists and their memory regions. Context: process, may sleep.
    pub(crate) fn trim(&self) {
        loop {
            let Some(spare) = self.state.lock().spare.pop() else {
                return;
            };
            drop(spare);
        }
    }

    /// Takes an idle list back. Context: process.
    pub(super) fn put_back(&self, sg: KBox<SgMapping>) {
        let mut state = self.state.lock();
        let rest = match state.pd.is_some() {
            true => state.spare.push_within_capacity(sg).err().map(|e| e.0),
            false => Some(sg),
        };
        drop(state);
        // destroys the memory regions of the removed lists, which sleeps
        drop(rest);
    }
}

/// Owner of the mappings of a [`Mapper`]. The drop unmaps everything, in process context after the
/// QP was destroyed.
pub(crate) struct MapperOwner {
    mapper: Arc<Mapper>,
    device: DeviceRef,
}

impl MapperOwner {
    /// Makes a mapper for the device of a PD.
    pub(super) fn new(pd: &Arc<Pd>) -> Result<Arc<Self>> {
        let areas = vec::with_capacity(FIRST_AREAS, GFP_KERNEL)?;
        let spare = vec::with_capacity(SPARE, GFP_KERNEL)?;
        let mapper = Arc::pin_init(
            pin_init!(Mapper {
                most_pages: Region::most_pages(pd),
                software: pd.device().is_virtual(),
                state <- new_spinlock!(MapperState {
                    pd: Some(pd.clone()),
                    areas,
                    spare,
                }, "ib_sdp_mapper"),
            }),
            GFP_KERNEL,
        )?;
        let owner = MapperOwner {
            mapper,
            device: pd.device().clone(),
        };
        Ok(Arc::new(owner, GFP_KERNEL)?)
    }

    pub(crate) fn mapper(&self) -> &Arc<Mapper> {
        &self.mapper
    }
}

impl Drop for MapperOwner {
    fn drop(&mut self) {
        let (pd, areas, spare) = {
            let mut state = self.mapper.state.lock();
            (
                state.pd.take(),
                take(&mut state.areas),
                take(&mut state.spare),
            )
        };
        for area in areas.into_iter().flatten() {
            area.unmap(&self.device);
        }
        // drops memory regions before their PD
        drop(spare);
        drop(pd);
    }
}

/// Handle of a mapped block. May be dropped in any context but interrupts.
///
/// # Invariants
///
/// While the owner of `mapper` exists, `place` is the slot of `area`, and only [`Drop`] empties it.
pub(crate) struct Mapping {
    mapper: Arc<Mapper>,
    place: usize,
    area: Area,
}

impl Mapping {
    /// Returns true if this is a mapping of `memory`, by `by`, in this direction.
    pub(crate) fn fits(&self, by: &Arc<Mapper>, memory: &Memory, direction: Direction) -> bool {
        Arc::ptr_eq(&self.mapper, by)
            && Arc::ptr_eq(&self.area.block, memory.block())
            && self.area.direction == direction
    }

    /// Returns the device if bytes need a sync and `owner` proves that the mapping exists.
    fn device<'a>(&self, owner: &'a MapperOwner) -> Option<&'a DeviceRef> {
        let synchronises = !owner.device.is_virtual() && Arc::ptr_eq(&self.mapper, &owner.mapper);
        synchronises.then_some(&owner.device)
    }

    /// Syncs the first `len` bytes, which the device has written, for the CPU.
    pub(super) fn sync_for_cpu(&self, owner: &MapperOwner, len: usize) {
        if let Some(device) = self.device(owner) {
            // SAFETY: By the invariants the area is mapped, and the length is within it.
            unsafe {
                c::ib_dma_sync_single_for_cpu(
                    device.raw(),
                    self.area.address,
                    len.min(self.area.block.size()),
                    self.area.direction as u32,
                )
            }
        }
    }

    /// Syncs the range for the device, to read or to write, and returns its DMA address.
    pub(super) fn for_device(&self, owner: &MapperOwner, offset: u32, len: usize) -> u64 {
        let address = self.area.address.wrapping_add(u64::from(offset));
        let offset = (offset as usize).min(self.area.block.size());
        if let Some(device) = self.device(owner) {
            // SAFETY: By the invariants the area is mapped; offset and length are within it.
            unsafe {
                c::ib_dma_sync_single_for_device(
                    device.raw(),
                    self.area.address.wrapping_add(offset as u64),
                    len.min(self.area.block.size().saturating_sub(offset)),
                    self.area.direction as u32,
                )
            }
        }
        address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let mut state = self.mapper.state.lock();
        let area = state.areas.get_mut(self.place).and_then(Option::take);
        let mapped = area.and_then(|area| Some((area, state.device()?)));
        drop(state);
        // an empty slot: the owner has already unmapped the area
        if let Some((area, device)) = mapped {
            area.unmap(&device);
        }
    }
}

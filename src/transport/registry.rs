// SPDX-License-Identifier: GPL-2.0-only

//! Table of the module's RDMA devices, with the listening ports and the clients of each device.

use crate::sys::net::params;
use crate::sys::rdma::device::DeviceRef;
use crate::sys::rdma::endpoint::QueueSet;
use crate::sys::rdma::listen::ListenId;
use crate::sys::sync::late_mutex;
use crate::sys::vec;
use core::mem::take;
use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::sync::Arc;

late_mutex! {
    /// Registry of the module. No upcall is made under the registry's lock.
    mod registry, REGISTRY: Registry = Registry::new()
}
pub(super) use registry::{lock, start};

/// Port at which the module listens on all devices.
pub(super) struct Port {
    pub(super) number: u16,
    /// Number of [`Listening`](super::Listening)s; 0 for a short time while listening ends.
    pub(super) users: u32,
}

/// User of a device that is notified of the device's removal.
pub(super) trait RemovalClient: Send + Sync + 'static {
    /// Handles the removal of the device. Called a second time if the cleanup takes too long.
    /// Context: process, without locks.
    fn device_goes(self: Arc<Self>);
}

type Registered = (DeviceRef, Arc<dyn RemovalClient>);

/// Device, with its listeners and spare queues.
pub(super) struct DeviceEntry {
    pub(super) device: DeviceRef,
    pub(super) listens: KVec<(u16, ListenId)>,
    /// Queues of closed endpoints, kept for new endpoints.
    pub(super) spare: KVec<QueueSet>,
}

/// Returns kept queues for a new endpoint of the device, if any.
pub(super) fn take_queues(device: &DeviceRef) -> Option<QueueSet> {
    lock().ok()?.entry(device)?.spare.pop()
}

/// Keeps the queues of an endpoint for another endpoint, unless enough are kept or the device is
/// being removed. Context: process.
pub(super) fn keep_queues(queues: QueueSet) {
    let most = usize::try_from(params::spare_queues()).unwrap_or(0);
    let Ok(mut registry) = lock() else { return };
    let Some(spare) = registry.entry(queues.device()).map(|e| &mut e.spare) else {
        return;
    };
    let surplus = (spare.len() > most).then(|| take(spare));
    let rest = vec::push(spare, most, queues, GFP_KERNEL).err();
    drop(registry);
    // the drop of the queues waits for the device
    drop((surplus, rest));
}

pub(crate) struct Registry {
    pub(super) devices: KVec<DeviceEntry>,
    pub(super) ports: KVec<Port>,
    pub(super) clients: Option<RBTree<u64, Registered>>,
    next_key: u64,
    /// Function that starts to listen, with the handler of the module's only acceptor.
    pub(super) open: Option<fn(&DeviceRef, u16) -> Result<ListenId>>,
}

impl Registry {
    pub(super) const fn new() -> Self {
        Registry {
            devices: KVec::new(),
            ports: KVec::new(),
            clients: None,
            next_key: 0,
            open: None,
        }
    }

    pub(super) fn port(&mut self, number: u16) -> Option<&mut Port> {
        self.ports.iter_mut().find(|p| p.number == number)
    }

    /// Returns the entry of a device, unless it is being removed.
    fn entry(&mut self, device: &DeviceRef) -> Option<&mut DeviceEntry> {
        self.devices.iter_mut().find(|e| e.device == *device)
    }

    /// Returns the first device for which `f` is true.
    pub(super) fn find(&self, f: impl Fn(&DeviceRef) -> bool) -> Option<DeviceRef> {
        self.devices
            .iter()
            .map(|l| &l.device)
            .find(|d| f(d))
            .cloned()
    }

    /// Notifies `client` of the removal of the device, until [`Registry::remove_client`].
    pub(super) fn add_client(
        &mut self,
        device: &DeviceRef,
        client: Arc<dyn RemovalClient>,
    ) -> Result<u64> {
        if device.is_removing() {
            return Err(ENODEV);
        }
        let key = self.next_key;
        self.next_key = key.wrapping_add(1);
        let clients = self.clients.get_or_insert_with(RBTree::new);
        clients.try_create_and_insert(key, (device.clone(), client), GFP_KERNEL)?;
        Ok(key)
    }

    /// Reverses [`Registry::add_client`]. The caller unlocks before it drops the result.
    pub(super) fn remove_client(&mut self, key: u64) -> Option<Registered> {
        self.clients.as_mut()?.remove(&key)
    }

    /// Returns the client of a device with the lowest key from `from` on, and the client's key.
    pub(super) fn next_of(
        &mut self,
        device: &DeviceRef,
        from: u64,
    ) -> Option<(u64, Arc<dyn RemovalClient>)> {
        let mut cursor = self.clients.as_mut()?.cursor_lower_bound_mut(&from)?;
        loop {
            let (key, (d, client)) = cursor.current();
            if d == device {
                return Some((*key, client.clone()));
            }
            cursor = cursor.move_next()?;
        }
    }
}

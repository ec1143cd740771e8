// SPDX-License-Identifier: GPL-2.0-only

//! What the module as a whole knows of RDMA: the devices, the ports that are listened at on each, and
//! everything that must hear when a device goes.

use crate::sys::net::params;
use crate::sys::rdma::device::DeviceRef;
use crate::sys::rdma::endpoint::QueueSet;
use crate::sys::rdma::listen::ListenId;
use crate::sys::sync::late_mutex;
use core::mem::take;
use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::sync::Arc;

late_mutex! {
    /// The one registry. No upcall is made under its lock.
    mod registry, REGISTRY: Registry = Registry::new()
}
pub(super) use registry::{lock, start};

/// A port that is listened at, on all devices.
pub(super) struct Port {
    pub(super) number: u16,
    /// How many [`Listening`](super::Listening)s there are for it; 0 for a moment, until that has ended on
    /// all devices.
    pub(super) users: u32,
}

/// Something that uses a device and must hear when it goes.
pub(super) trait RemovalClient: Send + Sync + 'static {
    /// The device goes. Called in process context without locks, and a second time when the end
    /// takes too long.
    fn device_goes(self: Arc<Self>);
}

/// What is to hear when which device goes.
type Registered = (DeviceRef, Arc<dyn RemovalClient>);

/// A device, and where it is listened at.
pub(super) struct DeviceEntry {
    pub(super) device: DeviceRef,
    pub(super) listens: KVec<(u16, ListenId)>,
    /// Of endpoints that are gone, for those that come.
    pub(super) spare: KVec<QueueSet>,
}

/// Queues that an endpoint of the device can be made of, if any are kept.
pub(super) fn take_queues(device: &DeviceRef) -> Option<QueueSet> {
    lock().ok()?.entry(device)?.spare.pop()
}

/// Keeps the queues of an endpoint for another one, unless there are enough, or the device goes. Process context.
pub(super) fn keep_queues(device: &DeviceRef, queues: QueueSet) {
    let most = usize::try_from(params::spare_queues()).unwrap_or(0);
    let Ok(mut registry) = lock() else { return };
    let Some(spare) = registry.entry(device).map(|e| &mut e.spare) else {
        return;
    };
    let surplus = (spare.len() > most).then(|| take(spare));
    let rest = match spare.len() < most && spare.reserve(1, GFP_KERNEL).is_ok() {
        true => spare.push_within_capacity(queues).err().map(|e| e.0),
        false => Some(queues),
    };
    drop(registry);
    // waits for the device
    drop((surplus, rest));
}

/// What the module as a whole knows of RDMA.
pub(crate) struct Registry {
    pub(super) devices: KVec<DeviceEntry>,
    pub(super) ports: KVec<Port>,
    pub(super) clients: Option<RBTree<u64, Registered>>,
    next_key: u64,
    /// Begins to listen, with the handler of the module's one acceptor.
    pub(super) open: Option<fn(&DeviceRef, u16) -> Result<ListenId>>,
}

impl Registry {
    /// Knows nothing.
    const fn new() -> Self {
        Registry {
            devices: KVec::new(),
            ports: KVec::new(),
            clients: None,
            next_key: 0,
            open: None,
        }
    }

    /// The entry of a device, if it does not go.
    fn entry(&mut self, device: &DeviceRef) -> Option<&mut DeviceEntry> {
        self.devices.iter_mut().find(|e| e.device == *device)
    }

    /// The first device that `f` says yes to.
    pub(super) fn find(&self, f: impl Fn(&DeviceRef) -> bool) -> Option<DeviceRef> {
        self.devices
            .iter()
            .map(|l| &l.device)
            .find(|d| f(d))
            .cloned()
    }

    /// Has `client` hear when the device goes, until [`Registry::remove_client`].
    ///
    /// # Errors
    ///
    /// `ENODEV` if it goes already, `ENOMEM`.
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

    /// The reverse of [`Registry::add_client`]. What comes back is dropped without the lock.
    pub(super) fn remove_client(&mut self, key: u64) -> Option<Registered> {
        self.clients.as_mut()?.remove(&key)
    }

    /// The first client of a device whose key is at least `from`, and its key.
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

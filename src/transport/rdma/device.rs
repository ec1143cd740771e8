// SPDX-License-Identifier: GPL-2.0-only

//! Devices that come and go.
//!
//! The [`Registry`] is what the module as a whole knows: the devices, the ports that are listened
//! at on each, and everything that must hear when a device goes. A [`Service`] is the module being
//! in business with RDMA.

use super::accept::{Door, Port, Sweep};
use super::{Acceptor, Net, Owner, SERVICE_ID};
use crate::sys::net::address::Address;
use crate::sys::rdma::device::{Client, DeviceRef, Registration};
use crate::sys::rdma::listen::ListenId;
use crate::sys::rdma::registry;
use crate::sys::rdma::work::{ModuleRef, Worker};
use core::marker::PhantomData;
use core::mem::replace;
use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::sync::Arc;

/// Something that uses a device and must hear when it goes.
pub(super) trait Member: Send + Sync + 'static {
    /// The device goes. Called in process context without locks, and a second time when the end
    /// takes too long.
    fn device_goes(self: Arc<Self>);
}

/// What is to hear when which device goes.
type Membership = (DeviceRef, Arc<dyn Member>);

/// A device, and where it is listened at.
pub(super) struct Listed {
    pub(super) device: DeviceRef,
    pub(super) listens: KVec<(u16, ListenId)>,
}

/// What the module as a whole knows of RDMA.
pub(crate) struct Registry {
    pub(super) devices: KVec<Listed>,
    pub(super) ports: KVec<Port>,
    members: Option<RBTree<u64, Membership>>,
    next_member: u64,
    /// Begins to listen, with the handler of the module's one [`Acceptor`].
    pub(super) open: Option<fn(&DeviceRef, u16) -> Result<ListenId>>,
    pub(super) sweep: Option<Arc<Sweep>>,
    /// As long as the sweep has something to do: what it ends may call into the module.
    pub(super) sweeping: Option<ModuleRef>,
}

impl Registry {
    /// Knows nothing.
    pub(crate) const fn new() -> Self {
        Registry {
            devices: KVec::new(),
            ports: KVec::new(),
            members: None,
            next_member: 0,
            open: None,
            sweep: None,
            sweeping: None,
        }
    }

    /// The first device that `f` says yes to.
    pub(super) fn find(&self, f: impl Fn(&DeviceRef) -> bool) -> Option<DeviceRef> {
        self.devices
            .iter()
            .map(|l| &l.device)
            .find(|d| f(d))
            .cloned()
    }

    /// Has `member` hear when the device goes, until [`Registry::forget`].
    ///
    /// # Errors
    ///
    /// `ENODEV` if it goes already, `ENOMEM`.
    pub(super) fn remember(&mut self, device: &DeviceRef, member: Arc<dyn Member>) -> Result<u64> {
        if device.is_going() {
            return Err(ENODEV);
        }
        let key = self.next_member;
        self.next_member = key.wrapping_add(1);
        let members = self.members.get_or_insert_with(RBTree::new);
        members.try_create_and_insert(key, (device.clone(), member), GFP_KERNEL)?;
        Ok(key)
    }

    /// The reverse of [`Registry::remember`]. What comes back is dropped without the lock.
    pub(super) fn forget(&mut self, key: u64) -> Option<Membership> {
        self.members.as_mut()?.remove(&key)
    }

    /// The first member of a device whose key is at least `from`, and its key.
    fn next_of(&mut self, device: &DeviceRef, from: u64) -> Option<(u64, Arc<dyn Member>)> {
        let mut cursor = self.members.as_mut()?.cursor_lower_bound_mut(&from)?;
        loop {
            let (key, (d, member)) = cursor.current();
            if d == device {
                return Some((*key, member.clone()));
            }
            cursor = cursor.move_next()?;
        }
    }
}

/// How the module is told of devices.
struct Watch<O, A>(PhantomData<fn() -> (O, A)>);

impl<O: Owner, A: Acceptor<O>> Client for Watch<O, A> {
    fn added(device: &DeviceRef) -> Result {
        let mut registry = registry::lock()?;
        let registry = &mut *registry;
        // All the memory first: what listens is not to be dropped under the lock.
        let mut listens = KVec::with_capacity(registry.ports.len(), GFP_KERNEL)?;
        registry.devices.reserve(1, GFP_KERNEL)?;
        for port in registry.ports.iter() {
            // A port that cannot be listened at here does not keep the device from being used.
            match open::<O, A>(device, port.number) {
                Ok(id) => listens.push((port.number, id), GFP_KERNEL)?,
                Err(e) => pr_warn!("cannot listen at port {}: {:?}\n", port.number, e),
            }
        }
        registry.devices.push(
            Listed {
                device: device.clone(),
                listens,
            },
            GFP_KERNEL,
        )?;
        Ok(())
    }

    fn removed(device: &DeviceRef) {
        let Ok(mut registry) = registry::lock() else {
            return;
        };
        let at = registry.devices.iter().position(|l| l.device == *device);
        let listed = at.and_then(|i| registry.devices.remove(i).ok());
        drop(registry);
        // Waits for requests that are being handled; after that no more connections come in.
        drop(listed);

        tell(device);
    }

    fn hurry(device: &DeviceRef) {
        tell(device);
    }
}

/// Tells all members of a device that it goes. Nobody can be remembered for it any more, so one
/// round reaches all. They are told without the lock, and go when they like.
fn tell(device: &DeviceRef) {
    let mut from = 0;
    loop {
        let Ok(mut registry) = registry::lock() else {
            return;
        };
        let next = registry.next_of(device, from);
        drop(registry);
        let Some((key, member)) = next else { return };
        member.device_goes();
        from = key.wrapping_add(1);
    }
}

fn open<O: Owner, A: Acceptor<O>>(device: &DeviceRef, port: u16) -> Result<ListenId> {
    ListenId::new::<Door<O, A>>(device, SERVICE_ID + u64::from(port))
}

/// The module in business with RDMA. Dropping it ends that: all owners are told that their devices
/// are removed, and that is waited for.
pub(crate) struct Service {
    // In this order: the workqueue destroys what the clients' devices wait for.
    client: Option<KBox<dyn Send + Sync>>,
    _worker: Worker,
}

/// Goes into business, for the module's one kind of owner and of acceptor.
///
/// # Errors
///
/// `EBUSY` if that was done already, `ENOMEM`.
pub(crate) fn start<O: Owner, A: Acceptor<O>>() -> Result<Service> {
    registry::start();
    // What follows is undone by its drop.
    let mut service = Service {
        client: None,
        _worker: Worker::start()?,
    };
    let sweep = Sweep::new()?;
    let mut guard = registry::lock()?;
    guard.open = Some(open::<O, A>);
    guard.sweep = Some(sweep);
    drop(guard);
    let registration = Registration::<Watch<O, A>>::new()?;
    service.client = Some(KBox::new(registration, GFP_KERNEL)?);
    Ok(service)
}

impl Drop for Service {
    fn drop(&mut self) {
        // Waits for all devices to be given back.
        drop(self.client.take());
        // The registry itself is never dropped, so what it holds is, even when that is empty.
        let left = registry::lock().ok().map(|mut registry| {
            registry.open = None;
            let devices = replace(&mut registry.devices, KVec::new());
            let ports = replace(&mut registry.ports, KVec::new());
            (
                devices,
                ports,
                registry.members.take(),
                registry.sweep.take(),
            )
        });
        drop(left);
    }
}

/// Is the local address on an RDMA port, so that connections can go out from it and come in? Sleeps.
///
/// # Errors
///
/// What binding to it says, such as `ENODEV` or `EADDRNOTAVAIL`.
pub(crate) fn local_device_for(net: &Net, address: &Address) -> Result {
    net.has_rdma(address)
}

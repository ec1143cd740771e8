// SPDX-License-Identifier: GPL-2.0-only

//! Devices that come and go. A [`Service`] is the module being in business with RDMA.

use super::accept::Acceptor;
use super::listen::open;
use super::registry::{self, DeviceEntry};
use super::Upcalls;
use crate::sys::rdma::device::{Client, DeviceRef, Registration};
use crate::sys::rdma::work::Worker;
use core::marker::PhantomData;
use core::mem::replace;
use kernel::prelude::*;

/// How the module is told of devices.
struct Devices<O, A>(PhantomData<fn() -> (O, A)>);

impl<O: Upcalls, A: Acceptor<O>> Client for Devices<O, A> {
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
            DeviceEntry {
                device: device.clone(),
                listens,
                spare: KVec::new(),
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
        let entry = at.and_then(|i| registry.devices.remove(i).ok());
        drop(registry);
        // Waits for requests that are being handled; after that no more connections come in.
        drop(entry);

        tell(device);
    }

    fn hurry(device: &DeviceRef) {
        tell(device);
    }
}

/// Tells all clients of a device that it goes. No client can be added for it any more, so one
/// round reaches all. They are told without the lock, and go when they like.
fn tell(device: &DeviceRef) {
    let mut from = 0;
    loop {
        let Ok(mut registry) = registry::lock() else {
            return;
        };
        let next = registry.next_of(device, from);
        drop(registry);
        let Some((key, client)) = next else { return };
        client.device_goes();
        from = key.wrapping_add(1);
    }
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
pub(crate) fn start<O: Upcalls, A: Acceptor<O>>() -> Result<Service> {
    registry::start();
    // What follows is undone by its drop.
    let mut service = Service {
        client: None,
        _worker: Worker::start()?,
    };
    registry::lock()?.open = Some(open::<O, A>);
    let registration = Registration::<Devices<O, A>>::new()?;
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
            (devices, ports, registry.clients.take())
        });
        drop(left);
    }
}

// SPDX-License-Identifier: GPL-2.0-only

//! Handles added and removed devices. A [`Service`] registers the module with the RDMA core.

use super::accept::Acceptor;
use super::listen;
use super::registry::{self, DeviceEntry, Registry, RemovalClient};
use crate::sys::rdma::device::{Client, DeviceRef, Registration};
use crate::sys::vec;
use crate::sys::work;
use core::mem::replace;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Maximum number of devices: rxe can create any number.
const DEVICES: usize = 1 << 15;

struct Devices;

impl Client for Devices {
    fn added(device: &DeviceRef) -> Result {
        let mut registry = registry::lock()?;
        let registry = &mut *registry;
        let open = registry.open.ok_or(ENODEV)?;
        // Allocates before `open`, since a listener must not be dropped under the lock.
        let mut listens = vec::with_capacity(registry.ports.len(), GFP_KERNEL)?;
        vec::reserve(&mut registry.devices, DEVICES, GFP_KERNEL)?;
        for port in registry.ports.iter() {
            // a port at which listening fails does not prevent the use of the device
            match open(device, port.number) {
                Ok(id) => drop(listens.push_within_capacity((port.number, id))),
                Err(e) => pr_warn!("cannot listen at port {}: {:?}\n", port.number, e),
            }
        }
        let entry = DeviceEntry {
            device: device.clone(),
            listens,
            spare: KVec::new(),
        };
        let pushed = registry.devices.push_within_capacity(entry);
        pushed.map_err(|_| ENOMEM)
    }

    fn removed(device: &DeviceRef) {
        let Ok(mut registry) = registry::lock() else {
            return;
        };
        let at = registry.devices.iter().position(|l| l.device == *device);
        let entry = at.and_then(|i| registry.devices.remove(i).ok());
        drop(registry);
        // The drop waits for requests in progress. Afterwards no connection requests arrive.
        drop(entry);

        // No clients can be added from here on, so one pass without the lock reaches all clients.
        let mut from = 0;
        while let Some((key, client)) = next_client(device, from) {
            client.device_goes();
            from = key.wrapping_add(1);
        }
    }
}

fn next_client(device: &DeviceRef, from: u64) -> Option<(u64, Arc<dyn RemovalClient>)> {
    registry::lock().ok()?.next_of(device, from)
}

/// Registration of the module with the RDMA core. The drop removes all devices from their owners,
/// and waits for the removals.
pub(crate) struct Service {
    client: Option<Registration>,
}

/// Registers the module's owner type `O` with the RDMA core.
///
/// # Errors
///
/// `EBUSY`: a service exists already. `ENOMEM`.
pub(crate) fn start<O: Acceptor>() -> Result<Service> {
    registry::start();
    // The drop of `service` undoes the following steps.
    let mut service = Service { client: None };
    registry::lock()?.open = Some(listen::open::<O>);
    service.client = Some(Registration::new::<Devices>()?);
    Ok(service)
}

impl Drop for Service {
    fn drop(&mut self) {
        // Waits until all devices are released.
        drop(self.client.take());
        // The static registry is never dropped, so its collections are dropped here, even when
        // empty.
        let left = registry::lock().map(|mut registry| replace(&mut *registry, Registry::new()));
        drop(left);
        work::drain();
    }
}

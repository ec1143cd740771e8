// SPDX-License-Identifier: GPL-2.0-only

//! Listens at ports.
//!
//! A [`Listening`] passes connection requests for a port, on all present and future devices, to
//! [`Acceptor::request`].

use super::accept::{Acceptor, Request};
use super::registry::{self, Port};
use super::{tcp_port, Verdict, REQUEST_DATA, SERVICE_ID};
use crate::sys::address::Address;
use crate::sys::deferred::{Destroy, DropInWorker};
use crate::sys::errno::EADDRINUSE;
use crate::sys::rdma::cm::reason;
use crate::sys::rdma::device::DeviceRef;
use crate::sys::rdma::listen::{Incoming, ListenId, Listener};
use crate::sys::vec;
use crate::sys::work::ModuleRef;
use core::cell::Cell;
use core::marker::PhantomData;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use kernel::prelude::*;

/// Handler that passes connection requests from the connection manager to the acceptor.
struct CmHandler<O>(PhantomData<fn() -> O>);

impl<O: Acceptor> Listener for CmHandler<O> {
    fn request(incoming: &Incoming<'_>) -> Option<u32> {
        let Ok(port) = u16::try_from(incoming.service.wrapping_sub(SERVICE_ID)) else {
            return Some(reason::NO_SERVICE);
        };
        let device = registry::lock()
            .ok()
            .and_then(|r| r.find(|d| incoming.is_at(d)));
        // the device is missing if it is being removed
        let Some(device) = device else {
            return Some(reason::NO_SERVICE);
        };
        let Ok((net, ifindex)) = incoming.net(&destination(incoming.data)) else {
            return Some(reason::NO_SERVICE);
        };
        // A QP with a larger MTU than its port would lose all messages of several packets.
        let port_mtu = device.port_mtu(incoming.device_port);
        if port_mtu.is_ok_and(|most| incoming.path_mtu > most) {
            return Some(reason::PATH_MTU);
        }
        let request = Request {
            incoming,
            device,
            net,
            ifindex,
            port,
            made: Cell::new(None),
        };
        let answer = match O::request(&request) {
            // the connection manager sends `NO_RESOURCES` only if the acceptor has made no link
            Verdict::Accepted => return Some(reason::NO_RESOURCES),
            Verdict::Reject => Some(reason::CONSUMER),
            Verdict::Unknown => Some(reason::NO_SERVICE),
            Verdict::Drop => None,
        };
        request.abort();
        answer
    }
}

/// Returns the destination address in a Hello. InfiniBand GIDs do not contain the IP address, so
/// rdma_cm, too, uses the private data. For a request without a Hello, which the acceptor counts,
/// the GID alone determines the namespace.
fn destination(hello: &[u8; REQUEST_DATA]) -> Address {
    let ip = match (hello[17] >> 4, hello[60..].first_chunk::<4>()) {
        (4, Some(ip)) => IpAddr::V4(Ipv4Addr::from(*ip)),
        (6, _) => hello[48..]
            .first_chunk::<16>()
            .map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |ip| {
                IpAddr::V6(Ipv6Addr::from(*ip))
            }),
        _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    Address {
        ip,
        port: 0,
        scope: 0,
    }
}

const PORTS: usize = 1 << 16;

pub(super) fn open<O: Acceptor>(device: &DeviceRef, port: u16) -> Result<ListenId> {
    ListenId::new::<CmHandler<O>>(device, SERVICE_ID | u64::from(port), tcp_port(port))
}

/// Registration for requests to a port, on all present and future devices. May be dropped in any
/// context: a worker ends the registration, since the end waits for requests in progress, which may
/// need locks of the caller.
pub(crate) type Listening = DropInWorker<ListenedPort>;

pub(crate) struct ListenedPort {
    number: u16,
    /// Keeps the module loaded, since the end of the listeners may call into the module.
    _module: ModuleRef,
}

impl ListenedPort {
    /// Counts a user of the port.
    fn new(number: u16) -> Result<Self> {
        let mut registry = registry::lock()?;
        match registry.port(number) {
            Some(p) => p.users = p.users.checked_add(1).ok_or(ENOMEM)?,
            None => {
                let port = Port { number, users: 1 };
                vec::push(&mut registry.ports, PORTS, port, GFP_KERNEL).map_err(|_| ENOMEM)?;
            }
        }
        Ok(ListenedPort {
            number,
            _module: ModuleRef::new(),
        })
    }
}

impl Destroy for ListenedPort {
    /// Stops listening when the last user of the port ends.
    fn destroy(self) -> Result<(), (Self, u32)> {
        if let Some(port) = registry::lock()
            .ok()
            .as_mut()
            .and_then(|r| r.port(self.number))
        {
            port.users = port.users.saturating_sub(1);
        }
        while let Ok(mut guard) = registry::lock() {
            let registry = &mut *guard;
            let unwanted = |p: &Port| p.number == self.number && p.users == 0;
            let Some(at) = registry.ports.iter().position(unwanted) else {
                break;
            };
            let id = registry.devices.iter_mut().find_map(|d| {
                let i = d.listens.iter().position(|(n, _)| *n == self.number)?;
                d.listens.remove(i).ok()
            });
            if id.is_none() {
                let _ = registry.ports.remove(at);
            }
            drop(guard);
            // The drop waits for requests in progress, which take the registry's lock.
            drop(id);
        }
        Ok(())
    }
}

/// Listens at a port, at which any number of callers may listen.
///
/// # Errors
///
/// `ENOMEM`. `EADDRINUSE`: another module listens at the port on some device.
pub(crate) fn listen(port: u16) -> Result<Listening> {
    let listening = DropInWorker::new(|| ListenedPort::new(port))?;
    let mut registry = registry::lock()?;
    let open = registry.open.ok_or(ENODEV)?;
    for entry in registry.devices.iter_mut() {
        if entry.listens.iter().any(|(number, _)| *number == port) {
            continue;
        }
        // Allocates before `open`, since a listener must not be dropped under the lock.
        vec::reserve(&mut entry.listens, PORTS, GFP_KERNEL)
            .and_then(|()| open(&entry.device, port))
            .map(|id| drop(entry.listens.push_within_capacity((port, id))))
            .map_err(|e| if e == EINVAL { EADDRINUSE.into() } else { e })?;
    }
    drop(registry);
    Ok(listening)
}

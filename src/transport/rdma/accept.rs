// SPDX-License-Identifier: GPL-2.0-only

//! Connections that are asked for by others.
//!
//! A [`Listening`] is somebody's wish that requests for a port reach the [`Acceptor`]. A
//! [`Request`] is such a request, while the acceptor looks at it.

use super::link::{Inner, Phase};
use super::{
    Acceptor, Channel, Config, Link, Net, Owner, Verdict, REPLY_DATA, REQUEST_DATA, SERVICE_ID,
};
use crate::sys::errno::{EADDRINUSE, ECONNABORTED};
use crate::sys::net::address::Address;
use crate::sys::rdma::cm::{reason, ReplyParameters};
use crate::sys::rdma::device::DeviceRef;
use crate::sys::rdma::listen::{Answer, Incoming, Listener};
use crate::sys::rdma::work::ModuleRef;
use crate::sys::rdma::{registry, work};
use crate::transport;
use core::cell::Cell;
use core::marker::PhantomData;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};

/// A request for a connection.
pub(crate) struct Request<'a, O: Owner> {
    incoming: &'a Incoming<'a>,
    device: DeviceRef,
    net: ARef<Net>,
    ifindex: u32,
    port: u16,
    made: Cell<Option<Arc<Inner<O>>>>,
}

impl<'a, O: Owner> Request<'a, O> {
    /// The network namespace that it is for.
    pub(crate) fn net(&self) -> &Net {
        &self.net
    }

    /// The port that it is for.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The interface that it came in by.
    pub(crate) fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// The private data of the REQ.
    pub(crate) fn hello(&self) -> &'a [u8; REQUEST_DATA] {
        self.incoming.data()
    }

    /// Whether the link is InfiniBand (else it is Ethernet).
    pub(crate) fn is_infiniband(&self) -> bool {
        self.device.port_is_infiniband(self.incoming.device_port())
    }

    /// Would what we send from `local` to `remote` leave by the interface that this came in by?
    pub(crate) fn plausible(&self, local: &Address, remote: &Address) -> bool {
        self.net.reverse_route(self.ifindex, local, remote)
    }

    /// Makes both halves of the connection, once. Receives can be posted. Then comes
    /// [`Link::reply`].
    ///
    /// # Errors
    ///
    /// `ENODEV` when the device goes, `ENOMEM`, `EBUSY` the second time.
    pub(crate) fn create(
        &self,
        config: &Config,
        owner: ARef<O>,
    ) -> Result<(Channel, Arc<Link<O>>)> {
        let (reads_in, reads_out) = (self.incoming.reads_in(), self.incoming.reads_out());
        let (channel, link) = Link::make(&self.device, config, owner, reads_in, reads_out)?;
        let inner = &link.inner;
        let id = self.incoming.adopt(&self.device, inner.clone())?;
        inner.undecided();
        self.made.set(Some(inner.clone()));
        let result = inner.qp().and_then(|qp| qp.to_init_for(&id));
        *inner.id.lock() = Some(id);
        result.map(|()| (channel, link))
    }

    /// Takes back what was made, so that the request can be answered otherwise, and tells the owner
    /// that it is over. Not possible once a REP is out; then the link is what there is, and it ends.
    fn undo(&self) {
        let Some(inner) = self.made.take() else {
            return;
        };
        if inner.advance(Phase::New, Phase::Closed) {
            if let Some(id) = inner.id.lock().take() {
                self.incoming.give_back(id);
            }
            // Nothing else will: of this connection the connection manager knows nothing.
            inner.tell(|o| o.refused(inner.link_id(), ECONNABORTED.into()));
        } else {
            inner.abort();
        }
        inner.decided();
    }
}

impl<O: Owner> Drop for Request<'_, O> {
    fn drop(&mut self) {
        if let Some(inner) = self.made.take() {
            inner.decided();
        }
    }
}

impl<O: Owner> Link<O> {
    /// Accepts the connection: the QP can receive and send, and REP goes out. What comes of it is
    /// told by [`Owner::established`] or [`Owner::refused`]. Process context.
    ///
    /// # Errors
    ///
    /// `EINVAL` when it is not to be answered (any more), or what the device or sending says.
    pub(crate) fn reply(&self, data: &[u8; REPLY_DATA]) -> Result {
        let inner = &self.inner;
        let qp = inner.qp()?;
        let id = inner.id.lock();
        let id = id.as_ref().ok_or(ENODEV)?;
        // The peer's messages may come as soon as it has the REP, so the QP is ready before. The
        // connection manager learns our PSN only then.
        let tuning = inner.tuning(inner.reads_in, inner.reads_out, Some(inner.psn));
        qp.to_ready_to_receive(id, &tuning)?;
        qp.to_ready_to_send(id, &tuning)?;
        if !inner.advance(Phase::New, Phase::Replied) {
            return Err(EINVAL);
        }
        let reply = ReplyParameters {
            qp: qp.number(),
            psn: inner.psn,
            data,
            reads_in: inner.reads_in,
            reads_out: inner.reads_out,
            rnr_retry: inner.config.rnr_retry,
        };
        id.reply(&reply).inspect_err(|_| {
            inner.advance(Phase::Replied, Phase::New);
        })
    }
}

/// How requests get from the connection manager to the acceptor.
pub(super) struct Door<O, A>(PhantomData<fn() -> (O, A)>);

impl<O: Owner, A: Acceptor<O>> Listener for Door<O, A> {
    fn request(incoming: &Incoming<'_>) -> Answer {
        let Ok(port) = u16::try_from(incoming.service().wrapping_sub(SERVICE_ID)) else {
            return Answer::Reject(reason::NO_SERVICE);
        };
        let device = registry::lock()
            .ok()
            .and_then(|r| r.find(|d| incoming.is_at(d)));
        // None: it is being removed.
        let Some(device) = device else {
            return Answer::Reject(reason::NO_SERVICE);
        };
        let Ok((net, ifindex)) = incoming.net(&destination(incoming.data())) else {
            return Answer::Reject(reason::NO_SERVICE);
        };
        let request = Request {
            incoming,
            device,
            net,
            ifindex,
            port,
            made: Cell::new(None),
        };
        let answer = match A::request(&transport::Request::Rdma(&request)) {
            // It matters only if no link was made.
            Verdict::Accepted => return Answer::Reject(reason::NO_RESOURCES),
            Verdict::Reject => Answer::Reject(reason::CONSUMER),
            Verdict::Unknown => Answer::Reject(reason::NO_SERVICE),
            Verdict::Drop => Answer::Silence,
        };
        request.undo();
        answer
    }
}

/// The address that a Hello is for. InfiniBand's GIDs do not tell the IP address, and rdma_cm finds
/// it in the private data, too. What is no Hello gets as far as the acceptor, who counts it, where
/// the GID alone tells the namespace.
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

/// A port that is listened at, on all devices.
pub(super) struct Port {
    pub(super) number: u16,
    /// How many [`Listening`]s there are for it; 0 for a moment, until [`Sweep`] comes.
    users: u32,
}

/// Requests for a port reach the acceptor. Dropped in process context.
pub(crate) struct Listening {
    port: u16,
}

/// Listens at a port, on all devices now and later. Any number may listen at the same port.
///
/// # Errors
///
/// `ENOMEM`; `EADDRINUSE` if another module has the port on some device.
pub(crate) fn listen(port: u16) -> Result<Listening> {
    let mut guard = registry::lock()?;
    let registry = &mut *guard;
    let Some(open) = registry.open else {
        return Err(ENODEV);
    };
    match registry.ports.iter_mut().find(|p| p.number == port) {
        Some(p) => p.users = p.users.checked_add(1).ok_or(ENOMEM)?,
        None => registry.ports.push(
            Port {
                number: port,
                users: 1,
            },
            GFP_KERNEL,
        )?,
    }
    let listening = Listening { port };
    for listed in registry.devices.iter_mut() {
        if listed.listens.iter().any(|(number, _)| *number == port) {
            continue;
        }
        // Memory first: what listens is not to be dropped under the lock.
        let opened = listed
            .listens
            .reserve(1, GFP_KERNEL)
            .map_err(Error::from)
            .and_then(|()| open(&listed.device, port))
            .and_then(|id| Ok(listed.listens.push((port, id), GFP_KERNEL)?));
        if let Err(e) = opened {
            drop(guard);
            // Ends what has begun.
            drop(listening);
            return Err(if e == EINVAL { EADDRINUSE.into() } else { e });
        }
    }
    Ok(listening)
}

impl Drop for Listening {
    fn drop(&mut self) {
        let Ok(mut registry) = registry::lock() else {
            return;
        };
        let Some(p) = registry.ports.iter_mut().find(|p| p.number == self.port) else {
            return;
        };
        p.users = p.users.saturating_sub(1);
        let last = p.users == 0;
        let sweep = registry.sweep.clone().filter(|_| last);
        if last {
            registry.sweeping.get_or_insert_with(ModuleRef::new);
        }
        drop(registry);
        if let Some(sweep) = sweep {
            work::defer::<Arc<Sweep>, 0>(sweep);
        }
    }
}

/// Ends listening at ports that nobody wants any more. Not done by the last `Listening` itself: the
/// end of listening waits for requests that are being handled, and these may wait for locks that
/// the dropper of a `Listening` holds.
#[pin_data]
pub(super) struct Sweep {
    #[pin]
    work: Work<Sweep>,
}

impl_has_work! {
    impl HasWork<Sweep> for Sweep { self.work }
}

impl Sweep {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Sweep { work <- new_work!("ib_sdp_sweep") }),
            GFP_KERNEL,
        )
    }
}

impl WorkItem for Sweep {
    type Pointer = Arc<Self>;

    fn run(_this: Arc<Self>) {
        loop {
            let Ok(mut guard) = registry::lock() else {
                return;
            };
            let registry = &mut *guard;
            let Some(at) = registry.ports.iter().position(|p| p.users == 0) else {
                let over = registry.sweeping.take();
                drop(guard);
                drop(over);
                return;
            };
            let Some(number) = registry.ports.get(at).map(|p| p.number) else {
                return;
            };
            let id = registry.devices.iter_mut().find_map(|listed| {
                let i = listed.listens.iter().position(|(n, _)| *n == number)?;
                listed.listens.remove(i).ok()
            });
            if id.is_none() {
                let _ = registry.ports.remove(at);
            }
            drop(guard);
            // Waits for requests that are being handled, which take the lock.
            drop(id);
        }
    }
}

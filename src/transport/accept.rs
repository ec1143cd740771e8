// SPDX-License-Identifier: GPL-2.0-only

//! Connection requests of peers (passive side).
//!
//! A [`Request`] is a connection request on which [`Acceptor::request`] decides.

use super::cm_link::Inner;
use super::upcalls::Phase;
use super::{CmLink, Config, Endpoint, Net, Upcalls, Verdict, REPLY_DATA};
use crate::sys::address::Address;
use crate::sys::errno::ECONNABORTED;
use crate::sys::rdma::device::DeviceRef;
use crate::sys::rdma::listen::Incoming;
use core::cell::Cell;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

/// Owner of connections that accepts requests of peers.
pub(crate) trait Acceptor: Upcalls {
    /// Decides on a request. Context: process, without locks, may sleep. All connection setup of
    /// the host waits for the call.
    fn request(request: &Request<'_, Self>) -> Verdict;
}

/// Connection request of a peer.
pub(crate) struct Request<'a, O: Upcalls> {
    /// Received REQ, with its private data.
    pub(crate) incoming: &'a Incoming<'a>,
    pub(super) device: DeviceRef,
    pub(crate) net: ARef<Net>,
    pub(crate) ifindex: u32,
    pub(crate) port: u16,
    pub(super) made: Cell<Option<Arc<Inner<O>>>>,
}

impl<O: Upcalls> Request<'_, O> {
    /// Returns true for an InfiniBand link, false for Ethernet.
    pub(crate) fn is_infiniband(&self) -> bool {
        self.device.port_is_infiniband(self.incoming.device_port)
    }

    /// Returns true if the route from `local` to `remote` uses the interface at which the request
    /// arrived, and if `remote` is the peer's proven address, when one is known.
    pub(crate) fn plausible(&self, local: &Address, remote: &Address) -> bool {
        self.incoming.peer.is_none_or(|ip| ip == remote.ip)
            && self.net.reverse_route(self.ifindex, local, remote)
    }

    /// Creates both halves of the connection, at most once. The caller can then post receives, and
    /// calls [`CmLink::reply`].
    ///
    /// # Errors
    ///
    /// `ENODEV`: the device is being removed. `ENOMEM`. `EBUSY`: the request has a link already.
    pub(crate) fn create(
        &self,
        config: &Config,
        owner: ARef<O>,
    ) -> Result<(Endpoint, Arc<CmLink<O>>)> {
        let (reads_in, reads_out) = (self.incoming.reads_in, self.incoming.reads_out);
        let (endpoint, link) = CmLink::make(&self.device, config, owner, reads_in, reads_out)?;
        let inner = &link.inner;
        let id = self.incoming.adopt(&self.device, inner.clone())?;
        inner.undecided();
        self.made.set(Some(inner.clone()));
        let result = inner.qp().and_then(|qp| qp.to_init_for(&id));
        *inner.id.lock() = Some(id);
        result.map(|()| (endpoint, link))
    }

    /// Destroys both halves, so that the request can get another reply, and notifies the owner.
    /// Once a REP is sent, the link stays and ends like any other link.
    pub(super) fn abort(&self) {
        let Some(inner) = self.made.take() else {
            return;
        };
        if inner.advance(Phase::New, Phase::Closed) {
            let mut id = inner.id.lock();
            *id = id.take().and_then(|id| self.incoming.give_back(id).err());
            drop(id);
            // The connection manager no longer tracks this connection, so it does not flush the QP.
            inner.refused(ECONNABORTED.into());
        } else {
            inner.abort();
        }
        inner.decided();
    }
}

impl<O: Upcalls> Drop for Request<'_, O> {
    fn drop(&mut self) {
        if let Some(inner) = self.made.take() {
            inner.decided();
        }
    }
}

impl<O: Upcalls> CmLink<O> {
    /// Accepts the connection: makes the QP ready and sends the REP. [`Upcalls::established`] or
    /// [`Upcalls::refused`] reports the result. Context: process.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the request needs no reply. Other errors: of the device, or of sending the REP.
    pub(crate) fn reply(&self, data: &[u8; REPLY_DATA]) -> Result {
        let inner = &self.inner;
        let (qp, own) = (inner.qp()?, inner.own()?);
        let id = inner.id.lock();
        let id = id.as_ref().ok_or(ENODEV)?;
        // The peer may send as soon as it has received the REP, so the QP must be ready before the
        // REP is sent. The connection manager sets the local PSN only when it sends the REP.
        qp.to_ready(id, inner.reads_in, inner.reads_out, Some(inner.psn))?;
        if !inner.advance(Phase::New, Phase::Replied) {
            return Err(EINVAL);
        }
        id.reply(&own, data).inspect_err(|_| {
            inner.advance(Phase::Replied, Phase::New);
        })
    }
}

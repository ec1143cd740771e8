// SPDX-License-Identifier: GPL-2.0-only

//! Connections that are asked for by others.
//!
//! A [`Request`] is one of them, while the [`Acceptor`] looks at it.

use super::super::phase::{HasPhase, Phase};
use super::cm_link::Inner;
use super::{CmLink, Config, Endpoint, Net, Upcalls, Verdict, REPLY_DATA, REQUEST_DATA};
use crate::sys::errno::ECONNABORTED;
use crate::sys::net::address::Address;
use crate::sys::rdma::cm::ReplyParameters;
use crate::sys::rdma::device::DeviceRef;
use crate::sys::rdma::listen::Incoming;
use core::cell::Cell;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

/// Who decides on requests that come by a device.
pub(crate) trait Acceptor<O: Upcalls>: 'static {
    /// A connection is asked for. Called in process context without locks; may sleep, but all
    /// connections of the host wait meanwhile.
    fn request(request: &Request<'_, O>) -> Verdict;
}

/// A request for a connection.
pub(crate) struct Request<'a, O: Upcalls> {
    incoming: &'a Incoming<'a>,
    device: DeviceRef,
    net: ARef<Net>,
    ifindex: u32,
    port: u16,
    made: Cell<Option<Arc<Inner<O>>>>,
}

impl<'a, O: Upcalls> Request<'a, O> {
    pub(super) fn new(
        incoming: &'a Incoming<'a>,
        device: DeviceRef,
        net: ARef<Net>,
        ifindex: u32,
        port: u16,
    ) -> Self {
        Request {
            incoming,
            device,
            net,
            ifindex,
            port,
            made: Cell::new(None),
        }
    }

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
    /// [`CmLink::reply`].
    ///
    /// # Errors
    ///
    /// `ENODEV` when the device goes, `ENOMEM`, `EBUSY` the second time.
    pub(crate) fn create(
        &self,
        config: &Config,
        owner: ARef<O>,
    ) -> Result<(Endpoint, Arc<CmLink<O>>)> {
        let (reads_in, reads_out) = (self.incoming.reads_in(), self.incoming.reads_out());
        let (endpoint, link) = CmLink::make(&self.device, config, owner, reads_in, reads_out)?;
        let inner = &link.inner;
        let id = self.incoming.adopt(&self.device, inner.clone())?;
        inner.undecided();
        self.made.set(Some(inner.clone()));
        let result = inner.qp().and_then(|qp| qp.to_init_for(&id));
        *inner.id.lock() = Some(id);
        result.map(|()| (endpoint, link))
    }

    /// Takes back what was made, so that the request can be answered otherwise, and tells the owner
    /// that it is over. Not possible once a REP is out; then the link is what there is, and it ends.
    pub(super) fn undo(&self) {
        let Some(inner) = self.made.take() else {
            return;
        };
        if inner.advance(Phase::New, Phase::Closed) {
            let mut id = inner.id.lock();
            *id = id.take().and_then(|id| self.incoming.give_back(id).err());
            drop(id);
            // Nothing else will: of this connection the connection manager knows nothing.
            inner.tell(|o, id| o.refused(id, ECONNABORTED.into()));
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
    /// Accepts the connection: the QP can receive and send, and REP goes out. What comes of it is
    /// told by [`Upcalls::established`] or [`Upcalls::refused`]. Process context.
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

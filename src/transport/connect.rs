// SPDX-License-Identifier: GPL-2.0-only

//! Connection requests: REQ and its replies (active side).

use super::cm_link::Inner;
use super::phase::Phase;
use super::{CmLink, Config, Endpoint, Upcalls, REPLY_DATA, REQUEST_DATA, SERVICE_ID};
use crate::sys::rdma::cm::{reason, CmId, OwnedCmId, RequestParameters};
use crate::sys::rdma::device::DeviceRef;
use crate::sys::rdma::route::Route;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

impl<O: Upcalls> CmLink<O> {
    /// Makes both halves of a connection before its request is sent.
    pub(super) fn active(
        device: &DeviceRef,
        config: &Config,
        owner: ARef<O>,
        port: u32,
        pkey_index: u16,
    ) -> Result<(Endpoint, Arc<CmLink<O>>)> {
        let (endpoint, link) = CmLink::make(device, config, owner, u8::MAX, u8::MAX)?;
        let inner = &link.inner;
        inner.qp()?.to_init(port, pkey_index)?;
        let id = OwnedCmId::new(device, inner.clone())?;
        *inner.id.lock() = Some(id);
        Ok((endpoint, link))
    }

    pub(super) fn request(
        &self,
        route: &Route,
        port: u16,
        priority: Option<i32>,
        hello: &[u8; REQUEST_DATA],
    ) -> Result {
        let inner = &self.inner;
        let parameters = RequestParameters {
            service: SERVICE_ID | u64::from(port),
            qp: inner.qp()?.number(),
            psn: inner.psn,
            data: hello,
            reads_in: inner.reads_in,
            reads_out: inner.reads_out,
            retry_count: inner.config.retry_count,
            rnr_retry: inner.config.rnr_retry,
            response_timeout: inner.config.response_timeout,
            cm_retries: inner.config.cm_retries,
            mtu_steps: inner.config.mtu_steps,
            priority,
        };
        let mut id = inner.id.lock();
        let id = Option::as_mut(&mut *id).ok_or(ENODEV)?;
        // The reply may arrive before the call returns.
        if !inner.advance(Phase::New, Phase::Requested) {
            return Err(EINVAL);
        }
        let waits = id.request(route, &parameters).inspect_err(|_| {
            inner.advance(Phase::Requested, Phase::New);
        })?;
        if waits {
            inner.start_connect();
        }
        Ok(())
    }
}

impl<O: Upcalls> Inner<O> {
    pub(super) fn replied(
        self: &Arc<Self>,
        connection: &CmId,
        data: &[u8; REPLY_DATA],
        reads_out: u8,
        reads_in: u8,
    ) {
        // Without an owner, the id will be destroyed, which rejects the peer.
        let Some(owner) = self.owner() else { return };
        if self.phase() != Phase::Requested {
            return;
        }
        let replied = owner.replied(self.link_id(), data);
        let accepted = replied.and_then(|()| {
            let tuning = self.tuning(reads_in, reads_out, None);
            let qp = self.qp()?;
            qp.to_ready_to_receive(connection, &tuning)?;
            qp.to_ready_to_send(connection, &tuning)?;
            connection.ready()
        });
        match accepted {
            Ok(()) => {
                if self.advance(Phase::Requested, Phase::Established) {
                    owner.established(self.link_id());
                }
            }
            Err(e) => {
                self.close();
                let _ = connection.reject(reason::CONSUMER);
                if replied.is_ok() {
                    owner.refused(self.link_id(), e);
                }
            }
        }
    }
}
